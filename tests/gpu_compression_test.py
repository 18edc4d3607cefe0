#!/usr/bin/env python3
"""Training with compressed gradients and weights on two and four ranks of a GPU, over NCCL and with emulated links.

    gpu_compression_test.py WEFT                    # what every change is asked
    gpu_compression_test.py WEFT --all --at-once 4  # every format besides
    gpu_compression_test.py WEFT --cpu              # tries this script where there is no GPU: processes instead of GPUs

Losses of six steps in fp32 are those of ranks on processors to 1e-5, and what encoding holds back of gradients to 1e-2: kernels write
the same bytes for the same gradients (cuda_kernels_test), but a gradient that differs in its last bit may fall on the other side of a
rounding. In bf16 losses agree to 1 %. Every line says PASS or FAIL. Exit code 77 where there is no GPU or no kernels.
"""

import argparse
import concurrent.futures
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

RANKS = Path(__file__).resolve().parent.parent / "tools" / "gpu_ranks.sh"
MODEL = "--layers 2 --hidden 64 --heads 4 --seq 32 --vocab 256 --micro-batch 4 --threads 1 --lr 0.0003".split()
STEPS = 6
EXACT, ROUNDED = 1e-5, 1e-2
SKIPPED = 77


class Place(NamedTuple):
    name: str
    flags: str  # of `weft run`
    launched: bool = True  # a process for every rank
    allowed: float = EXACT


NCCL = Place("nccl", "--device cuda --precision fp32")
GRAPHS = Place("nccl, graphs", "--device cuda --precision fp32 --graphs on")
BF16 = Place("nccl, bf16", "--device cuda", allowed=ROUNDED)
PACED = Place("emulated links", "--device cuda --precision fp32 --cluster gpu:2,link=50GB/s", launched=False)


class Case(NamedTuple):
    flags: str
    places: list
    nodes: int = 0  # 0: two ranks, each a node; otherwise so many nodes of two ranks

    def ranks(self):
        return 2 * self.nodes if self.nodes else 2


CASES = [Case("--compress gradients=int8 --policy priority", [NCCL, GRAPHS, BF16, PACED]),
         Case("--compress gradients=int8-stochastic --zero 1 --policy ddp", [NCCL, GRAPHS]),
         Case("--compress gradients=top-k --policy serial", [NCCL]),
         Case("--compress gradients=onebit --policy ddp", [NCCL]),
         Case("--compress weights=int8 --zero 1 --policy priority", [NCCL, GRAPHS, BF16, PACED]),
         Case("--compress gradients=int8,weights=int8 --zero 2 --policy megatron-param", [NCCL]),
         Case("--compress gradients=int4,weights=int8 --zero 3 --policy fsdp", [NCCL, PACED]),
         Case("--compress gradients=power-sgd:2 --policy priority", [NCCL, GRAPHS, BF16, PACED]),
         Case("--compress gradients=power-sgd:4 --zero 1 --policy ddp", [NCCL]),
         Case("--compress gradients=int8@node --policy ddp", [NCCL, GRAPHS], nodes=2),
         Case("--compress gradients=int4-stochastic@node --zero 1 --policy serial", [NCCL], nodes=2)]
OTHERS = [Case(f"--compress gradients={name} --policy ddp", [NCCL])
          for name in ("bf16", "fp16", "fp8-e4m3", "fp8-e5m2", "int4", "int4-stochastic", "ternary", "random-k")]


def nodes_file(folder, nodes, on_gpus):
    return Path(folder) / f"nodes-{nodes}-{'gpu' if on_gpus else 'cpu'}.json"


def write_cluster_in_nodes(folder, nodes, on_gpus):
    """Nodes of two ranks, as a file: `gpu:N` and `local:N` have a rank in every node."""
    where = {"device": "h200", "runtime": "cuda"} if on_gpus else {"device": "cpu", "emulated": True}
    levels = [{"name": "inside", "joins": "node", "bandwidth": "40Gb/s", "latency": "10us"},
              {"name": "nic", "joins": "cluster", "bandwidth": "8Gb/s", "latency": "10us", "shared_by": 2}]
    nodes_file(folder, nodes, on_gpus).write_text(
        json.dumps({"name": "nodes", "nodes": nodes, "devices_per_node": 2, **where, "levels": levels}))


