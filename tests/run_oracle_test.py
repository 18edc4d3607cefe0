#!/usr/bin/env python3
"""`weft run` against PyTorch: layouts, policies, ZeRO stages and the rest, every pair of their values at least once.

    run_oracle_test.py WEFT [--quick] [--list] [--only TEXT] [--keep FOLDER] [--jobs N] [-- FLAGS OF weft run]

Every run sees the same global batch, so runs that share model, sequence length, optimizer and clipping are the same
training: each is checked against PyTorch and against one rank alone. Some are run twice and must give the same bits.
The matrix is in oracle/cases.py and oracle/layouts.py. Exit code 77 where there is no torch (see oracle/oracle.py).
"""

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "oracle"))
import oracle  # noqa: E402  (exits 77 where there is no torch)
import reference_model  # noqa: E402
import warm_program  # noqa: E402
from cases import UPDATES, all_cases, alone, expected_in_record, flags_of, name_of, twice  # noqa: E402
from layouts import CONFIGS, LAYOUTS  # noqa: E402
from records import BadRecord, read_record  # noqa: E402
from refusals import REFUSALS  # noqa: E402

# Buckets so small that even these models have several; predictions are not what is tested here.
FLAGS = ["--json", "--bucket-mib", "0.03", "--bucket-size", "8000", "--budget", "0.1", "--threads", "1"]
TIMEOUT = 120


class Failure(Exception):
    pass


class Runs:
    """Runs of the program, made ahead of the checks, some at a time."""

    def __init__(self, weft, folder, pool, extra):
        self.weft, self.folder, self.pool, self.extra = weft, Path(folder), pool, extra
        self.begun, self.references = {}, {}
        for name, config in CONFIGS.items():
            (self.folder / f"{name}.json").write_text(json.dumps(config))
        self.profile = self.folder / "any_machine.json"  # nothing is measured before a run
        self.profile.write_text('{"weft_profile": 1}')

    def call(self, model, ranks, flags):
        command = [self.weft, "run", "--model", self.folder / f"{model}.json", "--cluster", f"local:{ranks},nic=1GB/s",
                   *flags, *FLAGS, "--profile", self.profile, *self.extra]
        try:
            return warm_program.run(command, timeout=TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"does not end within {TIMEOUT} s: {' '.join(error.cmd)}") from error

    def begin(self, case, suffix=""):
        """The record of a case, some time later; run once for every suffix."""
        name = name_of(case) + suffix
        if name not in self.begun:
            self.begun[name] = self.pool.submit(self.make_record, case, name)
        return self.begun[name]

    def run(self, case, suffix=""):
        return self.begin(case, suffix).result()

    def make_record(self, case, name):
        done = self.call(case["model"], LAYOUTS[case["layout"]].ranks,
                         [*flags_of(case), "--record", self.folder / name])
        if done.returncode != 0:
            raise Failure(f"exit code {done.returncode}: {' '.join(done.args)}\n{done.stderr[-2000:]}")
        record = read_record(self.folder / name)
        self.check_settings(case, record)
        return record

    def check_settings(self, case, record):
        for key, value in expected_in_record(case).items():
            if record.run.get(key) != value:
                raise Failure(f"the record says {key} {record.run.get(key)}, asked for was {value}")
        if "lr_schedule" in record.run and [v["step"] for v in record.run["validation"]] != [8, 16, 20]:
            raise Failure(f"validation {record.run['validation']} is not after every 8 of 20 steps and the last")
        update = UPDATES[case["update"]]
        if record.run["optimizer"]["name"] != update["optimizer"]:
            raise Failure(f"the record says optimizer {record.run['optimizer']['name']}")
        length = sum(oracle.norm(gradient)**2 for gradient in record.gradients.values())**0.5
        if length <= update["clip"]:
            raise Failure(f"gradients of norm {length} are not clipped at {update['clip']}: nothing is tested")

    def reference(self, record):
        """PyTorch's training, once for all runs that start from the same bytes with the same settings."""
        digest = hashlib.sha256(record.batches.tobytes() + record.validation.tobytes())
        for name in sorted(record.initial):
            digest.update(name.encode() + record.initial[name].tobytes())
        keys = ["model", "optimizer", "clip_grad", "steps", "dropout", "seed", "lr_schedule"]
        if "experts" in record.run["model"]:  # what gates drop depends on the tokens of a rank
            keys += ["micro_batch", "cp", "tp", "sequence_parallel"]
        for key in keys:
            digest.update(json.dumps(record.run.get(key), sort_keys=True).encode())
        key = digest.hexdigest()
        if key not in self.references:
            self.references[key] = reference_model.train(record)
        return self.references[key]


