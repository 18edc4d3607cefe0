#!/usr/bin/env python3
"""Everything fits the terminal: no line of any command is wider, and no column of a table is lost, because what does not fit
continues below; a pipe gets tables whole. Below them a terminal shows steps in block characters, and colours, unless NO_COLOR is set or the terminal is a dumb one; a pipe does not.

Usage: terminal_width_test.py WEFT
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
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


def commands(folder):
    """Commands that print tables, with what they read under the folder."""
    plan = f"{folder}/plan/plan.json"
    shape = ["--layers", "2", "--hidden", "64", "--heads", "4", "--seq", "32", "--micro-batch", "2"]
    return {
        "plan": PLAN,
        "explain": [*PLAN, "--explain"],
        "explain-full": [*PLAN, "--explain-full"],
        "sweep": [*PLAN[:-4], "--global-batch", "8", "--policy", "ddp", "--sweep", "tp=1,2,4;zero=0,1"],
        "simulate": ["simulate", plan],
        "verify": ["verify", plan],
        "analyze": ["analyze", f"{folder}/plan/trace.json"],
        "chakra": ["plan", "--chakra", f"{folder}/traces"],
        "report": ["report", f"{folder}/plan", "-o", f"{folder}/page.html"],
        "cluster": ["cluster", "show", "dgx1-v100"],
        "collectives": ["collective", "list", "--ranks", "4"],
        "bench": ["collective", "bench", "--cluster", "local:2,nic=1Gb/s", "--collective", "all_reduce", "--size", "64KiB"],
        "run": ["run", *shape, "--cluster", "local:2,nic=200Mb/s", "--policy", "serial,ddp", "--steps", "3"],
    }


def check_all_commands(weft):
    """A word may be wider than the terminal, and lines to copy are left to it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([weft, *PLAN, "--out", f"{folder}/plan"], stdout=subprocess.DEVNULL, check=True)
        subprocess.run([weft, "export", f"{folder}/plan/plan.json", "--to", "chakra", "-o", f"{folder}/traces"],
                       capture_output=True, check=True)
        for name, arguments in commands(folder).items():
            if name == "run" and subprocess.run([weft, *arguments], capture_output=True, check=False).returncode != 0:
                print("run: skipped, there are no kernels here")
                continue
            for columns in (80, 100, 200):
                text = in_terminal([weft, *arguments], columns, NO_COLOR="1")
                assert "\x1b" not in text, name
                assert text.strip(), name
                wide = [line for line in text.splitlines() if len(line) > columns and not line.strip().startswith("weft ")
                        and len(line.split()) > 1 and len(line.rsplit(maxsplit=1)[0]) > columns]
                assert not wide, f"{name} at {columns} columns: {wide[0]}"
                assert all(rule <= columns for rule in rules(text)), (name, columns, rules(text))


def main():
    command = [sys.argv[1], *PLAN]
    check_all_commands(sys.argv[1])
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
    print("14 passed, 0 failed")


if __name__ == "__main__":
    main()
