#!/usr/bin/env bash
# The two-minute tour behind `make demo`: which layout of Llama-2 70B on 64 A100s is fastest, and where its step goes.
set -euo pipefail
cd "$(dirname "$0")/.."
job=(--model llama2-70b --cluster dgx-a100:8 --global-batch 128 --seq 4096 --sequence-parallel --zero 1)

echo "1. Every layout of the sweep, planned and simulated:"
echo
build/release/weft plan "${job[@]}" --policy megatron --sweep "tp=2,4,8;pp=1,2,4,8;micro-batch=1,2" --top 5 |
  sed '/^Best/,$d'

echo "2. The best one under the overlap policies of today's frameworks:"
echo
build/release/weft plan "${job[@]}" --tp 4 --pp 4 --policy serial,ddp,megatron --out out/demo

echo
echo "The timelines are in out/demo: open https://ui.perfetto.dev and drop trace.json on the page."