def report(label, findings):
    good = oracle.agree(findings)
    worst = {}
    for finding in findings:
        worst[finding.kind] = max(worst.get(finding.kind, 0.0), finding.error)
    figures = "  ".join(f"{kind} {error:.1e}" for kind, error in worst.items() if kind != "start")
    print(f"{'ok' if good else 'FAIL':4}  {label:92}  {figures}", flush=True)
    if not good:
        print(*(f"      {line}" for line in oracle.summary(findings)), sep="\n", flush=True)
    return good


def attempt(label, make_findings):
    try:
        return report(label, make_findings())
    except (Failure, BadRecord, KeyError, RuntimeError) as error:
        print(f"FAIL  {label}  {error}", flush=True)
        return False


def check_case(runs, case):
    def against_torch():
        record = runs.run(case)
        return oracle.check_against(record, runs.reference(record))

    results = [attempt(f"{name_of(case)} and PyTorch", against_torch)]
    if case != alone(case) and results[0]:
        results.append(attempt(f"{name_of(case)} and one rank",
                               lambda: oracle.compare(runs.run(case), runs.run(alone(case)))))
    return all(results)


def check_refusal(runs, refusal):
    """Exit code 2 and the reason, before anything is run."""
    done = runs.call(refusal.model, refusal.ranks, refusal.flags)
    good = done.returncode == 2 and refusal.reason in done.stderr
    print(f"{'ok' if good else 'FAIL':4}  refused: {refusal.reason}", flush=True)
    if not good:
        print(f"      exit code {done.returncode}: {' '.join(done.args)}\n      {done.stderr[-500:]}", flush=True)
    return good


def check_all(runs, cases, repeated, refusals):
    for case in cases:
        runs.begin(case)
    for case in repeated:
        runs.begin(case, "-again")
    results = [check_refusal(runs, refusal) for refusal in refusals]
    results += [check_case(runs, case) for case in cases]
    for case in repeated:
        results.append(attempt(f"{name_of(case)} twice, bit by bit",
                               lambda: oracle.compare(runs.run(case), runs.run(case, "-again"), identical=True)))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", help="the program")
    parser.add_argument("--quick", action="store_true", help="everything once with either model, not every pair")
    parser.add_argument("--list", action="store_true", help="the runs, not run")
    parser.add_argument("--only", default="", help="only runs with this text in their names")
    parser.add_argument("--keep", help="leave the records in this folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time (default: cores)")
    own, extra = sys.argv[1:], []
    if "--" in own:
        own, extra = own[:own.index("--")], own[own.index("--") + 1:]
    arguments = parser.parse_args(own)
    oracle.torch.set_num_threads(1)
    cases = [case for case in all_cases(arguments.quick) if arguments.only in name_of(case)]
    if arguments.list:
        print(*map(name_of, cases), sep="\n")
        return 0
    if not cases:
        parser.error(f"--only {arguments.only}: no run has that in its name")
    if arguments.keep:
        Path(arguments.keep).mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    scratch = contextlib.nullcontext(arguments.keep) if arguments.keep else tempfile.TemporaryDirectory()
    with scratch as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        runs = Runs(arguments.weft, folder, pool, extra)
        results = check_all(runs, cases, twice(cases, arguments.quick), [] if arguments.only else REFUSALS)
    print(f"{results.count(True)} of {len(results)} checks passed in {time.monotonic() - begin:.0f} s")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
