#!/usr/bin/env python3
"""A long run's memory stays what it is: `weft run` with checkpoints, its resident set sampled step by step.

    run_soak_test.py WEFT [--steps N]       default: 1000

Ranks as threads and as processes. What is resident after the first tenth of the steps (at least 100 in the full soak)
is all there will be: no process has more than 1 MiB above it until the last step. The report that follows is not
counted. Exit code 77 where there are no kernels.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = "--layers 2 --hidden 32 --heads 4 --seq 16 --micro-batch 2 --vocab 256 --global-batch 8 --threads 1".split()
ALLOWED = 1024  # KiB of growth
CASES = {
    "threads": ["--cluster", "local:2"],
    "threads, pp 2": ["--cluster", "local:2", "--pp", "2"],
    "processes": ["--processes", "2"],
}


def children_of(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def resident(pid):
    """KiB, or 0 where it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def newest(folder):
    names = os.listdir(folder) if folder.exists() else []
    return max((int(name[5:]) for name in names if name.startswith("step-")), default=0)


def sample(command, folder, steps):
    """[(step, {pid: KiB})] from the first checkpoint to the last but one."""
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    samples = []
    while run.poll() is None:
        step = newest(folder)
        sizes = {pid: resident(pid) for pid in (run.pid, *children_of(run.pid))}
        if 0 < step < steps and newest(folder) < steps:
            samples.append((step, sizes))
        time.sleep(0.02)
    words = run.stderr.read()
    if "needs kernels" in words:
        print(f"skipped: {words.strip()}")
        sys.exit(77)
    if run.returncode != 0:
        sys.exit(f"FAILED: {' '.join(command)}: exit code {run.returncode}\n{words}")
    return samples


def growth(samples, settled):
    """The most that any process has grown by, and what it had."""
    worst = (0, 0)
    for pid in samples[-1][1]:
        early = [sizes[pid] for step, sizes in samples if step <= settled and sizes.get(pid)]
        late = [sizes[pid] for step, sizes in samples if step > settled and sizes.get(pid)]
        if early and late:
            worst = max(worst, (max(late) - max(early), max(early)))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    settled = max(options.steps // 10, 100) if options.steps >= 400 else options.steps // 4
    failed = False
    for name, flags in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "checkpoints"
            command = [options.weft, "run", *MODEL, *flags, "--policy", "priority", "--steps", str(options.steps),
                       "--calibrate-seconds", "0.1", "--json", "--checkpoint", str(folder), "--checkpoint-every", "10"]
            samples = sample(command, folder, options.steps)
        if len({step for step, _ in samples}) < 5 or samples[-1][0] <= settled:
            sys.exit(f"FAILED: {name}: only {len(samples)} samples")
        grown, had = growth(samples, settled)
        failed |= grown > ALLOWED
        print(f"{name}: {len(samples)} samples over {options.steps} steps: {had} KiB after step {settled}, {grown:+} KiB "
              f"at most after that{' FAILED' if grown > ALLOWED else ''}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
