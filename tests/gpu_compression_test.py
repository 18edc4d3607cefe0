#!/usr/bin/env python3
"""Training with compressed gradients and weights on two ranks of a GPU, over NCCL and with emulated links.

    gpu_compression_test.py WEFT

Losses of six steps in fp32, and what encoding holds back, are those of two ranks on processors to 1e-3: kernels write the same bytes
for the same gradients (cuda_kernels_test), but a gradient that differs in its last bit may fall on the other side of a rounding.
In bf16 losses agree to 1 %. Exit code 77 where there is no GPU or no kernels.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS = Path(__file__).resolve().parent.parent / "tools" / "gpu_ranks.sh"
MODEL = "--layers 2 --hidden 64 --heads 4 --seq 32 --vocab 256 --micro-batch 4 --threads 1 --lr 0.0003".split()
STEPS = 6
NCCL = ([str(RANKS), "2"], "--device cuda --precision fp32", 1e-3)
NCCL_GRAPHS = ([str(RANKS), "2"], "--device cuda --precision fp32 --graphs on", 1e-3)
NCCL_BF16 = ([str(RANKS), "2"], "--device cuda", 1e-2)
PACED = ([], "--device cuda --precision fp32 --cluster gpu:2,link=50GB/s", 1e-3)
PROCESSORS = ([], "--cluster local:2", 0)
CASES = [("--compress gradients=int8 --policy priority", [NCCL, NCCL_GRAPHS, NCCL_BF16, PACED]),
         ("--compress gradients=int8-stochastic --zero 1 --policy ddp", [NCCL, NCCL_GRAPHS]),
         ("--compress gradients=top-k --policy serial", [NCCL]),
         ("--compress gradients=onebit --policy ddp", [NCCL]),
         ("--compress weights=int8 --zero 1 --policy priority", [NCCL, NCCL_GRAPHS, NCCL_BF16, PACED]),
         ("--compress gradients=int8,weights=int8 --zero 2 --policy megatron-param", [NCCL]),
         ("--compress gradients=int4,weights=int8 --zero 3 --policy fsdp", [NCCL, PACED])]


def run(weft, folder, place, flags):
    prefix, how, _ = place
    profile = folder / "any_machine.json"  # nothing is measured before a run
    profile.write_text('{"weft_profile": 1}')
    command = [*prefix, weft, "run", *MODEL, *flags.split(), "--compress-min", "256", *how.split(), "--steps", str(STEPS),
               "--warm-up", "0", "--profile", str(profile), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    absent = ("needs kernels", "no GPU can be used", "built without CUDA")
    if done.returncode == 77 or any(words in done.stderr for words in absent):
        print(f"skipped: {done.stdout.strip()}{done.stderr.strip()}")
        sys.exit(77)
    if done.returncode != 0:
        print(f"exit code {done.returncode}: {' '.join(command)}\n{done.stderr}", flush=True)
        return None
    return next(iter(json.loads(done.stdout)["policies"].values()))


def furthest(found, expected):
    if len(found) != len(expected):
        return float("inf")
    return max((abs(a - b) / abs(b) for a, b in zip(found, expected)), default=0.0)


def main():
    weft, wrong = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(weft, folder, NCCL, "--policy serial --compress gradients=int8")  # or there is no GPU
        for flags, places in CASES:
            expected = run(weft, folder, PROCESSORS, flags)
            if expected is None:
                return 1
            for place in places:
                found = run(weft, folder, place, flags)
                off = held = float("inf")
                if found is not None:
                    off = furthest(found["losses"], expected["losses"])
                    held = furthest(found.get("compression_errors", []), expected.get("compression_errors", []))
                # In bf16 gradients are others, and so is what is held back of them.
                good = off <= place[2] and (held <= 1e-2 or place is NCCL_BF16)
                wrong += not good
                print(f"{flags}; {place[1]}: losses off by {off:.1e} of {place[2]:.0e}, held back by {held:.1e}"
                      f"{'' if good else ': WRONG'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
