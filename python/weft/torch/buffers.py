"""Buffers of modules (the statistics of batches, say), which DDP repeats from rank 0 before each forward that is trained.

They leave rank 0 with the gradients of a backward pass, because the forward before it has changed them last, and are taken over when the
next forward begins: nobody waits for the others there, and a rank that evaluates alone holds up nobody."""

from typing import List

import torch


SMALL = 64 * 1024  # bytes of a buffer that travels in any case


class Buffers:
    """Repeats the buffers of one model. Large ones that no measured step has changed (masks, say) stay where they are until one changes."""

    def __init__(self, model: torch.nn.Module, wire):
        self._model, self._wire = model, wire
        self._due = True  # as DDP: whether the forward before this one was of a pass that is averaged
        self._under_way = None
        self._versions: List[tuple] = []
        self.rediscover()

    def rediscover(self) -> None:
        """While steps are measured all travel; under a plan the small ones, and those that such steps have changed on some rank."""
        self.finish()
        self._left_out: List[tuple] = []
        self._all = [buffer for buffer in self._model.buffers() if buffer.numel() and buffer.layout == torch.strided]
        self._sent = list(self._all)
        self._content = [buffer.detach().clone() for buffer in self._all]

    def decide(self) -> None:
        """All ranks together, when steps have been measured."""
        values = self.finish()
        if values is not None:
            by_buffer = {id(buffer): value for buffer, value in zip(self._sent, values)}
        if self._all:
            changed = self._wire.largest([int(buffer.numel() * buffer.element_size() <= SMALL or not torch.equal(buffer, before))
                                          for buffer, before in zip(self._all, self._content)])
            self._sent = [buffer for buffer, is_changed in zip(self._all, changed) if is_changed]
            self._left_out = [(buffer, buffer._version) for buffer, is_changed in zip(self._all, changed) if not is_changed]
        self._content = []
        if values is not None:  # they have arrived, and are taken over when the next forward begins
            self._under_way = lambda: [by_buffer[id(buffer)] for buffer in self._sent]
            self._versions = [(id(buffer), buffer._version) for buffer in self._sent]

    def misses_one(self) -> bool:
        """Whether a buffer that stays where it is has changed on this rank."""
        return any(buffer._version != version for buffer, version in self._left_out)

    def send(self) -> None:
        """With a backward pass; all ranks together."""
        if not self._sent:
            return
        self.finish()
        self._under_way = self._wire.begin_broadcast(self._sent)
        self._versions = [(id(buffer), buffer._version) for buffer in self._sent]

    def begin_forward(self, is_averaged: bool) -> None:
        """Before the forward of the whole model. is_averaged: it is trained, and not under no_sync."""
        if self._under_way is not None and self._due:
            values = self.finish()
            # What was written since, on this rank, is the user's own wish.
            if self._wire.rank != 0 and [(id(buffer), buffer._version) for buffer in self._sent] == self._versions:
                with torch.no_grad():
                    for buffer, value in zip(self._sent, values):
                        buffer.copy_(value)
        self._due = is_averaged

    def finish(self):
        """Waits for what is under way; returns the values of rank 0."""
        under_way, self._under_way = self._under_way, None
        return under_way() if under_way is not None else None
