#!/usr/bin/env bash
# The two-minute tour behind `make demo`: plan one training step of Llama-2 70B on 64 A100s and show where to look.
set -euo pipefail
cd "$(dirname "$0")/.."

build/release/weft plan --model llama2-70b --cluster dgx-a100:8 --tp 8 --pp 4 --dp 2 \
  --micro-batch 1 --global-batch 128 --seq 4096 --zero 1 --out out/demo

echo
echo "The timeline is in out/demo/trace.json: open https://ui.perfetto.dev and drop the file on the page."
