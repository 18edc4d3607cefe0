#!/usr/bin/env python3
"""Training with K-FAC on ranks of a GPU, over NCCL, call by call and as CUDA graphs, against ranks on processors.

    gpu_kfac_test.py WEFT           # gpu_compression_test.py has the flags, and --cpu

Inverses multiply what sums in another order differ by, so losses of six steps in fp32 agree to 1e-3 (docs/kfac.md, exec/kfac_run_test.cpp).
Exit code 77 where there is no GPU or no kernels.
"""

import sys

sys.dont_write_bytecode = True
from gpu_compression_test import BF16, GRAPHS, NCCL, PACED, Case, arguments, check  # noqa: E402

KFAC = "--optimizer kfac --kfac-damping 0.1 --no-dropout"
LOOSER = [place._replace(allowed=1e-3) for place in (NCCL, GRAPHS, PACED)]
CASES = [Case(f"{KFAC} --policy ddp", [*LOOSER, BF16]),
         Case(f"{KFAC} --policy serial --kfac-interval 3", LOOSER[:1]),
         Case(f"{KFAC} --policy weft --pp 2 --global-batch 16", LOOSER[:1])]

if __name__ == "__main__":
    sys.exit(check(arguments(), CASES))
