"""From what was measured of a job to the order in which its gradients travel.

A plan is static: the same list of transfers on every rank, each a few parts of gradients that one all-reduce carries. It is
made by playing steps: compute runs as it was measured, one transfer at a time is on the wire, and whenever the wire is free
the transfer whose parameters the next forward needs first goes next. What is on the wire when backward ends goes on beside
the next forward.
"""

import heapq
import json
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .errors import PlanMismatch

KIB = 1024
FORMAT = "weft-pytorch-plan"
TRANSFER_SIZES = tuple(KIB << shift for shift in range(8, 15))  # 256 KiB to 16 MiB
MOST_TRANSFERS = 2000
# Transfers that are smaller than this cost more by their number than they gain by going early. Where modules are small, larger ones
# of several modules are tried too.
LEAST_TRANSFER = 64 * KIB
LEAST_TRANSFERS = (LEAST_TRANSFER, 512 * KIB, 2048 * KIB, 8192 * KIB)
HOST_PER_TRANSFER = 100e-6  # seconds of a thread that computes, to start it and to take it when it has landed (docs/pytorch.md)
NOTHING_TO_GAIN = 0.01  # of a step


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

    def seconds_on_wire(self, size: int) -> float:
        return self.wire_latency + size * self.wire_per_byte


class Part(NamedTuple):
    """Elements begin..end of a parameter's gradient."""
    parameter: int
    begin: int
    end: int


Transfer = Tuple[Part, ...]


