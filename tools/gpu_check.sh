#!/usr/bin/env bash
# gpu_check.sh [build|test|sanitize|time]... [RANKS...]: what a machine with an NVIDIA GPU is asked before a change lands, or
# the named parts of it: the build; the tests of kernels and of NCCL; our own kernels under compute-sanitizer, where it is
# installed; steps beside PyTorch's with so many ranks (1 and 2), recorded in bench/results/. All of it takes about seven
# minutes on 16 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
kernels=build/cuda/src/kernels/cuda/cuda_kernels_test

build() {
  cmake --preset cuda -DWEFT_BENCH=OFF >/dev/null
  cmake --build build/cuda -j"$(nproc)" --target weft cuda_kernels_test comm_nccl_test comm_paced_device_test exec_test
}

test_gpu() {
  (cd build/cuda && ctest -L gpu --output-on-failure --no-tests=error)
  build/cuda/src/exec/exec_test --gtest_brief=1 --gtest_filter='*Stream*:*Recorded*:*EncodedSteps*'
}

# Library kernels (cuBLAS, cuDNN, PyTorch) are not ours to check and take minutes: the names of ours contain weft. Calls that
# fail on purpose, such as the choice of a GPU that is not there, are no errors.
sanitize() {
  local tool sanitizer filter=()
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) || {
    echo "skipped: compute-sanitizer is not here"
    return 0
  }
  if "$sanitizer" --help | grep -e --kernel-name >/dev/null; then filter=(--kernel-name kernel_substring=weft); fi
  for tool in memcheck racecheck; do
    echo "compute-sanitizer --tool $tool:"
    timeout 200 "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 "${filter[@]}" \
      "$kernels" --gtest_brief=1
  done
}

time_steps() {
  local name count
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
  for count in "$@"; do
    bench/gpu_vs_pytorch.py build/cuda/weft --ranks "$count" --record "ranks_$count" --on "$name"
  done
}

parts=() ranks=()
for word in "$@"; do
  case $word in
    build | test | sanitize | time) parts+=("$word") ;;
    [1-9]*) ranks+=("$word") ;;
    *)
      echo "usage: $0 [build|test|sanitize|time]... [RANKS...]" >&2
      exit 2
      ;;
  esac
done
if ((${#parts[@]} == 0)); then parts=(build test sanitize time); fi
if ((${#ranks[@]} == 0)); then ranks=(1 2); fi
for part in "${parts[@]}"; do
  begin=$SECONDS
  case $part in
    build) build ;;
    test) test_gpu ;;
    sanitize) sanitize ;;
    time) time_steps "${ranks[@]}" ;;
  esac
  echo "gpu_check: $part took $((SECONDS - begin)) s"
done
