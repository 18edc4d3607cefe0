#!/usr/bin/env bash
# gpu_check.sh [RANKS...]: what a machine with an NVIDIA GPU is asked before a change lands: build, the tests of kernels and of
# NCCL, and steps beside PyTorch's with so many ranks (1 and 2), recorded in bench/results/. Takes about six minutes on
# 16 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset cuda -DWEFT_BENCH=OFF >/dev/null
cmake --build build/cuda -j"$(nproc)" --target weft cuda_kernels_test comm_nccl_test exec_test
(cd build/cuda && ctest -L gpu --output-on-failure --no-tests=error)
build/cuda/src/exec/exec_test --gtest_brief=1 --gtest_filter='*Stream*'
name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
for ranks in "${@:-1 2}"; do
  for count in $ranks; do
    bench/gpu_vs_pytorch.py build/cuda/weft --ranks "$count" --record "ranks_$count" --on "$name"
  done
done
