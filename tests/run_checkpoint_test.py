#!/usr/bin/env python3
"""`weft run --checkpoint`, the program itself: what it saves, how it goes on, what it says when it cannot.

    run_checkpoint_test.py WEFT [--rounds N] [--seed N]     kills a run N times at random moments (default: 2)

A run that was stopped, killed or found its newest checkpoint broken goes on as if nothing had happened: the same losses
and, in the last checkpoint, the same bits as a run in one go. Exit code 77 where there are no kernels.
"""

import argparse
import concurrent.futures
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from read_checkpoint import read_checkpoint  # noqa: E402

MODEL = "--layers 2 --hidden 32 --heads 4 --seq 16 --micro-batch 2 --vocab 256 --global-batch 8 --threads 1".split()
CALIBRATE = ["--calibrate-seconds", "0.1"]
THREADS = ["--cluster", "local:2"]
PROCESSES = ["--processes", "2", "--cluster", "local:2"]
PRIORITY = ["--policy", "priority", "--zero", "1"]


class Failure(Exception):
    pass


def check(good, *words):
    if not good:
        raise Failure(" ".join(map(str, words)))


class Program:
    """Runs of two ranks all plan by one profile: other durations may give another order of sums, and other bits."""

    def __init__(self, weft, folder):
        self.weft = weft
        self.profile = ["--profile", f"{folder}/profile.json"]
        done = subprocess.run([weft, "calibrate", *MODEL, *CALIBRATE, *THREADS, "--out", folder], capture_output=True,
                              text=True, timeout=120)
        if "needs kernels" in done.stderr:
            print(f"skipped: {done.stderr.strip()}")
            sys.exit(77)
        check(done.returncode == 0, "weft calibrate:", done.stderr)

    def command(self, folder, steps, *flags):
        durations = CALIBRATE if "--calibrated" in flags else self.profile
        flags = [str(flag) for flag in flags if flag != "--calibrated"]
        return [self.weft, "run", *MODEL, *durations, "--json", "--steps", str(steps), "--checkpoint", str(folder), *flags]

    def run(self, folder, steps, *flags, code=0, under=()):
        command = [*under, *self.command(folder, steps, *flags)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        check(done.returncode == code, " ".join(command), "exit code", done.returncode, "\n", done.stderr)
        return done

    def losses(self, *arguments, **options):
        answer = json.loads(self.run(*arguments, **options).stdout)
        (policy,) = answer["policies"].values()
        return policy["losses"], answer["checkpoints"]

    def start(self, folder, steps, *flags):
        return subprocess.Popen(self.command(folder, steps, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)


def names(folder):
    return sorted(entry.name for entry in Path(folder).iterdir())


def same_tensors(one, other):
    check(read_checkpoint(one)[1] == read_checkpoint(other)[1], one, "and", other, "hold other numbers")


def goes_on(program, scratch):
    """Three steps and three more are six, also as processes, and whoever reads the files finds that, too."""
    for ranks in (THREADS, PROCESSES):
        for flags in (PRIORITY, ["--policy", "fsdp", "--zero", "3"]):
            straight, halves = scratch("straight"), scratch("halves")
            expected, _ = program.losses(straight, 6, *ranks, *flags)
            first, _ = program.losses(halves, 3, *ranks, *flags)
            second, said = program.losses(halves, 6, *ranks, *flags, "--resume")
            check(first + second == expected, flags, first, second, expected)
            check(said["resumed_from"] == 3 and said["last_step"] == said["last_saved"] == 6, said)
            same_tensors(straight / "step-00000006", halves / "step-00000006")
            manifest, tensors = read_checkpoint(halves / "step-00000006")
            check(manifest["step"] == 6 and manifest["run"]["model"]["layers"] == 2, manifest["run"])
            check({kind for kind, _ in tensors} == {"weight", "first_moment", "second_moment"}, list(tensors))


def other_layouts(program, scratch):
    """Each two steps on another layout; the losses are those of one rank, to rounding."""
    chain = [("local:1",), ("local:2", "--zero", "2"), ("local:2", "--tp", "2"), ("local:2", "--pp", "2"),
             ("local:2", "--cp", "2"), ("local:4", "--tp", "2", "--pp", "2"),
             ("local:4", "--tp", "2", "--zero", "3"), ("local:2", "--zero", "3")]
    expected, _ = program.losses(scratch("alone"), 2 * len(chain), "--cluster", "local:1", "--policy", "serial",
                                 "--calibrated")
    folder, found = scratch("chain"), []
    for place, (cluster, *layout) in enumerate(chain):
        losses, _ = program.losses(folder, 2 * place + 2, "--cluster", cluster, *layout, "--policy", "serial", "--resume",
                                   "--calibrated")
        found += losses
    off = max(abs(a / b - 1) for a, b in zip(found, expected))
    check(len(found) == len(expected) and off < 1e-4, found, expected)


def broken(program, scratch):
    """The newest is damaged: it is named, the one before is used, and training ends with the same bits."""
    straight, good = scratch("straight"), scratch("good")
    program.run(straight, 6, *THREADS, *PRIORITY)
    program.run(good, 4, *THREADS, *PRIORITY, "--checkpoint-every", 2)
    check(names(good) == ["step-00000002", "step-00000004"], names(good))

    def flip(path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    shard = "rank-00001.safetensors"
    damages = {
        f"{shard} has 1000 of": lambda new: os.truncate(new / shard, 1000),
        f"{shard} has changed since it was written": lambda new: flip(new / shard),
        f"{shard} is missing": lambda new: (new / shard).unlink(),
        "manifest.json is missing": lambda new: (new / "manifest.json").unlink(),
        "manifest.json: ": lambda new: flip(new / "manifest.json"),
    }
    for words, damage in damages.items():
        folder = scratch("broken")
        shutil.copytree(good, folder)
        damage(folder / "step-00000004")
        shutil.copytree(good / "step-00000004", folder / ".step-00000006.partial")
        done = program.run(folder, 6, *THREADS, *PRIORITY, "--resume")
        check(f"step-00000004: {words}" in done.stderr and "; not used" in done.stderr, done.stderr)
        check("goes on after step 2" in done.stderr, done.stderr)
        check(names(folder) == ["bad-step-00000004", "step-00000002", "step-00000006"], names(folder))
        same_tensors(straight / "step-00000006", folder / "step-00000006")
    folder = scratch("all_broken")
    shutil.copytree(good, folder)
    for step in names(folder):
        (folder / step / shard).unlink()
    done = program.run(folder, 6, *THREADS, *PRIORITY, "--resume", code=2)
    check("is whole" in done.stderr and "step-00000002" in done.stderr and "step-00000004" in done.stderr, done.stderr)
    check(names(folder) == ["step-00000002", "step-00000004"], names(folder))


def refuses(program, scratch):
    folder = scratch("refuses")
    program.run(folder, 2, *THREADS, "--policy", "ddp")
    before = names(folder)

    def says(words, *flags, code=2, steps=4):
        done = program.run(folder, steps, *flags, code=code)
        check(words in done.stderr, words, "not in", done.stderr)
        check(names(folder) == before, names(folder))
        return done

    says("has checkpoints already, the newest of step 2", *THREADS, "--policy", "ddp")
    resume = [*THREADS, "--policy", "ddp", "--resume"]
    says("seed is 1 there, 5 here", *resume, "--seed", 5)
    says("optimizer name is \"adam\" there, \"sgd\" here", *resume, "--optimizer", "sgd")
    says("data bytes is 1048576 there", *resume, "--data", __file__)
    says("a training has one policy", *THREADS, "--policy", "ddp,serial", "--resume")
    says("--record", *resume, "--record", folder / "record")
    done = says("nothing left to do: step 2 of 2 is saved", *resume, code=0, steps=2)
    check(json.loads(done.stdout)["finished"], done.stdout)
    # Without a policy it goes on with the one it had.
    answer = json.loads(program.run(folder, 4, *THREADS, "--resume", "--lr", "0.002").stdout)
    check(list(answer["policies"]) == ["ddp"], answer["policies"].keys())


def full_disk(program, scratch):
    """Files may not grow beyond a limit, as on a full disk; the old checkpoint stays."""
    limit = ["prlimit", "--fsize=50000"]
    for ranks in (THREADS, PROCESSES):
        folder = scratch("full")
        program.run(folder, 2, *ranks, *PRIORITY)
        flags = [*ranks, *PRIORITY, "--resume", "--checkpoint-every", 2]
        done = program.run(folder, 6, *flags, code=3, under=limit)
        check("the checkpoint of step 4 was not saved" in done.stderr, done.stderr)
        check("rank-0000" in done.stderr and "File too large" in done.stderr, done.stderr)
        check(names(folder) == ["step-00000002"], names(folder))
        _, said = program.losses(folder, 6, *flags, "--on-save-error", "continue", under=limit)
        check(said["failed"] == 2 and said["saved"] == 0 and said["last_step"] == 6, said)
        check(names(folder) == ["step-00000002"], names(folder))
        program.run(folder, 6, *flags)
        check(names(folder) == ["step-00000004", "step-00000006"], names(folder))


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        check(time.monotonic() < end, "waited too long")
        time.sleep(0.01)


def ends_when_asked(program, scratch):
    for number in (signal.SIGTERM, signal.SIGUSR1):
        for ranks in (PROCESSES, THREADS):
            folder, straight = scratch("asked"), scratch("straight")
            running = program.start(folder, 100_000, *ranks, *PRIORITY, "--checkpoint-every", 3)
            wait_for(lambda: running.poll() is not None or folder.exists() and any("step" in n for n in names(folder)))
            running.send_signal(number)
            out, err = running.communicate(timeout=60)
            check(running.returncode == 0 and "stopped by a signal after step" in err, running.returncode, err)
            said = json.loads(out)["checkpoints"]
            last = said["last_saved"]
            check(said["stopped"] and said["last_step"] == last, said)
            program.run(folder, last + 2, *ranks, *PRIORITY, "--resume")
            program.run(straight, last + 2, *ranks, *PRIORITY)
            same_tensors(folder / f"step-{last + 2:08}", straight / f"step-{last + 2:08}")


def killed(program, scratch, rounds, seed):
    """Killed at a random moment, as often as it takes to reach the end: no step is lost but those since the last save."""
    dice = random.Random(seed)
    folder, straight, steps = scratch("killed"), scratch("straight"), 40
    flags = [*PROCESSES, *PRIORITY, "--checkpoint-every", 4]
    for _ in range(rounds):
        running = program.start(folder, 100_000, *flags, "--resume")
        time.sleep(dice.uniform(0.3, 2))
        running.kill()
        running.communicate(timeout=60)
    saved = [int(name[5:]) for name in names(folder) if name.startswith("step-")] if folder.exists() else []
    end = max(saved, default=0) + steps
    _, said = program.losses(folder, end, *flags, "--resume")
    check(said["resumed_from"] == max(saved, default=0), said, saved)
    program.run(straight, end, *flags)
    same_tensors(folder / f"step-{end:08}", straight / f"step-{end:08}")
    check(not any(name.startswith(".") for name in names(folder)), names(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", help="the program")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="parts at a time (default: the cores)")
    parser.add_argument("--only", default="", help="the parts with this in their names")
    arguments = parser.parse_args()
    parts = {"goes on": goes_on, "other layouts": other_layouts, "broken": broken, "refuses": refuses,
             "full disk": full_disk, "ends when asked": ends_when_asked,
             "killed": lambda p, s: killed(p, s, arguments.rounds, arguments.seed)}
    calibrated = tempfile.TemporaryDirectory()
    program = Program(arguments.weft, calibrated.name)

    def attempt(name):
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            count = iter(range(1_000_000))
            try:
                parts[name](program, lambda label: Path(folder) / f"{label}-{next(count)}")
            except (Failure, AssertionError) as failure:
                print(f"FAIL  {name}: {failure}", flush=True)
                return False
        print(f"ok    {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        return True

    # Most of a run's time goes into loading libtorch: parts go side by side, the longest first.
    chosen = [name for name in ("broken", *parts) if arguments.only in name]
    with concurrent.futures.ThreadPoolExecutor(max_workers=arguments.jobs) as pool:
        results = list(pool.map(attempt, dict.fromkeys(chosen)))
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
