"""Random small trees of modules, all of them from WIDTH to WIDTH features, described by nested lists so that they can be printed."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

WIDTH = 8
LEAVES = ("linear", "linear", "linear", "tanh", "relu", "norm", "batch", "dropout", "scale", "tied", "borrow", "weight_norm", "spectral_norm",
          "parametrized", "standardized", "bottleneck")
BRANCHES = ("residual", "residual", "checkpoint", "twice", "either")


def random_tree(draw, depth: int = 0) -> list:
    """["linear"], or ["residual", [children]], …"""
    if depth < 2 and draw.random() < 0.25:
        kind = draw.choice(BRANCHES)
        return [kind, *[[random_tree(draw, depth + 1) for _ in range(draw.randint(1, 2))] for _ in range(2 if kind == "either" else 1)]]
    return [draw.choice(LEAVES)]


def random_model(draw) -> list:
    return [["linear"], *[random_tree(draw) for _ in range(draw.randint(1, 5))], ["linear"]]


def kinds_in(tree: list) -> set:
    found = set()
    for entry in tree:
        if isinstance(entry, str):
            found.add(entry)
        else:
            found |= kinds_in(entry)
    return found


class Symmetric(nn.Module):
    def forward(self, matrix):
        return matrix.triu() + matrix.triu(1).t()


class Wrapper(nn.Module):
    def __init__(self, *bodies):
        super().__init__()
        self.bodies = nn.ModuleList(bodies)


class Residual(Wrapper):
    def forward(self, x):
        return x + self.bodies[0](x)


class Checkpoint(Wrapper):
    def forward(self, x):
        return checkpoint(self.bodies[0], x, use_reentrant=False) if torch.is_grad_enabled() else self.bodies[0](x)


class Twice(Wrapper):
    def forward(self, x):
        return self.bodies[0](torch.tanh(self.bodies[0](x)))


class Either(Wrapper):
    """One of two, by a number that the loop sets."""
    turn = 0

    def forward(self, x):
        return self.bodies[self.turn % 2](x)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * self.factor


class Borrow(nn.Module):
    """Uses another module's weight, turned."""

    def __init__(self, lender):
        super().__init__()
        self.lender = [lender]  # not a submodule of this one

    def forward(self, x):
        return torch.tanh(F.linear(x, self.lender[0].weight.t()))


class Bottleneck(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(WIDTH, 3), nn.Linear(3, WIDTH, bias=False)

    def forward(self, x):
        return self.up(torch.relu(self.down(x)))


class Standardized(nn.Module):
    """A pre-hook that was there first computes its weight."""

    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(0.3 * torch.randn(WIDTH, WIDTH))
        self.weight = None
        self.register_forward_pre_hook(Standardized.make)

    @staticmethod
    def make(module, inputs):
        module.weight = module.raw - module.raw.mean(1, keepdim=True)

    def forward(self, x):
        return F.linear(x, self.weight)


def build(tree: list) -> nn.Module:
    linears = []

    def make(entry):
        kind, *bodies = entry
        if kind == "linear":
            linears.append(nn.Linear(WIDTH, WIDTH))
            return linears[-1]
        if kind in ("tied", "borrow"):
            return linears[0] if kind == "tied" else Borrow(linears[-1])
        if kind == "parametrized":
            layer = nn.Linear(WIDTH, WIDTH)
            parametrize.register_parametrization(layer, "weight", Symmetric())
            return layer
        if bodies:
            wrapper = {"residual": Residual, "checkpoint": Checkpoint, "twice": Twice, "either": Either}[kind]
            return wrapper(*[nn.Sequential(*[make(child) for child in body]) for body in bodies])
        return {"tanh": nn.Tanh, "relu": nn.ReLU, "norm": lambda: nn.LayerNorm(WIDTH), "batch": lambda: nn.BatchNorm1d(WIDTH),
                "dropout": lambda: nn.Dropout(0.2), "scale": Scale, "bottleneck": Bottleneck, "standardized": Standardized,
                "weight_norm": lambda: nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH)),
                "spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))}[kind]()
    return nn.Sequential(*map(make, tree))
