#!/usr/bin/env python3
"""Plans that were refused by their own verifier, and plan files changed by hand that once passed it and did harm.

    changed_plans_test.py WEFT

`weft verify` must refuse what hangs or trains wrongly, and what it accepts must train as the plan it was made from.
Exit code 77 where this build of Weft has no kernels.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import warm_program  # noqa: E402

STEPS = ["--steps", "4", "--calibrate-seconds", "0.01", "--json"]


def weft(program, *arguments):
    done = warm_program.run([program, *arguments], timeout=150)
    if "needs kernels" in done.stderr:
        print("skipped: " + done.stderr.strip())
        sys.exit(77)
    return done


def plan_of(program, folder, flags):
    done = weft(program, "plan", *flags.split(), "--out", folder)
    assert done.returncode == 0, done.stderr
    return (folder / "plan.json").read_text()


def losses(program, path):
    done = weft(program, "run", path, *STEPS)
    assert done.returncode == 0, done.stderr
    (policy,) = json.loads(done.stdout)["policies"].values()
    return policy["losses"]


def verdict(program, path, text):
    path.write_text(text)
    done = weft(program, "verify", path)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout + done.stderr


def queue_numbers(text, rank_class):
    """The queues of a class by name, in the order of the file."""
    lists = re.findall(r'"queues":(\[.*?\])', text)
    return {queue["name"]: number for number, queue in enumerate(json.loads(lists[rank_class]))}


def check_queues(program, folder):
    plan = plan_of(program, folder, "--layers 4 --hidden 32 --heads 4 --vocab 128 --seq 16 --pp 2 --vpp 2 --micro-batch 1 "
                   "--global-batch 4 --cluster local:2,nic=50MB/s --policy weft --budget 2")
    queues = queue_numbers(plan, 0)
    lines = plan.split("\n")
    received = [i for i, line in enumerate(lines)
                if '"class":0' in line and f'"queue":{queues["pp backward recv"]}' in line]
    assert received, "stage 0 receives gradients"
    changed = list(lines)
    changed[received[0]] = changed[received[0]].replace(f'"queue":{queues["pp backward recv"]}', f'"queue":{queues["tied"]}')
    code, words = verdict(program, folder / "moved.json", "\n".join(changed))
    assert code == 1 and "queues that do not match" in words, words
    # A name means nothing: whoever shares transfers shares the queue.
    code, words = verdict(program, folder / "renamed.json", plan.replace('"name":"tied"', '"name":"renamed"', 1))
    assert code == 0, words
    assert losses(program, folder / "renamed.json") == losses(program, folder / "plan.json")


def check_parts(program, folder):
    """What lies where parts have written: moved there one value at a time."""
    plan = plan_of(program, folder, "--layers 2 --hidden 32 --heads 4 --vocab 128 --seq 16 --experts 4 --ep 2 "
                   "--capacity-factor 1.25 --micro-batch 4 --cluster local:2,nic=50MB/s --policy weft --budget 2")
    lines = plan.split("\n")
    places = {}
    for number, line in enumerate(lines):
        found = re.search(r'"name":"(layer 1 (?:qkv|attention_out)\.dx)".*?"offset":(\d+)', line)
        if found:
            places[found[1]] = (number, int(found[2]))
    over, under = places["layer 1 qkv.dx"], places["layer 1 attention_out.dx"]
    changed = list(lines)
    changed[over[0]] = changed[over[0]].replace(f'"offset":{over[1]}', f'"offset":{under[1]}')
    code, words = verdict(program, folder / "moved.json", "\n".join(changed))
    assert code == 1, words


def check_pipelines(program):
    """Sequence parallelism in a pipeline: every policy has a plan, and it runs."""
    done = weft(program, "plan", *("--model megatron-1.7b --seq 1024 --cluster dgx-a100:2 --tp 2 --pp 4 --cp 2 --micro-batch 1 "
                "--global-batch 16 --zero 2 --sequence-parallel --schedule gpipe --budget 0.5 --json").split())
    assert done.returncode == 0 and "failed" not in json.loads(done.stdout), done.stderr
    done = weft(program, "run", *("--layers 8 --hidden 64 --heads 8 --vocab 256 --seq 32 --cluster local:8 --tp 2 --pp 4 "
                "--sequence-parallel --micro-batch 1 --global-batch 4 --zero 2 --policy weft --budget 1").split(), *STEPS)
    assert done.returncode == 0, done.stderr


def check_shared_reductions(program):
    """Classes of one stage that hide their all-to-alls differently still order the reductions that they share alike."""
    done = weft(program, "plan", *("--layers 5 --hidden 1024 --heads 8 --vocab 32000 --kv-heads 1 --experts 16 --top-k 1 "
                "--moe-every 2 --seq 32 --pp 3 --ep 2 --dispatch-fp8 --micro-batch 1 --global-batch 16 --recompute full "
                "--mesh-order tp,pp,cp,dp --cluster p4de:3 --policy serial,lancet --json").split())
    assert done.returncode == 0 and "failed" not in json.loads(done.stdout), done.stdout[-500:]


def main():
    program = sys.argv[1]
    check_pipelines(program)
    check_shared_reductions(program)
    with tempfile.TemporaryDirectory() as name:
        check_queues(program, Path(name) / "queues")
        check_parts(program, Path(name) / "parts")
    print("4 passed, 0 failed")


if __name__ == "__main__":
    main()
