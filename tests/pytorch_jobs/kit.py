"""What the jobs of this folder are written with: the table of kinds, and a `job` that wraps a model with DDP or with Weft, deals out
data, and notes what the script sees."""

import math
import random
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Tuple, Union

import torch
from torch import nn

WIDTH, CLASSES = 12, 4
STEPS = 12  # two are measured before there is a plan
MODES = ("plain", "within", "aside", "zero1", "zero2", "zero3")
UNSHARDED = ("plain", "within", "aside")
OPTIONS = {"plain": {}, "aside": {}, "within": {"across_steps": False}, **{level: {"shard": level} for level in ("zero1", "zero2", "zero3")}}
TOLERANCE = 1e-6  # of the largest element of a tensor: rounding


@dataclass(frozen=True)
class Kind:
    """A row of the table."""
    name: str
    theme: str
    body: Callable
    modes: Tuple[str, ...] = MODES
    refused: Dict[str, str] = field(default_factory=dict)  # by mode, the exception that may be raised before the first step
    tolerance: float = TOLERANCE
    why: str = ""            # of a looser tolerance, or of modes that are left out
    least_version: Tuple[int, int] = (1, 13)
    has_group: bool = True   # torch.distributed is there before the job begins
    devices: Tuple[str, ...] = ("cpu", "cuda")


TABLE: Dict[str, Kind] = {}


def job_kind(modes=MODES, refused: Union[str, dict, None] = None, **more):
    """Puts a function into the table. refused: an exception's name for all modes, or by mode."""
    by_mode = dict.fromkeys(MODES, refused) if isinstance(refused, str) else dict(refused or {})

    def put(body):
        if body.__name__ in TABLE:
            raise ValueError(f"two jobs are called {body.__name__}")
        theme = body.__module__.rpartition(".")[2]
        TABLE[body.__name__] = Kind(body.__name__, theme, body, tuple(modes), by_mode, **more)
        return body
    return put


def version() -> Tuple[int, int]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


class Job:
    """One run of one kind on one rank. mode: "ddp" or one of MODES."""

    def __init__(self, mode: str, rank: int, ranks: int, device: str = "cpu", seed: int = 0):
        self.mode, self.rank, self.ranks, self.device = mode, rank, ranks, device
        self.with_ddp = mode == "ddp"
        self.generator = torch.Generator().manual_seed(1000 * seed + 17 + rank)  # this rank's share of the data
        self.pauses = random.Random(f"{seed} {rank}")
        self.steps_done = 0
        self.optimizers: list = []  # that Weft has wrapped
        self.notes: List[Tuple[str, object]] = []
        self.result: dict = {}

    # --- what a script does ---

    def wrap(self, model, optimizer, **ddp_options):
        """DDP's options are dropped for Weft."""
        if self.with_ddp:
            device_ids = [0] if self.device == "cuda" else None
            return nn.parallel.DistributedDataParallel(model, device_ids=device_ids, **ddp_options), optimizer
        import weft.torch as weft
        wrapped = weft.overlap(model, optimizer, **OPTIONS[self.mode])
        self.optimizers.append(wrapped[1])
        return wrapped

    def unwrap(self, model, optimizer):
        """The plain model, to go on without the other ranks."""
        if self.with_ddp:
            return model.module
        optimizer.weft.close()
        return model

    def batches(self, steps: int = STEPS, rows: int = 6, width: int = WIDTH, first: int = 0):
        """(step, (inputs, targets)). Ranks are not equally fast."""
        for step in range(first, first + steps):
            if not self.with_ddp and self.pauses.random() < 0.5:
                time.sleep(0.003 * self.pauses.random())
            yield step, (self.normal(rows, width), self.normal(rows, CLASSES))
            self.steps_done += 1

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator, device="cpu").to(self.device)

    def integers(self, most: int, *shape):
        return torch.randint(0, most, shape, generator=self.generator, device="cpu").to(self.device)

    def note(self, name: str, value) -> None:
        """A figure that the script prints, logs or decides by."""
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().tolist()
        self.notes.append((name, value))

    def finish(self, *things) -> None:
        """What counts in the end: models, optimizers, tensors, or dicts and lists of these."""
        for number, thing in enumerate(things):
            flatten(thing, str(len(self.result)) if number else "", self.result)


def flatten(thing, path: str, result: dict) -> None:
    """Tensors and figures by path."""
    if isinstance(thing, (nn.Module, torch.optim.Optimizer)):
        thing = thing.state_dict()
    if isinstance(thing, torch.Tensor):
        thing = thing.to_dense() if thing.is_sparse else thing
        while ".module." in path:  # DDP's own name for what it wraps
            path = path.replace(".module.", ".")
        result[path.lstrip(".")] = thing.detach().cpu().clone()
    elif isinstance(thing, dict):
        for name, entry in thing.items():
            flatten(entry, f"{path}.{name}", result)
    elif isinstance(thing, (list, tuple)):
        for number, entry in enumerate(thing):
            flatten(entry, f"{path}.{number}", result)
    elif isinstance(thing, (bool, int, float, str)):
        result[path.lstrip(".")] = thing


# --- models ---


def perceptron(layers: int = 3, width: int = WIDTH, hidden: int = 20, classes: int = CLASSES):
    sizes = [width] + [hidden] * (layers - 1) + [classes]
    modules = []
    for before, after in zip(sizes, sizes[1:]):
        modules += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*modules[:-1])


class Picture(nn.Module):
    """Convolutions with batch normalization, for pictures of 3 x 8 x 8."""

    def __init__(self, channels: int = 6):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
                                      nn.Conv2d(channels, channels, 3, stride=2), nn.BatchNorm2d(channels), nn.ReLU(),
                                      nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(4 * channels, CLASSES)

    def forward(self, pictures):
        return self.head(self.features(pictures))


class Block(nn.Module):
    def __init__(self, width: int, heads: int = 2):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.before(x)
        length = x.shape[1]
        mask = torch.full((length, length), -math.inf, device=x.device).triu(1)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(self.between(x))


class Language(nn.Module):
    """A small GPT whose head is its embedding."""

    def __init__(self, vocabulary: int = 24, width: int = 16, layers: int = 2, longest: int = 16):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))

    @torch.no_grad()
    def generate(self, tokens, count: int = 3):
        for _ in range(count):
            tokens = torch.cat([tokens, self.forward(tokens)[:, -1:].argmax(-1)], 1)
        return tokens
