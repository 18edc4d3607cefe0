"""The Llama that the benchmarks give to PyTorch: rotary positions, RMSNorm before, SwiGLU, head tied to the embedding."""

import torch
from torch import nn

import peer_gpt


def feed_forward_width(width):
    """Two thirds of GPT's, up to the next multiple of 256."""
    return -(-8 * width // 3 // 256) * 256


def rotate(x, cosine, sine):
    half = x.shape[-1] // 2
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), -1) * sine


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        inner = feed_forward_width(width)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.heads = heads

    def forward(self, x, cosine, sine):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = peer_gpt.attend(rotate(q, cosine, sine), rotate(k, cosine, sine), v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(nn.functional.silu(gate) * up)


class Llama(nn.Module):
    """`sizes` has layers, width, heads, seq and vocab."""

    def __init__(self, sizes):
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.heads) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        head = sizes.width // sizes.heads
        angles = torch.arange(sizes.seq)[:, None] * 10000 ** (-torch.arange(0, head, 2) / head)[None]
        self.register_buffer("cosine", torch.cat((angles, angles), -1).cos(), persistent=False)
        self.register_buffer("sine", torch.cat((angles, angles), -1).sin(), persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.norm(x) @ self.tokens.weight.t()
