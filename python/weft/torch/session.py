"""A job from its first step to its last: two steps that are measured, the plan that is made of them, and what a step does under it."""

import atexit
import contextlib
import logging
import time
import weakref
from typing import Dict, List, Optional

import torch

from . import uneven
from .agreed_plan import agreed_plan
from .attachment import Attachment
from .backward import inside_another_backward, inside_backward
from .buffers import Buffers
from .clock import StepClock
from .compiled import gate_compiled, is_compiled, is_compiling, is_opaque, runs_as_one, ungate_compiled
from .device_engine import DeviceEngine
from .engine import Engine, Slot
from .errors import ModuleChanged, NotSupported, WeftError
from .guard import COUNTS_ALIASES, can_guard, without_guards
from .measured_steps import BACKWARD_END, BEGIN, STEP_BEGIN, STEP_END, measured_profile, parameters_unmeasured
from .odd_gradients import OddGradients, is_odd, sparse_parameters
from .plan import Plan, first_plan
from .sharding import Sharding
from .step_trial import StepTrial
from .timeline import Recorder, save_timelines
from .told_to_others import ToldToOthers
from .update import DeferredUpdate
from .watch import Watch
from .wire import describe, require_same_model

WARM_STEPS = 1  # the first step allocates and loads
OTHER_SHAPES = 5  # steps in a row with inputs of other shapes than the measured ones, after which a new plan is made
MOST_PLANS = 3  # because of shapes: a job whose shapes change all the time keeps the last one
WATCHED_STEPS = 8  # in one of so many steps the time in Weft's own code is measured: the clock itself costs as much as a hook
_LOG = logging.getLogger("weft")
_SESSIONS: "weakref.WeakSet[Session]" = weakref.WeakSet()



