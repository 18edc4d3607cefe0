"""Steps of a sharded job (ZeRO) under a plan that crosses steps.

Gradients leave by reduce-scatter as backward finishes them. After `optimizer.step()` a thread of its own updates each bucket
when its gradients have arrived and starts the gather of the new values, while the main thread computes the next forward; the
forward of a module waits for its own parameters. Under ZeRO 3 residency.py gathers instead, when they are needed.
"""

import queue
import threading
import time
from typing import Callable, List, Optional, Sequence

import torch

from . import library
from .engine import Slot
from .errors import JobFailed, NotSupported, StepChanged
from .guard import NO_GRADIENT, VALUE, guard, unguard, without_guards
from .patience import waiting_for_all
from .plan import Plan
from .shards import FIRST_UNIT_QUEUE, GATHER_QUEUE, MOST_QUEUES, SCATTER_QUEUE, Shards
from .step_news import StepNews


class _BucketState:
    def __init__(self, bucket, in_unit: bool):
        self.bucket = bucket
        self.in_unit = in_unit  # ZeRO 3 gathers it when it is needed
        self.missing = 0        # gradients of this step
        self.sent = False
        self.landed = False
        self.updated = True     # since the last step, and where it is in no unit its gather has been started


class ShardedRun:
    """Has what Session asks of an Engine. `units` are the parameters that ZeRO 3 does not keep; `residency` gathers and frees them."""

    pending_left = 1  # settle() itself looks which
    watches = False

    def __init__(self, plan: Plan, slots: List[Slot], shards: Shards, units: Sequence[Sequence[int]] = ()):
        self.plan, self.slots, self.shards, self.wire = plan, slots, shards, shards.wire
        queues = {index: FIRST_UNIT_QUEUE + number for number, unit in enumerate(units) for index in unit}
        if FIRST_UNIT_QUEUE + len(units) > MOST_QUEUES:
            raise NotSupported(f"{len(units)} units of ZeRO 3; {MOST_QUEUES - FIRST_UNIT_QUEUE} are allowed")
        self.buckets = []
        for transfer in plan.transfers:
            members = [part.parameter for part in transfer]
            found = {queues.get(index, GATHER_QUEUE) for index in members}
            if len(found) != 1:
                raise NotSupported("a plan whose transfers mix parameters of several units of ZeRO 3")
            gather_queue = found.pop()
            bucket = shards.bucket(members, len(self.buckets), gather_queue)
            self.buckets.append(_BucketState(bucket, gather_queue != GATHER_QUEUE))
        self.transfers = plan.transfers
        self.bucket_of = {index: state for state in self.buckets for index in state.bucket.members}
        self.residency = None
        self.lock = threading.RLock()  # who touches a guarded parameter may be another thread
        self.waited, self.updating = 0.0, 0.0  # updates have a thread of their own
        self.wants_new_plan = self.new_plan_wanted = False  # sharded jobs keep their plan
        self.note_landed: Callable[[], None] = lambda: None
        self.in_flight, self.seen_in_streams = False, False
        self.zeroed = True  # since the last step, by the user
        self.gradients_guarded = False  # between the end of backward and the step
        self.frees_gradients = plan.shard != "zero1"
        # By parameter whether a rank has used it, and at last whether one wants whole gradients in this step.
        self._flags = torch.zeros(len(slots) + 1, dtype=torch.int32, device="cpu")
        self._next = 0
        for slot in slots:
            slot.forget()
            slot.touch = self._toucher(slot)
        self._begin()

    def _begin(self) -> None:
        self._flags_call = self.wire.group.prepare(library.ALL_REDUCE, library.I32, library.MAX, len(self._flags),
                                                   "which parameters were used", queue=SCATTER_QUEUE)
        self._changed = threading.Condition()
        self._error: Optional[BaseException] = None
        self._jobs: queue.Queue = queue.Queue()
        self._thread = threading.Thread(target=self._update_all, name="weft updates", daemon=True)
        self._thread.start()

    # --- who touches a guarded parameter ---

    def _toucher(self, slot: Slot) -> Callable:
        def touched(asked: str, takes_address: bool) -> None:
            if threading.current_thread() is getattr(self, "_thread", None):
                return
            with self.lock:
                self._touched(slot, asked)
                slot.exposed |= takes_address
        return touched

    def _touched(self, slot: Slot, asked: str) -> None:
        if asked == VALUE:
            if slot.pending:
                self.settle([slot])
            if self.residency is not None:
                self.residency.fetch(slot)
        elif self.in_flight:
            self.receive_all()
        elif slot.pending and asked == NO_GRADIENT:
            slot.keeps_zeros, self.zeroed = False, True
        elif slot.pending and self.zeroed:
            self.settle([slot])
            if slot.keeps_zeros and slot.was_used:
                with without_guards():
                    slot.parameter.grad = torch.zeros_like(slot.parameter, requires_grad=False)
        elif slot.pending:
            self.regather()

    def _is_absent(self, slot: Slot) -> bool:
        return self.residency is not None and self.residency.is_absent(slot)

    def zero_gradients(self, slots: Sequence[Slot], set_to_none: bool, zero: Callable[[], None]) -> None:
        with self.lock:
            if self.in_flight:
                self.receive_all()
            for slot in slots:
                slot.keeps_zeros = not set_to_none
            self.zeroed = True
            with without_guards():
                zero()

    # --- gradients leave ---

    def begin_round(self) -> None:
        if self.in_flight:
            self.receive_all()
        with without_guards():
            late = next((slot for slot in self.slots if slot.pending and slot.parameter.grad is not None), None)
        if late is not None:
            raise StepChanged(f"{late.name} was used where Weft could not see it (by code outside of Python, say): its gradient is one of an "
                              "old value; overlap(..., across_steps=False) leaves no parameter waiting")
        self.settle_all()
        self.in_flight, self.gradients_guarded, self._next = True, False, 0
        for state in self.buckets:
            state.missing, state.sent, state.landed = len(state.bucket.members), False, False

    def send(self, slot: Slot) -> None:
        parameter = slot.parameter
        with without_guards():
            gradient = parameter.grad
            parameter.grad = None
        used = gradient is not None or (slot.keeps_zeros and slot.was_used)
        if gradient is None:
            gradient = torch.zeros(slot.parameter_shape, dtype=parameter.dtype, device=parameter.device)
        elif gradient.is_sparse or gradient.dtype != parameter.dtype:
            raise NotSupported(f"{slot.name}: a gradient that is sparse or of another type than its parameter")
        slot.gradient, slot.sent = gradient.detach().contiguous(), True
        self._flags[slot.index] = int(used)
        self.bucket_of[slot.index].missing -= 1
        self._start_ready()

    def _start_ready(self) -> None:
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            state = self.buckets[self._next]
            state.bucket.scatter([self.slots[i].gradient for i in state.bucket.members])
            state.sent = True
            self._next += 1
        if self.frees_gradients:
            self._free_landed()

    def _free_landed(self) -> None:
        """Whole gradients that have left."""
        for state in self.buckets[:self._next]:
            if not state.landed and state.bucket.is_scattered():
                state.landed = True
                for i in state.bucket.members:
                    self.slots[i].gradient = None

    def _send_rest(self) -> None:
        for slot in self.slots:
            if not slot.sent:
                self.send(slot)

    def all_sent(self) -> bool:
        return self._next == len(self.buckets)

    def end_round(self) -> None:
        """When backward ends."""
        self._send_rest()
        self.gradients_guarded = True
        for slot in self.slots:
            guard(slot.parameter, slot.touch)

    def has_extra_gradients(self) -> bool:
        with without_guards():
            return any(slot.parameter.grad is not None for slot in self.slots)

    # --- whole gradients, as with DDP ---

    def receive_all(self) -> None:
        """`.grad` of every parameter is the average. Where only some ranks ask for it, the others help when they come to the step."""
        with self.lock:
            if not self.in_flight:
                self.begin_round()
            self._send_rest()
            self.gradients_guarded = False
            with waiting_for_all("reading gradients on their way with shard="):
                used = self._used_by_any(wants_whole=True)
            wholes = self._gather_gradients([slot.gradient for slot in self.slots])
            for slot, whole, is_used in zip(self.slots, wholes, used):
                if not self._is_absent(slot):
                    unguard(slot.parameter)
                with without_guards():
                    newer = slot.parameter.grad
                    if is_used:
                        slot.parameter.grad = whole if newer is None else whole.add_(newer)
                slot.gradient, slot.sent = None, False
            self.in_flight = False

    def regather(self) -> None:
        """Gradients that somebody reads or uses after the step that has used them: all ranks together."""
        self.settle_all()
        used = [flag > 0 for flag in self._flags.tolist()[:-1]]
        with waiting_for_all("reading gradients after optimizer.step() with shard="):
            wholes = self._gather_gradients([None] * len(self.slots))
        with without_guards():
            for slot, whole, is_used in zip(self.slots, wholes, used):
                if is_used:
                    slot.parameter.grad = whole

    def _used_by_any(self, wants_whole: bool) -> List[bool]:
        self._flags[-1] = int(wants_whole)
        self._start_flags()
        self.wire.group.wait(self._flags_call)
        return [flag > 0 for flag in self._flags.tolist()[:-1]]

    def _start_flags(self) -> None:
        self.wire.group.start(self._flags_call, (library.Segment * 1)(library.Segment(self._flags.data_ptr(), 4 * len(self._flags))))

    def _gather_gradients(self, wholes: List[Optional[torch.Tensor]]) -> List[torch.Tensor]:
        for state in self.buckets:
            state.bucket.wait_scattered()
            for i in state.bucket.members:
                if wholes[i] is None:
                    parameter = self.slots[i].parameter
                    wholes[i] = torch.zeros(self.slots[i].parameter_shape, dtype=parameter.dtype, device=parameter.device)
            state.bucket.gather_gradients([wholes[i] for i in state.bucket.members])
        return wholes

    def update_received(self) -> None:
        """A step by gradients that were received."""
        self.shards.adopt([i for state in self.buckets if not state.in_unit for i in state.bucket.members])
        if self.residency is not None:
            self.residency.free_fetched()
        self.shards.update(self.shards.take_gradients(), self.shards.settings())
        gathered = [state.bucket for state in self.buckets if not state.in_unit]
        for bucket in gathered:
            bucket.gather()
        for bucket in gathered:
            bucket.wait_gathered()
        if self.residency is not None:
            self.residency.follow_aliases()

    # --- updates ---

    def defer_updates(self) -> None:
        """What `optimizer.step()` becomes."""
        with self.lock:
            gradients = [slot.gradient for slot in self.slots]
            self.shards.adopt([i for state in self.buckets if not state.in_unit for i in state.bucket.members])
            if self.residency is not None:
                self.residency.free_fetched()
            for slot in self.slots:
                slot.pending, slot.sent, slot.gradient = True, False, None
            self.in_flight = self.gradients_guarded = self.zeroed = False
            for state in self.buckets:
                state.updated = False
            self._update(gradients)
            self.settle([slot for slot in self.slots if not self.bucket_of[slot.index].in_unit and not slot.may_wait()])
            if self.residency is not None:
                self.residency.follow_aliases()

    def _update(self, gradients: list) -> None:
        """All buckets, in the order in which they arrive. Whole gradients live until theirs has left."""
        self._flags[-1] = 0
        self._start_flags()
        self._jobs.put((self.shards.settings(), gradients))

    def _update_all(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            try:
                self._update_step(*job)
            except BaseException as error:  # noqa: B036  the main thread raises it
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return

    def _update_step(self, settings: List[dict], gradients: list) -> None:
        self.wire.group.wait(self._flags_call)
        *used, whole_wanted = self._flags.tolist()
        if whole_wanted:  # by another rank, which waits for it
            self._gather_gradients(gradients)
        for state in self.buckets:
            state.bucket.wait_scattered()
            for i in state.bucket.members:
                gradients[i] = None
            members = [i for i in state.bucket.members if used[i]]
            self.shards.update(members, settings)
            for i in members:
                self.slots[i].was_used = True
            if not state.in_unit:
                state.bucket.gather()
            with self._changed:
                state.updated = True
                self._changed.notify_all()

    def require_alive(self) -> None:
        if self._error is not None:
            raise JobFailed(str(self._error)) from self._error

    def wait_updated(self, state: _BucketState) -> None:
        begin = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: state.updated or self._error is not None)
        self.waited += time.perf_counter() - begin
        self.require_alive()

    def settle(self, slots: Sequence[Slot]) -> None:
        """Returns when these parameters have their new values; those of units have them when they are gathered."""
        with self.lock:
            for slot in slots:
                if not slot.pending:
                    continue
                state = self.bucket_of[slot.index]
                self.wait_updated(state)
                if not state.in_unit:
                    begin = time.perf_counter()
                    state.bucket.wait_gathered()
                    self.waited += time.perf_counter() - begin
                for i in state.bucket.members:
                    self.slots[i].pending = False
                    if not self._is_absent(self.slots[i]):
                        unguard(self.slots[i].parameter)

    def settle_all(self) -> None:
        self.settle(self.slots)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()


