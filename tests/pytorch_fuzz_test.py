#!/usr/bin/env python3
"""Random training programs on two ranks, each with DDP and with weft.torch on the same data, with transfers that seem to take long.

    pytorch_fuzz_test.py [--count N] [--seed S] [--seconds T] [--modes plain,zero1,...] [--program FILE]

Prints a program that differs, made as small as it still does. Without --count: 100 programs, or 2000 with WEFT_TESTS=whole. Run it with
a Python that has PyTorch; exit code 77 where there is none, or no library.
"""

import argparse
import collections
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import pytorch_jobs_test as jobs

MOST_ATTEMPTS = 120  # to make a program smaller


def arguments():
    whole = os.environ.get("WEFT_TESTS") == "whole"
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, help="programs")
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    parser.add_argument("--seconds", type=float, help="no program begins after so many")
    parser.add_argument("--modes", help="with commas between")
    parser.add_argument("--program", help="a file with one program, as a failure prints it")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds of a program")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keep-going", action="store_true", help="all programs, and no smaller ones")
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 60.0 if options.count is None and not whole else float("inf")
    options.count = options.count or (2000 if whole else 100)
    return options


def run_program(program, options):
    """(outcome, words); the outcome is "no DDP" where DDP itself fails. Both run in the same two processes, DDP first."""
    from pytorch_jobs import forcing, random_programs, ranks, verdict
    import torch
    from pytorch_jobs.kit import Job
    kind, mode = random_programs.kind_of(program), program["mode"]

    def body_of(rank):
        found = []
        ranks.use_device(options.device)
        for each in ("ddp", mode):  # a mode "ddp" is for trying the programs themselves
            if each != "ddp":
                if mode != "aside":
                    forcing.force_plans()
                forcing.delay_transfers(f"{program['seed']} {rank}")
            torch.manual_seed(program["seed"])
            found.append(ranks.run_body(kind, Job(each, rank, ranks.RANKS, options.device, program["seed"])))
            if each == "ddp" and found[0].error:
                break
        return found

    with tempfile.TemporaryDirectory() as folder:
        found, trouble = ranks.run_ranks(Path(folder), body_of, options.limit)
    pairs = [each or [None] for each in found]
    if any(pair[0] is not None and pair[0].error for pair in pairs):
        return "no DDP", next(f"{pair[0].error}: {pair[0].words[:200]}" for pair in pairs if pair[0] is not None and pair[0].error)
    return verdict.judge(kind, mode, [pair[-1] for pair in pairs], trouble, [pair[0] for pair in pairs])


def is_bad(outcome):
    return outcome not in ("equal", "refused", "no DDP")


def shrink(program, options):
    """A smaller program that still differs, and how."""
    from pytorch_jobs import random_programs
    attempts, words, found = 0, "", True
    while found and attempts < MOST_ATTEMPTS:
        found = False
        for candidate in random_programs.smaller(program):
            attempts += 1
            outcome, said = run_program(candidate, options)
            if is_bad(outcome):
                program, words, found = candidate, f"{outcome}: {said}", True
                break
            if attempts >= MOST_ATTEMPTS:
                break
    return program, words


def describe(program, words):
    from pytorch_jobs import random_programs
    print(*random_programs.lines_of(program), f"  {words}", "as a file for --program:", json.dumps(program), "", sep="\n", flush=True)


def main():
    options = arguments()
    jobs.require_torch_and_library()
    jobs.load_table()
    from pytorch_jobs import random_programs
    begin, outcomes, reasons = time.monotonic(), collections.Counter(), collections.Counter()
    modes = options.modes.split(",") if options.modes else random_programs.MODES
    programs = (random_programs.random_program(seed, modes) for seed in range(options.seed, options.seed + options.count))
    if options.program:
        programs = [json.loads(Path(options.program).read_text())]
    for program in programs:
        if time.monotonic() - begin > options.seconds:
            print(f"{options.seconds:.0f} s are over")
            break
        outcome, words = run_program(program, options)
        outcomes[outcome] += 1
        if outcome == "no DDP":
            reasons[words[:100]] += 1
        if is_bad(outcome):
            print(f"FAILED: program {program['seed']} in mode {program['mode']}: {outcome}: {words}", flush=True)
            if not options.keep_going:
                describe(*shrink(program, options))
    bad = sum(count for outcome, count in outcomes.items() if is_bad(outcome))
    for why, count in reasons.items():
        print(f"{count} programs that DDP does not train: {why}")
    print(f"{outcomes['equal'] + outcomes['refused']} passed ({outcomes['refused']} of them refused by name), {bad} failed, "
          f"{outcomes['no DDP']} skipped in {time.monotonic() - begin:.0f} s")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
