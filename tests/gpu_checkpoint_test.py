#!/usr/bin/env python3
"""Training that goes on from a checkpoint on the other kind of device.

    gpu_checkpoint_test.py WEFT

Three steps on processors and three on a GPU, or the other way round, in another layout too, have the losses of six steps in one
go: in fp32 to 1e-4, the tolerance of losses of GPUs and processors (bench/gpu_losses.py), in bf16 on the GPU to 1 %. Exit code 77
where there is no GPU or no kernels.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS = Path(__file__).resolve().parent.parent / "tools" / "gpu_ranks.sh"
MODEL = "--layers 2 --hidden 64 --heads 4 --seq 32 --vocab 256 --global-batch 8 --threads 1 --lr 0.0003".split()
HALF, WHOLE = 3, 6

# Places: how a run is started, its flags, and how far its losses may be off.
CPU_1 = ("one rank of processors", [], "--cluster local:1 --micro-batch 8 --policy serial", 1e-4)
CPU_2 = ("two ranks of processors, zero 3", [], "--cluster local:2 --micro-batch 4 --zero 3 --policy fsdp", 1e-4)
GPU_1 = ("one GPU, fp32", [], "--device cuda --precision fp32 --micro-batch 8 --policy serial", 1e-4)
GPU_BF16 = ("one GPU, bf16", [], "--device cuda --micro-batch 8 --policy serial", 1e-2)
GPU_2 = ("two ranks of a GPU, zero 1, fp32", [str(RANKS), "2"],
         "--device cuda --precision fp32 --micro-batch 4 --zero 1 --policy priority", 1e-4)
PAIRS = [(CPU_1, GPU_1), (GPU_1, CPU_1), (CPU_2, GPU_2), (GPU_2, CPU_2), (CPU_1, GPU_BF16), (GPU_BF16, CPU_2)]


def losses_of(weft, folder, place, steps, resume):
    name, prefix, flags, _ = place
    profile = folder / "any_machine.json"  # nothing is measured before a run
    profile.write_text('{"weft_profile": 1}')
    command = [*prefix, weft, "run", *MODEL, *flags.split(), "--steps", str(steps), "--warm-up", "0", "--profile", str(profile),
               "--checkpoint", str(folder / "saved"), "--json", *(["--resume"] if resume else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    absent = ("needs kernels", "no GPU can be used", "built without CUDA")
    if done.returncode == 77 or any(words in done.stderr for words in absent):
        print(f"skipped: {done.stdout.strip()}{done.stderr.strip()}")
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(f"{name}: exit code {done.returncode}: {' '.join(command)}\n{done.stderr}")
    return next(iter(json.loads(done.stdout)["policies"].values()))["losses"]


def main():
    weft, wrong = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as folder:
        losses_of(weft, Path(folder), GPU_1, 1, False)  # or there is none
    with tempfile.TemporaryDirectory() as folder:
        expected = losses_of(weft, Path(folder), CPU_1, WHOLE, False)
    for first, second in PAIRS:
        with tempfile.TemporaryDirectory() as folder:
            losses = losses_of(weft, Path(folder), first, HALF, False) + losses_of(weft, Path(folder), second, WHOLE, True)
        limit = max(first[3], second[3])
        off = max(abs(a - b) / b for a, b in zip(losses, expected)) if len(losses) == WHOLE else float("nan")
        good = off <= limit
        wrong += not good
        print(f"{first[0]}, then {second[0]}: off by {off:.1e} of {limit:.0e}{'' if good else ': WRONG'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
