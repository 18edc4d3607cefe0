"""A job from its first step to its last: hooks on the model and the optimizer, two steps that are measured, and the plan
that is made of them."""

import atexit
import contextlib
import logging
import time
from pathlib import Path
from typing import Dict, List, Optional

import torch

from .attachment import Attachment
from .clock import StepClock
from .device_engine import DeviceEngine
from .engine import Engine, Slot, Watch
from .errors import NotSupported, WeftError
from .measured_steps import BACKWARD_END, BEGIN, STEP_BEGIN, STEP_END, measured_profile, parameters_unmeasured
from .plan import Plan, first_plan, make_plan, plan_aside, read_plan
from .rehearsal import rehearse
from .shard_plan import make_sharded_plan
from .sharding import Sharding
from .step_trial import StepTrial
from .timeline import Recorder, predicted_steps, timeline_json
from .update import DeferredUpdate

WARM_STEPS = 1  # the first step allocates and loads
OTHER_SHAPES = 5  # steps in a row with inputs of other shapes than the measured ones, after which a new plan is made
CHECKED_STEPS = 16  # standing aside, Weft looks for new parameters this often
WATCHED_STEPS = 8  # in one of so many steps the time in Weft's own code is measured: the clock itself costs as much as a hook
TRIED_CHOICES = 3  # of communicators, on GPUs
_LOG = logging.getLogger("weft")


class _ToldToOthers:
    """What goes wrong on this rank within ends the job on all of them, with its words. Made once: a generator in its place would cost as
    much as the rest of a hook."""

    def __init__(self, wire):
        self._wire = wire

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, trace) -> None:
        if isinstance(error, Exception):
            self._wire.fail(f"{type(error).__name__}: {error}")


