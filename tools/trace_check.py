#!/usr/bin/env python3
"""Checks a Chrome trace (JSON) by the rules that Perfetto's importer applies to what Weft writes.

    tools/trace_check.py trace.json

Prints a one-line summary and exits 0, or names the first violation and exits 1. Times are compared exactly, as
decimal fractions, so a slice that overlaps the next by a nanosecond is found.
"""
import json
import sys
from bisect import bisect_right
from collections import defaultdict
from decimal import Decimal

METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}


class Violation(Exception):
    pass


def is_number(value):
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def need(event, where, key, test, what):
    if key not in event:
        raise Violation(f"{where}: no '{key}'")
    if not test(event[key]):
        raise Violation(f"{where}: '{key}' is {event[key]!r}, not {what}")
    return event[key]


def is_id(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def time_of(event, where):
    # Perfetto rejects negative times.
    return need(event, where, "ts", lambda v: is_number(v) and v >= 0, "a number >= 0")


def thread_of(event, where):
    return event["pid"], need(event, where, "tid", is_id, "an integer >= 0")


def check_slice(event, where, slices):
    start = time_of(event, where)
    duration = need(event, where, "dur", lambda v: is_number(v) and v >= 0, "a number >= 0")
    need(event, where, "name", lambda v: isinstance(v, str) and v, "a name")
    need(event, where, "cat", lambda v: isinstance(v, str), "text")
    need({"args": {}, **event}, where, "args", lambda v: isinstance(v, dict), "an object")
    slices[thread_of(event, where)].append((start, start + duration, where))


def check_metadata(event, where, names):
    name = need(event, where, "name", lambda v: isinstance(v, str) and v in METADATA, "one of " + ", ".join(METADATA))
    args = need(event, where, "args", lambda v: isinstance(v, dict), "an object")
    key, kind = METADATA[name]
    need(args, where, key, lambda v: isinstance(v, kind) and not isinstance(v, bool), f"of type {kind.__name__}")
    owner = (name, event["pid"]) + ((thread_of(event, where)[1],) if name.startswith("thread") else ())
    if owner in names:
        raise Violation(f"{where}: a second {name} for {'/'.join(map(str, owner[1:]))}")
    names.add(owner)


def check_counter(event, where, last):
    when = time_of(event, where)
    name = need(event, where, "name", lambda v: isinstance(v, str) and v, "a name")
    args = need(event, where, "args", lambda v: isinstance(v, dict) and v, "an object with a value")
    for key, value in args.items():
        if not is_number(value):
            raise Violation(f"{where}: counter '{name}' has {key} = {value!r}, not a number")
    track = (event["pid"], name)
    if when < last.get(track, when):
        raise Violation(f"{where}: counter '{name}' goes back in time")
    last[track] = when


def check_nesting(slices):
    """Sorts each thread's slices, the enclosing one first; two of them may nest or follow each other."""
    for thread, rows in slices.items():
        rows.sort(key=lambda row: (row[0], -row[1]))
        open_ends = []
        for start, end, where in rows:
            while open_ends and open_ends[-1][0] <= start:
                open_ends.pop()
            if open_ends and end > open_ends[-1][0]:
                raise Violation(f"{where}: its slice [{start}, {end}) overlaps that of {open_ends[-1][1]}, which ends "
                                f"at {open_ends[-1][0]}, on pid {thread[0]} tid {thread[1]}")
            if end > start:
                open_ends.append((end, where))


def outermost(rows):
    """The disjoint outermost slices of a thread, in order: (start, end)."""
    result = []
    for start, end, _ in rows:
        if end > start and (not result or start >= result[-1][1]):
            result.append((start, end))
    return result


def check_flows(flows, slices):
    covers = {thread: outermost(rows) for thread, rows in slices.items()}
    starts = {thread: [start for start, _ in rows] for thread, rows in covers.items()}
    for key, points in flows.items():
        named = f"flow {key[1]!r} of {key[0]!r} with id {key[2]!r}"
        phases = sorted(point[0] for point in points)
        where = points[0][3]
        if phases.count("s") != 1 or phases.count("f") < 1:
            raise Violation(f"{where}: {named} has {phases.count('s')} starts and {phases.count('f')} ends")
        begin = next(point[2] for point in points if point[0] == "s")
        for phase, thread, when, where in points:
            if when < begin:
                raise Violation(f"{where}: {named} goes back in time")
            place = bisect_right(starts.get(thread, []), when) - 1
            if place < 0 or when >= covers[thread][place][1]:
                raise Violation(f"{where}: {named} has a '{phase}' at {when} outside of every slice of pid {thread[0]} "
                                f"tid {thread[1]}")


def check_flow(event, where, flows):
    cat = need(event, where, "cat", lambda v: isinstance(v, str), "text")
    name = need(event, where, "name", lambda v: isinstance(v, str), "text")
    flow_id = need(event, where, "id", lambda v: isinstance(v, (str, int)), "a number or text")
    if event["ph"] == "f":
        need(event, where, "bp", lambda v: v == "e", "'e'")
    flows[cat, name, flow_id].append((event["ph"], thread_of(event, where), time_of(event, where), where))


def check(trace):
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise Violation("the file is not an object with an array 'traceEvents'")
    if trace.get("displayTimeUnit", "ms") not in ("ms", "ns"):
        raise Violation(f"displayTimeUnit is {trace['displayTimeUnit']!r}, not ms or ns")
    slices, flows, names, last, counters = defaultdict(list), defaultdict(list), set(), {}, 0
    for i, event in enumerate(trace["traceEvents"]):
        where = f"event {i}"
        if not isinstance(event, dict):
            raise Violation(f"{where}: not an object")
        phase = need(event, where, "ph", lambda v: v in ("X", "M", "C", "s", "t", "f"), "one of X M C s t f")
        need(event, where, "pid", is_id, "an integer >= 0")
        if phase == "X":
            check_slice(event, where, slices)
        elif phase == "M":
            check_metadata(event, where, names)
        elif phase == "C":
            check_counter(event, where, last)
            counters += 1
        else:
            check_flow(event, where, flows)
    check_nesting(slices)
    check_flows(flows, slices)
    for pid, tid in slices:
        if ("process_name", pid) not in names:
            raise Violation(f"pid {pid} has slices and no process_name")
        if ("thread_name", pid, tid) not in names:
            raise Violation(f"pid {pid} tid {tid} has slices and no thread_name")
    processes = len({pid for pid, _ in slices})
    count = sum(map(len, slices.values()))
    return (f"{len(trace['traceEvents'])} events: {count} slices on {len(slices)} threads of {processes} processes, "
            f"{len(flows)} flows, {counters} counter values")


def reject_constant(name):
    raise Violation(f"{name} is not JSON")


def main():
    if len(sys.argv) != 2:
        print("usage: trace_check.py FILE", file=sys.stderr)
        return 2
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            summary = check(json.load(file, parse_float=Decimal, parse_constant=reject_constant))
    except OSError as error:
        print(f"{sys.argv[1]}: {error.strerror}", file=sys.stderr)
        return 2
    except (Violation, ValueError, RecursionError) as error:
        print(f"{sys.argv[1]}: {error}", file=sys.stderr)
        return 1
    print(f"{sys.argv[1]}: ok, {summary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
