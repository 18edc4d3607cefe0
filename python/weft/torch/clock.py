"""When things happen in a step: on the host's clock, or on a GPU's by events that cost the host nothing."""

import time
from typing import Callable, Dict, Hashable

import torch


class StepClock:
    """Marks of one step. Time that is taken out (communication that waits) does not count."""

    def __init__(self, device: torch.device):
        self._on_gpu = device.type == "cuda"
        self._marks: Dict[Hashable, object] = {}
        self._taken_out: Dict[Hashable, float] = {}
        self._lost = 0.0

    def restart(self) -> None:
        self._marks, self._taken_out, self._lost = {}, {}, 0.0

    def _now(self):
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def mark(self, name: Hashable) -> None:
        """The first mark of a name counts."""
        if name not in self._marks:
            self._marks[name] = self._now()
            self._taken_out[name] = self._lost

    def mark_again(self, name: Hashable) -> None:
        """The last one counts."""
        self._marks.pop(name, None)
        self.mark(name)

    def has(self, name: Hashable) -> bool:
        return name in self._marks

    def take_out(self, body: Callable[[], None]) -> float:
        """Runs the body to its end, also on the GPU; returns its seconds."""
        if self._on_gpu:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        body()
        if self._on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        self._lost += seconds
        return seconds

    def between(self, first: Hashable, second: Hashable) -> float:
        """Seconds without what was taken out."""
        begin, end = self._marks[first], self._marks[second]
        if self._on_gpu:
            end.synchronize()
            seconds = begin.elapsed_time(end) / 1e3
        else:
            seconds = end - begin
        return max(0.0, seconds - (self._taken_out[second] - self._taken_out[first]))
