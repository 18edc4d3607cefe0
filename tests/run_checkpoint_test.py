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
import zlib
from pathlib import Path

sys.dont_write_bytecode = True
import warm_program  # noqa: E402
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
        self.started = []
        self.profile = ["--profile", f"{folder}/profile.json"]
        done = warm_program.run([weft, "calibrate", *MODEL, *CALIBRATE, *THREADS, "--out", folder], timeout=120)
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
        done = warm_program.run(command, timeout=120)
        check(done.returncode == code, " ".join(command), "exit code", done.returncode, "\n", done.stderr)
        return done

    def losses(self, *arguments, **options):
        answer = json.loads(self.run(*arguments, **options).stdout)
        (policy,) = answer["policies"].values()
        return policy["losses"], answer["checkpoints"]

    def start(self, folder, steps, *flags):
        running = warm_program.start(self.command(folder, steps, *flags))
        self.started.append((str(folder), running))
        return running

    def end_runs(self, where=""):
        """Those that save below that folder: a part that failed may have left runs of 100,000 steps."""
        for folder, running in self.started:
            if folder.startswith(where) and running.poll() is None:
                running.kill()
                running.communicate(timeout=60)


def names(folder):
    """All but the lock, which is of no run when nobody holds it."""
    return sorted(entry.name for entry in Path(folder).iterdir() if entry.name != ".lock")


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


def schedules(program, scratch):
    """Learning rates and validation go on where they were: a run in two halves has those of a run in one go."""
    flags = ["--lr-schedule", "cosine", "--lr-warmup", 2, "--lr-min", 1e-5, "--lr-decay-steps", 12, "--eval-every", 3,
             "--eval-batches", 2]

    def policy(*arguments):
        done = program.run(*arguments)
        (answer,) = json.loads(done.stdout)["policies"].values()
        return answer, done.stderr

    for ranks, layout in ((THREADS, PRIORITY), (PROCESSES, ["--policy", "priority", "--pp", "2"])):
        straight, _ = policy(scratch("straight"), 12, *ranks, *layout, *flags)
        halves = scratch("halves")
        first, _ = policy(halves, 6, *ranks, *layout, *flags)
        second, said = policy(halves, 12, *ranks, *layout, *flags, "--resume")
        for key in ("losses", "learning_rates"):
            check(first[key] + second[key] == straight[key], key, first[key], second[key], straight[key])
        check([v["step"] for v in straight["validation"]] == [3, 6, 9, 12], straight["validation"])
        # The second half begins with that of step 6: who is stopped there leaves it out.
        check(first["validation"] + second["validation"][1:] == straight["validation"], first, second)
        check(second["validation"][0] == first["validation"][-1], second["validation"])
        check("lr_schedule" not in said, said)
        _, said = policy(halves, 13, *ranks, *layout, "--resume", "--eval-every", 13, "--lr-warmup", 2)
        check('weft: lr_schedule is {"style":"constant","warmup":2}, was {"style":"cosine"' in said, said)
    refused = program.run(halves, 14, *ranks, *layout, "--resume", code=2).stderr
    check("is of another training: data bytes is" in refused, refused)  # nothing would be held out
    done = program.run(halves, 4, *ranks, *layout, "--eval-every", 13, "--resume")
    check(f"weft: nothing left to do: --steps 4, and {halves} has step 13 already" in done.stderr, done.stderr)


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


KFAC = ["--optimizer", "kfac", "--no-dropout"]


