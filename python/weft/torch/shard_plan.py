"""Plans of sharded jobs (ZeRO): which parameters travel together, in which order, and how far ahead ZeRO 3 gathers.

A reduce-scatter and the all-gather after it move what one all-reduce moves, so steps are played as for whole gradients
(plan.py). Gathers of ZeRO 3 are played in addition: each takes half of an all-reduce.
"""

from typing import Dict, List, Sequence, Tuple

from .plan import TRANSFER_SIZES, Part, Plan, Profile, Transfer, play

MOST_AHEAD = 4  # units; more would keep most of the model in memory


def buckets_of(profile: Profile, transfer_bytes: int, unit_of: Dict[int, str]) -> List[Transfer]:
    """Whole parameters, in the order in which their gradients become ready; none of two units or types."""
    buckets: List[List[Part]] = []
    filled, last = 0, None
    for index in sorted(range(len(profile.parameters)), key=lambda i: (profile.parameters[i].ready, i)):
        parameter = profile.parameters[index]
        kind = (parameter.element_type, unit_of.get(index, ""))
        if last != kind or filled + parameter.bytes > transfer_bytes:
            buckets.append([])
            filled, last = 0, kind
        buckets[-1].append(Part(index, 0, parameter.elements))
        filled += parameter.bytes
    return [tuple(bucket) for bucket in buckets]


def unit_order(profile: Profile, unit_of: Dict[int, str]) -> List[str]:
    """Units as forward uses them."""
    first: Dict[str, Tuple[float, int]] = {}
    for index, name in sorted(unit_of.items()):
        moment = (profile.parameters[index].needed, index)
        first[name] = min(first.get(name, moment), moment)
    return sorted(first, key=lambda name: first[name])


def _waits(moments: Sequence[float], seconds: Sequence[float], ahead: int) -> float:
    """How long compute waits in all for gathers, one at a time, each begun when the unit `ahead` before it begins.
    moments: when each unit would begin if nothing waited."""
    delay, free = 0.0, 0.0
    began: List[float] = []
    ends: List[float] = []
    for place, moment in enumerate(moments):
        while len(ends) <= min(place + ahead, len(moments) - 1):
            trigger = len(ends) - ahead - 1
            asked = began[trigger] if trigger >= 0 else (began[-1] if began else moments[0])
            free = max(free, asked) + seconds[len(ends)]
            ends.append(free)
        delay = max(delay, ends[place] - moment)
        began.append(moment + delay)
    return delay


def gather_waits(profile: Profile, unit_of: Dict[int, str], ahead: int) -> float:
    """Of a forward and a backward."""
    order = unit_order(profile, unit_of)
    size = {name: 0 for name in order}
    ready = {name: 0.0 for name in order}
    for index, name in unit_of.items():
        size[name] += profile.parameters[index].bytes
        ready[name] = max(ready[name], profile.parameters[index].ready)
    seconds = [(profile.wire_latency + size[name] * profile.wire_per_byte) / 2 for name in order]
    needed = [min(profile.parameters[i].needed for i, of in unit_of.items() if of == name) for name in order]
    # A unit's backward begins when the gradients of the one after it are ready; the last one is still there.
    backward = [ready[order[place + 1]] for place in range(len(order) - 2, -1, -1)]
    return _waits(needed, seconds, ahead) + _waits(backward, seconds[-2::-1], ahead)


def make_sharded_plan(profile: Profile, ranks: int, shard: str, unit_of: Dict[int, str], passes: int) -> Plan:
    """The size of buckets, their order, and how far ahead units are gathered, with the shortest step as far as playing tells."""
    best = None
    for transfer_bytes in reversed(TRANSFER_SIZES):
        buckets = buckets_of(profile, transfer_bytes, unit_of)
        played = play(profile, buckets)
        if best is None or played.step < best[0].step:
            best = (played, buckets, transfer_bytes)
    played, buckets, transfer_bytes = best
    ahead, waits = 0, 0.0
    if unit_of:
        waits, ahead = min((gather_waits(profile, unit_of, ahead), ahead) for ahead in range(1, MOST_AHEAD + 1))
    facts = {"compute_s": profile.compute, "update_s_per_byte": profile.update_per_byte, "transfer_bytes": transfer_bytes,
             "wire_latency_s": profile.wire_latency, "wire_s_per_byte": profile.wire_per_byte, "gather_waits_s": waits}
    return Plan(ranks, True, passes, list(profile.parameters), [buckets[i] for i in played.order], played.step + waits, facts,
                shard, ahead, units=tuple(unit_order(profile, unit_of)))
