"""Steps of a job as timelines that `weft report` shows (docs/timeline-format.md): what the plan predicts, and what was
measured on this rank."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .errors import WeftError
from .plan import Plan, Profile, play, transfer_bytes_of

RECORDED_STEPS = 6  # in a row; of the last one it is not known when its transfers end
SHOWN_STEPS = 5  # of which the first and the last are not accounted
_COMPUTE, _WIRE = 0, 1


class Span(NamedTuple):
    """Seconds, and what went on. `transfer` is the number of a transfer of the plan, -1 for computation."""
    name: str
    phase: str
    begin: float
    end: float
    transfer: int = -1


@dataclass
class StepRecord:
    """Moments of one step: seconds, or events of a GPU's stream."""
    begin: Any
    gates: List[tuple] = field(default_factory=list)  # module, entered, left, of it waited: seconds, or pairs of moments
    readies: List[tuple] = field(default_factory=list)  # parameter, its gradient
    asked_to_update: Any = None
    transfers: List[tuple] = field(default_factory=list)  # began, ended

    def in_seconds(self, seconds: Callable[[Any], float], lanes: int) -> "StepRecord":
        """lanes: on GPUs transfers that take turns on one begin when the one before has ended; 0: the moments say so."""
        def waited(found):
            return found if isinstance(found, float) else sum(seconds(end) - seconds(begin) for begin, end in found)
        transfers: List[Tuple[float, float]] = []
        for begin, end in self.transfers:
            free = transfers[-lanes][1] if lanes and len(transfers) >= lanes else 0.0
            transfers.append((max(seconds(begin), free) if lanes else seconds(begin), seconds(end)))
        return StepRecord(seconds(self.begin), [(name, seconds(entered), seconds(left), waited(found))
                                                for name, entered, left, found in self.gates],
                          [(name, seconds(moment)) for name, moment in self.readies],
                          None if self.asked_to_update is None else seconds(self.asked_to_update), transfers)

    def spans(self, plan: Plan) -> List[Span]:
        found, last, phase = [], self.begin, "forward"
        inside = "the first module"
        for module, entered, left, waited in self.gates:
            found.append(Span(f"forward of {inside}", phase, last, entered))
            if left - waited > entered:
                found.append(Span(f"updates before {module}", "optimizer", entered + waited, left))
            last, inside = left, module or "the model"
        for number, (parameter, moment) in enumerate(self.readies):
            head = f"forward of {inside}, loss, " if number == 0 else ""
            found.append(Span(f"{head}backward to {parameter}", "backward", last, moment))
            last = moment
        if self.asked_to_update is not None:
            found.append(Span("end of backward", "backward", last, self.asked_to_update))
        found += [_wire_span(plan, number, begin, end) for number, (begin, end) in enumerate(self.transfers)]
        return [span for span in found if span.end > span.begin]


def _wire_span(plan: Plan, number: int, begin: float, end: float) -> Span:
    transfer = plan.transfers[number]
    first = plan.parameters[transfer[0].parameter].name
    more = f" and {len(transfer) - 1} more" if len(transfer) > 1 else ""
    return Span(f"transfer {number}: gradients of {first}{more}", "optimizer", begin, end, number)


class Recorder:
    """Some steps in a row under a plan. Others are not recorded: moments cost as much as the rest of a hook."""

    def __init__(self, wire):
        self._wire = wire
        self.steps: List[StepRecord] = []
        self.now: Optional[StepRecord] = None  # this step's, where it is recorded
        self._before: Optional[StepRecord] = None
        self._left = 0
        if wire.host_waits:
            self.restart()

    def restart(self) -> None:
        """From the next step on."""
        self.steps, self.now, self._before, self._left = [], None, None, RECORDED_STEPS

    def begin_step(self) -> None:
        self._before, self.now = self.now, None
        if self._left:
            self._left -= 1
            self.now = StepRecord(self._wire.now())
            self.steps.append(self.now)
        if not self._wire.host_waits:
            self._wire.records = self.now is not None

    def note_landed(self) -> None:
        """The transfers of the step before are over."""
        if self._before is not None:
            self._before.transfers = list(self._wire.moments())

    def measured(self, plan: Plan) -> List[Tuple[float, List[Span]]]:
        """(beginning, spans) of the recorded steps but the last, of which it is not known when its transfers ended."""
        steps = self.steps[:-1]
        if len(steps) < 3:
            raise WeftError("timelines need four recorded steps under a plan that lets communication cross steps: the first six of a "
                            "plan on processors, and those after record_timelines()")
        seconds = self._wire.seconds_since(steps[0].begin)
        found = [step.in_seconds(seconds, 0 if self._wire.host_waits else self._wire.lanes) for step in steps]
        return [(step.begin, step.spans(plan)) for step in found]


