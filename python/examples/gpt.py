"""A small GPT that learns the characters of a text, as a script for one process, and what makes a job of it:

    torchrun --nproc_per_node 2 python/examples/gpt.py --text README.md --steps 200

The lines marked `weft` are all that Weft needs. Each rank reads other places of the text.
"""

import argparse
import os
import sys

import torch
import weft.torch as weft  # weft
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, characters, length, layers, width, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(characters, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf"), device=tokens.device).triu(1)
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default="README.md")
    parser.add_argument("--save", help="the weights, which any other job can load")
    parser.add_argument("--save-plan", help="the plan, for `weft.overlap(..., plan=FILE)`")
    parser.add_argument("--timelines", metavar="FOLDER", help="what is predicted and measured of a step, for `weft report`")
    parser.add_argument("--plan", help="one that was saved before")
    parser.add_argument("--shard", help="zero1, zero2 or zero3")
    for name, value in (("steps", 100), ("batch", 8), ("length", 64), ("layers", 2), ("width", 64), ("heads", 4)):
        parser.add_argument("--" + name, type=int, default=value)
    return parser.parse_args()


def main():
    options = arguments()
    rank = int(os.environ.get("RANK", 0))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    text = open(options.text, encoding="utf-8").read()
    characters = sorted(set(text))
    data = torch.tensor([characters.index(character) for character in text])
    torch.manual_seed(0)
    model = Gpt(len(characters), options.length, options.layers, options.width, options.heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = weft.overlap(model, optimizer, plan=options.plan, shard=options.shard)  # weft
    torch.manual_seed(1 + rank)
    for step in range(options.steps):
        places = torch.randint(len(data) - options.length - 1, (options.batch,)).tolist()
        batch = torch.stack([data[place:place + options.length + 1] for place in places]).to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if rank == 0 and (step % 20 == 0 or step == options.steps - 1):
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    weights = model.state_dict() if options.save else None  # all ranks together: they may be sharded
    if rank == 0 and options.save:
        torch.save(weights, options.save)
    if rank == 0 and options.save_plan:
        if optimizer.weft.plan is None:
            sys.exit("--save-plan: there is no plan: a job of one rank needs none, and one of several measures its first steps")
        optimizer.weft.plan.save(options.save_plan)
    if rank == 0 and options.timelines:
        optimizer.weft.save_timelines(options.timelines)
    if rank == 0:
        print(optimizer.weft.report())


if __name__ == "__main__":
    main()
