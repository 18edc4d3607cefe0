"""A small residual network that learns to tell generated pictures apart: bars that lie, stand, or do both.

    torchrun --nproc_per_node 2 python/examples/cnn.py --steps 100

Two micro-batches make a step. The first only adds its gradients up (`no_sync`, as with DDP), so they travel once a step. The lines marked
`weft` are all that it needs.
"""

import argparse
import contextlib
import os

import torch
import weft.torch as weft
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                    nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.layers(x))


def network(width):
    return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), Residual(width), nn.MaxPool2d(2), Residual(width),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3))


def pictures(count, size=12):
    kinds = torch.randint(3, (count,))
    images = 0.3 * torch.randn(count, 1, size, size)
    for image, kind in zip(images, kinds.tolist()):
        if kind != 1:
            image[0, torch.randint(size, (1,)), :] += 1.5
        if kind != 0:
            image[0, :, torch.randint(size, (1,))] += 1.5
    return images, kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("steps", 60), ("batch", 32), ("width", 16)):
        parser.add_argument("--" + name, type=int, default=value)
    options = parser.parse_args()
    rank = int(os.environ.get("RANK", 0))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = weft.overlap(model, optimizer)  # weft
    torch.manual_seed(1 + rank)
    for step in range(options.steps):
        optimizer.zero_grad()
        for last in (False, True):
            images, kinds = pictures(options.batch)
            with contextlib.nullcontext() if last else model.no_sync():  # weft
                loss = nn.functional.cross_entropy(model(images), kinds) / 2
                loss.backward()
        optimizer.step()
        if rank == 0 and (step % 20 == 0 or step == options.steps - 1):
            print(f"step {step}: loss {2 * loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
