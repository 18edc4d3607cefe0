#!/usr/bin/env python3
"""Tables fit the terminal: in one of 80 columns no table is wider, and no column is lost; a pipe gets them whole.

Usage: terminal_width_test.py WEFT
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

PLAN = ["plan", "--model", "gpt2", "--cluster", "dgx-a100:1", "--pp", "2", "--global-batch", "8", "--policy", "serial,ddp"]


def in_terminal(command, columns):
    """What the command prints to a terminal of so many columns."""
    terminal, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen(command, stdout=program, stderr=subprocess.DEVNULL) as process:
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


def main():
    command = [sys.argv[1], *PLAN]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    narrow, wide = in_terminal(command, 80), in_terminal(command, 400)
    assert max(rules(piped)) > 100, rules(piped)
    assert wide == piped
    assert max(rules(narrow)) <= 80, rules(narrow)
    assert words_of_headers(narrow) == words_of_headers(piped)
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
