#!/usr/bin/env python3
"""What tools/gpu_ranks.sh and `weft run --device cuda` say where something of a GPU is missing, with programs of our own in the place
of NVIDIA's.

    gpu_ranks_test.py WEFT
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "tools" / "gpu_ranks.sh"
FINDS_A_GPU, FAILS = "#!/bin/sh\nexit 0\n", "#!/bin/sh\nexit 1\n"


def gpu_ranks(programs, *arguments):
    """Runs the script with these programs of NVIDIA's alone: exit code, and all that was said."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in programs.items():
            path = Path(folder) / name
            path.write_text(text)
            path.chmod(0o755)
        # The others that the script calls, but none of NVIDIA's.
        for name in ("bash", "sh", "mktemp", "mkdir", "rm", "head", "od", "tr", "tail", "timeout", "sleep", "env"):
            os.symlink(f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}", Path(folder) / name)
        done = subprocess.run([str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "PATH": folder, "GPU_RANKS_GRACE": "1"})
        return done.returncode, done.stdout + done.stderr


def expect(what, found, code, words):
    if found[0] != code or words not in found[1]:
        raise SystemExit(f"{what}: exit code {found[0]}, not {code}, and '{words}' must be in: {found[1]}")
    print(f"{what}: exit code {code}, {words}")


def main():
    weft = sys.argv[1]
    gpu = {"nvidia-smi": FINDS_A_GPU}
    mps = {**gpu, "nvidia-cuda-mps-control": FINDS_A_GPU}
    expect("no GPU", gpu_ranks({}, 2, "true"), 77, "finds no GPU")
    expect("a driver without a GPU", gpu_ranks({"nvidia-smi": FAILS}, 2, "true"), 77, "finds no GPU")
    expect("no MPS", gpu_ranks(gpu, 2, "true"), 2, "nvidia-cuda-mps-control is not here")
    expect("MPS that does not start", gpu_ranks({**gpu, "nvidia-cuda-mps-control": FAILS}, 2, "true"), 2, "does not start")
    expect("more ranks than MPS serves", gpu_ranks(mps, 49, "true"), 2, "at most 48 processes")
    expect("no number of ranks", gpu_ranks(mps, "two", "true"), 2, "usage:")
    expect("ranks that end well", gpu_ranks(mps, 3, "sh", "-c", "echo rank $WEFT_RANK of $WEFT_RANKS"), 0, "rank 2 of 3")
    # The second rank fails, the first would wait for a minute.
    begin = time.monotonic()
    expect("a rank that fails", gpu_ranks(mps, 2, "sh", "-c", "[ $WEFT_RANK = 0 ] && exec sleep 60; echo lost; exit 3"), 3, "lost")
    if time.monotonic() - begin > 20:
        raise SystemExit("the other rank was waited for")
    model = "--layers 1 --hidden 32 --heads 2 --seq 8 --micro-batch 1 --steps 1".split()
    done = subprocess.run([weft, "run", "--device", "cuda", *model], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    # "built without CUDA" where it was; with CUDA, no driver or no GPU that it may see.
    said = "without CUDA" if "without CUDA" in done.stderr else "no GPU can be used"
    expect("training without a GPU", (done.returncode, done.stderr), 2, said)


if __name__ == "__main__":
    main()
