#!/usr/bin/env python3
"""Ranks of `weft run` that were given different flags end before the first step, and say which.

    run_agreement_test.py WEFT PART [LAUNCHER]      PART: processes (started by hand, joined by TCP) or mpi

All ranks end with exit code 2 and name the flag with both values; what may differ may differ. `--check` finds nothing
where ranks run the same, pipelines included. Exit code 77 where there are no kernels or there is no launcher.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import warm_program  # noqa: E402

MODEL = "--layers 2 --hidden 32 --heads 4 --seq 16 --micro-batch 2 --vocab 256 --global-batch 8 --policy ddp".split()
SHORT = "--threads 1 --calibrate-seconds 0.05".split()


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_by_hand(weft, flags):
    """Two processes with flags of their own; the exit codes and what both said on stderr."""
    root = f"127.0.0.1:{free_port()}"
    ranks = []
    for rank in (0, 1):
        variables = {**os.environ, "WEFT_RANK": str(rank), "WEFT_RANKS": "2", "WEFT_ROOT_ADDRESS": root,
                     "WEFT_JOB_SECRET": "a secret of this test alone"}
        ranks.append(warm_program.start([weft, "run", *flags[rank]], env=variables))
    try:
        said = [rank.communicate(timeout=60)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [rank.returncode for rank in ranks], said


def run_by_launcher(launcher):
    """One program for each rank, as `mpirun -n 1 A : -n 1 B` starts them."""
    script = str(Path(__file__).with_name("mpi_test.sh"))

    def run(weft, flags):
        command = [script, launcher, "1", weft, "run", *flags[0], ":", "-n", "1", weft, "run", *flags[1]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return [done.returncode], [done.stderr]

    return run


def refused(run, weft, odd, words, common=()):
    """Rank 1 has flags that rank 0 has not."""
    flags = [*MODEL, *SHORT, "--steps", "4", *common]
    both = [flags, [*flags, *odd]] if "--steps" not in odd else [flags, [*MODEL, *SHORT, *common, *odd]]
    codes, said = run(weft, both)
    if any("needs kernels" in text for text in said):
        print(f"skipped: {said[0].strip()}")
        sys.exit(77)
    if any(code != 2 for code in codes):
        fail(f"{odd}: exit codes {codes} instead of 2\n{said}")
    for text in said:
        if words not in text or "step 1" in text:
            fail(f"{odd}: {text!r} does not say {words!r}")
    print(f"{' '.join(odd)}: {words}")


def accepted(run, weft, first, second, words=""):
    flags = [*MODEL, *SHORT, "--steps", "2"]
    codes, said = run(weft, [[*flags, *map(str, first)], [*flags, *map(str, second)]])
    if any(code != 0 for code in codes):
        fail(f"{first} beside {second}: exit codes {codes}\n{said}")
    print(f"{' '.join(map(str, first))} beside {' '.join(map(str, second))}: accepted{words}")


def all_cases(run, weft, folder, part):
    refused(run, weft, ["--lr", "0.02"], "rank 1 has --lr 0.02, rank 0 has --lr 0.001")
    refused(run, weft, ["--dropout", "0.3"], "rank 1 has --dropout 0.3, rank 0 has --dropout 0")
    refused(run, weft, ["--check"], "rank 1 has --check true, rank 0 has --check false")
    if part == "mpi":  # what compares is the same: only the way that it travels is another
        refused(run, weft, ["--transport", "tcp"], "rank 1 has --transport tcp, rank 0 has --transport auto")
        refused(run, weft, ["--native", "never"], "rank 1 has --native never, rank 0 has --native auto")
    else:
        refused(run, weft, ["--seed", "9"], "rank 1 has --seed 9, rank 0 has --seed 1")
        refused(run, weft, ["--optimizer", "sgd"], "rank 1 has --optimizer sgd, rank 0 has --optimizer adam")
        refused(run, weft, ["--steps", "5"], "rank 1 has --steps 5, rank 0 has --steps 4")
        refused(run, weft, ["--zero", "1"], "rank 1 has --zero 1, rank 0 has --zero 0")
        refused(run, weft, ["--checkpoint", str(folder / "c")], "rank 0 has --checkpoint (none)")
    one, same, other = (folder / name for name in ("one.txt", "same.txt", "other.txt"))
    one.write_text("a text to train on. " * 50)
    same.write_text(one.read_text())
    other.write_text(one.read_text()[:-1] + "!")
    refused(run, weft, ["--data", str(one)], "rank 0 has --data generated text")
    codes, said = run(weft, [[*MODEL, *SHORT, "--data", str(name)] for name in (one, other)])
    if any(code != 2 for code in codes) or "other.txt (1,000 bytes, checksum" not in said[0]:
        fail(f"texts of one length: {codes} {said}")
    accepted(run, weft, ["--data", str(one), "--json"], ["--data", str(same), "--timeout", "30", "--out", folder / "o"])
    # Every layout is checked on threads (Layouts.ChecksOfCallsFindNothingInAnyLayout).
    for layout in (["--pp", "2"], ["--experts", "4", "--ep", "2"]):
        flags = [*layout, "--check"]
        accepted(run, weft, flags, flags, " by all checks")


def main():
    weft, part = sys.argv[1:3]
    run = run_by_hand
    if part == "mpi":
        launcher = sys.argv[3] if len(sys.argv) > 3 else ""
        if not launcher or not shutil.which(launcher):
            print(f"skipped: the MPI launcher '{launcher}' is not here (Debian: openmpi-bin)")
            sys.exit(77)
        run = run_by_launcher(launcher)
    with tempfile.TemporaryDirectory() as folder:
        all_cases(run, weft, Path(folder), part)
    print("ok")


if __name__ == "__main__":
    main()