def kfac(program, scratch, rounds, seed):
    """Factors of curvature are saved with the rest, whether a step left its inversions to the next one or not."""
    for ranks, flags in ((THREADS, ["--pp", "2", "--policy", "weft", "--budget", "0.1", "--kfac-interval", "3"]),
                         (PROCESSES, ["--policy", "serial", "--zero", "1"]), (THREADS, ["--policy", "ddp", "--tp", "2"])):
        straight, parts = scratch("straight"), scratch("parts")
        expected, _ = program.losses(straight, 6, *ranks, *KFAC, *flags, "--checkpoint-every", 1)
        found = []
        for end in (1, 4, 6):  # after one step most factors of a turn of three are not there yet
            losses, _ = program.losses(parts, end, *ranks, *KFAC, *flags, "--resume")
            found += losses
        check(found == expected, flags, found, expected)
        same_tensors(straight / "step-00000006", parts / "step-00000006")
        _, tensors = read_checkpoint(parts / "step-00000006")
        check(("input_factor", "layers.1.qkv.weight") in tensors and ("output_factor", "layers.0.ffn_out.weight") in tensors,
              list(tensors))
    chain = [("local:1",), ("local:2", "--zero", "1"), ("local:2", "--pp", "2"), ("local:4", "--pp", "2", "--zero", "2")]
    expected, _ = program.losses(scratch("alone"), 2 * len(chain), "--cluster", "local:1", "--policy", "serial", *KFAC,
                                 "--calibrated")
    folder, found = scratch("chain"), []
    for place, (cluster, *layout) in enumerate(chain):
        losses, _ = program.losses(folder, 2 * place + 2, "--cluster", cluster, *layout, *KFAC, "--policy", "serial", "--resume",
                                   "--calibrated")
        found += losses
    off = max(abs(a / b - 1) for a, b in zip(found, expected))
    check(len(found) == len(expected) and off < 1e-4, found, expected)
    refused = program.run(folder, 10, *THREADS, "--policy", "serial", "--no-dropout", "--resume", code=2).stderr
    check('optimizer name is "kfac" there, "adam" here' in refused, refused)
    said = program.run(folder, 10, *THREADS, *KFAC, "--policy", "serial", "--kfac-interval", 4, "--kfac-damping", 0.3,
                       "--resume").stderr
    check("optimizer kfac interval is 4, was 1" in said and "optimizer kfac damping is 0.3, was 0.1" in said, said)
    killed(program, scratch, rounds, seed, [*THREADS, *KFAC, "--policy", "weft", "--budget", "0.1", "--pp", "2"])


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
    done = says("nothing left to do: --steps 2, and", *resume, code=0, steps=2)
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


def killed(program, scratch, rounds, seed, training=(*PROCESSES, *PRIORITY)):
    """Killed at a random moment, as often as it takes to reach the end: no step is lost but those since the last save."""
    dice = random.Random(seed)
    folder, straight, steps = scratch("killed"), scratch("straight"), 40
    flags = [*training, "--checkpoint-every", 4]
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


def saved_any(folder):
    return folder.exists() and any(name.startswith("step-") for name in names(folder))


def two_runs(program, scratch):
    """The second is refused at once and does no harm; the first ends, and goes on to the bits of a run without it."""
    for ranks in (THREADS, PROCESSES):
        folder, straight = scratch("shared"), scratch("straight")
        first = program.start(folder, 100_000, *ranks, *PRIORITY, "--checkpoint-every", 2)
        wait_for(lambda: first.poll() is not None or saved_any(folder))
        holder = (folder / ".lock").read_text().strip()
        check(holder.startswith("process ") and f" on host {os.uname().nodename}" in holder, holder)
        second = program.run(folder, 100_000, *ranks, *PRIORITY, "--checkpoint-every", 2, "--resume", code=2)
        words = f"--checkpoint {folder}: another run saves there: {holder}"
        check(words in second.stderr and "goes on after" not in second.stderr, words, "not in", second.stderr)
        check("step " not in second.stderr.replace("step-", ""), "it has trained:", second.stderr)
        check(first.poll() is None, "the first run has ended:", first.poll())
        first.send_signal(signal.SIGTERM)
        out, err = first.communicate(timeout=60)
        check(first.returncode == 0, first.returncode, err)
        last = json.loads(out)["checkpoints"]["last_saved"]
        program.run(folder, last + 2, *ranks, *PRIORITY, "--resume")
        program.run(straight, last + 2, *ranks, *PRIORITY)
        same_tensors(folder / f"step-{last + 2:08}", straight / f"step-{last + 2:08}")


def killed_holder(program, scratch):
    """The lock of a run that was killed, and what it had half written, are in nobody's way."""
    folder = scratch("killed_holder")
    first = program.start(folder, 100_000, *THREADS, *PRIORITY, "--checkpoint-every", 2)
    wait_for(lambda: first.poll() is not None or saved_any(folder))
    first.kill()
    first.communicate(timeout=60)
    last = max(int(name[5:]) for name in names(folder) if name.startswith("step-"))
    _, said = program.losses(folder, last + 2, *THREADS, *PRIORITY, "--resume")
    check(said["resumed_from"] == last, said, last)
    check(not any(name.startswith(".") for name in names(folder)), names(folder))


def rewrite_manifest(checkpoint, change):
    """As a tool would that means well: the manifest's own checksum is right afterwards."""
    path = checkpoint / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["crc32"]
    change(manifest)
    compact = {"separators": (",", ":"), "ensure_ascii": False}
    manifest["crc32"] = zlib.crc32(json.dumps(manifest, **compact).encode())
    path.write_text(json.dumps(manifest, **compact) + "\n")