class Session:
    """One model and its optimizer. Reached as `optimizer.weft`."""

    def __init__(self, model, optimizer, wire, device, plan: Optional[Plan], across_steps: bool, shard: str = "",
                 per_parameter: bool = False, broadcast_buffers: bool = True):
        self.model, self.optimizer, self.wire = model, optimizer, wire
        self._device, self._shard = device, shard
        self._across_steps = across_steps
        self._told_to_others = ToldToOthers(wire)
        self._update = DeferredUpdate(optimizer, per_parameter)
        if shard and self._update.why_whole():
            raise NotSupported(f"shard={shard!r}: {self._update.why_whole()}")
        self._clock = StepClock(device)
        self._begun, self._passes, self._local_passes, self._syncs, self._pass_open = False, 0, 0, True, False
        self._compiled = False  # a module: nothing is left for later until that was tried on a PyTorch that compiles
        self._carried = False  # sharded: a measured step began with gradients of the one before
        self._in_backward = False  # one has begun whose end was not seen
        self._ever_added_up = False
        self._measured_steps, self._plans = 0, 0
        self._inputs, self._measured_inputs, self._other_inputs = None, set(), 0
        self._own_seconds, self._step_own_seconds, self._watched = 0.0, [], True
        self._steps, self._touched, self._wire_seconds, self._versions = 0, False, 0.0, {}
        self._step_seconds: List[float] = []
        self._waited_seconds: List[float] = []
        self._last_begin: Optional[float] = None
        self._recorder = Recorder(wire)
        self._trial: Optional[StepTrial] = None  # of communicators
        self._quiet = False  # nothing is left to do before any module of this step
        self._whole_steps = 0  # steps of the optimizer that were one call though the plan crosses steps
        self._why_whole = ""
        self._dropped: set = set()  # identities of parameters that another session averages
        for other in list(_SESSIONS):
            other._drop(self._update)
        self._find_slots()
        self._sharding = Sharding(shard, model, self._slots, optimizer, wire) if shard else None
        self._watch = Watch(model)
        self._buffers = Buffers(model, wire) if broadcast_buffers else None
        self.measuring = plan is None
        self._engine = self._engine_of(plan or first_plan(parameters_unmeasured(self._slots), wire.ranks))
        self._gates = self._gates_of(self._engine.plan)
        self._attachment = Attachment(model, optimizer, self._slots)
        self._hook_backward()
        self._attachment.install(self, self._step, self._synchronized, self._zero_gradients, self._before_forward, self.synchronize,
                                 self._sharding.shards if self._sharding else None)
        if self._sharding:
            self._sharding.install(self._attachment, self)
        uneven.make_joinable(self, device)
        _SESSIONS.add(self)
        atexit.register(self._leave)

    @property
    def is_sharded(self) -> bool:
        return self._sharding is not None

    def __repr__(self) -> str:
        doing = "measures" if self.measuring else "stands aside" if self.plan.aside else "follows a plan"
        return (f"<weft.torch session of {type(self.model).__name__} and {type(self.optimizer).__name__}: rank {self.wire.rank} of {self.wire.ranks}, "
                f"{doing}, {self._steps} steps>")

    @property
    def plan(self) -> Optional[Plan]:
        """The plan that is applied; None while steps are measured."""
        return None if self.measuring else self._engine.plan

    def report(self) -> dict:
        """Seconds of recent steps as measured and as predicted, what forward waited for parameters, and what Weft's own code in
        hooks took without waiting. `aside`: there is nothing to gain, and Weft does next to nothing. `plans`: made so far. `whole_steps`:
        steps that ended as with DDP though the plan crosses steps, and `why`. On GPUs `communicators`, and by choice what was rehearsed
        (seconds of products and of transfers beside them) and tried (seconds of a step)."""
        def median(values):
            return sorted(values)[len(values) // 2] if values else None
        return {"steps": self._steps, "across_steps": not self.measuring and self.plan.across_steps,
                "predicted_step_s": self.plan.predicted_step if self.plan else None,
                "measured_step_s": median(self._step_seconds[-100:]), "waited_s": median(self._waited_seconds[-100:]),
                "own_s": median(self._step_own_seconds[-100:]), "aside": bool(self.plan and self.plan.aside), "plans": self._plans,
                "whole_steps": self._whole_steps, "why": self._why_whole,
                **({} if self.wire.host_waits else {"communicators": self.wire.lanes, "rehearsed": self.wire.rehearsed,
                                                      "tried": self.wire.tried})}

    def record_timelines(self) -> None:
        """Six steps from the next one on are recorded, for save_timelines. On processors the first six of a plan are without this."""
        self._recorder.restart()

    def save_timelines(self, folder) -> None:
        """Writes predicted.json and measured.json of the recorded steps on this rank: `weft report FOLDER/*.json` shows them."""
        if self._sharding:
            raise NotSupported("timelines of sharded jobs")
        save_timelines(folder, self.plan, self._recorder, self.wire.rank)

    def synchronize(self) -> None:
        """Returns when every parameter is updated. Whoever reads a parameter waits for it without this."""
        with self._told_to_others:
            self._engine.settle_all()

    def _make_whole(self) -> None:
        self.synchronize()
        if self._sharding:
            self._sharding.fetch_all()

    def close(self) -> None:
        """Leaves the job in order: updates every parameter, and gives model and optimizer back as they were."""
        with self._told_to_others:
            if self._engine.in_flight:
                self._engine.receive_all()
            self._engine.settle_all()
        if self._buffers:
            self._buffers.finish()
        if self._sharding:
            self._sharding.close()
        self._attachment.remove()
        ungate_compiled(self.model.modules())
        _SESSIONS.discard(self)
        atexit.unregister(self._leave)
        self.wire.close()

    # --- what is trained ---

    def _find_slots(self) -> None:
        """As DDP: all parameters of the model that are trained, but those of the sessions of other optimizers."""
        taken = self._dropped | {id(slot.parameter) for other in _SESSIONS if other is not self for slot in other._slots}
        trained = [(name, parameter) for name, parameter in self.model.named_parameters()
                   if parameter.requires_grad and id(parameter) not in taken]
        sparse = sparse_parameters(self.model)
        if not trained:
            raise WeftError("the model has no parameter that is trained")
        if not any(self._update.handles(parameter) for _, parameter in trained):
            raise WeftError("the optimizer has no parameter of the model that is trained")
        odd = [(name, parameter) for name, parameter in trained if is_odd(parameter, sparse)]
        if odd and (self._shard or self._device.type == "cuda"):
            raise NotSupported(f"{odd[0][0]}: gradients that are sparse or of type {odd[0][1].dtype}, with shard= or on a GPU")
        self._odd = OddGradients([parameter for _, parameter in odd], self.wire)
        self._odd_slots = [Slot(-1, name, parameter) for name, parameter in odd]
        kept = {id(parameter) for _, parameter in odd}
        self._slots = [Slot(index, name, parameter) for index, (name, parameter) in enumerate(
            (name, parameter) for name, parameter in trained if id(parameter) not in kept)]
        self._seen = list(self.model.parameters())  # and alive, so that no other gets the identity of one
        self._modules = dict(self.model.named_modules())
        self._name_of = {id(module): name for name, module in self._modules.items()}
        self._opaque = {id(module) for module in self._modules.values() if is_opaque(module)}
        self._compiled |= any(map(is_compiled, self._modules.values()))
        gate_compiled(self._modules.values(), self)
        self._note_groups()

    def _note_groups(self) -> None:
        """Which parameters the optimizer has beside the model's, and which of the model it does not have."""
        ours = {id(slot.parameter) for slot in self._slots}
        self._foreign = [parameter for parameter in self._update.parameters() if id(parameter) not in ours]
        odd = {id(parameter) for parameter in self._odd.parameters}
        self._strangers = sum(not self._update.handles(slot.parameter) for slot in self._slots)
        outside = [parameter for parameter in self._foreign if parameter.requires_grad and id(parameter) not in odd
                   and id(parameter) not in {id(found) for found in self.model.parameters()}]
        if outside:
            _LOG.warning("weft: %d parameters of the optimizer are none of the model: each rank trains its own, as with DDP (put them into "
                         "the model to average them)", len(outside))

    def _drop(self, update: DeferredUpdate) -> None:
        """Another optimizer of the same model is overlapped too: its session averages what it has."""
        dropped = {id(slot.parameter) for slot in self._slots if update.handles(slot.parameter) and not self._update.handles(slot.parameter)}
        if dropped:
            self._dropped |= dropped
            self._look_anew("another optimizer of this model is overlapped")

    def _look_anew(self, why: str) -> None:
        """All ranks together, between steps: what the model has now is what is trained, and steps are measured again."""
        if self._shard:
            raise ModuleChanged(f"{why}; with shard= call optimizer.weft.close() and overlap again")
        known = {id(parameter) for parameter in self._seen}
        if self._engine.in_flight:
            self._engine.receive_all()
        self._engine.settle_all()
        self._attachment.unhook_gradients()
        self._find_slots()
        require_same_model(self.wire, describe(self.model))
        for parameter in self.model.parameters():
            if id(parameter) not in known:
                self.wire.broadcast(parameter)
        self._attachment._slots = self._slots
        if self._buffers:
            self._buffers.rediscover()
        self._measure_again(why)

    # --- what the job calls ---

    def _own_clock(self) -> float:
        """Seconds of this thread, without those of the optimizer. Waiting takes none."""
        return time.thread_time() - self._engine.updating

    def _hook_backward(self) -> None:
        """What backward runs through: all gradients of a plan that is told of each; else of each transfer the last one, and of the others
        only that a pass has begun."""
        slots = self._slots
        by_transfer = not self.measuring and not self._sharding and not self._ever_added_up and (
            self.plan.aside or (self.plan.across_steps and self.plan.passes == 1))
        if by_transfer and self.plan.aside:
            slots = []
        elif by_transfer:
            slots = self._engine.last_of_transfers()
        self._by_transfer = by_transfer and not self.plan.aside
        told = {slot.index for slot in slots}
        others = [slot for slot in self._slots if slot.index not in told] + self._odd_slots
        self._attachment.hook_gradients(slots, self._on_gradient, others, self._on_other_gradient)

    def _synchronized(self, body):
        """Of what reads or loads the optimizer's state."""
        self.synchronize()
        result = self._sharding.shards.with_whole_state(body) if self._sharding else body()
        self._attachment.watch_state()
        return result

    def _zero_gradients(self, set_to_none: bool, zero) -> None:
        with self._told_to_others:
            self._end_of_pass_unseen()
            self._engine.zero_gradients(self._slots, set_to_none, zero)

    def _leave(self) -> None:
        """At the end of the process: the last updates, so that no other rank waits for what this one keeps."""
        with contextlib.suppress(WeftError):
            if self._engine.in_flight:
                self._engine.receive_all()  # others may wait for what this rank sends
            self._engine.settle_all()
        if self._sharding:
            self._sharding.end_updates()
        self.wire.leave()

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients of backward passes within only add up, as with DDP; they travel in the first pass after it."""
        sessions = [session for session in _SESSIONS if session.model is self.model]
        before = [session._syncs for session in sessions]
        for session in sessions:
            session._syncs, session._ever_added_up = False, True
        try:
            yield
        finally:
            for session, syncs in zip(sessions, before):
                session._syncs = syncs

    # --- forward ---

    def _before_forward(self, module, inputs) -> None:
        """Runs before the forward of every module. It does nothing inside of what is compiled: that is waited for before it begins."""
        if is_compiling():
            return
        name = self._name_of.get(id(module))
        if name is None:
            inner = module._modules.get("_orig_mod") if type(module).__name__ == "OptimizedModule" else None
            if inner is not None and id(inner) in self._name_of:
                self._compiled = True
                self._enter(self._name_of[id(inner)], inputs)
                self._make_whole()
            elif self._engine.pending_left and isinstance(module, torch.jit.ScriptModule):
                self._make_whole()  # it may have been made of a part of the model, and no Python runs inside
            return
        if self._quiet and name:
            return
        begin = self._own_clock() if self._watched else 0.0
        self._enter(name, inputs)
        if self._sharding and id(module) in self._opaque:
            self._sharding.fetch_all()
        if self._watched:
            self._own_seconds += self._own_clock() - begin

    def begin_compiled(self, module, inputs) -> None:
        """Before a compiled call, inside of which no hook runs."""
        self._before_forward(module, inputs)
        if self._sharding:
            self._sharding.before_module(module, inputs)

    def end_compiled(self, module, inputs, outputs) -> None:
        if self._sharding:
            self._sharding.after_module(module, inputs, outputs)

    def _enter(self, name: str, inputs) -> None:
        if self._engine.in_flight or self._in_backward:
            if inside_backward():
                return  # activations are computed again: values are as they were in forward
            with self._told_to_others:
                self._end_of_pass_unseen()
                if self._engine.in_flight:
                    self._engine.receive_all()  # another forward before the step, as DDP has it
        if not self._begun:
            self._begin_step()
        if name == "":
            trained = torch.is_grad_enabled() and self._syncs
            if trained and uneven.is_joining(self.model):
                uneven.begin_forward(self)
            if self._buffers:
                self._buffers.begin_forward(trained)
            if self._inputs is None and trained and self.model.training:
                self._note_inputs(inputs)
        if self.measuring:
            self._clock.mark(("gate", name))
        slots, engine, record = self._gates.get(name), self._engine, self._recorder.now
        if record is not None and slots:
            entered, waited, engine.waits = self.wire.now(), engine.waited, []
            self._settle(slots)
            record.gates.append((name, entered, self.wire.now(), engine.waited - waited if self.wire.host_waits else engine.waits))
        elif slots and engine.pending_left:
            self._settle(slots)
        self._quiet = not (self.measuring or record is not None or engine.pending_left or engine.in_flight)

    def _settle(self, slots: List[Slot]) -> None:
        with self._told_to_others:
            self._engine.settle(slots)

    def _begin_step(self) -> None:
        """At the first forward of any module after a step."""
        self._begun = True
        now = time.perf_counter()
        if self._last_begin is not None and not self.measuring:
            self._step_seconds.append(now - self._last_begin)
        self._last_begin = now
        with self._told_to_others:
            if self._watch.has_changed():
                self._follow_changes()
            if self._trial is not None and self._trial.begin_step():
                self._engine.settle_all()
                self.wire.finish()
                self.wire.tried, self._trial = self._trial.decide(), None
            self._engine.settle(self._gates.get(None, []))
        self.wire.at(f"step {self._steps + 1}")
        if self.plan and self.plan.across_steps and self._trial is None:
            self._recorder.begin_step()
        if self.measuring:
            self._clock.mark(BEGIN)

    def _follow_changes(self) -> None:
        """Parameters that are frozen for now are like unused ones. Those that are new, or trained since, are averaged from now on."""
        kept = {id(slot.parameter) for slot in self._slots} | {id(parameter) for parameter in self._odd.parameters} | self._dropped
        taken = {id(slot.parameter) for other in _SESSIONS if other is not self for slot in other._slots}
        there = dict(self.model.named_parameters())
        new = [name for name, parameter in there.items() if parameter.requires_grad and id(parameter) not in kept | taken]
        gone = {slot.name for slot in self._slots} - {name for name, parameter in there.items() if id(parameter) in kept}
        if new or gone:
            self._look_anew(f"{(new or sorted(gone))[0]} is {'a parameter that is trained now' if new else 'no parameter of the model any more'}")
            return
        self._modules = dict(self.model.named_modules())
        self._name_of = {id(module): name for name, module in self._modules.items()}
        self._opaque = {id(module) for module in self._modules.values() if is_opaque(module)}
        self._compiled |= any(map(is_compiled, self._modules.values()))
        gate_compiled(self._modules.values(), self)
        self._gates = self._gates_of(self._engine.plan)
        self._hook_backward()

    def _gates_of(self, plan: Plan) -> Dict[Optional[str], List[Slot]]:
        """By module, the parameters that its forward waits for: its own, all below it where no Python runs there, and those used by it
        though another owns them."""
        gates: Dict[Optional[str], List[Slot]] = {}
        by_parameter = {slot.parameter: slot for slot in self._slots}
        for name, module in self._modules.items():
            own = [by_parameter[parameter] for parameter in module.parameters(recurse=runs_as_one(module)) if parameter in by_parameter]
            if own:
                gates[name] = own
        for slot, parameter in zip(self._slots, plan.parameters):
            if parameter.gate:
                gates.setdefault(None if parameter.gate == "*" else parameter.gate, []).append(slot)
        return {name: list(dict.fromkeys(slots)) for name, slots in gates.items()}

    # --- backward ---

    def _on_gradient(self, slot: Slot) -> None:
        if not self._watched:
            return self._take_gradient(slot)
        begin = self._own_clock()
        self._take_gradient(slot)
        self._own_seconds += self._own_clock() - begin

    def _on_other_gradient(self, slot: Slot) -> None:
        if not self._pass_open:
            self._open_pass(slot)

    def _open_pass(self, slot: Slot) -> None:
        """At the first gradient of a backward pass, and at the first one after a pass within it (reentrant checkpointing)."""
        self._pass_open = True
        torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)
        if not self._syncs or (self._in_backward and not slot.sent):
            return
        with self._told_to_others:
            self._in_backward = True
            self._carried |= bool(self.measuring and self._sharding and not self._passes and not self._ever_added_up
                                  and any(other is not slot and other.new_gradient() is not None for other in self._slots))
            if not self.measuring and self.plan.across_steps:
                self._engine.begin_round()

    def _take_gradient(self, slot: Slot) -> None:
        if not self._pass_open or (self._in_backward and slot.sent and self._syncs):
            self._open_pass(slot)
        if self._syncs:
            if self.measuring:
                self._clock.mark_again(("ready", slot.index))
            elif self.plan.across_steps:
                record = self._recorder.now
                if record is not None:
                    record.readies.append((slot.name, self.wire.now()))
                with self._told_to_others:
                    if self._by_transfer:
                        self._engine.send_what_is_there()
                    else:
                        self._engine.send(slot)
        if self._sharding:
            self._sharding.free_after_gradient(slot)

    def _end_of_backward(self) -> None:
        self._pass_open = False
        if inside_another_backward() and not self._engine.all_sent():
            return  # the pass around it goes on
        self._end_of_pass()

    def _end_of_pass_unseen(self) -> None:
        """Ends a backward pass of whose end nobody was told, because it ended within others."""
        if self._in_backward and not inside_backward():
            self._end_of_pass()

    def _end_of_pass(self) -> None:
        was_averaged, self._in_backward, self._quiet = self._in_backward, False, False
        if self._sharding:
            self._sharding.end_of_pass()
        if not was_averaged:
            self._local_passes += not self._syncs
            return
        self._passes += 1
        with self._told_to_others:
            if self.measuring:
                self._clock.mark_again(BACKWARD_END)
                self._wire_seconds = self._clock.take_out(self._engine.receive_all)
            elif not self.plan.across_steps:
                self._engine.receive_all()
            else:
                self._engine.end_round()
            self._odd.average()
            if self._buffers:
                self._buffers.send()
        self._versions = {slot: (slot.parameter.grad, slot.parameter.grad._version) for slot in self._slots
                          if self.measuring and slot.parameter.grad is not None}

    def shadow_round(self) -> None:
        """Takes part in a backward pass of the others, with nothing of its own."""
        with self._told_to_others, without_guards():
            own = [slot.parameter.grad for slot in self._slots]
            for slot in self._slots:
                slot.parameter.grad = None
            self._engine.receive_all()
            self._odd.average()
            if self._buffers:
                self._buffers.send()
            for slot, gradient in zip(self._slots, own):
                slot.parameter.grad = gradient

    # --- the optimizer ---

    def _step(self, closure=None):
        loss = None
        if closure is not None and not self._update.why_whole():
            with torch.enable_grad():
                loss, closure = closure(), None
        if self._recorder.now is not None:
            self._recorder.now.asked_to_update = self.wire.now()
        begin = self._own_clock()
        with self._told_to_others:
            if self._may_defer(closure):
                self._engine.defer_updates()
                self._step_foreign()
                if self._attachment.counts_steps:
                    self.optimizer._step_count += 1
                self.optimizer._opt_called = True  # newer schedulers ask for this instead
                self._own_seconds += self._own_clock() - begin
            else:
                loss = self._step_whole(closure, loss)
            replans = not self.measuring and self._engine.new_plan_wanted
        if self._watched:
            self._step_own_seconds.append(self._own_seconds)
        self._own_seconds = 0.0
        self._waited_seconds.append(self._engine.waited)
        self._engine.waited = 0.0
        self._steps += 1
        if self.measuring:
            self._end_measured_step()
        elif replans:
            with self._told_to_others:
                if self._buffers:
                    self._buffers.rediscover()
                self._measure_again(f"inputs have other shapes since step {self._steps - OTHER_SHAPES}, or a buffer has changed")
        self._begun, self._quiet, self._passes, self._local_passes, self._inputs = False, False, 0, 0, None
        self._watched = self._engine.watches = self._steps % WATCHED_STEPS == 0
        return loss

    def _may_defer(self, closure) -> bool:
        """Whether this rank may leave updates for later. What travels is the same if it may not."""
        if self._update.look_at_groups():
            self._note_groups()
        self._attachment.watch_state()
        self._end_of_pass_unseen()
        if not self._passes and self._local_passes:  # all of it under no_sync: each rank goes its own way, as with DDP
            pass
        elif not self._passes and self._sharding and not self.measuring and self.plan.across_steps and not self._engine.zeroed:
            self._engine.regather()  # another step with the gradients of the one before
        elif not self._passes and closure is None:  # no backward on this rank, but perhaps on others
            if not self.measuring and self.plan.across_steps:
                self._engine.begin_round()
                self._engine.end_round()
            else:
                self._engine.receive_all()
            self._odd.average()
            if self._buffers:
                self._buffers.send()
        if self.measuring or not self.plan.across_steps:
            return False
        why = self._update.why_whole() or (
            f"{self._strangers} parameters of the model are another optimizer's" if self._strangers else
            "gradients were looked at before the step" if not self._engine.in_flight else
            "gradients were added outside of a backward pass" if self._engine.has_extra_gradients() else
            "modules run in several streams" if self._engine.seen_in_streams else "modules are compiled" if self._compiled else "")
        if why and not self._why_whole:
            _LOG.info("weft: step %d ends as with DDP: %s", self._steps + 1, why)
        self._why_whole = why or self._why_whole
        self._whole_steps += bool(why)
        return not why

    def _step_foreign(self) -> None:
        """Updates the parameters of the optimizer that are none of ours."""
        own = [parameter for parameter in self._foreign if parameter.grad is not None]
        if own:
            self._update.remember_settings()
            self._update.apply(own)

    def _step_whole(self, closure, loss):
        """As DDP does: the user's own optimizer, once, with averages."""
        if self._engine.in_flight:
            self._engine.receive_all()
        self._touched |= self._carried or any(slot.parameter.grad is not grad or grad._version != version
                             for slot, (grad, version) in self._versions.items())
        if self.measuring:
            self._clock.mark(STEP_BEGIN)
        if self._sharding:
            self._sharding.update_whole()
            self._step_foreign()
            if self._attachment.counts_steps:
                self.optimizer._step_count += 1
            self.optimizer._opt_called = True
        else:
            returned = self._attachment.own_step(*(() if closure is None else (closure,)))
            loss = returned if loss is None else loss
        if self.measuring:
            self._clock.mark(STEP_END)
        return loss

    # --- plans ---

    def _note_inputs(self, inputs) -> None:
        """Once a step, in the first forward of the model, before the last transfer leaves: whether this rank's inputs have had other
        shapes than the measured ones for some steps."""
        self._inputs = tuple(tensor.shape for tensor in inputs if isinstance(tensor, torch.Tensor)) or None
        if self.measuring or self._sharding:
            return
        if self._buffers and self._buffers.misses_one():
            self._engine.wants_new_plan = True
            return
        if self._inputs is None:
            return
        if not self._measured_inputs:  # the plan was given
            self._measured_inputs.add(self._inputs)
        self._other_inputs = 0 if self._inputs in self._measured_inputs else self._other_inputs + 1
        self._engine.wants_new_plan = self._other_inputs >= OTHER_SHAPES and self._plans < MOST_PLANS and not uneven.is_joining(self.model)

    def _measure_again(self, why: str) -> None:
        """From the next step on, on all ranks."""
        self._engine.settle_all()
        if self._trial is not None:
            self.wire.finish()
            self._trial.end()
            self._trial = None
        _LOG.info("weft: %s: steps are measured again", why)
        self._engine = self._engine_of(first_plan(parameters_unmeasured(self._slots), self.wire.ranks))
        self._gates = self._gates_of(self._engine.plan)
        self.measuring, self._measured_steps, self._touched = True, 0, False
        self._measured_inputs, self._other_inputs = set(), 0
        self._versions = {}
        self._recorder = Recorder(self.wire)
        self._hook_backward()
        self._clock.restart()

    def _end_measured_step(self) -> None:
        if self._sharding:
            self._sharding.note_measured_step(lambda name: self._clock.has(("gate", name)))
        self._measured_steps += 1
        if self._inputs is not None:
            self._measured_inputs.add(self._inputs)
        if self._measured_steps > WARM_STEPS and self._slots and not self._odd.parameters and not uneven.is_joining(self.model):
            with self._told_to_others:
                self._apply_plan()
        self._clock.restart()

    def _engine_of(self, plan: Plan):
        if self._sharding and plan.shard:
            return self._sharding.run_of(plan, self._modules)
        engine = (Engine if self.wire.host_waits else DeviceEngine)(plan, self._slots, self.wire, self._update)
        engine.note_landed = lambda: self._recorder.note_landed()
        return engine

    def _apply_plan(self) -> None:
        """Rank 0 plans; all do what it says."""
        unseen = not self._clock.has(BEGIN)  # nobody saw a forward: Python does not run where it begins
        if unseen:
            self._clock.mark(BEGIN)
        profile = measured_profile(self._slots, self._modules, self._clock, self.wire, self._wire_seconds, len(self._engine.transfers))
        whole = bool(self._touched or unseen or self._compiled or self._update.why_whole() or self._strangers or (self._sharding and self._passes != 1)
                     or not COUNTS_ALIASES or not all(can_guard(slot.parameter) for slot in self._slots))
        most_passes, fewest_passes, whole = self.wire.largest([self._passes, -self._passes, int(whole)])
        across = self._across_steps and not whole and (most_passes == -fewest_passes or not self._sharding)
        if self._sharding:
            self._sharding.agree_on_units()
        if self._buffers:
            self._buffers.decide()
        plan, profile, self._trial = agreed_plan(self.wire, profile, across, max(1, most_passes), self._sharding)
        self._engine = self._engine_of(plan)
        self._gates = self._gates_of(plan)
        self.measuring, self._plans, self._versions = False, self._plans + 1, {}
        if plan.aside:
            _LOG.info("weft: communication would take %.2g %% of the step: there is nothing to gain, and hooks are taken away",
                      100 * (1 - profile.compute / plan.predicted_step))
        self._hook_backward()
