"""How many communicators at once are good for a job on GPUs: a part of its step is rehearsed with each choice.

Products that take as long as a part of the job's own compute run beside all-reduces of the same part of its bytes. The choice with which
both are over first is taken. What the products lost to communication, and what a byte took beside them, go into the plan.
"""

import json
import statistics
import time
from dataclasses import replace
from typing import List, Tuple

import torch

from .plan import Parameter, Profile
from .torch_wire import Choice, TorchWire, words_of

# Fewer thread blocks leave more of the GPU to compute.
CHOICES: Tuple[Choice, ...] = ((1, 0), (2, 0), (3, 0), (2, 2), (3, 2))
REPEATS = 3
_SHARE, _LONGEST = 0.3, 0.05  # of a step; seconds
_PIECE_BYTES = 8 << 20


class _Rehearsal:
    def __init__(self, wire: TorchWire, profile: Profile):
        self.wire = wire
        size = sum(parameter.bytes for parameter in profile.parameters)
        share = min(_SHARE, _LONGEST / max(profile.compute, 1e-9))
        dtype, width = (torch.bfloat16, 4096) if wire.on_gpu else (torch.float32, 256)
        chance = torch.Generator(wire.device).manual_seed(0)  # the job's own must not notice
        self._left, self._right = (torch.randn(width, width, device=wire.device, generator=chance).to(dtype) for _ in range(2))
        self._result = torch.empty_like(self._left)
        per_product = self._alone(10)
        self.products = max(1, round(share * profile.compute / per_product))
        self.pieces = max(1, round(share * size / _PIECE_BYTES))
        self.piece_bytes = int(share * size / self.pieces)
        elements = max(1, self.piece_bytes // self._left.element_size())
        self._buffers = [torch.zeros(elements, dtype=dtype, device=wire.device) for _ in range(max(lanes for lanes, _ in CHOICES))]
        self.alone = self._alone(self.products) * self.products

    def _multiply(self, count: int) -> None:
        for _ in range(count):
            torch.mm(self._left, self._right, out=self._result)

    def _alone(self, count: int) -> float:
        """Seconds of a product, the same on all ranks."""
        self._multiply(count)
        begin = self.wire.finish()
        self._multiply(count)
        (seconds,) = self.wire.average([(self.wire.finish() - begin) / count])
        return seconds

    def play(self, choice: Choice) -> Tuple[float, float]:
        """Seconds until all products, and until all transfers, are over."""
        wire, lanes = self.wire, choice[0]
        wire.choose(choice)
        wire.largest([0])  # all ranks begin together
        begin = wire.finish()
        first = self._event()
        works = [wire.all_reduce(self._buffers[number % lanes], number) for number in range(self.pieces)]
        self._multiply(self.products)
        products, multiplied = self._event(), time.perf_counter()
        with wire.on(wire.update_stream):
            for work in works:
                work.wait()
            transfers = self._event()
        end = wire.finish()
        if first is None:
            return multiplied - begin, end - begin
        return first.elapsed_time(products) / 1e3, first.elapsed_time(transfers) / 1e3

    def _event(self):
        if not self.wire.on_gpu:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def rehearse(wire: TorchWire, profile: Profile, kept: int = 1) -> Tuple[Profile, List[Choice]]:
    """Makes the wire use the best choice. Returns the profile with what communication and compute do to each other under it, and so many
    of the best choices, whose communicators stay."""
    rehearsal = _Rehearsal(wire, profile)
    found: List[List[float]] = []
    for choice in CHOICES:
        rehearsal.play(choice)  # makes the communicators
        times = [rehearsal.play(choice) for _ in range(REPEATS)]
        found.append([statistics.median(column) for column in zip(*times)])
    wire.choose((1, 0))
    found = json.loads(wire.text_of_rank_0(json.dumps(found)))
    order = sorted(range(len(CHOICES)), key=lambda i: max(found[i]))
    choices = [CHOICES[i] for i in order[:kept]]
    wire.use_lanes(*choices)
    wire.chooses_lanes = False
    wire.rehearsed = {words_of(choice): times for choice, times in zip(CHOICES, found)}
    products, transfers = found[order[0]]
    slower = max(1.0, products / rehearsal.alone)
    return replace(profile, compute=slower * profile.compute, wire_per_byte=transfers / (rehearsal.pieces * rehearsal.piece_bytes),
                   parameters=[_slowed(parameter, slower) for parameter in profile.parameters]), choices


def _slowed(parameter: Parameter, factor: float) -> Parameter:
    return replace(parameter, needed=factor * parameter.needed, ready=factor * parameter.ready)
