#!/usr/bin/env python3
"""Tables fit the terminal: in one of 80 columns no table is wider, and no column is lost; a pipe gets them whole. Below them a
terminal shows steps in block characters, and colours, unless NO_COLOR is set or the terminal is a dumb one; a pipe does not.

Usage: terminal_width_test.py WEFT
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

PLAN = ["plan", "--model", "gpt2", "--cluster", "dgx-a100:1", "--pp", "2", "--global-batch", "8", "--policy", "serial,ddp"]


ESCAPE = re.compile("\x1b\\[[0-9]*m")


def in_terminal(command, columns, **variables):
    """What the command prints to a terminal of so many columns, with these variables and no other NO_COLOR or TERM."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    terminal, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen(command, stdout=program, stderr=subprocess.DEVNULL, env={**environment, **variables}) as process:
        os.close(program)
        text = b""
        try:
            while chunk := os.read(terminal, 65536):
                text += chunk
        except OSError:  # the end of a terminal on Linux
            pass
    os.close(terminal)
    assert process.returncode == 0, text
    return text.decode().replace("\r\n", "\n")


def rules(text):
    return [len(line) for line in text.splitlines() if line and not line.strip("-")]


def words_of_headers(text):
    lines = text.splitlines()
    return {word for above, line in zip(lines, lines[1:]) if line and not line.strip("-") for word in above.split()}


def check_picture(text, columns):
    """A line for each of the two stages of a policy; the longest step is as wide as the terminal, at most 160 columns."""
    picture = text[text.rindex("\nserial: "):]
    stages = [line for line in picture.splitlines() if line.startswith("stage ")]
    assert len(stages) in (2, 4), picture  # of the first policy and of the best, or of one that is both
    assert max(len(line) for line in stages) == min(columns, 160), [len(line) for line in stages]
    assert "waits for communication" in picture


def main():
    command = [sys.argv[1], *PLAN]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    narrow, wide = in_terminal(command, 80, NO_COLOR="1"), in_terminal(command, 400, NO_COLOR="1")
    assert max(rules(piped)) > 100, rules(piped)
    assert wide.startswith(piped) and "\x1b" not in wide
    check_picture(wide, 400)
    check_picture(narrow, 80)
    coloured = in_terminal(command, 400, TERM="xterm", NO_COLOR="")
    assert "\x1b" in coloured and ESCAPE.sub("", coloured) == wide
    assert in_terminal(command, 400, TERM="dumb") == wide
    assert max(rules(narrow)) <= 80, rules(narrow)
    assert words_of_headers(narrow) == words_of_headers(piped)
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
