#!/usr/bin/env python3
"""Compares `weft analyze` with Holistic Trace Analysis's own expressions, written out here for one rank at a time:
idle time by stream (_analyze_idle_time_for_stream), launches (cuda_kernel_launch_stats) and queue lengths
(_get_queue_length_time_series_for_rank), on the real traces in tests/data/traces.

Usage: analyze_hta_test.py WEFT"""
import gzip
import json
import math
import os
import statistics
import subprocess
import sys

TRACES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "traces")
KERNELS = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}
LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync",
            "cudaMemsetAsync"}


class Row:
    """One event with times as HTA has them: starts rounded up and ends down where any start has a fraction."""

    def __init__(self, event, fractional):
        start, end = event["ts"], event["ts"] + event["dur"]
        self.start, self.end = (math.ceil(start), math.floor(end)) if fractional else (start, end)
        self.duration = self.end - self.start
        self.name, self.category = event["name"], event.get("cat")
        arguments = event.get("args", {})
        self.stream, self.correlation = arguments.get("stream", -1), arguments.get("correlation", -1)


def read(path):
    with gzip.open(path, "rt") as file:
        text = json.load(file)
    events = text["traceEvents"] if isinstance(text, dict) else text
    fractional = any(isinstance(e.get("ts"), float) and e["ts"] != int(e["ts"]) for e in events)
    rows = [Row(e, fractional) for e in events if e.get("ph") == "X" and "dur" in e and e.get("cat") != "Trace"]
    calls = {r.correlation: r for r in rows if r.correlation >= 0 and r.stream == -1 and r.name.startswith("cu")}
    kernels = sorted((r for r in rows if r.category in KERNELS), key=lambda r: r.start)
    steps = [r for r in rows if r.name.startswith("ProfilerStep#")]
    if len({r.name for r in steps}) >= 2:  # the profiler may stop inside the last one
        last = max(r.start for r in steps)
        kernels = [k for k in kernels if k.correlation in calls and calls[k.correlation].start < last]
    return kernels, calls


def idle(kernels, calls):
    result = {}
    for before, kernel in zip(kernels, kernels[1:]):
        gap = kernel.start - before.end
        call = calls.get(kernel.correlation)
        reason = ("host_wait" if call is not None and call.start > before.end
                  else "kernel_wait" if gap < 30 else "other")
        result[reason] = result.get(reason, 0) + gap
    return result


def queue(kernels, calls):
    changes = []
    for kernel in kernels:
        call = calls.get(kernel.correlation)
        if call is not None and call.name in LAUNCHES:
            changes += [(call.start, -1), (kernel.start, 1)]  # at one time, launches come first
    length, lengths = 0, []
    for _, order in sorted(changes):
        length -= order
        lengths.append(length)
    return lengths


def compare(weft, name):
    path = os.path.join(TRACES, name)
    kernels, calls = read(path)
    answer = json.loads(subprocess.run([weft, "analyze", "--json", path], check=True, capture_output=True).stdout)
    rank = answer["ranks"][0]
    mistakes = []

    def expect(what, got, wanted):
        if abs(got - wanted) > 1e-6 * max(1, abs(wanted)):
            mistakes.append(f"{name}: {what}: weft says {got}, HTA's rule gives {wanted}")

    for stream in sorted({k.stream for k in kernels}):
        own = [k for k in kernels if k.stream == stream]
        said = next(i for i in rank["idle"] if i["stream"] == stream)
        wanted = idle(own, calls)
        for reason in ("host_wait", "kernel_wait", "other"):
            expect(f"stream {stream} {reason}", said[reason + "_us"], wanted.get(reason, 0))
        lengths = queue(own, calls)
        if lengths:
            said = next(q for q in rank["queues"] if q["stream"] == stream)
            expect(f"stream {stream} longest queue", said["max"], max(lengths))
            expect(f"stream {stream} mean of changes", said["mean_of_changes"], statistics.fmean(lengths))
    pairs = [(calls[k.correlation], k) for k in kernels
             if k.correlation in calls and calls[k.correlation].name in LAUNCHES]
    delays = [max(0, k.start - c.end) for c, k in pairs]
    said = rank["launches"]
    expect("launches", said["count"], len(pairs))
    expect("short kernels", said["short_kernels"],
           sum(c.duration <= 50 and k.duration < c.duration for c, k in pairs))
    expect("long calls", said["long_calls"], sum(c.duration > 50 for c, _ in pairs))
    expect("long delays", said["long_delays"], sum(d > 100 for d in delays))
    expect("median delay", said["delay"]["median_us"], statistics.median_low(delays))
    expect("longest delay", said["delay"]["max_us"], max(delays))
    print(f"{name}: {len(kernels)} kernels, {len(pairs)} launches compared")
    return mistakes


def main():
    mistakes = []
    for name in sorted(os.listdir(TRACES)):
        if name.endswith(".json.gz"):
            mistakes += compare(sys.argv[1], name)
    print("\n".join(mistakes))
    sys.exit(1 if mistakes else 0)


main()
