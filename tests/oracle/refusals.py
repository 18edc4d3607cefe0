"""Layouts that `weft run` must refuse, each with its reason: what the matrix leaves out, and what its models are made for."""

from typing import NamedTuple


class Refusal(NamedTuple):
    model: str
    ranks: int
    flags: list
    reason: str


BATCH = ["--seq", 16, "--global-batch", 24]
REFUSALS = [
    Refusal("gpt", 2, ["--dp", 2, *BATCH, "--micro-batch", 5],
            "--global-batch 24: is not divisible by --micro-batch 5 * --dp 2"),
    Refusal("gpt", 2, ["--pp", 2, "--vpp", 2, *BATCH, "--micro-batch", 8],
            "--schedule interleaved: 3 micro-batches are not divisible by --pp 2"),
    Refusal("gpt", 5, ["--pp", 5, *BATCH, "--micro-batch", 8], "more model chunks than gpt2's 4 layers"),
    Refusal("gpt", 2, ["--pp", 2, "--stage-layers", "1,2", *BATCH, "--micro-batch", 8],
            "--stage-layers: sums to 3, but gpt2 has 4 layers"),
    Refusal("gpt", 3, ["--cp", 3, *BATCH, "--micro-batch", 8], "--cp 3: does not divide --seq 16"),
    Refusal("gpt", 3, ["--tp", 3, *BATCH, "--micro-batch", 8], "--tp 3: does not divide gpt2's 4 attention heads"),
    Refusal("llama", 4, ["--tp", 4, *BATCH, "--micro-batch", 8, "--heads", 12, "--kv-heads", 3],
            "--tp 4: neither divides nor is a multiple of llama's 3 key/value heads"),
    Refusal("llama", 2, ["--dp", 2, *BATCH, "--micro-batch", 12, "--dropout", 0.1],
            "--dropout 0.1: llama trains without; dropout is of models with learned positions"),
    Refusal("gpt", 2, ["--dp", 2, *BATCH, "--micro-batch", 12, "--precision", "bf16"],
            "--precision bf16: weft run trains in fp32; give --precision fp32"),
    Refusal("gpt", 2, ["--dp", 2, *BATCH, "--micro-batch", 12, "--grad-dtype", "bf16"],
            "--grad-dtype bf16: weft run reduces fp32; give --grad-dtype fp32"),
    Refusal("gpt", 2, ["--dp", 2, "--sequence-parallel", *BATCH, "--micro-batch", 12],
            "--sequence-parallel: needs --tp above 1"),
    Refusal("gpt", 2, ["--tp", 2, "--sequence-parallel", "--seq", 15, "--micro-batch", 12],
            "--tp 2: does not divide tokens of a rank (--sequence-parallel) 15"),
]
