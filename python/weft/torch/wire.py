"""What carries transfers of gradients between the ranks: Weft's own collectives over TCP for tensors in a processor's memory,
NCCL through torch.distributed for those of a GPU. Both average in place and run transfers in the order they are started."""

import contextlib
import ctypes
import json
import struct
import time
from typing import Callable, List, Sequence

import torch

from . import library
from .errors import ModelsDiffer, NotSupported
from .plan import Plan

TYPES = {torch.float32: library.FP32, torch.bfloat16: library.BF16, torch.float16: library.FP16}
TYPE_NAMES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ONES = {"float32": 0x3F800000, "bfloat16": 0x3F80, "float16": 0x3C00}  # bits of 1.0
BUFFERS_QUEUE = 1023  # of the group: beside gradients and parameters
_PIPELINED_BYTES = 256 * 1024  # of a message between two ranks; smaller ones cost more than they hide


def _of_bytes(data: bytes) -> torch.Tensor:
    """On a processor, whatever the job's default device is."""
    with torch.utils._device.DeviceContext("cpu") if hasattr(torch.utils, "_device") else contextlib.nullcontext():
        return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


def storage_bytes(data: bytes, dtype: torch.dtype) -> torch.Tensor:
    """The numbers that these bytes are."""
    if not data:
        return torch.zeros(0, dtype=dtype, device="cpu")
    return _of_bytes(data).view(dtype)


def packed_bytes(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in tensors])


