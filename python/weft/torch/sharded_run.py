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
    """Has what Session asks of an Engine. `units` are the parameters that ZeRO 3 does not keep."""

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
        self.waited, self.updating = 0.0, 0.0  # updates have a thread of their own
        self.wants_new_plan = self.new_plan_wanted = False  # sharded jobs keep their plan
        self.note_landed: Callable[[], None] = lambda: None
        self.frees_gradients = plan.shard != "zero1"
        self._placeholders = [torch.zeros(1, dtype=slot.parameter.dtype, device=slot.parameter.device).expand(slot.parameter_shape)
                              for slot in slots]
        self._flags = torch.zeros(len(slots), dtype=torch.int32)
        self._next, self._sending = 0, False
        self._begin()

    def _begin(self) -> None:
        self._flags_call = self.wire.group.prepare(library.ALL_REDUCE, library.I32, library.MAX, len(self.slots),
                                                   "which parameters were used", queue=SCATTER_QUEUE)
        self._changed = threading.Condition()
        self._error: Optional[BaseException] = None
        self._jobs: queue.Queue = queue.Queue()
        self._thread = threading.Thread(target=self._update_all, name="weft updates", daemon=True)
        self._thread.start()

    # --- gradients leave ---

    def send(self, slot: Slot) -> None:
        if slot.pending:
            raise StepChanged(f"{slot.name} was used before the forward of its module, which it was not in the measured steps")
        self._begin_round()
        if slot.sent:
            raise StepChanged(f"{slot.name} got a gradient after its gradient had left: more backward passes than the "
                              f"{self.plan.passes} of a measured step (use `with model.no_sync():` for all but the last)")
        gradient, parameter = slot.parameter.grad, slot.parameter
        used = gradient is not None or (slot.keeps_zeros and slot.was_used)
        if gradient is None:
            gradient = torch.zeros(slot.parameter_shape, dtype=parameter.dtype, device=parameter.device)
        elif gradient.is_sparse or gradient.dtype != parameter.dtype:
            raise NotSupported(f"{slot.name}: a gradient that is sparse or of another type than its parameter")
        elif not gradient.is_contiguous():
            parameter.grad = gradient = gradient.contiguous()
        slot.gradient, slot.version, slot.sent = gradient, gradient._version, True
        self._flags[slot.index] = int(used)
        self.bucket_of[slot.index].missing -= 1
        self._start_ready()

    def _start_ready(self) -> None:
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            state = self.buckets[self._next]
            state.bucket.scatter([self.slots[i].gradient.data for i in state.bucket.members])
            state.sent = True
            self._next += 1
        if self.frees_gradients:
            self._free_landed()

    def _free_landed(self) -> None:
        """Whole gradients that have left. What stays in their place has no memory, and changing it raises."""
        for state in self.buckets[:self._next]:
            if not state.landed and state.bucket.is_scattered():
                state.landed = True
                for i in state.bucket.members:
                    slot = self.slots[i]
                    if slot.parameter.grad is slot.gradient:
                        slot.parameter.grad = self._placeholders[i]
                    slot.gradient = None

    def send_rest(self) -> None:
        for slot in self.slots:
            if not slot.sent:
                self.send(slot)

    def _begin_round(self) -> None:
        if self._sending:
            return
        self.settle_all()
        self._sending, self._next = True, 0
        for state in self.buckets:
            state.missing, state.sent, state.landed = len(state.bucket.members), False, False

    # --- updates ---

    def defer_updates(self) -> None:
        """What `optimizer.step()` becomes."""
        self.send_rest()
        for slot in self.slots:
            found = slot.parameter.grad
            changed = slot.gradient is not None and slot.gradient._version != slot.version
            if changed or (found is not None and found is not slot.gradient and found is not self._placeholders[slot.index]):
                raise StepChanged(
                    f"the gradient of {slot.name} was changed between backward and step, but not in the measured steps: its "
                    "average is still on its way (overlap(..., across_steps=False) waits for it)")
            slot.parameter.grad, slot.pending, slot.sent = None, True, False
        self._sending = False
        gradients = [slot.gradient for slot in self.slots]
        for slot in self.slots:
            slot.gradient = None
        for state in self.buckets:
            state.updated = False
        self._update(gradients)

    def _update(self, gradients: list) -> None:
        """All buckets, in the order in which they arrive. Whole gradients live until theirs has left."""
        self.wire.group.start(self._flags_call, (library.Segment * 1)(library.Segment(self._flags.data_ptr(), 4 * len(self.slots))))
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
        used = self._flags.tolist()
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

    def settle(self, slots: List[Slot]) -> None:
        """Returns when these parameters have their new values; those of units have them when they are gathered."""
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

    def settle_all(self) -> None:
        self.settle(self.slots)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()


class DeviceShardedRun(ShardedRun):
    """On a GPU. The host needs no thread, and waits for nothing unless this rank has not used some parameter: updates are enqueued in a
    stream of their own, which waits for the gradients, and gathers in another, which waits for the updates."""

    def _begin(self) -> None:
        for number in range(self.wire.lanes):
            self.wire.lane(number)
            self.wire.lane(number, "gather")
        self._news = StepNews(self.wire, len(self.slots))

    def _begin_round(self) -> None:
        if not self._sending:
            self._wait_for_updates()  # which read the memory that new gradients go to
        super()._begin_round()

    def _wait_for_updates(self) -> None:
        if self.wire.on_gpu:
            torch.cuda.current_stream(self.wire.device).wait_stream(self.wire.update_stream)

    def _used(self) -> List[bool]:
        """By any rank."""
        mine = [flag > 0 for flag in self._flags.tolist()]
        self._news.tell(False, mine)
        return mine if all(mine) else self._news.used_by_any()

    def _update(self, gradients: list) -> None:
        settings, used = self.shards.settings(), self._used()
        for state in self.buckets:
            members = [i for i in state.bucket.members if used[i]]
            with self.wire.on(self.wire.update_stream):
                self.shards.update(members, settings)
                state.bucket.updated = self.wire.moment()
            for i in members:
                self.slots[i].was_used = True
            if not state.in_unit:
                state.bucket.gather()
            state.updated = True

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
    shards.update(shards.take_gradients(), shards.settings())
    for bucket in buckets:
        bucket.gather()
    for bucket in buckets:
        bucket.wait_gathered()