def mixed(program, scratch):
    """Shards of two runs of the same training, of two steps, or of another rank, with checksums that are right."""
    one, other = scratch("one"), scratch("other")
    for folder in (one, other):
        program.run(folder, 4, *THREADS, *PRIORITY, "--checkpoint-every", 2)
    step, shards = "step-00000004", [f"rank-{rank:05}.safetensors" for rank in range(2)]
    ids = [json.loads((folder / step / "manifest.json").read_text())["run_id"] for folder in (one, other)]
    check(ids[0] != ids[1] and all(len(word) == 32 for word in ids), ids)

    def copied_as_shard_1(source):
        def damage(folder):
            shutil.copy(source, folder / step / shards[1])
            described = json.loads((source.parent / "manifest.json").read_text())["files"][shards.index(source.name)]

            def change(manifest):
                manifest["files"][1] = {**described, "name": shards[1]}

            rewrite_manifest(folder / step, change)
        return damage

    def of_version_1(folder):
        def change(manifest):
            manifest["weft_checkpoint"] = 1
            del manifest["run_id"]
        rewrite_manifest(folder / step, change)

    place = f"{step}: {shards[1]}"
    cases = {
        f"{place} is of run {ids[1]}, the manifest of run {ids[0]}: shards of two runs are mixed; not used":
            copied_as_shard_1(other / step / shards[1]),
        f"{place} is of step 2, the manifest of step 4; not used": copied_as_shard_1(one / "step-00000002" / shards[1]),
        f"{place} is the shard of rank 0; not used": copied_as_shard_1(one / step / shards[0]),
        "step-00000004 is of version 1, without the id of a run": of_version_1,
    }
    for words, damage in cases.items():
        folder = scratch("mixed")
        shutil.copytree(one, folder)
        damage(folder)
        done = program.run(folder, 5, *THREADS, *PRIORITY, "--resume")
        check(words in done.stderr, words, "not in", done.stderr)
        check(f"goes on after step {4 if 'version' in words else 2}" in done.stderr, done.stderr)


def special_files(program, scratch):
    """What is no file, or cannot be written, is said at the start: nothing hangs, nothing is trained for nothing."""
    folder = scratch("special")
    program.run(folder, 2, *THREADS, *PRIORITY)
    manifest = folder / "step-00000002" / "manifest.json"
    manifest.unlink()
    os.mkfifo(manifest)
    done = program.run(folder, 4, *THREADS, *PRIORITY, "--resume", code=2)
    check("manifest.json: is a named pipe, not a file" in done.stderr, done.stderr)
    manifest.unlink()
    manifest.symlink_to("/dev/zero")
    done = program.run(folder, 4, *THREADS, *PRIORITY, "--resume", code=2)
    check("manifest.json: is a device, not a file" in done.stderr, done.stderr)
    done = program.run("/sys", 4, *THREADS, *PRIORITY, code=2)  # which not even root can write to
    check("--checkpoint /sys: cannot be written to" in done.stderr, done.stderr)
    for ranks in (THREADS, PROCESSES):
        limited = scratch("limited")
        done = program.run(limited, 2, *ranks, *PRIORITY, "--out", limited / "out", code=3,
                           under=["prlimit", "--fsize=50000"])
        check("File too large" in done.stderr, done.stderr)
        check(not any(".part" in path.name for path in limited.rglob("*")), list(limited.rglob("*")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", help="the program")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="parts at a time (default: the cores)")
    parser.add_argument("--only", default="", help="the parts with this in their names")
    arguments = parser.parse_args()
    parts = {"goes on": goes_on, "schedules": schedules, "other layouts": other_layouts, "broken": broken, "refuses": refuses,
             "full disk": full_disk, "ends when asked": ends_when_asked, "two runs": two_runs,
             "killed holder": killed_holder, "mixed": mixed, "special files": special_files,
             "killed": lambda p, s: killed(p, s, arguments.rounds, arguments.seed),
             "kfac": lambda p, s: kfac(p, s, arguments.rounds, arguments.seed)}
    calibrated = tempfile.TemporaryDirectory()
    program = Program(arguments.weft, calibrated.name)

    def attempt(name):
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            count = iter(range(1_000_000))
            try:
                parts[name](program, lambda label: Path(folder) / f"{label}-{next(count)}")
            except (Failure, AssertionError, KeyError, OSError, subprocess.TimeoutExpired) as failure:
                print(f"FAIL  {name}: {failure!r}", flush=True)
                program.end_runs(folder)  # before their folder goes
                return False
        print(f"ok    {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        return True

    # Parts go side by side, the longest first.
    chosen = [name for name in ("broken", "kfac", *parts) if arguments.only in name]
    with concurrent.futures.ThreadPoolExecutor(max_workers=arguments.jobs) as pool:
        try:
            results = list(pool.map(attempt, dict.fromkeys(chosen)))
        finally:
            program.end_runs()
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
