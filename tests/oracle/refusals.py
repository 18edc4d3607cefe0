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
    Refusal("llama", 8, ["--tp", 8, *BATCH, "--micro-batch", 8, "--ffn", 64],
            "weft run does not copy key/value heads to several ranks"),
    Refusal("gpt", 2, ["--dp", 2, "--sequence-parallel", *BATCH, "--micro-batch", 12],
            "--sequence-parallel: needs --tp above 1"),
    Refusal("gpt", 2, ["--tp", 2, "--sequence-parallel", "--seq", 15, "--micro-batch", 12],
            "--tp 2: does not divide tokens of a rank (--sequence-parallel) 15"),
]