def _neighbours(profile: Profile, order: Sequence[int], least: int) -> List[List[int]]:
    """Parameters that become ready one after the other and are needed by the same module, small neighbours with them.

    Above LEAST_TRANSFER a group gets at most half of what is still to come, so that the last ones, which nothing is left to hide
    behind, are small."""
    groups: List[List[int]] = []
    filled, to_come = 0, sum(parameter.bytes for parameter in profile.parameters)
    for index in order:
        parameter, last = profile.parameters[index], profile.parameters[groups[-1][-1]] if groups else None
        together = last is not None and last.element_type == parameter.element_type and (
            filled < min(least, max(LEAST_TRANSFER, to_come // 2)) or last.needed == parameter.needed)
        to_come -= parameter.bytes
        if not together:
            groups.append([])
            filled = 0
        groups[-1].append(index)
        filled += parameter.bytes
    return groups


def _cut(profile: Profile, group: Sequence[int], transfer_bytes: int) -> List[Transfer]:
    """Transfers of equal size."""
    elements = sum(profile.parameters[index].elements for index in group)
    size = elements * profile.parameters[group[0]].element_bytes
    count = max(1, -(-size // transfer_bytes))
    borders = [elements * i // count for i in range(count + 1)]
    transfers = []
    for begin, end in zip(borders, borders[1:]):
        parts, first = [], 0
        for index in group:
            length = profile.parameters[index].elements
            low, high = max(begin, first) - first, min(end, first + length) - first
            if low < high:
                parts.append(Part(index, low, high))
            first += length
        transfers.append(tuple(parts))
    return transfers


def transfers_of(profile: Profile, transfer_bytes: int, least: int = LEAST_TRANSFER) -> List[Transfer]:
    """Cuts all gradients, in the order in which they become ready. Modules are put together up to `least` bytes."""
    order = sorted(range(len(profile.parameters)), key=lambda index: profile.parameters[index].ready)
    return [transfer for group in _neighbours(profile, order, least) for transfer in _cut(profile, group, transfer_bytes)]


class Played(NamedTuple):
    order: List[int]  # of transfers, in the last step
    step: float


def _transfer_bytes(parameters: Sequence[Parameter], transfer: Transfer) -> int:
    return sum((part.end - part.begin) * parameters[part.parameter].element_bytes for part in transfer)


def _forward_delays(profile: Profile, begin: float, arrived: Dict[int, float]) -> Dict[int, float]:
    """By parameter in the order of use, how much later than measured it is used: forward waits for it and updates it."""
    delay, delays = 0.0, {}
    for index in sorted(range(len(profile.parameters)), key=lambda i: profile.parameters[i].needed):
        parameter = profile.parameters[index]
        delay = max(delay, arrived.get(index, begin) - begin - parameter.needed)
        delay += parameter.bytes * profile.update_per_byte
        delays[index] = delay
    return delays


def play(profile: Profile, transfers: Sequence[Transfer], order: Optional[Sequence[int]] = None, steps: int = 4,
         note: Optional[Callable] = None) -> Played:
    """Plays steps, by urgency or in a given order, and returns the order and the time of the last one.

    note(begin, delays, moments) is called for each step: when it begins, by parameter how much later than measured it is used,
    and by transfer when it begins and ends.
    """
    readies = [max(profile.parameters[part.parameter].ready for part in transfer) for transfer in transfers]
    needs = [min(profile.parameters[part.parameter].needed for part in transfer) for transfer in transfers]
    times = [profile.seconds_on_wire(_transfer_bytes(profile.parameters, transfer)) for transfer in transfers]
    by_readiness = sorted(range(len(transfers)), key=lambda transfer: readies[transfer])
    chosen = list(order) if order is not None else []
    arrived: Dict[int, float] = {}
    begin, step, free = 0.0, 0.0, 0.0
    for _ in range(steps):
        delays = _forward_delays(profile, begin, arrived)
        offset = begin + max(delays.values())
        if order is None:
            chosen = _urgent_first(by_readiness, readies, needs, times, free - offset)
        arrived, moments = {}, {}
        for transfer in chosen:
            start = max(free, offset + readies[transfer])
            free = start + times[transfer]
            moments[transfer] = (start, free)
            for part in transfers[transfer]:
                arrived[part.parameter] = free
        if note is not None:
            note(begin, delays, moments)
        step = offset + profile.compute - begin
        begin = offset + profile.compute
    return Played(chosen, step)


def _urgent_first(by_readiness, readies, needs, times, free: float) -> List[int]:
    """The order in which a wire takes transfers: of those that are ready when it is free, the one that is needed first."""
    order: List[int] = []
    waiting: list = []
    coming = deque(by_readiness)
    while coming or waiting:
        if not waiting:
            free = max(free, readies[coming[0]])
        while coming and readies[coming[0]] <= free:
            transfer = coming.popleft()
            heapq.heappush(waiting, (needs[transfer], readies[transfer], transfer))
        transfer = heapq.heappop(waiting)[2]
        order.append(transfer)
        free += times[transfer]
    return order


@dataclass(frozen=True)
class Plan:
    """What all ranks of a job do alike."""
    ranks: int
    across_steps: bool  # False: all gradients arrive before backward ends, as with DDP
    passes: int         # backward passes of a step
    parameters: List[Parameter]
    transfers: List[Transfer]   # in the order in which they travel
    predicted_step: float = 0.0
    profile: Dict[str, float] = field(default_factory=dict)
    shard: str = ""  # "zero1", "zero2" or "zero3": transfers are of whole parameters then
    ahead: int = 0   # ZeRO 3: how many units are gathered before they are needed
    aside: bool = False  # there is nothing to gain: gradients travel after backward, and nothing else is hooked
    units: Tuple[str, ...] = ()  # ZeRO 3: modules whose parameters are not kept, as forward uses them

    def to_json(self) -> str:
        head = {"format": FORMAT, "version": 1, "ranks": self.ranks, "across_steps": self.across_steps,
                "passes": self.passes, "predicted_step_s": self.predicted_step, "profile": self.profile}
        if self.aside:
            head.update(aside=True)
        if self.shard:
            head.update(shard=self.shard, ahead=self.ahead, units=list(self.units))
        return json.dumps({**head, "parameters": [asdict(parameter) for parameter in self.parameters],
                           "transfers": [[list(part) for part in transfer] for transfer in self.transfers]}, indent=1)

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
                    [tuple(Part(*map(int, part)) for part in transfer) for transfer in data["transfers"]],
                    float(data["predicted_step_s"]), dict(data["profile"]), str(data.get("shard", "")), int(data.get("ahead", 0)), bool(data.get("aside", False)),
                    tuple(map(str, data.get("units", ()))))
    except (KeyError, TypeError, ValueError) as error:
        raise PlanMismatch(f"{name}: not a plan: {type(error).__name__}: {error}") from error
    _require_complete(plan, name)
    return plan


def _require_complete(plan: Plan, name: str) -> None:
    parts: List[List[Part]] = [[] for _ in plan.parameters]
    for transfer in plan.transfers:
        for part in transfer:
            if not 0 <= part.parameter < len(parts):
                raise PlanMismatch(f"{name}: parameter {part.parameter} is not in 0..{len(parts) - 1}")
            parts[part.parameter].append(part)
        if len({plan.parameters[part.parameter].element_type for part in transfer}) != 1:
            raise PlanMismatch(f"{name}: a transfer has elements of several types, or none")
    for parameter, found in zip(plan.parameters, parts):
        end = 0
        for part in sorted(found, key=lambda part: part.begin):
            if part.begin != end or part.end <= part.begin:
                break
            end = part.end
        else:
            if end == parameter.elements:
                continue
        raise PlanMismatch(f"{name}: the parts of {parameter.name} are not its {parameter.elements} elements, each once")


def require_whole_parameters(plan: Plan, name: str) -> None:
    """Raises PlanMismatch where a sharded plan cuts parameters."""
    for transfer in plan.transfers:
        for part in transfer:
            if part.end - part.begin != plan.parameters[part.parameter].elements:
                raise PlanMismatch(f"{name}: a part of {plan.parameters[part.parameter].name} in a sharded plan; whole parameters "
                                   "are allowed")


def transfer_bytes_of(plan: Plan, number: int) -> int:
    return _transfer_bytes(plan.parameters, plan.transfers[number])


def make_plan(profile: Profile, ranks: int, across_steps: bool = True, passes: int = 1) -> Plan:
    """The size of transfers and the order with the shortest step, as far as playing it tells."""
    best = None
    for transfer_bytes, least in ((size, least) for size in reversed(TRANSFER_SIZES) for least in LEAST_TRANSFERS if least <= size):
        transfers = transfers_of(profile, transfer_bytes, least)
        if best is not None and len(transfers) > MOST_TRANSFERS:
            continue
        ready_order = range(len(transfers))
        played = play(profile, transfers) if across_steps else play(profile, transfers, ready_order)
        cost = played.step + HOST_PER_TRANSFER * len(transfers)
        if best is None or cost < best[0]:
            best = (cost, played, transfers, transfer_bytes)
    _, played, transfers, transfer_bytes = best
    facts = {"compute_s": profile.compute, "update_s_per_byte": profile.update_per_byte, "transfer_bytes": transfer_bytes,
             "wire_latency_s": profile.wire_latency, "wire_s_per_byte": profile.wire_per_byte}
    return Plan(ranks, across_steps, passes, list(profile.parameters), [transfers[i] for i in played.order], played.step, facts)


def exposed_after_backward(profile: Profile) -> float:
    """Seconds of a step in which all gradients travel after backward, in the largest transfers."""
    transfers = transfers_of(profile, TRANSFER_SIZES[-1])
    return sum(profile.seconds_on_wire(_transfer_bytes(profile.parameters, transfer)) for transfer in transfers)


def transfers_after_backward(profile: Profile) -> List[Transfer]:
    """All gradients, in as few transfers as there may be."""
    order = sorted(range(len(profile.parameters)), key=lambda index: profile.parameters[index].ready)
    types = dict.fromkeys(profile.parameters[index].element_type for index in order)
    return [transfer for kind in types for transfer in
            _cut(profile, [index for index in order if profile.parameters[index].element_type == kind], TRANSFER_SIZES[-1])]


def plan_aside(profile: Profile, ranks: int) -> Optional[Plan]:
    """A plan that does next to nothing, where all communication is less than NOTHING_TO_GAIN of the step; else None."""
    exposed = exposed_after_backward(profile)
    alone = profile.compute + profile.update_per_byte * sum(parameter.bytes for parameter in profile.parameters)
    if not exposed <= NOTHING_TO_GAIN * (alone + exposed):
        return None
    transfers = transfers_after_backward(profile)
    facts = {"compute_s": profile.compute, "update_s_per_byte": profile.update_per_byte, "transfer_bytes": TRANSFER_SIZES[-1],
             "wire_latency_s": profile.wire_latency, "wire_s_per_byte": profile.wire_per_byte}
    return Plan(ranks, False, 1, list(profile.parameters), transfers, alone + exposed, facts, aside=True)


def first_plan(parameters: Sequence[Parameter], ranks: int) -> Plan:
    """For the steps that are measured: everything after backward, last parameters first."""
    count = len(parameters)
    in_turn = [Parameter(p.name, p.elements, p.element_bytes, p.element_type, float(i), float(count - i))
               for i, p in enumerate(parameters)]
    transfers = transfers_of(Profile(in_turn, 0, 0, 0, 0), 4 * KIB * KIB)
    return Plan(ranks, False, 1, in_turn, transfers)
