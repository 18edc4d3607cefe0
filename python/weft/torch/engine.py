"""The steps of a job under a plan: gradients leave as backward finishes them, parameters are updated as they arrive, and
each module's forward waits for its own.

A parameter is *pending* from `optimizer.step()` until it was updated. Its module's forward settles it, at the latest.

What runs for every gradient is kept short: between two kernels Python's code is cold, and each line costs microseconds. Whatever
can wait is done once for each transfer.
"""

import itertools
import operator
import time
from collections import deque
from typing import Callable, Dict, List, Optional, Sequence

import torch

from .errors import ModuleChanged, NotSupported, StepChanged
from .plan import Part, Plan
from .update import DeferredUpdate

# Parameters that one call of the optimizer updates while forward waits for others. A call costs the host as much as a few small
# parameters; with too many, what is waited for arrives meanwhile and waits itself.
UPDATED_TOGETHER = 8


class Slot:
    """One parameter and where its gradient is on its way."""

    def __init__(self, index: int, name: str, parameter: torch.nn.Parameter):
        self.index, self.name, self.parameter = index, name, parameter
        self.parameter_shape = parameter.shape
        self.transfers: List["TransferState"] = []
        self.gradient: Optional[torch.Tensor] = None  # what travels; kept from the user's zero_grad
        self.version = 0     # of the gradient when it left
        self.left = 0        # transfers that have not landed
        self.sent = False    # in this step
        self.loaded = False  # its gradient was looked at, and can travel
        self.pending = False
        self.was_late = False  # still pending when backward began: a gradient of it would be one of old values
        self.used = True         # by this rank; when it has landed, by any
        self.was_used = False    # an update has used a gradient of it
        self.keeps_zeros = False  # zero_grad leaves zeros, so unused steps update it too, as without Weft


class TransferState:
    """A transfer of the plan."""

    def __init__(self, parts: Sequence[Part], slots: List[Slot], element_bytes: int):
        self.slots = [slots[index] for index in dict.fromkeys(part.parameter for part in parts)]
        self.places = [(slots[part.parameter], part.begin * element_bytes) for part in parts]  # bytes from where the gradient begins
        self.flagged: List[Slot] = []  # whose last transfer it is: it says which of them were used by any rank


