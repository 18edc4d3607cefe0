#!/usr/bin/env python3
"""Compares the answers of two builds of weft, number by number and to the last digit.

    tools/compare_builds.py OLD_WEFT NEW_WEFT [--only TEXT] [--jobs N] [--list] [--keep FOLDER] [--allow PATTERN ...]

Both programs get the commands of tools/build_cases.py, each case in a folder of its own. Compared are what they print,
their exit codes and the files that they write; of real training the losses, what was predicted, and the bytes of the
recorded weights and gradients. What may differ is listed below and nowhere else: RENAMED_KEYS, RENAMED_WORDS, ADDED_WORDS,
IGNORED_KEYS, IGNORED_FILES, ADDED_FILES and EXPECTED_CHANGES. `--allow` takes differences that may be too, as they are
printed (regular expressions). A program in a build folder opens the kernels that were built last at that folder's path; where
both programs were built at one path, OLD_WEFT is one that was installed (`make install PREFIX=...`).

Exits 0 where all answers agree, 1 where one differs (with the command, the place and both values), 2 where a program is
missing.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
from build_cases import all_cases, write_inputs  # noqa: E402

# Keys of JSON that have another name in the new build: old name -> new name.
RENAMED_KEYS = {}
# Words of printed text that have another name in the new build: (pattern in the old text, replacement).
RENAMED_WORDS = []
# Words of printed text that only the new build has.
ADDED_WORDS = [r" \S*\bstep\.svg\b"]
# Values that depend on the clock or state the program's version.
IGNORED_KEYS = {"version", "seconds"}
# Text that does: planning takes another time every time.
CLOCK = re.compile(r"\bin \d+(\.\d+)? (ns|us|ms|s|min)\b")
# A plan file has a format of its own (docs/plan-format.md) with its own version: what it means is compared by the commands
# that read it, `verify`, `simulate` and `run`.
IGNORED_FILES = re.compile(r"(^|/)plan(-[\w-]+)?\.json$")
# Files that only the new build writes: the picture of a step.
ADDED_FILES = re.compile(r"(^|/)step\.svg$")


class Change(NamedTuple):
    cases: str  # a regular expression of names
    place: str  # of what is printed of the difference up to both values
    is_expected: Callable  # of the old and the new value


def is_less(old, new):
    return float(new) < float(old)


EXPECTED_CHANGES = [
    # Model chunks that are woven into each other: what a forward leaves is freed at its last reader, not with its block.
    Change("vpp|interleaved|all-axes|moe-overlap|schedules", r"memory.*(bytes|pct|activations|scratch)$", is_less),
]
# What training computes, as opposed to how long it took.
TRAINING_KEYS = {"loss", "losses", "learning_rates", "validation", "predicted_step_s", "bound_s", "bound_explanation",
                 "memory", "memory_peak_bytes", "collectives", "fits", "model", "layout", "cluster", "failed"}
DIFFERENCES_SHOWN = 8
TIMEOUT = 300


class Number(str):
    """A number of a JSON document as it is written there: 1.0 and 1.00 are two different ones."""


def read_json(text):
    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=Number)


def value_differences(old, new, path=""):
    """Where two JSON values differ: 'path: old, new'."""
    if isinstance(old, dict) and isinstance(new, dict):
        renamed = {RENAMED_KEYS.get(key, key): value for key, value in old.items()}
        for key in sorted((renamed.keys() | new.keys()) - IGNORED_KEYS):
            place = f"{path}.{key}" if path else key
            if key not in new:
                yield f"{place}: only the old build has it"
            elif key not in renamed:
                yield f"{place}: only the new build has it"
            else:
                yield from value_differences(renamed[key], new[key], place)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{path}: {len(old)} entries, {len(new)} entries"
        for index, (a, b) in enumerate(zip(old, new)):
            yield from value_differences(a, b, f"{path}[{index}]")
    elif isinstance(old, str) and isinstance(new, str) and not isinstance(old, Number):
        if normal_text(old, is_old=True) != normal_text(new):
            yield f"{path}: {old!r}, {new!r}"
    elif type(old) is not type(new) or old != new:
        yield f"{path}: {old}, {new}"


def normal_text(text, is_old=False):
    for pattern, replacement in RENAMED_WORDS if is_old else [(added, "") for added in ADDED_WORDS]:
        text = re.sub(pattern, replacement, text)
    return CLOCK.sub("in TIME", text)


def is_expected(case, line):
    """Whether a line 'place: old, new' of a case is among EXPECTED_CHANGES."""
    place, _, values = line.rpartition(": ")
    old, _, new = values.partition(", ")
    try:
        return any(re.search(change.cases, case.name) and re.search(change.place, place) and change.is_expected(old, new)
                   for change in EXPECTED_CHANGES)
    except ValueError:  # no numbers
        return False


def text_differences(old, new):
    lines = difflib.unified_diff(normal_text(old, is_old=True).splitlines(), normal_text(new).splitlines(), lineterm="", n=0)
    for line in lines:
        if not line.startswith(("---", "+++", "@@")):
            yield ("old: " if line[0] == "-" else "new: ") + line[1:]


def training_part(value):
    """The policies of a run with what training computed, without what was measured."""
    if not isinstance(value, dict):
        return value
    kept = {key: part for key, part in value.items() if key in TRAINING_KEYS}
    for key in ("policies", "lengths"):
        if isinstance(value.get(key), dict):
            kept[key] = {name: training_part(part) for name, part in value[key].items()}
        elif isinstance(value.get(key), list):
            kept[key] = [training_part(part) for part in value[key]]
    return kept


def as_json(text):
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return read_json(text)
    except ValueError:
        return None


def differences(old, new, is_training=False):
    """Of two texts, as JSON where both are."""
    if old == new:
        return []
    values = as_json(old), as_json(new)
    if None in values:
        return list(text_differences(old, new))
    if is_training:
        values = map(training_part, values)
    return list(value_differences(*values))


class Answer:
    """What one build says to the commands of a case: texts by name, and its files in a folder."""

    def __init__(self, weft, case, folder):
        self.folder, self.texts, self.seconds = folder, {}, 0.0
        write_inputs(folder)
        inputs = self.files()
        for index, command in enumerate(case.commands):
            self.run(weft, command, f"command {index + 1}", case.is_training)
        self.written = self.files() - inputs

    def files(self):
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def run(self, weft, command, name, is_training):
        begin = time.monotonic()
        try:
            done = subprocess.run([weft, *command], cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT,
                                  check=False, stdin=subprocess.DEVNULL)
            code, out, errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            code, out, errors = f"none within {TIMEOUT} s", "", ""
        self.seconds += time.monotonic() - begin
        self.texts[f"{name}, exit code"] = str(code)
        self.texts[f"{name}, stdout"] = out
        if not is_training or code != 0:  # progress lines have measured times
            self.texts[f"{name}, stderr"] = errors

    def read(self, file):
        data = (self.folder / file).read_bytes()
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None


def file_differences(old, new, file):
    texts = old.read(file), new.read(file)
    if None not in texts:
        return differences(*texts)
    same = (old.folder / file).read_bytes() == (new.folder / file).read_bytes()
    return [] if same else ["other bytes"]


def case_differences(old, new, is_training):
    """Lines that say what differs in the answers to one case."""
    found = []
    for name in old.texts.keys() | new.texts.keys():
        found += [f"{name}: {line}"
                  for line in differences(old.texts.get(name, ""), new.texts.get(name, ""), is_training)]
    found += [f"{file}: only the old build writes it" for file in old.written - new.written]
    found += [f"{file}: only the new build writes it" for file in new.written - old.written if not ADDED_FILES.search(file)]
    for file in sorted(old.written & new.written):
        if not IGNORED_FILES.search(file):
            found += [f"{file}: {line}" for line in file_differences(old, new, file)]
    return sorted(found)


def compare_case(case, programs, root, allowed):
    answers = []
    for name, weft in zip(("old", "new"), programs):
        folder = root / name / case.name
        folder.mkdir(parents=True)
        answers.append(Answer(weft, case, folder))
    found = case_differences(*answers, case.is_training)
    code = answers[0].texts["command 1, exit code"]
    if (code == "2") != case.is_refused:
        found.append(f"exit code {code} of the old build: nothing is compared")
    kept = [line for line in found if not any(pattern.search(line) for pattern in allowed) and not is_expected(case, line)]
    return case, kept, [answer.seconds for answer in answers], code


def report(case, found, seconds, code):
    print(f"{'FAIL' if found else 'ok':4}  {case.name:34} {seconds[0]:6.1f} s {seconds[1]:6.1f} s  exit code {code}", flush=True)
    if found:
        for command in case.commands:
            print("        weft " + " ".join(command))
        for line in found[:DIFFERENCES_SHOWN]:
            print(f"      {line[:300]}")
        if len(found) > DIFFERENCES_SHOWN:
            print(f"      and {len(found) - DIFFERENCES_SHOWN} more")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true", help="print the commands and stop")
    parser.add_argument("--keep", type=Path, help="leave all answers in this new folder")
    parser.add_argument("--allow", nargs="*", default=[], help="differences that may be, as printed")
    return parser.parse_args(arguments)


def compare_all(cases, options, root):
    programs = [str(Path(program).resolve()) for program in (options.old, options.new)]
    allowed = [re.compile(pattern) for pattern in options.allow]
    failed = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for case, found, seconds, code in pool.map(lambda case: compare_case(case, programs, root, allowed), cases):
            report(case, found, seconds, code)
            failed += [case.name] if found else []
    return failed


def main(arguments):
    options = parse(arguments)
    cases = [case for case in all_cases() if options.only in case.name]
    commands = sum(len(case.commands) for case in cases)
    if options.list:
        print("\n".join(f"{case.name}: weft {' '.join(command)}" for case in cases for command in case.commands))
        return 0
    for program in (options.old, options.new):
        if not os.access(program, os.X_OK) or not Path(program).is_file():
            print(f"{program}: no such program", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory() as temporary:
        failed = compare_all(cases, options, options.keep or Path(temporary))
    print(f"{commands} commands in {len(cases)} cases: {len(failed)} cases differ" + (f": {' '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
