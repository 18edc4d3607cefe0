#!/usr/bin/env python3
"""Training steps of a small GPT by Weft's kernels and by PyTorch eager, in turns, on one machine with the same threads.

    bench/compute_vs_pytorch.py build/release/bench/training_step_bench [--layers 4 --width 512 --batch 9 --seq 128]

The losses of every step must agree, or it exits with 1. It prints one line of JSON; `speed` is PyTorch's median step over
Weft's, so above 1 Weft is faster; `speed_by_processor_time` says the same where other programs are running. Needs a Python with PyTorch (Debian: /usr/bin/python3 with python3-torch).
"""
import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mask = torch.triu(torch.full((tokens, tokens), -1e9), 1)
        weights = ((q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5 + mask).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(a.vocab, a.width), nn.Embedding(a.seq, a.width)
        self.blocks = nn.ModuleList(Block(a.width, a.heads) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.t()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    for name, value in (("layers", 4), ("width", 512), ("batch", 9), ("seq", 128), ("vocab", 256), ("heads", 8),
                        ("threads", 1), ("steps", 10), ("warm", 3)):
        parser.add_argument("--" + name, type=int, default=value)
    return parser.parse_args()


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = Gpt(a)
    for table in (model.tokens, model.positions):
        nn.init.normal_(table.weight, std=0.02)  # PyTorch's 1 makes a loss of 300
    tokens, targets = torch.randint(0, a.vocab, (2, a.batch, a.seq))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def peer_step():
        start, busy_start = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(tokens).view(-1, a.vocab), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        return time.perf_counter() - start, time.process_time() - busy_start, loss.item()

    with tempfile.NamedTemporaryFile() as file:
        flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        for values in (flat, tokens.reshape(-1), targets.reshape(-1)):
            values.numpy().tofile(file)
        file.flush()
        sizes = [str(size) for size in (a.threads, a.layers, a.width, a.batch, a.seq, a.vocab, a.heads)]
        weft = subprocess.Popen([a.program, file.name, *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def weft_step():
            weft.stdin.write("\n")
            weft.stdin.flush()
            return [float(word) for word in weft.stdout.readline().split()]

        ours, theirs = [], []
        for step in range(a.warm + a.steps):
            (*our_times, our_loss), (*peer_times, peer_loss) = weft_step(), peer_step()
            if not abs(our_loss - peer_loss) <= 1e-4 * peer_loss:
                sys.exit(f"step {step}: Weft's loss is {our_loss}, PyTorch's {peer_loss}")
            if step >= a.warm:
                ours.append(our_times)
                theirs.append(peer_times)
        weft.stdin.close()
        weft.wait()
    our_step, our_busy = (statistics.median(times) for times in zip(*ours))
    peer_step_time, peer_busy = (statistics.median(times) for times in zip(*theirs))
    print(json.dumps({
        "bench": "compute_vs_pytorch", "machine": platform.machine(), "torch": torch.__version__,
        **{key: value for key, value in vars(a).items() if key != "program"}, "loss": our_loss,
        "weft_s": round(our_step, 4), "pytorch_s": round(peer_step_time, 4),
        "speed": round(peer_step_time / our_step, 3), "speed_by_processor_time": round(peer_busy / our_busy, 3)}))


if __name__ == "__main__":
    main()