class DeviceShardedRun(ShardedRun):
    """On a GPU. The host needs no thread, and waits for nothing unless this rank has not used some parameter: updates are enqueued in a
    stream of their own, which waits for the gradients, and gathers in another, which waits for the updates. Asking for gradients that
    have left is a call of all ranks."""

    def _begin(self) -> None:
        for number in range(self.wire.lanes):
            self.wire.lane(number)
            self.wire.lane(number, "gather")
        self._news = StepNews(self.wire, len(self.slots))

    def begin_round(self) -> None:
        if not self.in_flight:
            self._wait_for_updates()  # which read the memory that new gradients go to
        super().begin_round()

    def _wait_for_updates(self) -> None:
        if self.wire.on_gpu:
            torch.cuda.current_stream(self.wire.device).wait_stream(self.wire.update_stream)

    def _used(self) -> List[bool]:
        """By any rank."""
        mine = [flag > 0 for flag in self._flags.tolist()[:-1]]
        self._news.tell(False, mine)
        return mine if all(mine) else self._news.used_by_any()

    def _used_by_any(self, wants_whole: bool) -> List[bool]:
        self._wait_for_updates()  # the averages arrive in their stream
        return self._used()

    def _update(self, gradients: list) -> None:
        settings, used = self.shards.settings(), self._used()
        for state in self.buckets:
            members = [i for i in state.bucket.members if used[i]]
            with self.wire.on(self.wire.update_stream):
                if not state.in_unit:  # what anybody has written into parameters
                    self.wire.after_current(self.wire.update_stream)
                    self.shards.refresh(state.bucket.members)
                self.shards.update(members, settings)
                state.bucket.updated = self.wire.moment()
            for i in members:
                self.slots[i].was_used = True
            if not state.in_unit:
                state.bucket.gather()
            state.updated = True

    def update_received(self) -> None:
        self.shards.refresh([i for state in self.buckets if not state.in_unit for i in state.bucket.members])
        for state in self.buckets:
            state.bucket.updated = None
        super().update_received()

    def require_alive(self) -> None:
        """NCCL's own watch ends a job that has lost a rank."""

    def wait_updated(self, state: _BucketState) -> None:
        """Gathers wait for updates, on the GPU."""

    def settle_all(self) -> None:
        super().settle_all()
        self._wait_for_updates()  # also those of units, whose state may be read now

    def close(self) -> None:
        self._wait_for_updates()


def update_whole(shards: Shards, buckets: Sequence) -> None:
    """A step by averaged whole gradients: slices are updated, and all values gathered before it returns."""
    if not shards.wire.host_waits:
        shards.refresh(range(len(shards.own)))
    shards.update(shards.take_gradients(), shards.settings())
    for bucket in buckets:
        bucket.gather()
    for bucket in buckets:
        bucket.wait_gathered()
