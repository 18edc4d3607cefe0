"""The steps of a job under a plan: gradients leave as backward finishes them, parameters are updated as they arrive, and
each module's forward waits for its own.

A parameter is *pending* from `optimizer.step()` until it was updated. Its module's forward settles it, at the latest.
"""

import time
from collections import deque
from typing import Callable, Dict, List, Optional

import torch

from .errors import ModuleChanged, NotSupported, StepChanged
from .plan import Plan
from .update import DeferredUpdate


class Slot:
    """One parameter and where its gradient is on its way."""

    def __init__(self, index: int, name: str, parameter: torch.nn.Parameter):
        self.index, self.name, self.parameter = index, name, parameter
        self.parameter_shape = parameter.shape
        self.transfers: List[int] = []
        self.flag: Optional[torch.Tensor] = None  # after averaging: above zero where any rank used it
        self.gradient: Optional[torch.Tensor] = None  # what travels; kept from the user's zero_grad
        self.version = 0     # of the gradient when it left
        self.left = 0        # transfers that have not landed
        self.sent = False    # in this step
        self.pending = False
        self.was_used = False    # an update has used a gradient of it
        self.keeps_zeros = False  # zero_grad leaves zeros, so unused steps update it too, as without Weft


class _TransferState:
    def __init__(self, parts):
        self.parts = parts
        self.parameters = {part.parameter for part in parts}
        self.missing = len(self.parameters)
        self.flags: Optional[torch.Tensor] = None


