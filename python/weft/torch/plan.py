"""From what was measured of a job to the order in which its gradients travel.

A plan is static: the same list of units on every rank, each a few pieces of gradients that one all-reduce carries. It is
made by playing steps: compute runs as it was measured, one unit at a time is on the wire, and whenever the wire is free
the unit whose parameters the next forward needs first goes next. What is on the wire when backward ends goes on beside
the next forward.
"""

import heapq
import json
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .errors import PlanMismatch

KIB = 1024
FORMAT = "weft-pytorch-plan"
PART_SIZES = tuple(KIB << shift for shift in range(8, 15))  # 256 KiB to 16 MiB
MOST_UNITS = 2000
# Chunks that are smaller than this cost more by their number than they gain by going early.
LEAST_CHUNK = 64 * KIB


@dataclass(frozen=True)
class Parameter:
    """What a step was seen to do with a parameter. Times count from the beginning of the forward pass, in seconds."""
    name: str
    elements: int
    element_bytes: int
    element_type: str
    needed: float  # the forward of the module that uses it first
    ready: float   # its gradient
    gate: str = ""  # the module whose forward waits for it, where that is none that owns it

    @property
    def bytes(self) -> int:
        return self.elements * self.element_bytes


@dataclass(frozen=True)
class Profile:
    parameters: List[Parameter]
    compute: float          # a step without communication and update
    update_per_byte: float  # of the optimizer
    wire_latency: float     # of an all-reduce, whatever its size
    wire_per_byte: float

    def transfer(self, size: int) -> float:
        return self.wire_latency + size * self.wire_per_byte


class Piece(NamedTuple):
    """Elements begin..end of a parameter's gradient."""
    parameter: int
    begin: int
    end: int


Unit = Tuple[Piece, ...]


def _chunks(profile: Profile, order: Sequence[int]) -> List[List[int]]:
    """Parameters that become ready one after the other and are needed by the same module, small neighbours with them."""
    chunks: List[List[int]] = []
    filled = 0
    for index in order:
        parameter, last = profile.parameters[index], profile.parameters[chunks[-1][-1]] if chunks else None
        together = last is not None and last.element_type == parameter.element_type and (
            filled < LEAST_CHUNK or last.needed == parameter.needed)
        if not together:
            chunks.append([])
            filled = 0
        chunks[-1].append(index)
        filled += parameter.bytes
    return chunks


