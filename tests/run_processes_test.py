#!/usr/bin/env python3
"""`weft run` with ranks as processes trains what it trains with ranks as threads.

    run_processes_test.py WEFT PART [LAUNCHER]      PART: processes (started by weft itself) or mpi (by LAUNCHER)

The same seed gives the same losses to 1e-6 relative, whatever carries the messages; every mistake is said, with the
exit code of docs/errors.md. Exit code 77 where there are no kernels or there is no launcher.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import warm_program  # noqa: E402

TOLERANCE = 1e-6
MODEL = "--layers 2 --hidden 32 --heads 4 --seq 16 --micro-batch 2 --vocab 256 --global-batch 8".split()
SHORT = "--steps 5 --threads 1 --calibrate-seconds 0.1 --json".split()
CASES = [["--policy", "ddp"], ["--policy", "priority", "--zero", "1"], ["--policy", "fsdp", "--zero", "3"]]


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def run(command, of_threads=False):
    """Ranks as processes are started by the program itself, ranks as threads by one that has its kernels already."""
    if of_threads:
        done = warm_program.run(command, timeout=120)
    else:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "needs kernels" in done.stderr:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(77)
    return done


def losses(command, of_threads=False):
    done = run(command, of_threads)
    if done.returncode != 0:
        fail(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    answer = json.loads(done.stdout)
    (policy,) = answer["policies"].values()
    return answer["world"], policy["losses"]


def launcher(part, name):
    """The words before those of weft, and its flags, that start so many ranks."""
    if part == "processes":
        return lambda ranks: ([], ["--processes", str(ranks)])
    if not name or not shutil.which(name):
        print(f"skipped: the MPI launcher '{name}' is not here (Debian: openmpi-bin)")
        sys.exit(77)
    script = str(Path(__file__).with_name("mpi_test.sh"))
    return lambda ranks: ([script, name, str(ranks)], [])


def same_training(weft, start):
    for ranks, cases in ((2, CASES), (4, CASES[1:2])):
        for case in cases:
            flags = MODEL + case + SHORT
            _, expected = losses([weft, "run", "--cluster", f"local:{ranks}", *flags], of_threads=True)
            before, after = start(ranks)
            world, found = losses([*before, weft, "run", *after, *flags])
            if world["kind"] != "processes" or world["ranks"] != ranks or not world["links"].startswith("real"):
                fail(f"{case}: the report speaks of {world}")
            if len(found) != 5 or len(expected) != 5:
                fail(f"{case}: {len(found)} losses as processes, {len(expected)} as threads")
            off = max(abs(a / b - 1) for a, b in zip(found, expected))
            if not off <= TOLERANCE:
                fail(f"{case} on {ranks} ranks: threads {expected}, processes {found}: {off:.2g} apart")
            print(f"{ranks} ranks, {' '.join(case)}: {off:.1g} apart")


def native(weft, start, folder):
    """Plans that use the MPI library's own collectives train the same, made before the run or read from a file."""
    for ranks, case in ((2, CASES[0]), (2, CASES[2]), (4, ["--tp", "2", "--zero", "1", "--policy", "priority", "--check"])):
        flags = MODEL + case + SHORT
        before, _ = start(ranks)
        expected = losses([*before, weft, "run", "--native", "never", *flags])[1]
        out = folder / f"native {ranks} {case[-1]}"
        done = run([*before, weft, "run", "--native", "always", *flags, "--out", str(out)])
        if done.returncode != 0:
            fail(f"--native always {case}: exit code {done.returncode}\n{done.stderr}")
        (policy,) = json.loads(done.stdout)["policies"].values()
        ways = {way for ways in policy["collectives"].values() for way in ways}
        if ways != {"native"}:
            fail(f"--native always {case}: collectives are {policy['collectives']}")
        planned = losses([*before, weft, "run", str(out / "plan.json"), *SHORT])[1]
        for found in (policy["losses"], planned):
            off = max(abs(a / b - 1) for a, b in zip(found, expected, strict=True))
            if not off <= TOLERANCE:
                fail(f"native {case} on {ranks} ranks: {expected} by our programs, {found}: {off:.2g} apart")
        print(f"{ranks} ranks, {' '.join(case)}, native: {off:.1g} apart")


def said(weft, start, flags, code, *words):
    before, after = start(2)
    done = run([*before, weft, "run", *after, *MODEL, *SHORT, *flags])
    if done.returncode != code:
        fail(f"{flags}: exit code {done.returncode} instead of {code}\n{done.stderr}")
    for word in words:
        if word not in done.stderr:
            fail(f"{flags}: stderr does not say {word!r}:\n{done.stderr}")
    if done.stdout.strip():
        fail(f"{flags}: wrote to stdout: {done.stdout}")


def mistakes(weft, start, folder):
    said(weft, start, ["--policy", "ddp", "--optimizer", "sgd", "--lr", "1e30"], 3, "rank ", "step 2", "not finite")
    said(weft, start, ["--cluster", "local:4"], 2, "for 4 ranks, not for 2 processes")
    said(weft, start, ["--record", str(folder / "record")], 2, "--record: needs ranks that are threads")
    empty = folder / "empty.txt"
    empty.touch()
    said(weft, start, ["--data", str(empty)], 2, "is empty")


def main():
    weft, part = sys.argv[1:3]
    start = launcher(part, sys.argv[3] if len(sys.argv) > 3 else "")
    os.environ.pop("WEFT_RANK", None)
    same_training(weft, start)
    with tempfile.TemporaryDirectory() as folder:
        mistakes(weft, start, Path(folder))
        if part == "mpi":
            native(weft, start, Path(folder))
    print("ok")


if __name__ == "__main__":
    main()