class Engine:
    """Applies one plan. `slots` are in the plan's order of parameters."""

    def __init__(self, plan: Plan, slots: List[Slot], wire, update: DeferredUpdate):
        self.plan, self.slots, self.wire, self.update = plan, slots, wire, update
        self.transfers = [_TransferState(transfer) for transfer in plan.transfers]
        self.waited = 0.0  # seconds of this step that forward waited for parameters
        self.updating = 0.0  # seconds of this thread in the optimizer, since the beginning
        self.note_landed: Callable[[], None] = lambda: None  # called when all transfers of the step before have landed
        self.wants_new_plan = False  # this rank, in this step
        self.new_plan_wanted = False  # by any rank, in the last step whose transfers have all landed
        self._wish: Optional[torch.Tensor] = None
        self._next, self._landed, self._sending = 0, 0, False  # transfers: to start next, landed; a step's gradients leave
        self._arrived: deque = deque()
        for slot in slots:
            slot.transfers = [number for number, transfer in enumerate(plan.transfers) if any(p.parameter == slot.index for p in transfer)]
        self._make_flags()
        wire.apply(plan, [0 if transfer.flags is None else transfer.flags.numel() for transfer in self.transfers])

    def _make_flags(self) -> None:
        """A parameter's last transfer says whether it was used, and the last of all whether a rank wants a new plan."""
        last = {}
        for slot in self.slots:
            if self.wire.tells_use and slot.transfers:
                last.setdefault(slot.transfers[-1], []).append(slot)
        for number, slots in last.items():
            is_last = number == len(self.transfers) - 1
            flags = torch.zeros(len(slots) + is_last, dtype=slots[0].parameter.dtype)
            self.transfers[number].flags = flags
            if is_last:
                self._wish = flags[-1:]
            for i, slot in enumerate(slots):
                slot.flag = flags[i:i + 1]

    # --- gradients leave ---

    def send(self, slot: Slot) -> None:
        """The parameter's gradient is what it will be in this step."""
        if slot.pending:
            raise StepChanged(f"{slot.name} was used before the forward of its module, or of "
                              f"{self.plan.parameters[slot.index].gate or 'one that owns it'}, which it was not in the measured steps")
        self._begin_round()
        if slot.sent:
            raise StepChanged(f"{slot.name} got a gradient after its gradient had left: more backward passes than the "
                              f"{self.plan.passes} of a measured step (use `with model.no_sync():` for all but the last)")
        parameter = slot.parameter
        if parameter.grad is None and not self.wire.tells_use:
            raise StepChanged(f"{slot.name} got no gradient in this step; on GPUs every step must use every parameter")
        used = parameter.grad is not None or (slot.keeps_zeros and slot.was_used)
        if parameter.grad is None:
            slot.gradient = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        else:
            if not parameter.grad.is_contiguous():
                parameter.grad = parameter.grad.contiguous()
            slot.gradient = parameter.grad
        if slot.gradient.is_sparse or slot.gradient.dtype != parameter.dtype:
            raise NotSupported(f"{slot.name}: a gradient that is sparse or of another type than its parameter")
        slot.version, slot.sent, slot.left = slot.gradient._version, True, len(slot.transfers)
        if slot.flag is not None:
            slot.flag.fill_(1.0 if used else 0.0)
        for number in slot.transfers:
            self.transfers[number].missing -= 1
        self._start_ready_transfers()

    def _start_ready_transfers(self) -> None:
        """.data has a version of its own: what travels is no change by the user."""
        while self._next < len(self.transfers) and not self.transfers[self._next].missing:
            transfer = self.transfers[self._next]
            tensors = [self.slots[part.parameter].gradient.data.view(-1)[part.begin:part.end] for part in transfer.parts]
            if transfer.flags is not None:
                tensors.append(transfer.flags)
                if self._next == len(self.transfers) - 1 and self._wish is not None:
                    self._wish.fill_(float(self.wants_new_plan))
            self.wire.start(self._next, tensors)
            self._next += 1

    def send_rest(self) -> None:
        """What backward did not reach: gradients of earlier passes, or none."""
        for slot in self.slots:
            if not slot.sent:
                self.send(slot)

    # --- gradients arrive ---

    def _look(self) -> None:
        while self._landed < self._next and self.wire.has_landed(self._landed):
            self._take_landed()

    def _take_landed(self) -> None:
        for index in self.transfers[self._landed].parameters:
            slot = self.slots[index]
            slot.left -= 1
            if not slot.left:
                self._arrived.append(slot)
        self._landed += 1
        if self._landed == len(self.transfers) and self._wish is not None:
            self.new_plan_wanted = bool(self._wish.item() > 0)

    def _wait_for_next(self) -> None:
        begin = time.perf_counter()
        self.wire.wait(self._landed)
        self.waited += time.perf_counter() - begin
        self._take_landed()

    def _used(self, slot: Slot) -> bool:
        return slot.flag is None or bool(slot.flag.item() > 0)

    def receive_all(self) -> None:
        """Ends a backward pass as DDP does: .grad is the average on every rank. Another pass may follow."""
        self.send_rest()
        while self._landed < len(self.transfers):
            self._wait_for_next()
        for slot in self.slots:
            slot.parameter.grad = slot.gradient if self._used(slot) else None
            slot.gradient, slot.sent = None, False
        self._sending = False

    def _begin_round(self) -> None:
        """At the first gradient of a step. What the last forward did not use is still pending."""
        if self._sending:
            return
        self.settle_all()
        self.note_landed()
        self._sending = True
        self._next, self._landed = 0, 0
        self._arrived.clear()
        for transfer in self.transfers:
            transfer.missing = len(transfer.parameters)

    # --- updates ---

    def defer_updates(self) -> None:
        """What `optimizer.step()` becomes: the rest leaves, and every parameter is pending."""
        self.send_rest()
        self.update.remember_settings()
        for slot in self.slots:
            parameter = slot.parameter
            if (parameter.grad is not None and parameter.grad is not slot.gradient) or slot.gradient._version != slot.version:
                raise StepChanged(
                    f"the gradient of {slot.name} was changed between backward and step, but not in the measured steps: its "
                    "average is still on its way (overlap(..., across_steps=False) waits for it)")
            parameter.grad, slot.pending, slot.sent = None, True, False
        self._sending = False

    def _apply(self, slots: List[Slot]) -> None:
        used = [slot for slot in slots if self._used(slot)]
        for slot in used:
            slot.parameter.grad, slot.was_used = slot.gradient, True
        if used:
            begin = time.thread_time()
            self.update.apply([slot.parameter for slot in used])
            self.updating += time.thread_time() - begin
        for slot in slots:
            slot.parameter.grad, slot.gradient, slot.pending = None, None, False

    def settle(self, slots: List[Slot]) -> None:
        """Returns when these parameters are updated. While it waits, it updates others that have arrived."""
        while True:
            needed = [slot for slot in slots if slot.pending]
            if not needed:
                return
            self._look()
            here = [slot for slot in needed if not slot.left]
            while self._arrived and not self._arrived[0].pending:
                self._arrived.popleft()
            if here:
                self._apply(here)
            elif self._arrived and self.wire.host_waits:
                self._apply([self._arrived.popleft()])
            else:
                self._wait_for_next()

    def settle_all(self) -> None:
        self.settle(self.slots)


def require_same_parameters(slots: List[Slot], model: torch.nn.Module) -> None:
    """Raises ModuleChanged where the model's parameters are not those of the plan any more."""
    planned: Dict[int, Slot] = {id(slot.parameter): slot for slot in slots}
    found = 0
    for name, parameter in model.named_parameters():
        slot = planned.get(id(parameter))
        if slot is None:
            if parameter.requires_grad:
                raise ModuleChanged(f"{name} is a parameter that was not there before (or not trained); call overlap again")
        elif not parameter.requires_grad:
            raise ModuleChanged(f"{name} is not trained any more; call overlap again")
        else:
            found += 1
    if found != len(planned):
        there = {id(parameter) for parameter in model.parameters()}
        gone = next(slot.name for slot in slots if id(slot.parameter) not in there)
        raise ModuleChanged(f"{gone} is no parameter of the model any more; call overlap again")
