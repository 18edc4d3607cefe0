"""ZeRO 3: which parameters are there. A *unit* is an element of the model's outermost lists of modules (the layers of a
transformer, say). Its parameters are gathered before its forward and its backward, a few units ahead, and their memory is given
back after them. All other parameters stay.

The order of gathers is the same on all ranks, because it follows from the order of units alone, never from time.
"""

import time
from typing import Dict, List, Sequence

import torch

from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from .backward import inside_backward
from .compiled import is_compiling
from .guard import Aliases, guard, unguard, without_guards
from .patience import waiting_for_all
from .sharded_run import ShardedRun
from .shards import Shards, storage_of
from .update import untraced


def units_of(model: torch.nn.Module) -> List[str]:
    """Names of the modules that are units."""
    found: List[str] = []

    def look(module: torch.nn.Module, prefix: str) -> None:
        is_list = isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential))
        for name, child in module.named_children():
            if is_list and any(True for _ in child.parameters()):
                found.append(prefix + name)
            else:
                look(child, prefix + name + ".")
    look(model, "")
    return found


def unit_members(model: torch.nn.Module, slots) -> Dict[str, List[int]]:
    """By unit, the parameters that no module outside of it has."""
    owners: Dict[int, set] = {}
    names = units_of(model)
    modules = dict(model.named_modules())
    inside = {id(module): name for name in names for module in modules[name].modules()}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(inside.get(id(module), ""))
    members: Dict[str, List[int]] = {}
    for slot in slots:
        found = owners.get(id(slot.parameter), {""})
        if len(found) == 1 and "" not in found:
            members.setdefault(next(iter(found)), []).append(slot.index)
    return members