class Session:
    """One model and its optimizer. Reached as `optimizer.weft`."""

    def __init__(self, model, optimizer, wire, device, plan: Optional[Plan], across_steps: bool, shard: str = ""):
        self.model, self.optimizer, self.wire = model, optimizer, wire
        self._across_steps = across_steps
        self._told_to_others = _ToldToOthers(wire)
        self._update = DeferredUpdate(optimizer)
        self._slots = [Slot(index, name, parameter) for index, (name, parameter) in enumerate(
            (name, parameter) for name, parameter in model.named_parameters()
            if parameter.requires_grad and self._update.handles(parameter))]
        if not self._slots:
            raise WeftError("the optimizer has no parameter of the model that is trained")
        self._modules = dict(model.named_modules())
        self._sharding = Sharding(shard, model, self._slots, optimizer, wire) if shard else None
        self._clock = StepClock(device)
        self._begun, self._passes, self._syncs, self._pass_open = False, 0, True, False
        self._adds_up = False  # this step's gradients are added to others: under no_sync, or what was there before
        self._ever_added_up = False
        self._measured_steps, self._plans = 0, 0
        self._inputs, self._measured_inputs, self._other_inputs = None, set(), 0
        self._own_seconds, self._step_own_seconds, self._watched = 0.0, [], True
        self._watch = Watch(self._slots, model)
        self._steps, self._touched, self._wire_seconds, self._versions = 0, False, 0.0, {}
        self._step_seconds: List[float] = []
        self._waited_seconds: List[float] = []
        self._last_begin: Optional[float] = None
        self._recorder = Recorder(wire)
        self._trial: Optional[StepTrial] = None  # of communicators
        self._quiet = False  # nothing is left to do before any module of this step
        self.measuring = plan is None
        self._engine = self._engine_of(plan or first_plan(parameters_unmeasured(self._slots), wire.ranks))
        self._gates = self._gates_of(self._engine.plan)
        self._attachment = Attachment(model, optimizer, self._slots)
        self._hook_step()
        self._attachment.install(self, self._step, self._synchronized, self._before_state_is_read)
        if self._sharding:
            self._attachment.keep(self._sharding.hooks())
        atexit.register(self._leave)

    @property
    def plan(self) -> Optional[Plan]:
        """The plan that is applied; None while steps are measured."""
        return None if self.measuring else self._engine.plan

    def report(self) -> dict:
        """Seconds of recent steps as measured and as predicted, what forward waited for parameters, and what Weft's own code in
        hooks took without waiting. `aside`: there is nothing to gain, and Weft does next to nothing. `plans`: made so far. On GPUs
        `communicators`, and by choice what was rehearsed (seconds of products and of transfers beside them) and tried (seconds of a step)."""
        def median(values):
            return sorted(values)[len(values) // 2] if values else None
        return {"steps": self._steps, "across_steps": not self.measuring and self.plan.across_steps,
                "predicted_step_s": self.plan.predicted_step if self.plan else None,
                "measured_step_s": median(self._step_seconds[-100:]), "waited_s": median(self._waited_seconds[-100:]),
                "own_s": median(self._step_own_seconds[-100:]), "aside": bool(self.plan and self.plan.aside), "plans": self._plans,
                **({} if self.wire.host_waits else {"communicators": self.wire.lanes, "rehearsed": self.wire.rehearsed,
                                                      "tried": self.wire.tried})}

    def record_timelines(self) -> None:
        """Six steps from the next one on are recorded, for save_timelines. On processors the first six of a plan are without this."""
        self._recorder.restart()

    def save_timelines(self, folder) -> None:
        """Writes predicted.json and measured.json of the recorded steps on this rank: `weft report FOLDER/*.json` shows them."""
        if self._sharding:
            raise NotSupported("timelines of sharded jobs")
        measured = self._recorder.measured(self.plan)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for kind, shown in (("predicted", predicted_steps(self.plan)), ("measured", measured)):
            (folder / f"{kind}.json").write_text(timeline_json(kind, self.plan, shown, self.wire.rank))

    def synchronize(self) -> None:
        """Returns when every parameter is updated. Call it before you read weights by hand."""
        with self._told_to_others:
            self._engine.settle_all()

    def close(self) -> None:
        """Leaves the job in order: updates every parameter, and gives model and optimizer back as they were."""
        self.synchronize()
        if self._sharding:
            self._sharding.close()
        self._attachment.remove()
        atexit.unregister(self._leave)
        self.wire.close()

    # --- what the job calls ---

    def _own_clock(self) -> float:
        """Seconds of this thread, without those of the optimizer. Waiting takes none."""
        return time.thread_time() - self._engine.updating

    def _hook_step(self) -> None:
        """What a step runs through: all modules and gradients; to stand aside, the model and the first gradient alone."""
        # Where gradients are changed between backward and step, every gradient must be seen, lest one travels too late.
        if self.plan and self.plan.aside and self._across_steps and not self._touched:
            first = min(range(len(self._slots)), key=lambda i: (self.plan.parameters[i].ready, i))
            slots, modules = [self._slots[first]], {"": self.model}
        else:
            slots = self._engine.last_of_transfers() if self._looks_by_transfer() else self._slots
            modules = {name: module for name, module in self._modules.items() if name == "" or name in self._gates
                       or (self.measuring and (module._parameters or module._modules))}
        self._by_transfer = slots is not self._slots and not self.plan.aside
        self._attachment.hook_step(modules.items(), self._gate, slots, self._on_gradient)

    def _looks_by_transfer(self) -> bool:
        """Whether it is enough to be told of one gradient of each transfer."""
        return (not self.measuring and not self._sharding and self.plan.across_steps and self.plan.passes == 1
                and not self._ever_added_up)

    def _synchronized(self, body):
        """Of what reads or loads the optimizer's state."""
        self.synchronize()
        return self._sharding.shards.with_whole_state(body) if self._sharding else body()

    def _leave(self) -> None:
        """At the end of the process: the last updates, so that no other rank waits for what this one keeps."""
        with contextlib.suppress(WeftError):
            self._engine.settle_all()
        if self._sharding:
            self._sharding.end_updates()
        self.wire.leave()

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients of backward passes within only add up, as with DDP; they travel in the first pass after it."""
        before, self._syncs = self._syncs, False
        self._adds_up = self._ever_added_up = True
        try:
            yield
        finally:
            self._syncs = before

    def _before_state_is_read(self, module, state, prefix, metadata):
        self.synchronize()  # the entries of `state` are the parameters' memory
        if self._sharding:
            self._sharding.put_whole(module, state, prefix)

    # --- forward ---

    def _gate(self, name: str):
        def wait_for_parameters(module, inputs):
            if self._quiet and name:
                return
            begin = self._own_clock() if self._watched else 0.0
            self._enter(name, inputs)
            if self._watched:
                self._own_seconds += self._own_clock() - begin
        return wait_for_parameters

    def _enter(self, name: str, inputs) -> None:
        if not self._begun:
            self._begin_step()
        if name == "" and self._inputs is None:
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
        self._quiet = not (self.measuring or record is not None or engine.pending_left)

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
            if not (self.plan and self.plan.aside and self._steps % CHECKED_STEPS):
                self._watch.require_unchanged()
            if self._trial is not None and self._trial.begin_step():
                self._engine.settle_all()
                self.wire.finish()
                self.wire.tried, self._trial = self._trial.decide(), None
            self._engine.settle(self._gates.get(None, []))
        if self._by_transfer and any(slot.parameter.grad is not None for slot in self._slots):
            self._adds_up = True  # zeros of zero_grad, in the first step of a plan, or the user's own
        self.wire.at(f"step {self._steps + 1}")
        if self.plan and self.plan.across_steps and self._trial is None:
            self._recorder.begin_step()
        if self.measuring:
            self._clock.mark(BEGIN)

    def _gates_of(self, plan: Plan) -> Dict[Optional[str], List[Slot]]:
        """By module, the parameters that its forward waits for: its own, and those used by it though another owns them."""
        gates: Dict[Optional[str], List[Slot]] = {}
        by_parameter = {slot.parameter: slot for slot in self._slots}
        for name, module in self._modules.items():
            own = [by_parameter[parameter] for parameter in module.parameters(recurse=False) if parameter in by_parameter]
            if own:
                gates[name] = own
        for slot, parameter in zip(self._slots, plan.parameters):
            if parameter.gate:
                gates.setdefault(None if parameter.gate == "*" else parameter.gate, []).append(slot)
        return gates

    # --- backward ---

    def _on_gradient(self, slot: Slot) -> None:
        if not self._watched:
            return self._take_gradient(slot)
        begin = self._own_clock()
        self._take_gradient(slot)
        self._own_seconds += self._own_clock() - begin

    def _take_gradient(self, slot: Slot) -> None:
        if self._sharding:
            self._sharding.note_gradient(slot)
        if not self._syncs:
            return
        if not self._pass_open:
            self._pass_open = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end_of_backward)
        engine = self._engine
        plan = engine.plan
        if self.measuring:
            self._clock.mark_again(("ready", slot.index))
        elif plan.aside:
            pass  # all gradients travel when backward ends
        elif not plan.across_steps or self._passes + 1 >= plan.passes:
            record = self._recorder.now
            if record is not None:
                record.readies.append((slot.name, self.wire.now()))
            with self._told_to_others:
                if not self._by_transfer:
                    engine.send(slot)
                elif not self._adds_up:  # else gradients may be there that are not whole: they leave when backward ends
                    engine.send_what_is_there(slot)
        if self._sharding:
            self._sharding.free_after_gradient(slot)

    def _end_of_backward(self) -> None:
        self._pass_open = False
        self._passes += 1
        if not self.measuring and self.plan.across_steps:
            if self._by_transfer and self._passes == self.plan.passes:
                with self._told_to_others:
                    self._engine.send_what_is_there()
            return
        with self._told_to_others:
            if self.measuring:
                self._clock.mark_again(BACKWARD_END)
                self._wire_seconds = self._clock.take_out(self._engine.receive_all)
            else:
                self._engine.receive_all()
        self._versions = {slot: (slot.parameter.grad, slot.parameter.grad._version) for slot in self._slots
                          if self.measuring and slot.parameter.grad is not None}

    # --- the optimizer ---

    def _step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._recorder.now is not None:
            self._recorder.now.asked_to_update = self.wire.now()
        begin, replans = self._own_clock(), False
        with self._told_to_others:
            if not self.measuring and self.plan.across_steps:
                self._engine.defer_updates()
                replans = self._engine.new_plan_wanted  # as all ranks know since the transfers of the step before have landed
            else:
                self._step_now()
                replans = not self.measuring and self._engine.new_plan_wanted
        if not self.measuring and self.plan.across_steps:
            self._own_seconds += self._own_clock() - begin
        if self._watched:
            self._step_own_seconds.append(self._own_seconds)
        self._own_seconds = 0.0
        if self._attachment.counts_steps:
            self.optimizer._step_count += 1
        self.optimizer._opt_called = True  # newer schedulers ask for this instead
        self._waited_seconds.append(self._engine.waited)
        self._engine.waited = 0.0
        self._steps += 1
        if self.measuring:
            if self._sharding:
                self._sharding.note_measured_step(lambda name: self._clock.has(("gate", name)))
            self._measured_steps += 1
            if self._inputs is not None:
                self._measured_inputs.add(self._inputs)
            if self._measured_steps > WARM_STEPS:
                with self._told_to_others:
                    self._apply_plan()
            self._clock.restart()
        elif replans:
            with self._told_to_others:
                self._measure_again()
        self._begun, self._quiet, self._passes, self._inputs, self._adds_up = False, False, 0, None, False
        self._watched = self._engine.watches = self._steps % WATCHED_STEPS == 0
        return loss

    def _note_inputs(self, inputs) -> None:
        """Once a step, in the first forward of the model, before the last transfer leaves: whether this rank's inputs have had other
        shapes than the measured ones for some steps."""
        self._inputs = tuple(tensor.shape for tensor in inputs if isinstance(tensor, torch.Tensor)) or None
        if self.measuring or self._inputs is None or self._sharding:
            return
        if not self._measured_inputs:  # the plan was given
            if self._inputs is not None:
                self._measured_inputs.add(self._inputs)
        self._other_inputs = 0 if self._inputs in self._measured_inputs else self._other_inputs + 1
        self._engine.wants_new_plan = self._other_inputs >= OTHER_SHAPES

    def _measure_again(self) -> None:
        """From the next step on, on all ranks."""
        self._engine.settle_all()
        if self._trial is not None:
            self.wire.finish()
            self._trial.end()
            self._trial = None
        _LOG.info("weft: inputs have other shapes since step %d: steps are measured again", self._steps - OTHER_SHAPES)
        self._engine = self._engine_of(first_plan(parameters_unmeasured(self._slots), self.wire.ranks))
        self._gates = self._gates_of(self._engine.plan)
        self.measuring, self._measured_steps, self._touched = True, 0, False
        self._measured_inputs, self._other_inputs = set(), 0
        self._recorder = Recorder(self.wire)
        self._hook_step()
        self._clock.restart()

    def _step_now(self) -> None:
        if not self._passes:
            self._engine.receive_all()  # no backward on this rank, but perhaps on others
        self._touched |= any(slot.parameter.grad is not grad or grad._version != version
                             for slot, (grad, version) in self._versions.items())
        if self.measuring:
            self._clock.mark(STEP_BEGIN)
        if self._sharding:
            self._sharding.update_whole()
        else:
            type(self.optimizer).step(self.optimizer)
        if self.measuring:
            self._clock.mark(STEP_END)

    # --- the plan ---

    def _engine_of(self, plan: Plan):
        if self._sharding and plan.shard:
            return self._sharding.run_of(plan, self._modules)
        engine = (Engine if self.wire.host_waits else DeviceEngine)(plan, self._slots, self.wire, self._update)
        engine.note_landed = lambda: self._recorder.note_landed()
        return engine

    def _apply_plan(self) -> None:
        """Rank 0 plans; all do what it says."""
        profile = measured_profile(self._slots, self._modules, self._clock, self.wire, self._wire_seconds, len(self._engine.transfers))
        most_passes, fewest_passes, touched = self.wire.largest([self._passes, -self._passes, int(self._touched)])
        self._touched = bool(touched)
        across = self._across_steps and not touched and most_passes == -fewest_passes
        text = ""
        if self._sharding:
            self._sharding.agree_on_units()
        aside = None if self._sharding else plan_aside(profile, self.wire.ranks)
        if not aside and not self.wire.host_waits and self.wire.chooses_lanes:
            profile, choices = rehearse(self.wire, profile, TRIED_CHOICES if across else 1)
            if across:
                self._trial = StepTrial(self.wire, choices, ("", "gather") if self._sharding else ("",))
        if self.wire.rank == 0 and aside:
            text = aside.to_json()
        elif self.wire.rank == 0 and self._sharding and across:
            text = make_sharded_plan(profile, self.wire.ranks, self._sharding.level, self._sharding.unit_of,
                                     max(1, most_passes)).to_json()
        elif self.wire.rank == 0:
            text = make_plan(profile, self.wire.ranks, across, max(1, most_passes) if across else 1).to_json()
        plan = read_plan(self.wire.text_of_rank_0(text))
        self._engine = self._engine_of(plan)
        self._gates = self._gates_of(plan)
        self.measuring, self._plans = False, self._plans + 1
        if plan.aside:
            _LOG.info("weft: communication would take %.2g %% of the step: there is nothing to gain, and hooks are taken away",
                      100 * (1 - profile.compute / plan.predicted_step))
        self._hook_step()