def profile_of(plan: Plan) -> Profile:
    facts = plan.profile
    return Profile(plan.parameters, facts["compute_s"], facts["update_s_per_byte"], facts["wire_latency_s"],
                   facts["wire_s_per_byte"])


def predicted_steps(plan: Plan, count: int = SHOWN_STEPS) -> List[Tuple[float, List[Span]]]:
    """(beginning, spans) of steps as `play` has them, from the steady state."""
    profile, steps = profile_of(plan), []

    def note(begin, delays, moments):
        spans = _predicted_compute(profile, begin, delays)
        spans += [_wire_span(plan, number, *moments[number]) for number in range(len(plan.transfers))]
        steps.append((begin, [span for span in spans if span.end > span.begin]))

    play(profile, plan.transfers, range(len(plan.transfers)), steps=count + 4, note=note)
    return steps[-count:]


def _predicted_compute(profile: Profile, begin: float, delays: Dict[int, float]) -> List[Span]:
    """Forward to each parameter's first use, its update, and backward to each gradient. `delays`: by parameter, how much
    later than measured its use begins, with its update."""
    spans, last, delay, inside = [], begin, 0.0, "the first module"
    for index in sorted(delays, key=lambda i: (profile.parameters[i].needed, i)):
        parameter = profile.parameters[index]
        spans.append(Span(f"forward of {inside}", "forward", last, begin + parameter.needed + delay))
        delay = delays[index]
        last = begin + parameter.needed + delay
        spans.append(Span(f"update of {parameter.name}", "optimizer", last - parameter.bytes * profile.update_per_byte, last))
        inside = parameter.name.rpartition(".")[0] or "the model"
    for number, parameter in enumerate(sorted(profile.parameters, key=lambda p: p.ready)):
        head = f"forward of {inside}, loss, " if number == 0 else ""
        moment = begin + delay + parameter.ready
        spans.append(Span(f"{head}backward to {parameter.name}", "backward", last, moment))
        last = max(last, moment)
    spans.append(Span("end of backward", "backward", last, begin + delay + profile.compute))
    return spans


def timeline_json(kind: str, plan: Plan, steps: List[Tuple[float, List[Span]]], rank: int) -> str:
    """`steps` are consecutive; all but the first and the last are accounted."""
    names: Dict[str, int] = {}
    operations: Dict[Tuple[str, int], dict] = {}
    profile, rows, zero = profile_of(plan), [], steps[0][0]

    def named(text):
        return names.setdefault(text, len(names))

    def nanoseconds(seconds):
        return round((seconds - zero) * 1e9)

    for iteration, (_, spans) in enumerate(steps):
        seen: Dict[str, int] = {}
        for span in sorted(spans, key=lambda span: span.begin):
            key = (span.name, seen.setdefault(span.name, 0))
            seen[span.name] += 1
            length = nanoseconds(span.end) - nanoseconds(span.begin)
            entry = operations.setdefault(key, {"name": named(span.name), "phase": named(span.phase), "rank": 0, "alone": length,
                                                "queue": _COMPUTE if span.transfer < 0 else _WIRE, "number": len(operations)})
            entry["alone"] = min(entry["alone"], length)
            if span.transfer >= 0:
                size = transfer_bytes_of(plan, span.transfer)
                entry.update(traffic="dp_grad", collective=named("all_reduce"), bytes=size, group=named("dp"),
                             group_size=plan.ranks, transfer=span.transfer, alone=round(profile.seconds_on_wire(size) * 1e9))
            moment = nanoseconds(span.begin)
            rows.append([entry["number"], iteration, moment, moment, moment, nanoseconds(span.end)])
    listed = [{key: value for key, value in entry.items() if key != "number"} for entry in operations.values()]
    periods = len(steps) - 2
    begin = nanoseconds(steps[1][0])
    steady = {"first": 1, "begin": begin, "period": (nanoseconds(steps[-1][0]) - begin) / periods, "periods": periods}
    return json.dumps({"weft_timeline": 1, "timeline": kind, "about": {"policy": "weft.torch"}, "steady": steady,
                       "names": list(names), "dependencies": False,
                       "ranks": [{"name": f"rank {rank}", "rank": rank, "queues": ["compute", "dp"]}],
                       "operations": listed, "spans": rows})


def save_timelines(folder, plan: Plan, recorder: Recorder, rank: int) -> None:
    """predicted.json and measured.json of the recorded steps."""
    measured = recorder.measured(plan)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, shown in (("predicted", predicted_steps(plan)), ("measured", measured)):
        (folder / f"{kind}.json").write_text(timeline_json(kind, plan, shown, rank))