class Engine:
    """Applies one plan. `slots` are in the plan's order of parameters."""

    def __init__(self, plan: Plan, slots: List[Slot], wire, update: DeferredUpdate):
        self.plan, self.slots, self.wire, self.update = plan, slots, wire, update
        self.transfers = [TransferState(parts, slots, plan.parameters[parts[0].parameter].element_bytes) for parts in plan.transfers]
        self.waited = 0.0  # seconds of this step that forward waited for parameters
        self.waits: list = []  # on GPUs, while steps are recorded: moments between which the stream waited
        self.updating = 0.0  # seconds of this thread in the optimizer, while `watches`
        self.watches = True
        self.pending_left = 0  # parameters
        self.note_landed: Callable[[], None] = lambda: None  # called when all transfers of the step before have landed
        self.wants_new_plan = False  # this rank, in this step
        self.new_plan_wanted = False  # by any rank, in the last step whose transfers have all landed
        self._next, self._landed, self._sending = 0, 0, False  # transfers: to start next, landed; a step's gradients leave
        self._arrived: deque = deque()
        self._late: List[Slot] = []
        for slot in slots:
            slot.transfers = []
            slot.gradient, slot.sent, slot.loaded, slot.pending, slot.was_late = None, False, False, False, False
        for transfer in self.transfers:
            for slot in transfer.slots:
                slot.transfers.append(transfer)
        for slot in slots:
            slot.transfers[-1].flagged.append(slot)
        self._prepare()

    def _prepare(self) -> None:
        """With each transfer travels whether its parameters were used, and with the last one whether a rank wants a new plan."""
        last = len(self.transfers) - 1
        self.wire.apply(self.plan, [len(transfer.flagged) + (number == last) for number, transfer in enumerate(self.transfers)])

    # --- gradients leave ---

    def send(self, slot: Slot) -> None:
        """The parameter's gradient is what it will be in this step."""
        if slot.pending or slot.sent:
            self._refuse(slot)
        if not self._sending:
            self._begin_round()
        self._note(slot)
        while self._next < len(self.transfers) and all(member.sent for member in self.transfers[self._next].slots):
            self._start(self._next)
            self._next += 1

    def last_of_transfers(self) -> List[Slot]:
        """Of each transfer the parameter whose gradient was measured to come last."""
        return list({max(transfer.slots, key=lambda slot: (self.plan.parameters[slot.index].ready, slot.index)): None
                     for transfer in self.transfers})

    def send_what_is_there(self, slot: Optional[Slot] = None) -> None:
        """Looks at the gradients of whole transfers instead of being told of each. For steps of one backward pass that begin without
        gradients: there, one that exists is what it will be. If it is not, its version tells so at the step."""
        if slot is not None and (slot.pending or slot.sent):
            self._refuse(slot)
        if not self._sending:
            self._begin_round()
        for number in range(self._next, len(self.transfers)):
            for member in self.transfers[number].slots:
                if member.sent:
                    continue
                gradient = member.parameter.grad
                if gradient is None:
                    return
                if member.was_late:
                    self._refuse(member)
                member.gradient, member.version, member.sent = gradient, gradient._version, True
            self._start(number)
            self._next = number + 1

    def _note(self, slot: Slot) -> None:
        if slot.was_late:
            self._refuse(slot)
        gradient = slot.gradient = slot.parameter.grad
        if gradient is not None:
            slot.version = gradient._version
        slot.sent = True

    def _refuse(self, slot: Slot) -> None:
        if slot.pending or slot.was_late:
            raise StepChanged(f"{slot.name} was used before the forward of its module, or of "
                              f"{self.plan.parameters[slot.index].gate or 'one that owns it'}, which it was not in the measured steps")
        raise StepChanged(f"{slot.name} got a gradient after its gradient had left: more backward passes than the "
                          f"{self.plan.passes} of a measured step (use `with model.no_sync():` for all but the last)")

    def _load(self, slot: Slot) -> None:
        """Once a step, before its first transfer."""
        parameter, gradient = slot.parameter, slot.gradient
        slot.used = gradient is not None or (slot.keeps_zeros and slot.was_used)
        if gradient is None:
            gradient = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            slot.gradient, slot.version = gradient, gradient._version
        elif gradient.is_sparse or gradient.dtype != parameter.dtype:
            raise NotSupported(f"{slot.name}: a gradient that is sparse or of another type than its parameter")
        elif not gradient.is_contiguous():
            parameter.grad = slot.gradient = gradient.contiguous()
            slot.version = slot.gradient._version
        slot.left, slot.loaded = len(slot.transfers), True

    def _start(self, number: int) -> None:
        """Addresses, not tensors, go to the wire: what travels is no change by the user and leaves versions as they are."""
        transfer = self.transfers[number]
        for slot in transfer.slots:
            if not slot.loaded:
                self._load(slot)
        flags = [slot.used for slot in transfer.flagged]
        if number == len(self.transfers) - 1:
            flags.append(self.wants_new_plan)
        self.wire.start(number, [slot.gradient.data_ptr() + begin for slot, begin in transfer.places], flags)

    def send_rest(self) -> None:
        """What backward did not reach: gradients of earlier passes, or none."""
        for slot in self.slots:
            if not slot.sent:
                if slot.parameter.grad is None:
                    slot.was_late = False  # it was not used
                self.send(slot)

    # --- gradients arrive ---

    def _look(self) -> None:
        while self._landed < self._next and self.wire.has_landed(self._landed):
            self._take_landed()

    def _take_landed(self) -> None:
        transfer, flags = self.transfers[self._landed], self.wire.flags_of(self._landed)
        for slot, used in zip(transfer.flagged, flags):
            slot.used = used
        for slot in transfer.slots:
            slot.left -= 1
            if not slot.left:
                self._arrived.append(slot)
        self._landed += 1
        if self._landed == len(self.transfers) and flags:
            self.new_plan_wanted = flags[-1]

    def _wait_for_next(self) -> None:
        begin = time.perf_counter()
        self.wire.wait(self._landed)
        self.waited += time.perf_counter() - begin
        self._take_landed()

    def receive_all(self) -> None:
        """Ends a backward pass as DDP does: .grad is the average on every rank. Another pass may follow."""
        self.send_rest()
        while self._landed < len(self.transfers):
            self._wait_for_next()
        self._find_used(self.slots)
        for slot in self.slots:
            slot.parameter.grad = slot.gradient if slot.used else None
            slot.gradient, slot.sent, slot.loaded = None, False, False
        self._sending = False

    def _begin_round(self) -> None:
        """At the first gradient of a step. What the last forward did not use is still pending."""
        if self.pending_left or self._late:
            for slot in self._late:
                slot.was_late = False
            self._late = [slot for slot in self.slots if slot.pending]
            for slot in self._late:
                slot.was_late = True
        self.settle_all()
        self.note_landed()
        self._sending = True
        self._next, self._landed = 0, 0
        self._arrived.clear()

    # --- updates ---

    def defer_updates(self) -> None:
        """What `optimizer.step()` becomes: the rest leaves, and every parameter is pending."""
        self.send_rest()
        self.update.remember_settings()
        for slot in self.slots:
            parameter, gradient = slot.parameter, slot.gradient
            found = parameter.grad
            if (found is not None and found is not gradient) or gradient._version != slot.version:
                raise StepChanged(
                    f"the gradient of {slot.name} was changed between backward and step, but not in the measured steps: its "
                    "average is still on its way (overlap(..., across_steps=False) waits for it)")
            parameter.grad, slot.pending, slot.sent, slot.loaded = None, True, False, False
        self.pending_left = len(self.slots)
        self._sending = False

    def _find_used(self, slots: List[Slot]) -> None:
        """Makes `used` what any rank says, of parameters whose gradients have arrived. Flags that travel with them have told so."""

    def _apply(self, slots: List[Slot]) -> None:
        self._find_used(slots)
        used = [slot for slot in slots if slot.used]
        for slot in used:
            slot.parameter.grad, slot.was_used = slot.gradient, True
        if used:
            begin = time.thread_time() if self.watches else 0.0
            self.update.apply([slot.parameter for slot in used])
            if self.watches:
                self.updating += time.thread_time() - begin
        for slot in slots:
            slot.parameter.grad, slot.gradient, slot.pending = None, None, False
        self.pending_left -= len(slots)

    def _ready(self, needed: List[Slot]) -> List[Slot]:
        """What to update now. When all have landed there is nothing left to wait for: the rest in one call of the optimizer."""
        if self._landed == len(self.transfers):
            return [slot for slot in self.slots if slot.pending]
        here = [slot for slot in needed if not slot.left]
        if not here:
            while self._arrived and len(here) < UPDATED_TOGETHER:
                slot = self._arrived.popleft()
                if slot.pending:
                    here.append(slot)
        return here

    def settle(self, slots: Sequence[Slot]) -> None:
        """Returns when these parameters are updated. While it waits, it updates others that have arrived."""
        needed = [slot for slot in slots if slot.pending]
        while needed:
            self._look()
            ready = self._ready(needed)
            if ready:
                self._apply(ready)
            else:
                self._wait_for_next()
            needed = [slot for slot in needed if slot.pending]

    def settle_all(self) -> None:
        if self.pending_left:
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


_is_trained = operator.attrgetter("requires_grad")


class Watch:
    """Notices changes of a model's modules and parameters at the cost of comparing identities."""

    def __init__(self, slots: List[Slot], model: torch.nn.Module):
        self._slots, self._model = slots, model
        self._look_at_all()

    def _look_at_all(self) -> None:
        modules = list(self._model.modules())
        self._trained = [slot.parameter for slot in self._slots]
        self._holders = [holder for module in modules for holder in (module._parameters, module._modules)]
        self._known = self._ids()
        self._kept = [list(holder.values()) for holder in self._holders]  # alive, so that no other object gets its identity
        self._others = [parameter for parameter in self._model.parameters() if not parameter.requires_grad]

    def _ids(self) -> List[int]:
        """Of all that modules hold, and how much each holds. No line of Python runs for each of them."""
        return [*map(len, self._holders), *map(id, itertools.chain.from_iterable(map(dict.values, self._holders)))]

    def require_unchanged(self) -> None:
        """Raises ModuleChanged, with the parameter."""
        if self._ids() != self._known or not all(map(_is_trained, self._trained)) or any(map(_is_trained, self._others)):
            require_same_parameters(self._slots, self._model)
            self._look_at_all()
