"""Steps under a plan on a GPU. Gradients lie in one piece of memory in the order in which backward makes them, so that every transfer
is one call of NCCL: several small calls in a group take up to three times as long as one of all their bytes."""

from typing import Dict, List, Sequence

import torch

from .engine import Engine, Slot
from .errors import NotSupported
from .plan import Plan
from .step_news import StepNews
from .torch_wire import TorchWire


def copy_all(targets: List[torch.Tensor], sources: List[torch.Tensor]) -> None:
    """By one kernel where PyTorch has it (2.1 and newer)."""
    if not targets:
        return
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(targets, sources)
        return
    for target, source in zip(targets, sources):
        target.copy_(source)


def laid_out(plan: Plan) -> List[int]:
    """By parameter, where its gradient begins among those of its type: in the order in which transfers have them."""
    found, places = {}, [0] * len(plan.parameters)
    order = sorted(range(len(plan.parameters)), key=lambda i: (plan.parameters[i].ready, i))
    for index in order:
        parameter = plan.parameters[index]
        places[index] = found.get(parameter.element_type, 0)
        found[parameter.element_type] = places[index] + parameter.elements
    return places


class DeviceEngine(Engine):
    """An Engine whose wire is a TorchWire. The host waits for nothing, unless this rank has not used some parameter: then it must know
    whether another has."""

    wire: TorchWire

    def _prepare(self) -> None:
        self._news = StepNews(self.wire, len(self.slots))
        self._home = self.wire.current_stream()
        self._to_copy: List[tuple] = []  # places, and the gradients that go there
        places = laid_out(self.plan)
        sizes: Dict[torch.dtype, int] = {}
        for slot in self.slots:
            sizes[slot.parameter.dtype] = sizes.get(slot.parameter.dtype, 0) + self.plan.parameters[slot.index].elements
        self._all = {dtype: torch.zeros(size, dtype=dtype, device=self.wire.device) for dtype, size in sizes.items()}
        # Each has a version of its own, so that changes by the user can be told from ours.
        self._places = [self._all[slot.parameter.dtype].narrow(0, places[slot.index], self.plan.parameters[slot.index].elements)
                        .view(slot.parameter_shape).data for slot in self.slots]
        self._pieces = [self._piece(number, places) for number in range(len(self.transfers))]
        self.wire.apply(self.plan)

    def _piece(self, number: int, places: List[int]) -> torch.Tensor:
        parts = self.plan.transfers[number]
        begin = end = places[parts[0].parameter] + parts[0].begin
        for part in parts:
            if places[part.parameter] + part.begin != end:
                raise NotSupported(f"transfer {number} of the plan: on GPUs its gradients must follow each other as backward makes them")
            end += part.end - part.begin
        return self._all[self.slots[parts[0].parameter].parameter.dtype][begin:end]

    def _load(self, slot: Slot) -> None:
        place, gradient = self._places[slot.index], slot.parameter.grad
        slot.used, slot.left, slot.loaded, slot.zeroed = gradient is not None, len(slot.transfers), True, None
        slot.gradient, slot.parameter.grad = place, None
        if gradient is None:
            place.zero_()
            return
        if gradient.is_sparse or gradient.dtype != slot.parameter.dtype:
            raise NotSupported(f"{slot.name}: a gradient that is sparse or of another type than its parameter")
        self._to_copy.append((place, gradient.detach()))

    def _start(self, number: int) -> None:
        for slot in self.transfers[number].slots:
            if not slot.loaded:
                self._load(slot)
        copied, self._to_copy = self._to_copy, []
        copy_all([place for place, _ in copied], [gradient for _, gradient in copied])
        self.wire.start(number, self._pieces[number])
        if number == len(self.transfers) - 1:
            self._wish = self._news.tell(self.wants_new_plan, [slot.used for slot in self.slots])

    def _for_user(self, gradient: torch.Tensor) -> torch.Tensor:
        """A gradient of its own: ours is written again in the next round."""
        return gradient.clone()

    def _find_used(self, slots: List[Slot]) -> None:
        if all(slot.used for slot in slots):
            return
        used = self._news.used_by_any()
        for slot in slots:
            slot.used = used[slot.index]

    def _wait_for_next(self) -> None:
        if not self.wire.records:
            return super()._wait_for_next()
        begin = self.wire.now()
        super()._wait_for_next()
        self.waits.append((begin, self.wire.now()))

    def defer_updates(self) -> None:
        self._home = self.wire.current_stream()
        super().defer_updates()

    def settle(self, slots: Sequence[Slot]) -> None:
        """Updates are enqueued in the stream in which the step was taken, where DDP's would be; another one that needs them waits."""
        here = self.wire.current_stream()
        if here == self._home:
            super().settle(slots)
            return
        self.seen_in_streams = True
        with self.wire.on(self._home):
            super().settle(self.slots)
        self.wire.after(here, self._home)

    def _ready(self, needed: List[Slot]) -> List[Slot]:
        """All that has arrived: updates are short here, and each call of the optimizer costs the host."""
        ready = [slot for slot in self._arrived if slot.pending]
        self._arrived.clear()
        return ready
