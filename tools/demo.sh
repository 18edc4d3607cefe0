#!/usr/bin/env bash
# The tour behind `make demo`: a small GPT trained for real by two ranks with a slow emulated link between them, under
# four policies, predicted and measured side by side; then where the step of Llama-2 70B on 64 A100s goes.
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

echo
echo "The timelines are in out/demo (the run's, predicted and measured, in out/demo/run): open"
echo "https://ui.perfetto.dev and drop a trace.json or trace.json.gz on the page."
