"""The steps of a job under a plan: gradients leave as backward finishes them, parameters are updated as they arrive, and
each module's forward waits for its own.

A *round* is what travels for one backward pass: all transfers of the plan, in its order, on every rank. How a rank waits for it is its own
affair, and needs no word with the others:

- `receive_all`: now, as DDP does. `.grad` of every parameter is the average then.
- `defer_updates`: after `optimizer.step()`. A parameter is *pending* until it was updated; its module's forward settles it, at the latest.

A gradient that has left is out of the user's reach: `.grad` is None, and the parameter is guarded (guard.py), so whoever asks for it
or for a pending parameter waits.

What runs for every gradient is kept short: between two kernels Python's code is cold, and each line costs microseconds. Whatever
can wait is done once for each transfer.
"""

import threading
import time
from collections import deque
from typing import Callable, List, Optional, Sequence

import torch

from .errors import NotSupported, StepChanged
from .guard import COUNTS_ALIASES, GRADIENT, NO_GRADIENT, VALUE, Aliases, aliased, can_guard, guard, unguard, without_guards
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
        self.aliases = Aliases(parameter)
        self.exposed = False  # somebody has asked for its address
        self.touch: Callable = lambda asked, takes_address: None  # made once: guards are set in every step
        self.zeroed, self.zeroed_version = None, 0  # the gradient that zero_grad left, and its version then
        self.keeps_zeros, self.was_used = False, False  # sharded: zero_grad leaves zeros, so steps without gradients update it too
        self.forget()

    def forget(self) -> None:
        """Nothing of it is under way."""
        self.transfers: List["TransferState"] = []
        self.gradient: Optional[torch.Tensor] = None  # what travels
        self.version = 0         # sharded: of the gradient when it left
        self.left = 0            # transfers that have not landed
        self.sent = False        # in this round
        self.loaded = False      # its gradient was looked at, and can travel
        self.pending = False
        self.used = True         # by this rank; when it has landed, by any
        self.zero_later = ""     # zero_grad was called while it was pending: "none" or "zeros"

    def new_gradient(self) -> Optional[torch.Tensor]:
        """Its gradient, unless that is what zero_grad left."""
        gradient = self.parameter.grad
        if gradient is not None and gradient is self.zeroed and gradient._version == self.zeroed_version:
            return None
        return gradient

    def gradient_version(self) -> int:
        gradient = self.parameter.grad
        return 0 if gradient is None else gradient._version

    def note_zeros(self) -> None:
        gradient = self.parameter.grad
        self.zeroed, self.zeroed_version = gradient, 0 if gradient is None else gradient._version

    def may_wait(self) -> bool:
        """Whether it can be left without its update: everybody who reads it is seen."""
        return not self.exposed and COUNTS_ALIASES and can_guard(self.parameter) and not self.aliases.there_are()


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
        self.lock = threading.RLock()  # who touches a guarded parameter may be another thread
        self.waited = 0.0  # seconds of this step that forward waited for parameters
        self.waits: list = []  # on GPUs, while steps are recorded: moments between which the stream waited
        self.updating = 0.0  # seconds of this thread in the optimizer, while `watches`
        self.watches = True
        self.pending_left = 0  # parameters
        self.in_flight = False  # a round has begun, and is neither received nor deferred
        self.settled_early = 0  # parameters that somebody touched before the forward of their modules
        self.seen_in_streams = False  # on GPUs: modules of this model run in several streams
        self.note_landed: Callable[[], None] = lambda: None  # called when all transfers of the round before have landed
        self.wants_new_plan = False  # this rank, in this round
        self.new_plan_wanted = False  # by any rank, in the round before this one
        self._wish = False            # whether any rank wants one in this round, known when it has landed
        self._next, self._landed = 0, 0  # transfers: to start next, landed
        self._arrived: deque = deque()
        self._carries = False  # .grad of some parameters was there before this round
        self._must_wait = False  # somebody holds a gradient that travels
        for slot in slots:
            slot.forget()
            slot.touch = self._toucher(slot)
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

    # --- who touches a guarded parameter ---

    def _toucher(self, slot: Slot) -> Callable:
        def touched(asked: str, takes_address: bool) -> None:
            with self.lock:
                self._touched(slot, asked, takes_address)
        return touched

    def _touched(self, slot: Slot, asked: str, takes_address: bool) -> None:
        slot.exposed |= takes_address
        if self.in_flight:  # values are what they are; gradients are not there
            if asked in (GRADIENT, NO_GRADIENT):
                self.receive_all()
        elif slot.pending and asked == NO_GRADIENT:
            slot.zero_later = "none"
        elif slot.pending and asked:
            self.settled_early += asked == VALUE
            self.settle([slot])

    def zero_gradients(self, slots: Sequence[Slot], set_to_none: bool, zero: Callable[[], None]) -> None:
        """What zero_grad() becomes. Gradients of pending parameters are forgotten when they have been used."""
        with self.lock:
            if self.in_flight:
                self.receive_all()
            away = [slot for slot in slots if slot.pending]
            for slot in away:
                slot.zero_later = "none" if set_to_none else "zeros"
                unguard(slot.parameter)
            before = [] if set_to_none else [(slot, slot.parameter.grad, slot.gradient_version()) for slot in slots]
            zero()
            for slot in away:
                guard(slot.parameter, slot.touch)
            for slot, gradient, version in before:
                if gradient is not None and slot.parameter.grad is gradient and gradient._version != version:
                    slot.note_zeros()

    # --- gradients leave ---

    def begin_round(self) -> None:
        """At the first gradient of a backward pass. What the round before has left is settled, or adds up as with DDP."""
        if self.in_flight:
            self.receive_all()
        if self.pending_left:
            with without_guards():
                late = next((slot for slot in self.slots if slot.pending and slot.parameter.grad is not None), None)
            if late is not None:
                raise StepChanged(f"{late.name} was used where Weft could not see it (by code outside of Python, say): its gradient is one "
                                  "of an old value; overlap(..., across_steps=False) leaves no parameter waiting")
            self.settle_all()
        self.note_landed()
        self.new_plan_wanted = self._wish
        self.in_flight = True
        self._next, self._landed, self._must_wait = 0, 0, False
        self._arrived.clear()
        self._carries = sum(slot.new_gradient() is not None for slot in self.slots) > 1

    def send(self, slot: Slot) -> None:
        """The parameter's gradient is what it will be in this round."""
        slot.sent = True
        while self._next < len(self.transfers) and all(member.sent for member in self.transfers[self._next].slots):
            self._start(self._next)
            self._next += 1

    def last_of_transfers(self) -> List[Slot]:
        """Of each transfer the parameter whose gradient was measured to come last."""
        return list({max(transfer.slots, key=lambda slot: (self.plan.parameters[slot.index].ready, slot.index)): None
                     for transfer in self.transfers})

    def send_what_is_there(self) -> None:
        """Looks at the gradients of whole transfers instead of being told of each. In a pass that began without gradients one that
        exists is what it will be."""
        if self._carries:
            return
        for number in range(self._next, len(self.transfers)):
            for member in self.transfers[number].slots:
                if not member.sent and member.new_gradient() is None:
                    return
                member.sent = True
            self._start(number)
            self._next = number + 1

    def end_round(self) -> None:
        """When backward ends: what it did not reach leaves too."""
        self._send_rest()
        if self._must_wait:
            self.receive_all()
            return
        for slot in self.slots:
            if can_guard(slot.parameter):
                guard(slot.parameter, slot.touch)
            else:
                self._must_wait = True
        if self._must_wait:
            self.receive_all()

    def _load(self, slot: Slot) -> None:
        """Once a round, before its first transfer: takes the gradient out of the user's reach."""
        parameter = slot.parameter
        gradient = parameter.grad
        slot.used, slot.left, slot.loaded = gradient is not None, len(slot.transfers), True
        if gradient is None:
            slot.gradient = torch.zeros_like(parameter, memory_format=torch.contiguous_format, requires_grad=False)
            return
        if gradient.is_sparse or gradient.dtype != parameter.dtype:
            raise NotSupported(f"{slot.name}: a gradient that is sparse or of another type than its parameter")
        # A gradient that was there before this pass may be held by somebody, who would see it change; with create_graph it is more
        # than numbers.
        if gradient is slot.zeroed or self._carries:
            slot.zeroed = None
            self._must_wait |= not COUNTS_ALIASES or aliased(gradient, names=1)
        plain = gradient.detach() if gradient.requires_grad else gradient
        slot.gradient = plain if plain.is_contiguous() else plain.contiguous()
        parameter.grad = None

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
            self._wish = flags[-1]

    def _wait_for_next(self) -> None:
        begin = time.perf_counter()
        self.wire.wait(self._landed)
        self.waited += time.perf_counter() - begin
        self._take_landed()

    def receive_all(self) -> None:
        """Ends a backward pass as DDP does: .grad is the average on every rank. Another pass may follow."""
        with self.lock:
            if not self.in_flight:
                self.begin_round()
            for slot in self.slots:
                unguard(slot.parameter)
            self._send_rest()
            while self._landed < len(self.transfers):
                self._wait_for_next()
            self._find_used(self.slots)
            for slot in self.slots:
                if slot.used:
                    self._give_back(slot)
                slot.gradient, slot.sent, slot.loaded = None, False, False
            self.in_flight = False

    def _send_rest(self) -> None:
        for slot in self.slots:
            slot.sent = True
        while self._next < len(self.transfers):
            self._start(self._next)
            self._next += 1

    def _give_back(self, slot: Slot) -> None:
        """The average becomes .grad again. What another backward has added meanwhile adds up."""
        newer, gradient = slot.parameter.grad, self._for_user(slot.gradient)
        slot.parameter.grad = gradient if newer is None else gradient.add_(newer)

    def _for_user(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient

    # --- updates ---

    def defer_updates(self) -> None:
        """What `optimizer.step()` becomes: every parameter is pending. Those that somebody could read without our knowing are updated."""
        with self.lock:
            self.update.remember_settings()
            must_be_here = []
            for slot in self.slots:
                slot.pending, slot.sent, slot.loaded, slot.zero_later = True, False, False, ""
                if not slot.may_wait():
                    must_be_here.append(slot)
            self.pending_left = len(self.slots)
            self.in_flight = False
            if must_be_here:
                self.settle(must_be_here)

    def all_sent(self) -> bool:
        return self._next == len(self.transfers)

    def has_extra_gradients(self) -> bool:
        """Whether a parameter whose gradient is on its way has got another one."""
        with without_guards():
            return any(slot.parameter.grad is not None for slot in self.slots)

    def _find_used(self, slots: List[Slot]) -> None:
        """Makes `used` what any rank says, of parameters whose gradients have arrived. Flags that travel with them have told so."""

    def _apply(self, slots: List[Slot]) -> None:
        self._find_used(slots)
        used = []
        for slot in slots:
            unguard(slot.parameter)
            if slot.used:
                slot.parameter.grad = slot.gradient
                used.append(slot.parameter)
        begin = time.thread_time() if self.watches else 0.0
        if used:
            self.update.apply(used)
        for slot in slots:
            if slot.used:
                self._leave_gradient(slot)
            slot.gradient, slot.pending = None, False
        if self.watches:
            self.updating += time.thread_time() - begin
        self.pending_left -= len(slots)

    def _leave_gradient(self, slot: Slot) -> None:
        """After its use: what the user's zero_grad would have left, or the average until it is called."""
        if slot.zero_later == "none":
            slot.parameter.grad = None
            return
        slot.parameter.grad = self._for_user(slot.gradient)
        if slot.zero_later:
            slot.parameter.grad.zero_()
            slot.note_zeros()

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
        with self.lock:
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
