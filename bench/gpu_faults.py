#!/usr/bin/env python3
"""Ranks on a GPU that are killed or stopped in the middle of training over NCCL: the others must end and say who was lost.

    bench/gpu_faults.py build/cuda/weft                        # 30 kills and 10 stops, half of them with 2 and with 4 ranks
    bench/gpu_faults.py build/cuda/weft --kills 4 --stops 2    # a short one
    bench/gpu_faults.py build/cuda/weft --at-once 4            # four rounds at the same time, each with an MPS of its own

Ranks share one GPU (tools/gpu_ranks.sh). Layout, victim and moment follow from --seed; the moment is after the first steps and
before 0.7 of the run. A round passes where every other rank ends within 10 s of the signal by itself, with exit code 3 and a line
that names the victim (docs/faults.md). A stopped rank is killed afterwards. The output of every round that fails is
printed. No round begins after --seconds. With --at-once N, rounds of N jobs share the GPU's time: their steps take longer, what must
happen within 10 s stays the same. `--cpu` tries the script where there is no GPU.
"""

import argparse
import concurrent.futures
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import bench_kit as kit

sys.dont_write_bytecode = True
sys.path.insert(0, str(kit.ROOT / "tests"))
from fault_jobs import Failure, Job, expect_words, is_running  # noqa: E402

LIMIT = 10.0  # seconds from the signal until every survivor has ended
SURVIVOR_CODE = 3  # docs/faults.md
START_LIMIT = 90  # seconds until training has begun
LAUNCHER_LIMIT = 30  # seconds to end MPS after the last rank
STEPS = {False: 400, True: 160}  # of a job alone, and of one beside others, whose steps take longer
LAST_LINE = 7  # of the ten that `weft run` says of its steps; the signal comes before it
# Small enough that a step takes some 20 ms, most of it in NCCL.
MODEL = ["--layers", 8, "--hidden", 512, "--heads", 8, "--seq", 256, "--micro-batch", 4, "--grad-dtype", "bf16"]
TINY = ["--layers", 2, "--hidden", 32, "--heads", 4, "--seq", 16, "--micro-batch", 4, "--threads", 1]
LAYOUTS = {
    2: [["--policy", "priority"], ["--zero", 3, "--policy", "fsdp"], ["--tp", 2, "--sequence-parallel", "--policy", "serial"],
        ["--pp", 2, "--global-batch", 16, "--policy", "serial"]],
    4: [["--policy", "ddp"], ["--zero", 3, "--policy", "fsdp"], ["--tp", 2, "--policy", "priority"],
        ["--pp", 2, "--zero", 1, "--global-batch", 16, "--policy", "priority"]],
}


class Round(NamedTuple):
    ranks: int
    signal: signal.Signals
    layout: list

    def in_words(self):
        return f"{self.ranks} ranks, {' '.join(map(str, self.layout))}, {self.signal.name}"


class Outcome(NamedTuple):
    round: Round
    named_s: float  # until the last survivor had named the victim
    ended_s: float
    failure: str  # empty where it passed


