"""ZeRO: each rank owns a slice of every parameter, with its optimizer state, and updates that alone.

A *bucket* is a list of parameters that travel together: one reduce-scatter of their gradients, one all-gather of their values.
On processors both work on the parameters' own memory, slice by slice, so nothing is packed; device_bucket.py is for GPUs.
"""

import copy
import io
from typing import Dict, List, Optional, Sequence

import torch

from . import library
from .device_bucket import DeviceBucket
from .guard import without_guards
from .patience import waiting_for_all
from .update import is_elementwise, plain_context
from .watched_state import raw_state
from .wire import TYPES, pipelined_parts

LEVELS = ("zero1", "zero2", "zero3")
# Queues of the group. Under ZeRO 3 each unit has one of its own, so that ranks which use units in different orders wait for each
# other, and say so, instead of mixing parameters.
SCATTER_QUEUE, GATHER_QUEUE, FIRST_UNIT_QUEUE, MOST_QUEUES = 0, 1, 2, 1023  # the last one is for buffers (wire.py)


def even_borders(elements: int, ranks: int) -> List[int]:
    return [elements * rank // ranks for rank in range(ranks + 1)]


def whole_borders(sizes: Sequence[int], ranks: int) -> List[List[int]]:
    """Each parameter to one rank: the largest first, each to the rank that has least."""
    load, borders = [0] * ranks, [[0]] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        owner = min(range(ranks), key=lambda rank: (load[rank], rank))
        load[owner] += sizes[index]
        borders[index] = [0] * (owner + 1) + [sizes[index]] * (ranks - owner)
    return borders


class Bucket:
    """Parameters that travel together, by their indices."""

    def __init__(self, shards: "Shards", members: Sequence[int], gather_queue: int):
        self.members, self._shards = list(members), shards
        wire, ranks = shards.wire, shards.wire.ranks
        slices = [sum(shards.borders[i][rank + 1] - shards.borders[i][rank] for i in self.members) for rank in range(ranks)]
        first = shards.slots[self.members[0]]
        element_type = TYPES[first.parameter.dtype]
        label = first.name + (f" and {len(self.members) - 1} more" if len(self.members) > 1 else "")
        size = sum(slices) * first.parameter.element_size()
        settings = {"slices": slices, "segments": ranks * len(self.members), "parts": pipelined_parts(size, ranks)}
        self._scatter = wire.group.prepare(library.REDUCE_SCATTER, element_type, library.AVERAGE, sum(slices),
                                           f"gradients of {label}", queue=SCATTER_QUEUE, **settings)
        self._gather = wire.group.prepare(library.ALL_GATHER, element_type, library.SUM, sum(slices), f"parameters {label}",
                                          queue=gather_queue, **settings)

    def scatter(self, gradients: Sequence[torch.Tensor]) -> None:
        shards = self._shards
        inputs = [gradient.view(-1)[shards.borders[i][rank]:shards.borders[i][rank + 1]]
                  for rank in range(shards.wire.ranks) for i, gradient in zip(self.members, gradients)]
        shards.wire.group.start_apart(self._scatter, _segments(inputs), _segments([shards.gradients[i] for i in self.members]))

    def is_scattered(self) -> bool:
        return self._shards.wire.group.is_done(self._scatter)

    def wait_scattered(self) -> None:
        self._shards.wire.group.wait(self._scatter)

    def gather(self) -> None:
        shards = self._shards
        outputs = [shards.full[i].view(-1)[shards.borders[i][rank]:shards.borders[i][rank + 1]]
                   for rank in range(shards.wire.ranks) for i in self.members]
        shards.wire.group.start_apart(self._gather, _segments([shards.own[i].data for i in self.members]), _segments(outputs))

    def wait_gathered(self) -> None:
        self._shards.wire.group.wait(self._gather)

    def gather_gradients(self, wholes: Sequence[torch.Tensor]) -> None:
        """Averages that were scattered, to all ranks; returns when they are there."""
        shards = self._shards
        outputs = [whole.view(-1)[shards.borders[i][rank]:shards.borders[i][rank + 1]]
                   for rank in range(shards.wire.ranks) for i, whole in zip(self.members, wholes)]
        shards.wire.group.start_apart(self._gather, _segments([shards.gradients[i] for i in self.members]), _segments(outputs))
        shards.wire.group.wait(self._gather)


def _segments(tensors: Sequence[torch.Tensor]):
    return (library.Segment * len(tensors))(*(library.Segment(tensor.data_ptr(), tensor.numel() * tensor.element_size())
                                              for tensor in tensors))


class Shards:
    """This rank's slices of all parameters, and the optimizer that updates them."""

    def __init__(self, slots, optimizer: torch.optim.Optimizer, wire):
        self.slots, self.optimizer, self.wire = slots, optimizer, wire
        sizes = [slot.parameter.numel() for slot in slots]
        self.elementwise = is_elementwise(optimizer)
        self.borders = ([even_borders(size, wire.ranks) for size in sizes] if self.elementwise
                        else whole_borders(sizes, wire.ranks))
        self.full = [self._own_memory(slot.parameter) for slot in slots]
        # On processors slices are views: what anybody writes into a parameter is what will be updated. On GPUs they travel from memory
        # of their own, and are read anew before each update.
        self.own = [torch.nn.Parameter(self._slice(i, tensor) if wire.host_waits else self._slice(i, tensor).clone())
                    for i, tensor in enumerate(self.full)]
        self.separated: set = set()
        self._lent: Optional[Dict[torch.nn.Parameter, dict]] = None  # whole state that somebody reads
        self._lent_versions: Dict[tuple, int] = {}  # by parameter and entry, of what was lent
        for slot in slots:
            slot.aliases.ours = 2 if wire.host_waits else 1  # these two
        self.gradients = [torch.zeros_like(own) for own in self.own]
        self._index = {slot.parameter: slot.index for slot in slots}
        self._take_state()
        # Updates go through a copy, so that settings of the user's own optimizer may change meanwhile. State is shared.
        self._shadow = object.__new__(type(optimizer))
        self._shadow.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key not in ("step", "zero_grad")})

    @staticmethod
    def _own_memory(parameter: torch.nn.Parameter) -> torch.Tensor:
        data = parameter.data
        if not data.is_contiguous() or storage_of(data).nbytes() != data.numel() * data.element_size():
            parameter.data = data = data.contiguous().clone()
        return data

    def _slice(self, index: int, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part; whole tensors keep their shape."""
        begin, end = self.borders[index][self.wire.rank:self.wire.rank + 2]
        if not self.elementwise and end > begin:
            return tensor
        return tensor.reshape(-1)[begin:end]

    def adopt(self, members: Sequence[int]) -> None:
        """Parameters that have other memory now, by `parameter.data = ...`."""
        with without_guards():
            for i in members:
                parameter = self.slots[i].parameter
                if parameter.data_ptr() == self.full[i].data_ptr():
                    continue
                # Only memory that will be given back must be the parameter's alone.
                self.full[i] = self._own_memory(parameter) if i in self.separated or not parameter.data.is_contiguous() else parameter.data
                if self.wire.host_waits and i not in self.separated:
                    self.own[i].data = self._slice(i, self.full[i])

    def separate(self, members: Sequence[int]) -> None:
        """Slices of parameters that will not be kept get memory of their own, where they have none."""
        self.separated.update(members)
        for i in members if self.wire.host_waits else ():
            self.own[i].data = self.own[i].data.clone()

    def refresh(self, members: Sequence[int]) -> None:
        """Takes over what was written into whole parameters, where slices are no views of them."""
        with torch.no_grad():
            for i in members:
                self.own[i].data.copy_(self._slice(i, self.full[i]))

    def bucket(self, members: Sequence[int], number: int, gather_queue: int = GATHER_QUEUE):
        """Parameters that travel together; `number`: as the how manieth."""
        return Bucket(self, members, gather_queue) if self.wire.host_waits else DeviceBucket(self, members, number)

    # --- updates ---

    def take_gradients(self) -> List[int]:
        """From whole averaged gradients; returns whose there are."""
        found = []
        with torch.no_grad(), without_guards():
            for i, slot in enumerate(self.slots):
                if slot.parameter.grad is not None:
                    self.gradients[i].copy_(self._slice(i, slot.parameter.grad))
                    found.append(i)
        return found

    def settings(self) -> List[dict]:
        """Returns the optimizer's settings, for an update that comes later, and looks up its state, which somebody may have replaced."""
        self._take_back_state()
        self._shadow.state = raw_state(self.optimizer)
        return [{key: copy.copy(value) if isinstance(value, torch.Tensor) else value for key, value in group.items()}
                for group in self.optimizer.param_groups]

    def update(self, members: Sequence[int], settings: List[dict]) -> None:
        chosen = {i for i in members if self.elementwise or self.own[i].numel()}
        groups = []
        for group in settings:
            params = [self.own[self._index[p]] for p in group["params"] if self._index.get(p) in chosen]
            if params:
                groups.append({**group, "params": params})
        if not groups:
            return
        for i in chosen:
            self.own[i].grad = self.gradients[i]
        self._shadow.param_groups = groups
        with plain_context():
            type(self.optimizer).step(self._shadow)
        for i in chosen:
            self.own[i].grad = None

    # --- state of the optimizer, as a plain job has it ---

    def _take_state(self) -> None:
        """What the optimizer had before it was sharded, or was loaded: from whole parameters to slices."""
        state = raw_state(self.optimizer)
        for i, slot in enumerate(self.slots):
            if slot.parameter in state:
                whole = state.pop(slot.parameter)
                if self.elementwise or self.own[i].numel():
                    state[self.own[i]] = {key: self._slice(i, value).clone() if self._is_split(i, key, value) else value
                                          for key, value in whole.items()}

    def _is_split(self, index: int, key: str, value) -> bool:
        return self.elementwise and key != "step" and isinstance(value, torch.Tensor) and value.shape == self.slots[index].parameter_shape

    def lent_state(self) -> Dict[torch.nn.Parameter, dict]:
        """The state of whole parameters, for who looks into it: all ranks together. What is written into it counts from the next update."""
        if self._lent is None:
            with waiting_for_all("looking into the state of an optimizer with shard="):
                whole = self.whole_state()
            self._lent = {self.slots[index].parameter: entries for index, entries in whole.items()}
            self._lent_versions = {(index, key): value._version for index, entries in whole.items() for key, value in entries.items()
                                   if self._is_split(index, key, value)}
        return self._lent

    def own_keys(self):
        return set(self.own)

    def put_state(self, parameter: torch.nn.Parameter, entries: dict) -> None:
        self._take_back_state()
        index = self._index[parameter]
        if self.elementwise or self.own[index].numel():
            raw_state(self.optimizer)[self.own[index]] = {
                key: self._slice(index, value).clone() if self._is_split(index, key, value) else value for key, value in entries.items()}

    def drop_state(self, parameter: torch.nn.Parameter) -> None:
        self._take_back_state()
        raw_state(self.optimizer).pop(self.own[self._index[parameter]], None)

    def owns_state_of(self, key) -> bool:
        return key in self._index

    def _take_back_state(self) -> None:
        lent, self._lent = self._lent, None
        for (index, key), version in self._lent_versions.items() if lent is not None else ():
            value = lent[self.slots[index].parameter].get(key)
            if value is not None and value._version != version:
                raw_state(self.optimizer)[self.own[index]][key].copy_(self._slice(index, value))

    def whole_state(self) -> Dict[int, dict]:
        """By parameter; all ranks call it together."""
        state = raw_state(self.optimizer)
        mine = {i: dict(state[own]) for i, own in enumerate(self.own) if own in state}
        packed = io.BytesIO()
        torch.save(mine, packed)
        by_rank = [torch.load(io.BytesIO(data), map_location=self.full[0].device) for data in self.wire.gather_bytes(packed.getvalue())]
        whole = {}
        for i, slot in enumerate(self.slots):
            found = [states[i] for states in by_rank if i in states]
            if found and self.elementwise:
                whole[i] = {key: torch.cat([one[key] for one in found]).view(slot.parameter_shape)
                            if isinstance(value, torch.Tensor) and value.shape == self.own[i].shape and value.dim() == 1 else value
                            for key, value in found[self.wire.rank].items()}
            elif found:
                whole[i] = found[0]
        return whole

    def with_whole_state(self, body):
        """Runs the body while the optimizer's state is that of whole parameters, and takes it apart again."""
        self._take_back_state()
        whole, state = self.whole_state(), raw_state(self.optimizer)
        for own in self.own:
            state.pop(own, None)
        for i, entries in whole.items():
            state[self.slots[i].parameter] = entries
        result = body()
        self._shadow.state = raw_state(self.optimizer)  # loading makes another one
        self._take_state()
        return result


def storage_of(tensor: torch.Tensor):
    """The bytes behind a tensor, in all versions of PyTorch."""
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()