def _cut(profile: Profile, chunk: Sequence[int], part_bytes: int) -> List[Unit]:
    """Parts of equal size, each of some pieces."""
    elements = sum(profile.parameters[index].elements for index in chunk)
    size = elements * profile.parameters[chunk[0]].element_bytes
    count = max(1, -(-size // part_bytes))
    borders = [elements * i // count for i in range(count + 1)]
    units = []
    for begin, end in zip(borders, borders[1:]):
        pieces, first = [], 0
        for index in chunk:
            length = profile.parameters[index].elements
            low, high = max(begin, first) - first, min(end, first + length) - first
            if low < high:
                pieces.append(Piece(index, low, high))
            first += length
        units.append(tuple(pieces))
    return units


def units_of(profile: Profile, part_bytes: int) -> List[Unit]:
    """Cuts all gradients, in the order in which they become ready."""
    order = sorted(range(len(profile.parameters)), key=lambda index: profile.parameters[index].ready)
    return [unit for chunk in _chunks(profile, order) for unit in _cut(profile, chunk, part_bytes)]


class Played(NamedTuple):
    order: List[int]  # of units, in the last step
    step: float


def _unit_bytes(profile: Profile, unit: Unit) -> int:
    return sum((piece.end - piece.begin) * profile.parameters[piece.parameter].element_bytes for piece in unit)


def _forward_delay(profile: Profile, begin: float, arrived: Dict[int, float]) -> float:
    """How much later than measured a forward ends that waits for its parameters and updates them."""
    delay = 0.0
    for index in sorted(range(len(profile.parameters)), key=lambda i: profile.parameters[i].needed):
        parameter = profile.parameters[index]
        delay = max(delay, arrived.get(index, begin) - begin - parameter.needed)
        delay += parameter.bytes * profile.update_per_byte
    return delay


def play(profile: Profile, units: Sequence[Unit], order: Optional[Sequence[int]] = None, steps: int = 4) -> Played:
    """Plays steps, by urgency or in a given order, and returns the order and the time of the last one."""
    readies = [max(profile.parameters[piece.parameter].ready for piece in unit) for unit in units]
    needs = [min(profile.parameters[piece.parameter].needed for piece in unit) for unit in units]
    times = [profile.transfer(_unit_bytes(profile, unit)) for unit in units]
    by_readiness = sorted(range(len(units)), key=lambda unit: readies[unit])
    chosen = list(order) if order is not None else []
    arrived: Dict[int, float] = {}
    begin, step, free = 0.0, 0.0, 0.0
    for _ in range(steps):
        offset = begin + _forward_delay(profile, begin, arrived)
        if order is None:
            chosen = _urgent_first(by_readiness, readies, needs, times, free - offset)
        arrived = {}
        for unit in chosen:
            free = max(free, offset + readies[unit]) + times[unit]
            for piece in units[unit]:
                arrived[piece.parameter] = free
        step = offset + profile.compute - begin
        begin = offset + profile.compute
    return Played(chosen, step)


def _urgent_first(by_readiness, readies, needs, times, free: float) -> List[int]:
    """The order in which a wire takes units: of those that are ready when it is free, the one that is needed first."""
    order: List[int] = []
    waiting: list = []
    coming = deque(by_readiness)
    while coming or waiting:
        if not waiting:
            free = max(free, readies[coming[0]])
        while coming and readies[coming[0]] <= free:
            unit = coming.popleft()
            heapq.heappush(waiting, (needs[unit], readies[unit], unit))
        unit = heapq.heappop(waiting)[2]
        order.append(unit)
        free += times[unit]
    return order


@dataclass(frozen=True)
class Plan:
    """What all ranks of a job do alike."""
    ranks: int
    across_steps: bool  # False: all gradients arrive before backward ends, as with DDP
    passes: int         # backward passes of a step
    parameters: List[Parameter]
    units: List[Unit]   # in the order in which they travel
    predicted_step: float = 0.0
    profile: Dict[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        head = {"format": FORMAT, "version": 1, "ranks": self.ranks, "across_steps": self.across_steps,
                "passes": self.passes, "predicted_step_s": self.predicted_step, "profile": self.profile}
        return json.dumps({**head, "parameters": [asdict(parameter) for parameter in self.parameters],
                           "units": [[list(piece) for piece in unit] for unit in self.units]}, indent=1)

    def save(self, path) -> None:
        """Writes a file that `overlap(..., plan=path)` reads."""
        Path(path).write_text(self.to_json() + "\n")


def read_plan(text: str, name: str = "plan") -> Plan:
    """A plan from its JSON; PlanMismatch where it is none or not every element travels exactly once."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT or data["version"] != 1:
            raise PlanMismatch(f"{name}: format {data['format']!r} version {data['version']!r}; {FORMAT!r} version 1 was expected")
        plan = Plan(int(data["ranks"]), bool(data["across_steps"]), int(data["passes"]),
                    [Parameter(**parameter) for parameter in data["parameters"]],
                    [tuple(Piece(*map(int, piece)) for piece in unit) for unit in data["units"]],
                    float(data["predicted_step_s"]), dict(data["profile"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PlanMismatch(f"{name}: not a plan: {type(error).__name__}: {error}") from error
    _require_complete(plan, name)
    return plan


def _require_complete(plan: Plan, name: str) -> None:
    pieces: List[List[Piece]] = [[] for _ in plan.parameters]
    for unit in plan.units:
        for piece in unit:
            if not 0 <= piece.parameter < len(pieces):
                raise PlanMismatch(f"{name}: parameter {piece.parameter} is not in 0..{len(pieces) - 1}")
            pieces[piece.parameter].append(piece)
        if len({plan.parameters[piece.parameter].element_type for piece in unit}) != 1:
            raise PlanMismatch(f"{name}: a unit has elements of several types, or none")
    for parameter, found in zip(plan.parameters, pieces):
        end = 0
        for piece in sorted(found, key=lambda piece: piece.begin):
            if piece.begin != end or piece.end <= piece.begin:
                break
            end = piece.end
        else:
            if end == parameter.elements:
                continue
        raise PlanMismatch(f"{name}: the pieces of {parameter.name} are not its {parameter.elements} elements, each once")


def make_plan(profile: Profile, ranks: int, across_steps: bool = True, passes: int = 1) -> Plan:
    """The part size and the order with the shortest step, as far as playing it tells."""
    best = None
    for part_bytes in reversed(PART_SIZES):
        units = units_of(profile, part_bytes)
        if best is not None and len(units) > MOST_UNITS:
            break
        ready_order = range(len(units))
        played = play(profile, units) if across_steps else play(profile, units, ready_order)
        if best is None or played.step < best[0].step:
            best = (played, units, part_bytes)
    played, units, part_bytes = best
    facts = {"compute_s": profile.compute, "update_s_per_byte": profile.update_per_byte, "part_bytes": part_bytes,
             "wire_latency_s": profile.wire_latency, "wire_s_per_byte": profile.wire_per_byte}
    return Plan(ranks, across_steps, passes, list(profile.parameters), [units[i] for i in played.order], played.step, facts)


def first_plan(parameters: Sequence[Parameter], ranks: int) -> Plan:
    """For the steps that are measured: everything after backward, last parameters first."""
    count = len(parameters)
    in_turn = [Parameter(p.name, p.elements, p.element_bytes, p.element_type, float(i), float(count - i))
               for i, p in enumerate(parameters)]
    units = units_of(Profile(in_turn, 0, 0, 0, 0), 4 * KIB * KIB)
    return Plan(ranks, False, 1, list(parameters), units)