def unpacked(data: torch.Tensor, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """What packed_bytes has packed of tensors like these."""
    parts = torch.split(data, [tensor.numel() * tensor.element_size() for tensor in tensors])
    return [part.clone().view(tensor.dtype).view(tensor.shape) for part, tensor in zip(parts, tensors)]


def describe(model: torch.nn.Module) -> List[str]:
    return [f"{name} {tuple(parameter.shape)} of {parameter.dtype}{'' if parameter.requires_grad else ', not trained'}"
            for name, parameter in model.named_parameters()]


def type_name(dtype: torch.dtype) -> str:
    if dtype not in TYPES:
        raise NotSupported(f"gradients of type {dtype}: float32, bfloat16 and float16 can be averaged")
    return str(dtype).replace("torch.", "")


def pipelined_parts(size: int, ranks: int) -> int:
    """Into how many a ring cuts the messages of an all-reduce, so that ranks reduce one while the next is on its way."""
    return max(1, min(8, size // (_PIPELINED_BYTES * ranks)))


class _HostTransfer:
    """A prepared all-reduce with the memory that it is told of: its segments, and its flags as numbers of the gradients' type."""

    def __init__(self, call: int, sizes: Sequence[int], element_bytes: int, one: int, flags: int):
        self.call, self.one = call, one
        self.flags = ((ctypes.c_uint32 if element_bytes == 4 else ctypes.c_uint16) * flags)()
        self.segments = (library.Segment * (len(sizes) + (flags > 0)))()
        # Address and bytes of each segment, one after the other: written in one call.
        self._pack = struct.Struct("Pq" * len(sizes)).pack_into
        self._words = [word for size in sizes for word in (0, size)]
        if flags:
            self.segments[len(sizes)] = library.Segment(ctypes.addressof(self.flags), ctypes.sizeof(self.flags))

    def fill(self, addresses: Sequence[int], flags: Sequence[bool]) -> None:
        self._words[::2] = addresses
        self._pack(self.segments, 0, *self._words)
        one = self.one
        self.flags[:] = [one if flag else 0 for flag in flags]


class HostWire:
    """Transfers by Weft's communicator, whose thread works while Python computes."""

    host_waits = True

    def __init__(self, group: library.Group):
        self.group = self._group = group
        self.rank, self.ranks = group.rank, group.ranks
        self._transfers: List[_HostTransfer] = []
        self._small = {}
        self._buffers_call = None

    def apply(self, plan: Plan, flags: Sequence[int]) -> None:
        """Prepares all transfers; flags[i] elements follow the parts of transfer i. Those of a plan before are over."""
        for transfer in self._transfers:
            self._group.release(transfer.call)
        self._transfers = []
        for index, transfer in enumerate(plan.transfers):
            of = plan.parameters[transfer[0].parameter]
            sizes = [(part.end - part.begin) * of.element_bytes for part in transfer]
            elements = sum(sizes) // of.element_bytes + flags[index]
            parts = pipelined_parts(elements * of.element_bytes, self.ranks)
            label = f"gradients of {of.name}" + (f" and {len(transfer) - 1} more" if len(transfer) > 1 else "")
            call = self._group.prepare(library.ALL_REDUCE, TYPES[TYPE_NAMES[of.element_type]], library.AVERAGE,
                                       elements, label, parts=parts, segments=len(transfer) + 1)
            self._transfers.append(_HostTransfer(call, sizes, of.element_bytes, _ONES[of.element_type], flags[index]))

    def start(self, index: int, addresses: Sequence[int], flags: Sequence[bool]) -> None:
        """By part, where it begins in memory, which must live until the transfer has landed."""
        transfer = self._transfers[index]
        transfer.fill(addresses, flags)
        self._group.start(transfer.call, transfer.segments)

    def flags_of(self, index: int) -> List[bool]:
        """Of a transfer that has landed: what any rank has set. An average of ones and zeros has no bits only where all are zero."""
        return [flag != 0 for flag in self._transfers[index].flags]

    def has_landed(self, index: int) -> bool:
        return self._group.is_done(self._transfers[index].call)

    def wait(self, index: int) -> None:
        self._group.wait(self._transfers[index].call)

    def now(self) -> float:
        return time.monotonic()

    def seconds_since(self, first: float):
        """What turns moments into seconds."""
        return lambda moment: moment - first

    def moments(self) -> List[tuple]:
        """When each transfer last began and ended, in seconds of time.monotonic()."""
        return [tuple(nanoseconds / 1e9 for nanoseconds in self._group.times(transfer.call)) for transfer in self._transfers]

    def _run(self, collective, element_type, op, tensor, label):
        key = (collective, element_type, op, tensor.numel())
        if key not in self._small:
            self._small[key] = self._group.prepare(collective, element_type, op, tensor.numel(), label)
        segment = library.Segment(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        self._group.start(self._small[key], (library.Segment * 1)(segment))
        self._group.wait(self._small[key])

    def average(self, values: Sequence[float]) -> List[float]:
        tensor = torch.tensor(values, dtype=torch.float32, device="cpu")
        self._run(library.ALL_REDUCE, library.FP32, library.AVERAGE, tensor, "figures of the job")
        return tensor.tolist()

    def largest(self, values: Sequence[int]) -> List[int]:
        tensor = torch.tensor(values, dtype=torch.int64, device="cpu")
        self._run(library.ALL_REDUCE, library.I64, library.MAX, tensor, "facts of the job")
        return tensor.tolist()

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Rank 0's content to all, whatever its type."""
        data = tensor.detach()
        whole = data if data.is_contiguous() else data.contiguous()
        if whole.numel():
            as_bytes = whole.view(-1).view(torch.uint8)
            self._run(library.BROADCAST, library.BYTES, library.SUM, as_bytes, "parameters of rank 0")
        if whole is not data:
            data.copy_(whole)

    def begin_broadcast(self, tensors: Sequence[torch.Tensor]) -> Callable[[], List[torch.Tensor]]:
        """Rank 0's content leaves; returns what waits for it and gives it. One at a time."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        data = packed_bytes(tensors) if self.rank == 0 else torch.zeros(size, dtype=torch.uint8, device="cpu")
        if self._buffers_call is None or self._buffers_call[0] != size:
            if self._buffers_call is not None:
                self._group.release(self._buffers_call[1])
            self._buffers_call = size, self._group.prepare(library.BROADCAST, library.BYTES, library.SUM, size, "buffers of rank 0",
                                                           queue=BUFFERS_QUEUE)
        call = self._buffers_call[1]
        self._group.start(call, (library.Segment * 1)(library.Segment(data.data_ptr(), size)))

        def finish() -> List[torch.Tensor]:
            self._group.wait(call)
            return unpacked(data, tensors)
        return finish

    def text_of_rank_0(self, text: str) -> str:
        data = text.encode() if self.rank == 0 else b""
        (size,) = self.largest([len(data)])
        tensor = torch.zeros(max(1, size), dtype=torch.uint8, device="cpu")
        if self.rank == 0:
            tensor[:size] = _of_bytes(data)
        self.broadcast(tensor)
        return bytes(tensor[:size].tolist()).decode()

    def gather_bytes(self, data: bytes) -> List[bytes]:
        """What every rank gives, by rank."""
        sizes = self.largest([len(data) if rank == self.rank else 0 for rank in range(self.ranks)])
        mine, whole = (torch.zeros(size, dtype=torch.uint8, device="cpu") for size in (max(1, len(data)), max(1, sum(sizes))))
        mine[:len(data)] = _of_bytes(data)
        call = self._group.prepare(library.ALL_GATHER, library.BYTES, library.SUM, sum(sizes), "bytes of the job", slices=sizes)
        self._group.start_apart(call, (library.Segment * 1)(library.Segment(mine.data_ptr(), len(data))),
                                (library.Segment * 1)(library.Segment(whole.data_ptr(), sum(sizes))))
        self._group.wait(call)
        self._group.release(call)
        parts = torch.split(whole[:sum(sizes)], sizes)
        return [part.numpy().tobytes() for part in parts]

    def at(self, place: str) -> None:
        self._group.at(place)

    def fail(self, why: str) -> None:
        self._group.fail(why)

    def leave(self) -> None:
        self._group.leave()

    close = leave


def latency_of(wire) -> float:
    """Seconds of the smallest all-reduce."""
    wire.average([0.0])
    begin = time.perf_counter()
    for _ in range(5):
        wire.average([0.0])
    return (time.perf_counter() - begin) / 5


def require_same_model(wire, description: Sequence[str]) -> None:
    """Raises ModelsDiffer on every rank where one was given another model than rank 0."""
    expected = json.loads(wire.text_of_rank_0(json.dumps(list(description))))
    mine = list(description)
    differs = next((i for i in range(max(len(mine), len(expected))) if mine[i:i + 1] != expected[i:i + 1]), None)
    (rank_after,) = wire.largest([0 if differs is None else wire.rank + 1])
    if not rank_after:
        return
    words = f"rank {rank_after - 1} has another model than rank 0"
    if differs is not None:
        here, there = ((found[differs:] or ["nothing"])[0] for found in (mine, expected))
        words = f"rank {wire.rank} has another model than rank 0: {here} instead of {there}"
    raise ModelsDiffer(words)
