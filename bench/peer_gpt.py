"""The GPT that the benchmarks give to PyTorch: learned positions, LayerNorm before, GELU, head tied to the embedding.

Attention is PyTorch's own kernel where there is one (2.0 and later), else written out.
"""

import ctypes

import torch
from torch import nn

ATTENTION = "kernel" if hasattr(nn.functional, "scaled_dot_product_attention") else "written out"


def attend(q, k, v):
    if ATTENTION == "kernel":
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    tokens, head = q.shape[-2:]
    mask = torch.triu(torch.full((tokens, tokens), -1e9), 1)
    return ((q @ k.transpose(-1, -2)) * head ** -0.5 + mask).softmax(-1) @ v


def limit_threads(threads):
    """Of kernels. OpenBLAS with threads of its own, as Debian has it, does not listen to torch."""
    torch.set_num_threads(threads)
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "openblas" in line and line.rstrip().endswith(".so")}
    for library in libraries:
        set_threads = getattr(ctypes.CDLL(library), "openblas_set_num_threads", None)
        if set_threads:
            set_threads(threads)



class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        mixed = attend(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """`sizes` has layers, width, heads, seq and vocab."""

    def __init__(self, sizes):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(sizes.vocab, sizes.width), nn.Embedding(sizes.seq, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.heads) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)  # PyTorch's 1 makes a loss of 300

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.t()


def loss_of(model, tokens, targets):
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def add_size_flags(parser):
    for name, value in (("layers", 4), ("width", 512), ("batch", 9), ("seq", 128), ("vocab", 256), ("heads", 8)):
        parser.add_argument("--" + name, type=int, default=value)