class GpuJob(Job):
    """Its ranks and their exit codes are in the log of tools/gpu_ranks.sh."""

    def __init__(self, command, log):
        self.log = Path(log)
        super().__init__([str(word) for word in command], "WEFT_RANK")

    def logged(self, event):
        words = [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return {int(line[1]): int(line[2]) for line in words if len(line) == 3 and line[0] == event}

    def ranks(self):
        return self.logged("started")

    def clean_up(self):
        """Asked first, the script ends its ranks and MPS by itself."""
        if self.launcher.poll() is None:
            self.launcher.terminate()
            try:
                self.launcher.wait(LAUNCHER_LIMIT)
            except subprocess.TimeoutExpired:
                self.launcher.kill()
        left = [pid for rank, pid in self.ranks().items() if rank not in self.logged("ended") and is_running(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.launcher.wait()
        self.reader.join(LAUNCHER_LIMIT)


def command_of(a_round, options, log, profile):
    place = TINY if options.cpu else ["--device", "cuda", *MODEL]
    return ["env", f"GPU_RANKS_LOG={log}", kit.ROOT / "tools" / "gpu_ranks.sh", a_round.ranks, options.weft, "run", *place,
            *a_round.layout, "--steps", STEPS[options.at_once > 1], "--profile", profile, "--json"]


def wait_for_lines(job, count):
    """When the first so many lines of steps were said."""
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        steps = [when for when, line in list(job.lines) if re.search(r"\bstep +\d+/\d+\b", line)]
        if len(steps) >= count:
            return steps
        if job.launcher.poll() is not None:
            raise Failure(f"it ended by itself with {job.launcher.returncode}")
        time.sleep(0.005)
    raise Failure(f"no step was made within {START_LIMIT} s")


def strike(job, a_round, chance):
    """Sends the signal at a moment by lot: the victim, all processes, when."""
    pids = job.wait_for_ranks(a_round.ranks)
    # Jobs beside it end and begin, so how long steps take changes: the moment is after a line, not after a time.
    before, last = wait_for_lines(job, chance.randrange(2, LAST_LINE))[-2:]
    time.sleep(chance.uniform(0, 0.5) * (last - before))
    victim = chance.randrange(a_round.ranks)
    when = time.monotonic()
    try:
        os.kill(pids[victim], a_round.signal)
    except ProcessLookupError:
        raise Failure("the run was over before the signal") from None
    return victim, pids, when


def judge(job, a_round, victim, pids, when):
    """Seconds until all survivors had named the victim, and until they had ended."""
    survivors = {rank: pid for rank, pid in pids.items() if rank != victim}
    ended = job.watch_end(survivors, LIMIT)
    missing = sorted(set(survivors) - set(ended))
    later = job.watch_end({rank: survivors[rank] for rank in missing}, LIMIT) if missing else {}
    if is_running(pids[victim]):
        os.kill(pids[victim], signal.SIGKILL)
    if missing:
        words = ", ".join(f"{rank} after {LIMIT + took:.1f} s" for rank, took in later.items()) or "none"
        raise Failure(f"ranks {missing} are still there {LIMIT:.0f} s after {a_round.signal.name} to rank {victim}; "
                      f"those that end within {2 * LIMIT:.0f} s: {words}")
    code = job.finish(LAUNCHER_LIMIT)
    codes = job.logged("ended")
    if wrong := {rank: codes.get(rank) for rank in survivors if codes.get(rank) != SURVIVOR_CODE}:
        raise Failure(f"after {a_round.signal.name} to rank {victim} exit codes by rank are {wrong}, not {SURVIVOR_CODE}")
    if code == 0:
        raise Failure("the launcher ended with 0")
    named = [expect_words(job, rank, rf"\brank {victim} was lost \(", when) for rank in survivors]
    return max(named), max(ended.values())


def play(number, a_round, options, shell, folder):
    log = Path(folder) / f"ranks-{number}"
    command = command_of(a_round, options, log, profile_in(folder))
    shell.commands.append(" ".join(map(str, command)))
    job = GpuJob(command, log)
    chance = random.Random(options.seed * 1000 + number)
    try:
        return Outcome(a_round, *judge(job, a_round, *strike(job, a_round, chance)), "")
    except Failure as failure:
        return Outcome(a_round, LIMIT, LIMIT, f"{failure}\n{job.text()}")
    finally:
        job.clean_up()


def profile_in(folder):
    """Durations that are built in: nothing is measured before a round."""
    return Path(folder) / "any_machine.json"


def play_all(rounds, options, shell, begin):
    """Outcomes of all rounds that began in time, so many at once as the user wishes."""
    outcomes = []

    def play_in_time(number, a_round, folder):
        if time.monotonic() - begin > options.seconds:
            return None
        return play(number, a_round, options, shell, folder)

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        profile_in(folder).write_text('{"weft_profile": 1}')
        under_way = [pool.submit(play_in_time, i, a_round, folder) for i, a_round in enumerate(rounds)]
        try:
            for outcome in (done.result() for done in concurrent.futures.as_completed(under_way)):
                if outcome is None:
                    continue
                outcomes.append(outcome)
                words = outcome.failure or f"named after {outcome.named_s:.2f} s, all ended after {outcome.ended_s:.2f} s"
                print(f"{time.monotonic() - begin:4.0f} s  {'FAILED' if outcome.failure else 'passed'}  "
                      f"{outcome.round.in_words()}: {words}", flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # who is interrupted waits for rounds that have begun alone
    if len(outcomes) < len(rounds):
        print(f"{len(rounds) - len(outcomes)} of {len(rounds)} rounds are left out: {options.seconds:.0f} s are over")
    return outcomes


def rounds_of(options, chance):
    """Kills and stops mixed, so that a run that is cut short has both; ranks and layouts in turn."""
    signals = [signal.SIGKILL] * options.kills + [signal.SIGSTOP] * options.stops
    chance.shuffle(signals)
    counts = {}
    for number in signals:
        index = counts[number] = counts.get(number, -1) + 1
        ranks = options.ranks[index % len(options.ranks)]
        yield Round(ranks, number, LAYOUTS[ranks][index // len(options.ranks) % len(LAYOUTS[ranks])])


def report(outcomes):
    rows = []
    for ranks in sorted({o.round.ranks for o in outcomes}):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            of_kind = [o for o in outcomes if o.round.ranks == ranks and o.round.signal == number]
            good = [o for o in of_kind if not o.failure]
            if of_kind:
                seconds = [f"{statistics.median(o.named_s for o in good):.2f}", f"{max(o.named_s for o in good):.2f}",
                           f"{max(o.ended_s for o in good):.2f}"] if good else ["-"] * 3
                rows.append([number.name, str(ranks), str(len(of_kind)), str(len(good)), *seconds])
    print()
    kit.print_table(["signal", "ranks", "rounds", "passed", "named after s (median)", "worst", "all ended after s (worst)"],
                    rows)


def figures_of(outcomes):
    good = [o for o in outcomes if not o.failure]
    figures = {"rounds": len(outcomes), "passed": len(good)}
    for name, number in (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)):
        of_kind = [o for o in good if o.round.signal == number]
        figures[f"{name}s"] = sum(o.round.signal == number for o in outcomes)
        if of_kind:
            figures[f"{name}_named_worst_s"] = max(o.named_s for o in of_kind)
            figures[f"{name}_ended_worst_s"] = max(o.ended_s for o in of_kind)
    return figures


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[2, 4], metavar="2,4")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1800, help="no round begins later (default: 1800)")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="rounds at the same time (default: 1)")
    parser.add_argument("--cpu", action="store_true", help="tiny models on processors: a test of this script")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    kit.add_common_flags(parser)
    options = parser.parse_args()
    if unknown := set(options.ranks) - set(LAYOUTS):
        parser.error(f"--ranks: {sorted(unknown)} are not among {sorted(LAYOUTS)}")
    return options


def main():
    options = arguments()
    chance = random.Random(options.seed)
    rounds = list(rounds_of(options, chance))
    if options.dry_run:
        for a_round in rounds:
            print(f"# {a_round.in_words()}")
            print(*command_of(a_round, options, "LOG", "PROFILE"))
        return 0
    if not options.cpu:
        kit.require_gpu()
    machine, shell = kit.Machine(), kit.Shell(options.timeout)
    begin = time.monotonic()
    outcomes = play_all(rounds, options, shell, begin)
    print(f"\n{len(outcomes)} rounds, {options.at_once} at once, in {time.monotonic() - begin:.0f} s")
    report(outcomes)
    figures = figures_of(outcomes)
    goals = [kit.verdict("rounds that passed", figures["passed"], f"{len(rounds)}", figures["passed"] == len(rounds))]
    return kit.finish("faults", machine, shell, {"seed": options.seed, "figures": figures, "goals": goals}, options)


if __name__ == "__main__":
    kit.run_main(main)