class Residency:
    """Gathers and frees units. `order`: units as forward uses them."""

    def __init__(self, shards: Shards, run: ShardedRun, members: Dict[str, List[int]], order: Sequence[str], ahead: int):
        self.shards, self.run, self.members, self.order, self.ahead = shards, run, members, list(order), ahead
        self._place = {name: place for place, name in enumerate(self.order)}
        self._here = {name: True for name in self.order}  # at first all are
        self._coming: Dict[str, bool] = {}
        self._left: Dict[str, int] = {}
        self._handles: list = []
        self._unit_of = {i: name for name, indices in members.items() for i in indices}
        self._fetched: set = set()  # by somebody's touch, who may have written into them
        self._perhaps_held: set = set()  # by somebody's alias, which must not lose its memory
        self.shards.separate(list(self._unit_of))
        self.most_here = 0  # units at a time, since the beginning
        # In the place of parameters that are not there: no memory, and whoever uses it sees it in the loss.
        self._absent = {i: shards.full[i].new_full((1,), float("nan")).expand(shards.full[i].shape)
                        for indices in members.values() for i in indices}
        for i in self._unit_of:
            run.slots[i].aliases = None  # it holds memory that is to be given back
        self._fetched.update(name for name in self.order if any(self._is_held(i, ours=1) for i in members[name]))
        for name in self.order:
            self.free(name)

    def install(self, modules: Dict[str, torch.nn.Module]) -> None:
        self._name_of = {id(modules[name]): name for name in self.order}
        self._handles = [register_module_forward_pre_hook(self.before_module), register_module_forward_hook(self.after_module)]

    def before_module(self, module, inputs) -> None:
        name = None if is_compiling() else self._name_of.get(id(module))
        if name is not None:
            self.before_forward(name)

    def after_module(self, module, inputs, outputs) -> None:
        name = None if is_compiling() else self._name_of.get(id(module))
        if name is not None and not inside_backward():  # computed again, it is needed until its gradients are there
            self.after_forward(name, outputs)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        for name in self.order:
            self.need(name)
        with without_guards():
            for name in self.order:
                for i in self.members[name]:
                    unguard(self.run.slots[i].parameter)

    def is_here(self, name: str) -> bool:
        return self._here[name]

    # --- who touches a parameter that is not there ---

    def is_absent(self, slot) -> bool:
        return slot.index in self._unit_of and not self._here[self._unit_of[slot.index]]

    def fetch(self, slot) -> None:
        """All ranks together: the whole unit, until its next use has ended."""
        name = self._unit_of.get(slot.index)
        if name is not None and not self._here[name]:
            with waiting_for_all(f"using parameters of {name} outside of its forward with shard='zero3'"):
                self.need(name)
        if name is not None:
            self._fetched.add(name)

    def free_fetched(self) -> None:
        """What was written into units counts from now on."""
        for name in sorted(self._fetched):
            self.free(name)

    def follow_aliases(self) -> None:
        """After a step, when no graph holds parameters: where somebody else does, in an alias, it has the new values. The memory of others
        is given back."""
        for name in sorted(self._perhaps_held):
            self._perhaps_held.discard(name)
            if self._here[name] or name in self._coming:
                continue
            if any(self._is_held(i) for i in self.members[name]):
                self.fetch(self.run.slots[self.members[name][0]])
            else:
                for i in self.members[name]:
                    self._release(i)

    def _release(self, index: int) -> None:
        storage = storage_of(self.shards.full[index])
        try:
            storage.resize_(0)
        except RuntimeError:  # an array of NumPy has it for ever
            self.shards.full[index] = torch.empty_like(self.shards.full[index])
            storage_of(self.shards.full[index]).resize_(0)

    def _is_held(self, index: int, ours: int = 0) -> bool:
        """By anybody but us and so many other holders of ours, in an alias."""
        probe = Aliases(self.shards.full[index])
        probe.ours = ours
        return probe.there_are()

    # --- memory ---

    def _buckets(self, name: str):
        return list({id(self.run.bucket_of[i]): self.run.bucket_of[i] for i in self.members[name]}.values())

    def _start(self, name: str) -> None:
        with untraced():
            self._start_untraced(name)

    def _start_untraced(self, name: str) -> None:
        for i in self.members[name]:
            full = self.shards.full[i]
            if storage_of(full).nbytes() != full.numel() * full.element_size():
                storage_of(full).resize_(full.numel() * full.element_size())
        for state in self._buckets(name):
            state.bucket.gather()
        self._coming[name] = True

    def _may_start(self, name: str) -> bool:
        return all(state.updated for state in self._buckets(name))

    def need(self, name: str) -> None:
        """Returns when the unit's parameters are there."""
        if self._here[name]:
            return
        if name not in self._coming:
            for state in self._buckets(name):
                self.run.wait_updated(state)
            self._start(name)
        begin = time.perf_counter()
        for state in self._buckets(name):
            state.bucket.wait_gathered()
        self.run.waited += time.perf_counter() - begin
        del self._coming[name]
        self._here[name] = True
        self.most_here = max(self.most_here, sum(self._here.values()))
        with without_guards(), untraced():
            for i in self.members[name]:
                parameter = self.run.slots[i].parameter
                parameter.data = self.shards.full[i]
                if not self.run.gradients_guarded:
                    unguard(parameter)

    def _prefetch(self, name: str, step: int) -> None:
        """Never out of turn: what cannot start yet holds back those behind it."""
        for distance in range(1, self.ahead + 1):
            place = self._place[name] + step * distance
            if not 0 <= place < len(self.order):
                return
            other = self.order[place]
            if self._here[other] or other in self._coming:
                continue
            if not self._may_start(other):
                return
            self._start(other)

    def free(self, name: str) -> None:
        if not self._here[name]:
            return
        if name in self._fetched:
            self.shards.adopt(self.members[name])
            self.shards.refresh(self.members[name])  # what was written into them
            self._fetched.discard(name)
            self._perhaps_held.add(name)
        self._here[name] = False
        with without_guards(), untraced():
            for i in self.members[name]:
                slot = self.run.slots[i]
                slot.parameter.data = self._absent[i]
                if name not in self._perhaps_held:
                    self._release(i)
                guard(slot.parameter, slot.touch)

    # --- when ---

    def before_forward(self, name: str) -> None:
        self.need(name)
        self._prefetch(name, 1)

    def after_forward(self, name: str, outputs) -> None:
        tensors = [tensor for tensor in _tensors_in(outputs) if tensor.requires_grad]
        for tensor in tensors:
            tensor.register_hook(lambda gradient, name=name: self.before_backward(name))
        self._left[name] = len(self.members[name])
        if not (tensors and name == self.order[-1]):  # backward begins with the last
            self.free(name)

    def before_backward(self, name: str) -> None:
        self.need(name)
        self._prefetch(name, -1)

    def after_gradient(self, name: str) -> None:
        """Each of the unit's gradients, once a pass; after the last one its parameters are not used any more."""
        self._left[name] = self._left.get(name, 1) - 1
        if not self._left[name]:
            self.free(name)

    def end_of_backward(self) -> None:
        """Units whose parameters did not all get gradients."""
        for name in self.order:
            if name in self._coming:
                self.need(name)
            self.free(name)


def _tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors_in(one)
