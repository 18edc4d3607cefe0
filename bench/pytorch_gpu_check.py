#!/usr/bin/env python3
"""All of weft.torch that needs a GPU and a new PyTorch, in one call of some eight minutes: what works, and how fast it is.

    bench/pytorch_gpu_check.py [losses] [ddp] [fsdp] [backend] [frameworks]      # in this order; each with a time limit of its own

losses   unsharded, ZeRO 1 to 3, a second plan, unused parameters and timelines, against DDP on two ranks over NCCL
         (bench/pytorch_gpu_job.py)
ddp      GPT 12 x 1024 with weft.torch and with DDP in turns, with several communicators and by its own choice; goal 0.85 x
fsdp     the same model with FSDP2, FSDP2 with weft.FsdpHooks, and ZeRO 3 of weft.torch in turns; goal 0.85 x
backend  init_process_group("weft"): compiles, and does what gloo does (tests/pytorch_test.py); needs build/release/libweft_embed.so
frameworks   the same under DDP, FSDP, FSDP2, DTensor and NCCL beside it (bench/pytorch_backend_check.py); needs the library too

Exit code 1 where a part fails or is not over in time; goals that are missed are only shown.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RANKS = [str(ROOT / "tools" / "gpu_ranks.sh"), "2"]
PYTHON = [sys.executable, "-B"]
PARTS = {
    "losses": (120, [*RANKS, *PYTHON, "bench/pytorch_gpu_job.py"]),
    "ddp": (150, [*PYTHON, "bench/pytorch_vs_ddp.py", "--gpu", "--communicators", "0,1,2,3", "--steps", "20",
                  "--search-steps", "6", "--seconds", "100"]),
    "fsdp": (150, [*PYTHON, "bench/fsdp2_hooks_check.py"]),
    "backend": (180, [*PYTHON, "tests/pytorch_test.py", "backend"]),
    "frameworks": (180, [*PYTHON, "bench/pytorch_backend_check.py"]),
}


def run(name, limit, command):
    """How it ended: "", "failed" or "skipped". Everything that it started ends with it."""
    print(f"\n== {name}: {' '.join(command)}", flush=True)
    begin = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        code = process.wait(timeout=limit)
        words = f"exit code {code}"
    except subprocess.TimeoutExpired:
        code, words = 1, f"not over after {limit} s"
        os.killpg(process.pid, signal.SIGTERM)  # gpu_ranks.sh ends its ranks and its MPS daemon
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    print(f"== {name}: {words}, {time.monotonic() - begin:.0f} s", flush=True)
    return {0: "", 77: "skipped"}.get(code, "failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="all unless some are named")
    parts = parser.parse_args().parts or list(PARTS)
    ends = {name: run(name, *PARTS[name]) for name in PARTS if name in parts}
    print("\n" + ", ".join(f"{name}: {end or 'ran'}" for name, end in ends.items()))
    return 1 if "failed" in ends.values() else 0


if __name__ == "__main__":
    sys.exit(main())
