#!/usr/bin/env bash
# The tour behind `make demo`: a small GPT trained for real by two ranks with a slow emulated link between them, under
# four policies, predicted and measured side by side; then where the step of Llama-2 70B on 64 A100s goes. Where there is an
# NVIDIA GPU and CUDA's compiler, the program is also built for it, and trains a GPT of 160 million parameters there.
set -euo pipefail
cd "$(dirname "$0")/.."
weft=build/release/weft

echo "1. A GPT of 3.3 million parameters, two ranks, 200 Mb/s between them (emulated), trained for real:"
echo
$weft run --layers 4 --hidden 256 --heads 8 --seq 128 --micro-batch 8 --cluster local:2,nic=200Mb/s \
  --policy serial,ddp,megatron,priority --bucket-mib 2 --bucket-size 500000 \
  --steps 14 --calibrate-seconds 8 --out out/demo/run

echo
echo "2. Llama-2 70B on 64 A100s: the best layout of a sweep under the policies of today's frameworks:"
echo
job=(--model llama2-70b --cluster dgx-a100:8 --global-batch 128 --seq 4096 --sequence-parallel --zero 1)
$weft plan "${job[@]}" --policy megatron --sweep "tp=2,4,8;pp=1,2,4,8;micro-batch=1,2" --top 5 | sed '/^Best/,$d'
$weft plan "${job[@]}" --tp 4 --pp 4 --policy serial,ddp,megatron --out out/demo

nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc || true)
if [[ -n $nvcc ]] && nvidia-smi -L >/dev/null 2>&1; then
  echo
  echo "3. A GPT of 160 million parameters in bf16 on the GPU of this machine (the first time the build takes minutes):"
  echo
  mkdir -p out/demo
  if cmake --preset cuda -DWEFT_BENCH=OFF >out/demo/cuda_build.log 2>&1 &&
    cmake --build build/cuda -j"$(nproc)" --target weft >>out/demo/cuda_build.log 2>&1; then
    build/cuda/weft run --device cuda --layers 12 --hidden 1024 --heads 16 --vocab 8192 --seq 1024 --micro-batch 16 \
      --policy serial --steps 20 --calibrate-seconds 8 --out out/demo/gpu
  else
    echo "The build for the GPU failed; out/demo/cuda_build.log says why."
  fi
fi

echo
$weft report out/demo out/demo/run -o out/demo/report_of_both.html >/dev/null
echo "Look at it: open out/demo/report.html (the plan), out/demo/run/report.html (predicted and measured) or"
echo "out/demo/report_of_both.html in a browser. Traces for https://ui.perfetto.dev lie beside them."
