"""ZeRO on GPUs: parameters that travel together, by one reduce-scatter and one all-gather of torch.distributed's.

Both want equal slices that follow each other, so gradients are copied together first, and gathered values taken apart after: at the
speed of the GPU's memory, beside which the wire is slow. The rank's own slices, and their gradients, lie in one piece from the
beginning and are not copied.
"""

from typing import List, Sequence

import torch

from .device_engine import copy_all


class DeviceBucket:
    """What shards.Bucket is on processors. `number` is its turn on the lanes."""

    def __init__(self, shards, members: Sequence[int], number: int):
        self.members, self._shards, self._wire, self._number = list(members), shards, shards.wire, number
        wire, first = self._wire, shards.slots[self.members[0]].parameter
        self._slices = [[(shards.borders[i][rank], shards.borders[i][rank + 1]) for i in self.members] for rank in range(wire.ranks)]
        self._length = max(1, *(sum(end - begin for begin, end in of_rank) for of_rank in self._slices))
        self._values, self._gradients = (torch.zeros(self._length, dtype=first.dtype, device=wire.device) for _ in range(2))
        offset = 0
        for i in self.members:
            own, length = shards.own[i], shards.own[i].numel()
            value, gradient = (whole[offset:offset + length].view(own.shape) for whole in (self._values, self._gradients))
            value.copy_(own.data)
            own.data, shards.gradients[i] = value, gradient
            offset += length
        self._gathering = None
        self.updated = None  # the moment of the last update

    def _parts_of(self, rows: torch.Tensor, wholes: Sequence[torch.Tensor]) -> List[tuple]:
        """(in the packed rows, in the whole tensors), by rank and parameter."""
        found = []
        for row, of_rank in zip(rows, self._slices):
            offset = 0
            for (begin, end), whole in zip(of_rank, wholes):
                if end > begin:
                    found.append((row[offset:offset + end - begin], whole.reshape(-1)[begin:end]))
                offset += end - begin
        return found

    def scatter(self, gradients: Sequence[torch.Tensor]) -> None:
        """Afterwards the whole gradients are not needed; the update stream goes on when this rank's slices are there."""
        wire = self._wire
        packed = torch.empty(wire.ranks, self._length, dtype=self._values.dtype, device=wire.device)
        parts = self._parts_of(packed, gradients)
        copy_all([part for part, _ in parts], [whole for _, whole in parts])
        work = wire.reduce_scatter(self._gradients, packed.view(-1), self._number)
        with wire.on(wire.update_stream):
            work.wait()
            wire._divide(self._gradients)
            if wire.on_gpu:
                packed.record_stream(wire.update_stream)

    def is_scattered(self) -> bool:
        return True

    def wait_scattered(self) -> None:
        """The update stream does, since scatter()."""

    def gather(self) -> None:
        wire = self._wire
        rows = torch.empty(wire.ranks, self._length, dtype=self._values.dtype, device=wire.device)
        wire.after_current(wire.gather_stream)  # whose memory the rows are
        with wire.on(wire.gather_stream):
            wire.wait_for(self.updated)
            work = wire.all_gather(rows.view(-1), self._values, self._number)
        self._gathering = (work, rows)

    def wait_gathered(self) -> None:
        """The current stream goes on with whole parameters. Nothing where that was asked before."""
        if self._gathering is None:
            return
        (work, rows), self._gathering = self._gathering, None
        work.wait()
        parts = self._parts_of(rows, [self._shards.full[i] for i in self.members])
        copy_all([whole for _, whole in parts], [part for part, _ in parts])

    def gather_gradients(self, wholes: Sequence[torch.Tensor]) -> None:
        """Averages that were scattered, to all ranks; the current stream goes on with them."""
        wire = self._wire
        rows = torch.empty(wire.ranks, self._length, dtype=self._values.dtype, device=wire.device)
        wire.all_gather(rows.view(-1), self._gradients, self._number).wait()
        parts = self._parts_of(rows, wholes)
        copy_all([whole for _, whole in parts], [part for part, _ in parts])
