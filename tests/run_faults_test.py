#!/usr/bin/env python3
"""Training whose ranks are killed or stopped: the others say who was lost, in which step and in what, and end; what was
saved is whole, and a run that goes on from it ends with the same bits as one that was never disturbed.

    run_faults_test.py WEFT [--rounds N] [--seed N] [--mpirun MPIRUN]      a soak: --rounds 50 --seed 7

Layouts, launchers, victims and moments follow from --seed. Exit code 77 where there are no kernels.
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
import warm_program  # noqa: E402
from fault_jobs import Failure, Job, expect_words, is_running  # noqa: E402
from read_checkpoint import read_checkpoint  # noqa: E402

LIMIT = 10.0  # seconds from the signal until every survivor has ended
GONE_AFTER_LAUNCHER = 2  # seconds
EVERY = 10  # steps between checkpoints
USUAL = 300  # steps of the run that nobody disturbs: on most machines others are disturbed before
ENDLESS = 100_000
MODEL = "--layers 2 --hidden 32 --heads 4 --seq 16 --micro-batch 2 --vocab 256 --global-batch 8 --threads 1".split()

Case = collections.namedtuple("Case", "name ranks flags")
# Runs of a case plan by one profile: other durations may give another order of sums, and other bits. The first three
# have the same order whatever is measured (and groups of two, whose sums have one result): they may also measure anew.
CASES = [
    Case("tp 2", 2, ["--tp", "2", "--policy", "serial"]),
    Case("pp 2", 2, ["--pp", "2", "--policy", "serial"]),
    Case("zero 3", 2, ["--zero", "3", "--policy", "fsdp"]),
    Case("dp 2", 2, ["--policy", "priority"]),
    Case("pp 2, dp 2", 4, ["--pp", "2", "--zero", "1", "--policy", "priority"]),
]
MEASURED = CASES[:3]
# Whose ranks wait for the MPI library's own collectives, which must be measured first.
NATIVE = Case("native", 2, ["--policy", "ddp", "--native", "always"])

# What to wait for (the words somebody says, a step that was saved, a save under way), then how long.
Moment = collections.namedtuple("Moment", "name steps word saved saving after")
Blow = collections.namedtuple("Blow", "signal moment under_mpi")


def newest(folder):
    steps = [int(name[5:]) for name in os.listdir(folder) if name.startswith("step-")] if folder.exists() else []
    return max(steps, default=0)


def is_saving(folder):
    return folder.exists() and any(name.startswith(".step-") for name in os.listdir(folder))


def wait_until(condition, job):
    deadline = time.monotonic() + 90
    while not condition():
        if job.launcher.poll() is not None:
            raise Failure(f"it ended by itself with {job.launcher.returncode}")
        if time.monotonic() > deadline:
            raise Failure("the moment did not come within 90 s")
        time.sleep(0.0005)


class Runs:
    """Starts the program on a case, disturbed or not."""

    def __init__(self, weft, mpirun, scratch):
        self.weft, self.mpirun, self.scratch = weft, mpirun, scratch
        self.count = 0
        self.references, self.profiles = {}, {}

    def folder(self, label):
        self.count += 1
        return self.scratch / f"{label}-{self.count}"

    def profile(self, case):
        if case.name not in self.profiles:
            folder = self.folder("profile")
            done = warm_program.run([self.weft, "calibrate", *MODEL, *case.flags, "--cluster", f"local:{case.ranks}",
                                     "--calibrate-seconds", "0.1", "--out", folder], timeout=180)
            if "needs kernels" in done.stderr:
                print(f"skipped: {done.stderr.strip()}")
                sys.exit(77)
            if done.returncode != 0:
                raise Failure(f"weft calibrate: exit code {done.returncode}\n{done.stderr}")
            self.profiles[case.name] = folder / "profile.json"
        return self.profiles[case.name]

    def command(self, case, folder, steps, under_mpi=False, calibrate=None):
        """With the case's profile, or a measurement of so many seconds."""
        durations = ["--calibrate-seconds", calibrate] if calibrate else ["--profile", str(self.profile(case))]
        flags = [*MODEL, *case.flags, "--cluster", f"local:{case.ranks}", *durations, "--steps", str(steps), "--json",
                 "--checkpoint", str(folder), "--checkpoint-every", str(EVERY)]
        if not under_mpi:
            return [self.weft, "run", "--processes", str(case.ranks), *flags]
        start = [self.mpirun, "-n", str(case.ranks), "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            start.append("--allow-run-as-root")
        return [*start, "-x", "FAULTS_TEST", self.weft, "run", *flags]

    def losses(self, *command):
        done = warm_program.run(command, timeout=180)
        if done.returncode != 0:
            raise Failure(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        (policy,) = json.loads(done.stdout)["policies"].values()
        return policy["losses"]

    def reference(self, case, end):
        """Folder with every checkpoint, and the losses, of a run in one go to that step or beyond."""
        known = self.references.get(case.name)
        if known is None or len(known[1]) < end:
            folder = self.folder("reference")
            steps = str(USUAL if end <= USUAL else 2 * end)
            command = [*self.command(case, folder, steps), "--keep-checkpoints", steps]
            self.references[case.name] = folder, self.losses(*command)
        return self.references[case.name]


def line_pattern(victim):
    """Who was lost, in which part of the run, and in a step also in what."""
    step = r"in step \d+, (computing \w+|between operations|\w+ ('[^']*' )?\()"
    other = r"(planning|preparation for step \d+|what follows step \d+|the measurement of (links|this machine))"
    lost = rf"rank {victim} was lost \(.*\) while rank \d+ was ({step}|in {other})"
    connecting = rf"while connecting to the other ranks: .*\brank {victim}\b"
    return rf"{lost}|{connecting}"


def strike(job, case, blow, folder, chance):
    pids = job.wait_for_ranks(case.ranks)
    moment = blow.moment
    wait_until(lambda: any(moment.word in line for _, line in job.lines) or not moment.word, job)
    wait_until(lambda: newest(folder) >= moment.saved, job)
    if moment.saving:
        wait_until(lambda: is_saving(folder), job)
    time.sleep(moment.after)
    victim = chance.randrange(case.ranks)
    when = time.monotonic()
    try:
        os.kill(pids[victim], blow.signal)
    except ProcessLookupError:
        pass
    return victim, pids, when


def ended_by_mpirun(job, victim, survivors):
    """Before the ranks are connected mpirun may see it first, and then it ends them all."""
    text = "\n".join(line for _, line in job.lines)
    return f"process rank {victim} " in text and not any(job.said_by(rank) for rank in survivors)


def disturb(runs, case, blow, folder, chance):
    """Seconds until all survivors had named the victim, and until they had ended; None where it was not theirs to say."""
    calibrate = "4" if blow.moment.name == "while it measures" else "0.1" if case == NATIVE else None
    command = runs.command(case, folder, blow.moment.steps, blow.under_mpi, calibrate)
    job = Job(command, "OMPI_COMM_WORLD_RANK" if blow.under_mpi else "WEFT_RANK")
    try:
        victim, pids, when = strike(job, case, blow, folder, chance)
        survivors = {rank: pid for rank, pid in pids.items() if rank != victim}
        ended = job.watch_end(survivors, LIMIT)
        missing = sorted(set(survivors) - set(ended))
        if missing:
            raise Failure(f"ranks {missing} are still there {LIMIT} s after the signal to rank {victim}")
        code = job.finish(2 * LIMIT)
        # A launcher that kills a stopped rank may end a moment before the rank does.
        deadline = time.monotonic() + GONE_AFTER_LAUNCHER
        while is_running(pids[victim]) and time.monotonic() < deadline:
            time.sleep(0.02)
        if is_running(pids[victim]):
            raise Failure(f"rank {victim} is still there {GONE_AFTER_LAUNCHER} s after its launcher")
        finished = newest(folder) == blow.moment.steps
        if finished and not any(job.said_by(rank) for rank in survivors):
            return None  # too late: nobody needed the victim any more
        if blow.under_mpi and blow.moment.name == "at its start" and ended_by_mpirun(job, victim, survivors):
            return None
        if code != 3 and not blow.under_mpi or code == 0:
            raise Failure(f"the launcher ended with {code}, not 3")
        for rank in survivors:
            if re.search(rf"^weft: rank {rank} was killed", "\n".join(line for _, line in job.lines), re.M):
                raise Failure(f"the survivor {rank} did not end by itself")
        said = [expect_words(job, rank, line_pattern(victim), when) for rank in survivors]
        return max(said), max(ended.values())
    except Failure as failure:
        raise Failure(f"{failure}\n{job.text()}") from None
    finally:
        job.clean_up()


def goes_on(runs, case, folder):
    """From what is there to a step that the undisturbed run has saved too: the same losses and tensors."""
    saved = newest(folder)
    if saved:
        read_checkpoint(folder / f"step-{saved:08}")  # every length and checksum
    end = saved + EVERY - saved % EVERY
    reference, losses = runs.reference(case, end)
    found = runs.losses(*runs.command(case, folder, end), "--resume")
    if found != losses[saved:end]:
        raise Failure(f"from step {saved} on the losses are {found}, not {losses[saved:end]}")
    one, other = (read_checkpoint(where / f"step-{end:08}")[1] for where in (folder, reference))
    if one != other:
        raise Failure(f"the checkpoints of step {end} differ")
    if is_saving(folder):
        raise Failure(f"what was not saved whole is still there: {os.listdir(folder)}")
    return saved


def pick_moment(chance):
    kind = chance.choice(["start", "measures", "trains", "trains", "saves", "saves", "ends"])
    if kind == "start":
        return Moment("at its start", ENDLESS, "", 0, False, chance.uniform(0, 0.6))
    if kind == "measures":
        return Moment("while it measures", ENDLESS, "measuring this machine", 0, False, chance.uniform(0, 0.8))
    saved = EVERY * chance.randrange(1, 8)
    if kind == "trains":
        return Moment("in training", ENDLESS, "", saved, False, chance.uniform(0, 0.1))
    if kind == "saves":
        return Moment("while it saves", ENDLESS, "", saved, True, chance.uniform(0, 0.004))
    return Moment("at its end", saved + EVERY, "", saved, False, chance.uniform(0, 0.3))


def pick(chance, mpirun, stops):
    """A stopped rank while ranks connect under mpirun is the library's affair (docs/faults.md)."""
    under_mpi = mpirun is not None and chance.random() < 0.4
    number = signal.SIGSTOP if stops else signal.SIGKILL
    moment = pick_moment(chance)
    while stops and (moment.name == "at its end" or under_mpi and moment.name == "at its start"):
        moment = pick_moment(chance)
    return Blow(number, moment, under_mpi)


def one_round(runs, case, blow, chance):
    folder = runs.folder("disturbed")
    what = f"{case.name}, {'mpirun' if blow.under_mpi else '--processes'}, {blow.signal.name} {blow.moment.name}"
    try:
        times = disturb(runs, case, blow, folder, chance)
        saved = goes_on(runs, case, folder)
    except Failure as failure:
        raise Failure(f"{what} (waits for {blow.moment}): {failure}") from None
    shutil.rmtree(folder)
    if times is None:
        print(f"  {what}: all was done, or mpirun said it; goes on from {saved}", flush=True)
    else:
        print(f"  {what}: named after {times[0]:.2f} s, all ended after {times[1]:.2f} s, goes on from {saved}", flush=True)
    return times


def busy_machine(runs):
    """Many more threads than cores: whoever waits for a core gives signs of life all the same."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
    try:
        case = Case("dp 4", 4, ["--zero", "1", "--policy", "ddp"])
        command = runs.command(case, runs.folder("busy"), 50, calibrate="0.1")
        command[command.index("--threads") + 1] = "2"
        if len(runs.losses(*command, "--silence", "1")) != 50:
            raise Failure("a run on a busy machine did not end")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    print("  a busy machine: nobody was taken for lost with --silence 1", flush=True)


def native_collectives(runs, chance):
    """Under mpirun, ranks that wait inside the library below notice a loss as others do."""
    for number in (signal.SIGKILL, signal.SIGSTOP):
        folder = runs.folder("native")
        blow = Blow(number, Moment("in training", ENDLESS, "", EVERY, False, chance.uniform(0, 0.05)), True)
        times = disturb(runs, NATIVE, blow, folder, chance)
        read_checkpoint(folder / f"step-{newest(folder):08}")
        print(f"  native collectives, {number.name}: named after {times[0]:.2f} s, all ended after {times[1]:.2f} s", flush=True)


def summary(name, times):
    if not times:
        return
    said, ended = ([one[k] for one in times] for k in (0, 1))
    print(f"{name}: {len(times)}, named after {min(said):.2f} / {statistics.median(said):.2f} / {max(said):.2f} s, all "
          f"ended after {min(ended):.2f} / {statistics.median(ended):.2f} / {max(ended):.2f} s (least, median, most)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    mpirun = shutil.which(options.mpirun) if options.mpirun else None
    times = {signal.SIGKILL: [], signal.SIGSTOP: []}
    with tempfile.TemporaryDirectory() as scratch:
        runs = Runs(options.weft, mpirun, Path(scratch))
        try:
            busy_machine(runs)
            if mpirun:
                native_collectives(runs, chance)
            for number in range(options.rounds):
                blow = pick(chance, mpirun, stops=number % 4 == 1)
                case = chance.choice(MEASURED if blow.moment.name == "while it measures" else CASES)
                result = one_round(runs, case, blow, chance)
                if result:
                    times[blow.signal].append(result)
        except Failure as failure:
            print(f"FAILED (seed {options.seed}): {failure}")
            sys.exit(1)
    summary("killed", times[signal.SIGKILL])
    summary("stopped", times[signal.SIGSTOP])


if __name__ == "__main__":
    main()