def profile_file(folder):
    return Path(folder) / "any_machine.json"


def write_files(folder, cases):
    profile_file(folder).write_text('{"weft_profile": 1}')  # nothing is measured before a run
    for nodes in {case.nodes for case in cases if case.nodes}:
        for on_gpus in (False, True):
            write_cluster_in_nodes(folder, nodes, on_gpus)


def command_of(options, folder, case, place):
    """`place` None: ranks on processors, as threads."""
    least = ["--compress-min", "256"] if "--compress" in case.flags else []
    flags = [*MODEL, *case.flags.split(), *least, "--steps", str(STEPS), "--warm-up", "0",
             "--profile", str(profile_file(folder)), "--json"]
    on_gpus = place is not None and not options.cpu
    if case.nodes:
        flags += ["--cluster", str(nodes_file(folder, case.nodes, on_gpus))]
    elif not on_gpus:
        flags += ["--cluster", "local:2"]
    if place is None:
        return [options.weft, "run", *flags]
    if options.cpu:
        return [options.weft, "run", *flags, "--processes", str(case.ranks())]
    launcher = [str(RANKS), str(case.ranks())] if place.launched else []
    return [*launcher, options.weft, "run", *flags, *place.flags.split()]


def run(options, folder, case, place):
    """What JSON says of the policy; a text where the run failed."""
    command = command_of(options, folder, case, place)
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    absent = ("needs kernels", "no GPU can be used", "built without CUDA")
    if done.returncode == SKIPPED or any(words in done.stderr for words in absent):
        raise SystemExit(f"skipped: {done.stdout.strip()}{done.stderr.strip()}")
    if done.returncode != 0:
        return f"exit code {done.returncode}: {' '.join(command)}\n{done.stderr}"
    return next(iter(json.loads(done.stdout)["policies"].values()))


def furthest(found, expected):
    if len(found) != len(expected):
        return float("inf")
    return max((abs(a - b) / abs(b) for a, b in zip(found, expected)), default=0.0)


def judge(case, place, found, expected):
    """Whether it passed, and a line."""
    for side in (expected, found):
        if isinstance(side, str):
            return False, f"FAIL {case.flags}; {place.name}: {side}"
    off = furthest(found["losses"], expected["losses"])
    held = furthest(found.get("compression_errors", []), expected.get("compression_errors", []))
    # In bf16 gradients are others, and so is what is held back of them.
    good = off <= place.allowed and (held <= 1e-2 or place is BF16)
    return good, (f"{'PASS' if good else 'FAIL'} {case.flags}; {case.ranks()} ranks, {place.name}: losses off by {off:.1e} of "
                  f"{place.allowed:.0e}, held back by {held:.1e}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--all", action="store_true", help="every format")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="runs at the same time (default: 1)")
    parser.add_argument("--cpu", action="store_true", help="processes on processors instead of GPUs")
    return parser.parse_args()


def check(options, cases):
    """Runs them everywhere and says what came out: the exit code."""
    passed = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        write_files(folder, cases)
        try:
            run(options, folder, cases[0], NCCL)  # or there is no GPU
        except SystemExit as skipped:
            print(skipped)
            return SKIPPED
        places = [(case, place) for case in cases for place in (case.places if not options.cpu else [NCCL])]
        expected = {case.flags: pool.submit(run, options, folder, case, None) for case in cases}
        found = [pool.submit(run, options, folder, case, place) for case, place in places]
        for (case, place), result in zip(places, found):
            good, line = judge(case, place, result.result(), expected[case.flags].result())
            passed.append(good)
            print(line, flush=True)
    print(f"{sum(passed)} of {len(passed)} passed")
    return 0 if all(passed) else 1


def main():
    options = arguments()
    return check(options, CASES + (OTHERS if options.all else []))


if __name__ == "__main__":
    sys.exit(main())
