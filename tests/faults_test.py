#!/usr/bin/env python3
"""Ranks that die or stand still, with the real program: the others must say who was lost and in what, and end.

    faults_test.py WEFT processes             ranks started by us, and by hand with Slurm's variables
    faults_test.py WEFT mpi --mpirun MPIRUN   ranks of an MPI job; exit code 77 where there is no launcher

Every moment and every victim follows from --seed. --rounds N repeats the kills N times instead (a soak).
"""

import argparse
import collections
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from fault_jobs import Failure, Job, expect_words, is_running  # noqa: E402

RANKS = 3
LIMIT = 10.0  # seconds in which every survivor must have ended
OPERATION = r"(all_reduce|all_gather|barrier|broadcast|send_recv|connecting)"
LONG_RUN = ["--size", "64MiB", "--repeat", "1000"]
# Small enough that ranks which share cores are never idle for seconds.
SHORT_CALLS = ["--size", "1MiB", "--repeat", "10000"]


def lost_pattern(victim):
    return rf"(?=.*\brank {victim} (was lost|was killed|is lost|left)\b).*{OPERATION}"


Result = collections.namedtuple("Result", "said ended words")  # seconds, seconds, all that was said
Moment = collections.namedtuple("Moment", "name after")  # seconds after all ranks are there


def strike(job, moment, number, chance):
    """Waits for the moment, sends the signal to a rank by lot; (rank, survivors, when)."""
    pids = job.wait_for_ranks(RANKS)
    time.sleep(moment.after)
    victim = chance.randrange(RANKS)
    when = time.monotonic()
    os.kill(pids[victim], number)
    return victim, pids, when


def kill_one(command, rank_variable, moment, chance, under_mpi=False):
    job = Job(command, rank_variable)
    try:
        victim, pids, when = strike(job, moment, signal.SIGKILL, chance)
        survivors = {rank: pid for rank, pid in pids.items() if rank != victim}
        ended = job.watch_end(survivors, LIMIT)
        missing = sorted(set(survivors) - set(ended))
        if missing:
            raise Failure(f"ranks {missing} are still there {LIMIT} s after rank {victim} was killed")
        code = job.finish(LIMIT)
        if not under_mpi and code != 3:
            raise Failure(f"the launcher ended with {code}, not 3")
        said = [expect_words(job, rank, lost_pattern(victim), when) for rank in survivors]
        print(f"  rank {victim} killed {moment.name}: named after {max(said):.2f} s, all ended after "
              f"{max(ended.values()):.2f} s")
        return Result(max(said), max(ended.values()), job.text())
    except Failure as failure:
        raise Failure(f"{moment.name}: {failure}\n{job.text()}") from None
    finally:
        job.clean_up()


def stop_one(command, rank_variable, moment, chance, under_mpi=False):
    job = Job(command, rank_variable)
    try:
        victim, pids, when = strike(job, moment, signal.SIGSTOP, chance)
        survivors = {rank: pid for rank, pid in pids.items() if rank != victim}
        ended = job.watch_end(survivors, LIMIT)
        missing = sorted(set(survivors) - set(ended))
        if missing:
            raise Failure(f"ranks {missing} are still there {LIMIT} s after rank {victim} was stopped")
        code = job.finish(2 * LIMIT)
        if not under_mpi and code != 3:
            raise Failure(f"the launcher ended with {code}, not 3")
        if is_running(pids[victim]):
            raise Failure(f"the stopped rank {victim} is still there")
        pattern = rf"(?=.*rank {victim} has given no sign of life for).*{OPERATION}"
        said = [expect_words(job, rank, pattern, when) for rank in survivors]
        print(f"  rank {victim} stopped {moment.name}, --timeout 2: named after {max(said):.2f} s, all ended after "
              f"{max(ended.values()):.2f} s, cleaned up after {time.monotonic() - when:.2f} s")
    except Failure as failure:
        raise Failure(f"stopped {moment.name}: {failure}\n{job.text()}") from None
    finally:
        job.clean_up()


def moments(chance):
    """Three while the ranks start (the last of them connected for a moment), three in the middle of collectives."""
    yield Moment("at its start", 0)
    for _ in range(2):
        after = chance.uniform(0.0, 0.08)
        yield Moment(f"{after:.3f} s after the start", after)
    for _ in range(3):
        after = chance.uniform(0.8, 2.2)
        yield Moment(f"{after:.2f} s after the start", after)


def soak(rounds, chance, kill):
    times = []
    while len(times) < rounds:
        for moment in moments(chance):
            if len(times) < rounds:
                times.append(kill(moment))
    print(f"{rounds} kills: named after {max(result.said for result in times):.2f} s at most, all ended after "
          f"{max(result.ended for result in times):.2f} s at most")


SLURM_SECRET = "the same for all tasks of a job"  # as its user exports it; docs/security.md


def slurm_run(weft, rank, job_id, extra, **options):
    variables = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(rank),
                 "SLURM_STEP_NODELIST": "localhost,node[07-09]", "SLURM_JOB_ID": str(job_id), "SLURM_STEP_ID": "0",
                 "WEFT_JOB_SECRET": SLURM_SECRET}
    return subprocess.Popen([weft, "collective", "bench", *extra], env={**os.environ, **variables}, text=True,
                            stdin=subprocess.DEVNULL, **options)


