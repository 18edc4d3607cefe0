#!/usr/bin/env bash
# gpu_check.sh [build|test|each|sanitize|time]... [RANKS...]: what a machine with an NVIDIA GPU is asked before a change lands,
# or the named parts of it: the build; the tests of kernels and of NCCL; our own kernels under compute-sanitizer, where it is
# installed; steps beside PyTorch's with so many ranks (1 and 2), recorded in bench/results/. All of it takes about seven
# minutes on 16 cores. `each`, which is not among them, runs the tests one by one, every compression format too, with a limit
# for each, and says PASS or FAIL, how long each took, and which cases of kernels took longest.
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

# limited NAME SECONDS COMMAND...: says PASS, FAIL or SKIP with the time it took; of what failed, the end of what it said.
failed=0
limited() {
  local name=$1 limit=$2 begin=$SECONDS code=0 said
  shift 2
  said=$(timeout -k 5 "$limit" "$@" 2>&1) || code=$?
  case $code in
    0) echo "PASS $name: $((SECONDS - begin)) s" ;;
    77) echo "SKIP $name: $(tail -n 1 <<<"$said")" ;;
    124 | 137) echo "FAIL $name: not over within $limit s" ;;
    *) echo "FAIL $name: exit code $code after $((SECONDS - begin)) s" ;;
  esac
  if ((code != 0 && code != 77)); then
    failed=1
    { grep -m 12 '^=========' <<<"$said" || true; } | sed 's/^/  | /' # what a sanitizer found first
    tail -n 20 <<<"$said" | sed 's/^/  | /'
  fi
}

slowest_cases() {
  { grep -oE '\] [A-Za-z/_0-9.]+ \([0-9]+ ms\)' "$1" || true; } |
    sed -E 's/^\] (.*) \(([0-9]+) ms\)$/\2 \1/' | sort -rn | head -n 6 | sed 's/^/  slowest: ms /'
}

each() {
  local said
  said=$(mktemp)
  limited cuda_kernels 100 bash -c "'$kernels' >'$said' 2>&1 || { code=\$?; tail -n 20 '$said'; exit \$code; }"
  slowest_cases "$said"
  rm -f "$said"
  limited comm_nccl_2_ranks 100 tools/gpu_ranks.sh 2 build/cuda/src/comm/comm_nccl_test --gtest_brief=1
  limited comm_nccl_4_ranks 100 tools/gpu_ranks.sh 4 build/cuda/src/comm/comm_nccl_test --gtest_brief=1
  limited comm_paced_device 100 build/cuda/src/comm/comm_paced_device_test --gtest_brief=1
  limited gpu_checkpoint 100 tests/gpu_checkpoint_test.py build/cuda/weft
  tests/gpu_kfac_test.py build/cuda/weft --at-once 4 || { (($? == 77)) || failed=1; }
  tests/gpu_compression_test.py build/cuda/weft --all --at-once 4 || { (($? == 77)) || failed=1; }
}

# Library kernels (cuBLAS, cuDNN, PyTorch) are not ours to check and take minutes: the names of ours contain weft, and the
# tests are those that call ours, with few of the formats, which share a kernel. Calls that fail on purpose, such as the
# choice of a GPU that is not there, are no errors. Both tools run at the same time. Under racecheck cuBLASLt's products for Hopper
# fail, even where no kernel of theirs is looked at ("the Sanitizer failed to handle a hardware exception", then an illegal
# access): tests that multiply are left to memcheck.
sanitized_tests='CudaKernels.*:CudaExperts.*:CudaLowRank.*:CudaKfac.*:CudaAttention.OfOddShapes:CudaEncoding.*:*/int8:*/int4_stochastic'
sanitized_tests+=':*/onebit:*/ternary:*/top_k'
tests_that_multiply='CudaKernels.Linear*:CudaKernels.WeightGradientsInFloatOfBf16:CudaExperts.ProductsOfTheRowsThatAreUsed'
tests_that_multiply+=':CudaKfac.CurvatureIsThatOfTheProcessor'
sanitize() {
  local tool sanitizer filter=() folder tests
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) || {
    echo "skipped: compute-sanitizer is not here"
    return 0
  }
  if "$sanitizer" --help | grep -e --kernel-name >/dev/null; then filter=(--kernel-name kernel_substring=weft); fi
  folder=$(mktemp -d)
  for tool in memcheck racecheck; do
    tests=$sanitized_tests
    if [[ $tool == racecheck ]]; then tests+=":-$tests_that_multiply"; fi
    limited "compute-sanitizer $tool" 110 "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 \
      "${filter[@]}" "$kernels" --gtest_brief=1 --gtest_filter="$tests" >"$folder/$tool" &
  done
  wait
  cat "$folder"/*
  if grep -q '^FAIL' "$folder"/*; then failed=1; fi
  rm -rf "$folder"
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
    build | test | each | sanitize | time) parts+=("$word") ;;
    [1-9]*) ranks+=("$word") ;;
    *)
      echo "usage: $0 [build|test|each|sanitize|time]... [RANKS...]" >&2
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
    each) each ;;
    sanitize) sanitize ;;
    time) time_steps "${ranks[@]}" ;;
  esac
  echo "gpu_check: $part took $((SECONDS - begin)) s"
done
exit "$failed"
