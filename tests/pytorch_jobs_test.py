#!/usr/bin/env python3
"""weft.torch trains what DistributedDataParallel trains, whatever a script does: the jobs of pytorch_jobs/ on two ranks, each with
DDP and with weft.torch in its modes, compared in weights, buffers and figures that the script sees.

    pytorch_jobs_test.py [--only NAME,...] [--modes plain,zero1,...] [--all] [--validate] [--list] [--out FILE]

Without --all (or WEFT_TESTS=whole): every job in mode plain, and each in one of its other modes now and then. --validate runs DDP
twice instead and compares that. Run it with a Python that has PyTorch; exit code 77 where there is none, or no library.
"""

import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
OTHER_MODES_OF_A_SAMPLE = 8  # of so many jobs one is run in another mode too


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def load_table():
    from pytorch_jobs import kit
    for path in sorted((FOLDER / "pytorch_jobs").glob("*.py")):
        importlib.import_module(f"pytorch_jobs.{path.stem}")
    return kit.TABLE


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", "--jobs", help="names, or beginnings of names or themes, with commas between")
    parser.add_argument("--modes", help="with commas between")
    parser.add_argument("--all", action="store_true", help="all modes of all jobs")
    parser.add_argument("--validate", action="store_true", help="DDP against DDP")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", help="a file for the list of cases that fail")
    parser.add_argument("--limit", type=float, default=40.0, help="seconds of a case")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def cases_of(table, options):
    """(kind, modes) of each job."""
    wanted = options.only.split(",") if options.only else None
    whole = options.all or options.only or os.environ.get("WEFT_TESTS") == "whole"
    for number, kind in enumerate(table.values()):
        if wanted and not (kind.name in wanted or kind.theme in wanted):
            continue
        modes = kind.modes
        if options.validate:
            modes = ("ddp",)
        elif options.modes:
            modes = [mode for mode in modes if mode in options.modes.split(",")]
        elif not whole:
            others = [mode for mode in modes if mode != "plain"]
            chosen = number // OTHER_MODES_OF_A_SAMPLE % len(others) if others and number % OTHER_MODES_OF_A_SAMPLE == 0 else None
            modes = [mode for mode in modes if mode == "plain" or (chosen is not None and mode == others[chosen])]
        if modes:
            yield kind, modes


def run_case(kind, mode, expected, options):
    from pytorch_jobs import ranks, verdict
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        found, trouble = ranks.run_kind(kind, mode, Path(folder), options.limit, options.device, options.seed)
        seconds = time.monotonic() - begin
        if expected is None:
            return found, verdict.ddp_trouble(found, trouble), seconds
        return *verdict.judge(kind, mode, found, trouble, expected), seconds


def run_all(table, options):
    from pytorch_jobs import kit, verdict
    counts, failing = {"passed": 0, "failed": 0, "skipped": 0, "across steps": 0}, []
    for kind, modes in cases_of(table, options):
        if kit.version() < kind.least_version or options.device not in kind.devices:
            print(f"{kind.name:36} skipped: needs PyTorch {'.'.join(map(str, kind.least_version))} on {' or '.join(kind.devices)}")
            counts["skipped"] += 1
            continue
        expected, why, seconds = run_case(kind, "ddp", None, options)
        for mode in modes:
            if why:
                outcome, words = "died", f"with DDP itself: {why}"
            else:
                outcome, words, seconds = run_case(kind, mode, expected, options)
            good = outcome in ("equal", "refused")
            counts["passed" if good else "failed"] += 1
            counts["across steps"] += good and words.endswith(verdict.CROSSES)
            line = f"{kind.name:36} {mode:7} {outcome:8} {seconds:5.2f} s  {words}"
            print(line, flush=True)
            if not good:
                failing.append(line)
    return counts, failing


def require_torch_and_library():
    if not importlib.util.find_spec("torch"):
        skip(f"{sys.executable} has no PyTorch (Debian: python3-torch)")
    sys.path[:0] = [str(FOLDER)]
    sys.path.append(str(FOLDER.parent / "python"))  # behind PYTHONPATH
    import torch
    torch.set_num_threads(1)
    from weft.torch import LaunchError, library
    try:
        library.find()
    except LaunchError as error:
        skip(error)


def main():
    options = arguments()
    require_torch_and_library()
    table = load_table()
    if options.list:
        for kind in table.values():
            print(f"{kind.theme:24} {kind.name:36} {','.join(kind.modes)} {kind.why}")
        print(f"{len(table)} jobs")
        return
    import weft.torch
    begin = time.monotonic()
    counts, failing = run_all(table, options)
    if failing:
        print("\nnot as DDP:", *failing, sep="\n")
    if options.out:
        Path(options.out).write_text("\n".join(failing) + "\n")
    across = counts.pop("across steps")
    print(", ".join(f"{count} {name}" for name, count in counts.items()),
          f"({across} of them by plans that cross steps) in {time.monotonic() - begin:.0f} s, with {weft.torch.__file__}")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