def free_job_id():
    """A job number whose port (src/comm/launch.cpp: 15000 + number % 17000) is free."""
    for number in range(os.getpid() % 17000, 17000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", 15000 + number))
                return number
            except OSError:
                continue
    raise Failure("no free port")


def with_slurm_variables(weft):
    job_id = free_job_id()
    arguments = ["--collective", "all_reduce,all_to_all", "--size", "64KiB", "--repeat", "3"]
    ranks = [slurm_run(weft, rank, job_id, arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for rank in range(2)]
    try:
        results = [rank.communicate(timeout=30) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for number, (rank, (out, err)) in enumerate(zip(ranks, results)):
        if rank.returncode != 0:
            raise Failure(f"task {number} ended with {rank.returncode}: {err}")
    if not re.search(r"^2 ranks: processes, messages over TCP sockets$", results[0][0], re.M) or "all_to_all" not in results[0][0]:
        raise Failure(f"task 0 printed no table of 2 ranks:\n{results[0][0]}")
    if results[1][0]:
        raise Failure(f"task 1 printed something too:\n{results[1][0]}")
    print("  two tasks with Slurm's variables found each other")


def kill_with_slurm_variables(weft):
    with tempfile.TemporaryFile("w+") as said:
        job_id = free_job_id()
        ranks = [slurm_run(weft, rank, job_id, LONG_RUN, stdout=subprocess.DEVNULL, stderr=said) for rank in range(2)]
        try:
            time.sleep(1.5)
            when = time.monotonic()
            ranks[0].kill()
            code = ranks[1].wait(LIMIT)
            took = time.monotonic() - when
        except subprocess.TimeoutExpired:
            raise Failure(f"task 1 is still there {LIMIT} s after task 0 was killed") from None
        finally:
            for rank in ranks:
                rank.kill()
        said.seek(0)
        words = said.read()
        if code != 3 or not re.search("^weft: rank 1: " + lost_pattern(0), words, re.M):
            raise Failure(f"task 1 ended with {code} and said:\n{words}")
        print(f"  task 0 of Slurm killed: task 1 ended after {took:.2f} s")


def mismatched_sizes(weft):
    """Two ranks that were told different sizes: both say so before they begin."""
    job_id = free_job_id()
    ranks = [slurm_run(weft, rank, job_id, ["--algorithm", "ring", "--parts", "1", "--size", size],
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
             for rank, size in enumerate(["64KiB", "128KiB"])]
    try:
        words = [rank.communicate(timeout=LIMIT)[1] for rank in ranks]
    except subprocess.TimeoutExpired:
        raise Failure("ranks that were told different sizes hang") from None
    finally:
        for rank in ranks:
            rank.kill()
    for number, rank in enumerate(ranks):
        if rank.returncode != 2 or "rank 1 has --size 128KiB, rank 0 has --size 64KiB" not in words[number]:
            raise Failure(f"rank {number} ended with {rank.returncode} and said:\n{words[number]}")
    print("  different sizes: named by both")


def test_processes(options, chance):
    start = [options.weft, "collective", "bench", "--processes", str(RANKS)]

    def kill(moment):
        return kill_one([*start, *LONG_RUN], "WEFT_RANK", moment, chance)

    if options.rounds:
        return soak(options.rounds, chance, kill)
    for moment in moments(chance):
        kill(moment)
    for name, after in [("while links are measured", 0.6), ("among collectives", 2.2)]:
        stop_one([*start, *SHORT_CALLS, "--timeout", "2"], "WEFT_RANK", Moment(name, after), chance)
    with_slurm_variables(options.weft)
    kill_with_slurm_variables(options.weft)
    # 64 KiB and 128 KiB of floats; a ring of two sends halves.
    mismatched_sizes(options.weft)


def test_mpi(options, chance):
    if not options.mpirun or not shutil.which(options.mpirun):
        print(f"skipped: the MPI launcher '{options.mpirun}' is not here (Debian: openmpi-bin)")
        sys.exit(77)
    version = subprocess.run([options.mpirun, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version and "OpenRTE" not in version:
        print(f"skipped: '{options.mpirun}' is not Open MPI's, whose way with survivors this tests")
        sys.exit(77)
    start = [options.mpirun, "-n", str(RANKS), "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        start.append("--allow-run-as-root")
    start += ["-x", "FAULTS_TEST", options.weft, "collective", "bench"]
    # With `native` among the candidates it is timed first, for half of the rounds.
    in_native = [*start, "--size", "16MiB", "--repeat", "10000", "--algorithm", "ring"]
    in_ring = [*start, *LONG_RUN, "--algorithm", "ring", "--no-native"]

    def kill(command):
        after = chance.uniform(2, 4)
        name = f"{after:.2f} s after the start, {'ring' if command is in_ring else 'native'}"
        return kill_one(command, "OMPI_COMM_WORLD_RANK", Moment(name, after), chance, under_mpi=True)

    if options.rounds:
        times = [kill(chance.choice([in_native, in_ring])) for _ in range(options.rounds)]
        print(f"{options.rounds} kills: named after {max(result.said for result in times):.2f} s at most")
        return
    kill(in_ring)
    # Between two native calls ranks also wait for each other: another try where the kill fell there.
    for _ in range(12):
        if re.search(r"all_reduce.*, native\)", kill(in_native).words):
            break
    else:
        raise Failure("twelve kills, and none was noticed inside a native call")
    stop_one([*in_native, "--timeout", "2"], "OMPI_COMM_WORLD_RANK", Moment("among native calls", 3), chance, under_mpi=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("part", choices=["processes", "mpi"])
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    try:
        (test_processes if options.part == "processes" else test_mpi)(options, chance)
    except Failure as failure:
        print(f"FAILED (seed {options.seed}): {failure}")
        sys.exit(1)


if __name__ == "__main__":
    main()
