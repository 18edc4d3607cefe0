#!/usr/bin/env python3
"""Speed and memory of `weft analyze` on a large trace, beside a plain Python pass that computes the same numbers.

Usage: bench/analyze_speed.py build/release/weft [--mebibytes 256] [--gzip] [--seed 1] [--out FILE] [--require]

Writes a trace as PyTorch's profiler would (seeded, so it is the same everywhere), runs `weft analyze --json` on it, then
json.load and the same arithmetic in Python in a process of its own; the numbers of both must be equal. Reported are
megabytes of uncompressed JSON per second of processor time, and the peak memory over the size of that JSON. --require
exits with 1 below 100 MB/s or above 4 times the size.
"""

import argparse
import gzip
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_kit import Broken, Machine, add_record_flags, record_if_asked

KERNELS = ["void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(Params)",
           "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >"
           "(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
           "Memcpy DtoD (Device -> Device)"]
GOAL_MB_PER_S = 100
GOAL_MEMORY = 4


def micros(ns):
    return f"{ns // 1000}.{ns % 1000:03d}"


def trace_text(mebibytes, seed):
    """Pieces of a trace of about that size: steps of operators, launches, kernels on two streams, flows."""
    rng = random.Random(seed)
    yield '{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},\n"traceEvents": [\n'
    now, device, comm, written, correlation, step = 10**15, 10**15 + 50_000, 10**15, 0, 1, 0
    target = mebibytes << 20
    while written < target or step < 3:
        lines, begin = [], now
        for _ in range(2000):
            kind = rng.randrange(40)
            length = rng.randrange(1000, 40_000)
            lines.append(f'{{"ph": "X", "cat": "cpu_op", "name": "aten::op{kind}", "pid": 7, "tid": 7, "ts": {micros(now)}, '
                         f'"dur": {micros(length)}, "args": {{"External id": {correlation}, "Sequence number": {correlation}, '
                         f'"Fwd thread id": 0, "Input Dims": [[8, 1024, {kind}], []], "Input type": ["float", ""], '
                         f'"Ev Idx": {correlation}}}}}')
            lines.append(f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, '
                         f'"ts": {micros(now + 500)}, "dur": 3.217, "args": {{"External id": {correlation}, "cbid": 211, '
                         f'"correlation": {correlation}}}}}')
            collective = kind == 0
            stream = 20 if collective else 7
            start = max(comm if collective else device, now + 8000) + rng.randrange(3000)
            duration = rng.randrange(100_000, 900_000) if collective else rng.randrange(900, 60_000)
            if collective:
                comm = start + duration
            else:
                device = start + duration
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)" if collective else KERNELS[kind % 3]
            extra = ', "Collective name": "allreduce", "In msg nelems": 6637568, "Out msg nelems": 6637568, "Group size": 8, ' \
                    '"dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"' if collective else ""
            lines.append(f'{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {micros(start)}, '
                         f'"dur": {micros(duration)}, "args": {{"External id": {correlation}, "queued": 0, "device": 0, '
                         f'"context": 1, "stream": {stream}, "correlation": {correlation}, "registers per thread": 40, '
                         f'"shared memory": 400, "grid": [512, 1, 1], "block": [512, 1, 1]{extra}}}}}')
            lines.append(f'{{"ph": "s", "id": {correlation}, "pid": 7, "tid": 7, "ts": {micros(now + 500)}, "cat": "ac2g", '
                         f'"name": "ac2g"}}')
            correlation += 1
            now += length
        lines.append(f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 7, "tid": 7, '
                     f'"ts": {micros(begin)}, "dur": {micros(now - begin)}, "args": {{}}}}')
        piece = ",\n".join(lines) + ",\n"
        step += 1
        written += len(piece)
        yield piece
    yield '{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 1000000000000.000, "args": {"name": "python"}}\n]}\n'


def merged(intervals):
    result, latest = [], None
    for start, end in sorted(intervals, key=lambda interval: interval[0]):
        if latest is None or start > latest:
            result.append([start, end])
        else:
            result[-1][1] = max(result[-1][1], end)
        latest = end if latest is None else max(latest, end)
    return result


def length(intervals):
    return sum(end - start for start, end in intervals)


def overlap(first, second):
    changes = sorted([(s, 1) for s, _ in first] + [(e, -1) for _, e in first] + [(s, 2) for s, _ in second] + [(e, -2) for _, e in second])
    running = total = 0
    for (at, by), (following, _) in zip(changes, changes[1:]):
        running += by
        total += following - at if running == 3 else 0
    return total


def python_pass(file):
    """json.load and what HTA does with it, without pandas."""
    with (gzip.open if file.endswith(".gz") else open)(file, "rb") as stream:
        events = [event for event in json.load(stream)["traceEvents"] if event["ph"] == "X"]
    steps = [math.ceil(event["ts"]) for event in events if event["name"].startswith("ProfilerStep#")]
    launched = {event["args"]["correlation"] for event in events
                if event["cat"] == "cuda_runtime" and math.ceil(event["ts"]) < max(steps)}
    by_kind = {"compute": [], "communication": [], "memory": []}
    for event in events:
        if event["cat"] != "kernel" or event["args"]["correlation"] not in launched:
            continue
        name = event["name"]
        kind = "communication" if name.startswith("nccl") else "memory" if name.startswith("Mem") else "compute"
        by_kind[kind].append((math.ceil(event["ts"]), math.floor(event["ts"] + event["dur"])))
    busy = merged([interval for kind in by_kind.values() for interval in kind])
    compute, communication = merged(by_kind["compute"]), merged(by_kind["communication"])
    kernel = busy[-1][1] - busy[0][0]
    idle = kernel - length(busy)
    return {"kernel_us": kernel, "idle_us": idle, "compute_us": length(compute),
            "non_compute_us": kernel - length(compute) - idle, "communication_us": length(communication),
            "overlapped_us": overlap(communication, compute)}


def measured(command):
    """Output of the command, its processor seconds, wall seconds and peak memory in bytes."""
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise Broken(f"{' '.join(command)}: exit code {process.returncode}")
    return {"output": json.loads(output), "cpu_s": usage.ru_utime + usage.ru_stime, "wall_s": time.monotonic() - begin,
            "peak_bytes": usage.ru_maxrss * 1024}


def write_trace(path, mebibytes, seed):
    size = 0
    with (gzip.open(path, "wt", compresslevel=6) if path.endswith(".gz") else open(path, "w", encoding="ascii")) as file:
        for piece in trace_text(mebibytes, seed):
            size += len(piece)
            file.write(piece)
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("weft")
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-peer", action="store_true", help="for traces that Python cannot hold")
    parser.add_argument("--out")
    parser.add_argument("--require", action="store_true")
    add_record_flags(parser)
    options = parser.parse_args()
    machine = Machine()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / ("trace.json.gz" if options.gzip else "trace.json"))
        size = write_trace(file, options.mebibytes, options.seed)
        on_disk = os.path.getsize(file)
        ours = measured([options.weft, "analyze", "--json", file])
        peer = None if options.no_peer else measured([sys.executable, __file__, "--python-pass", file])
    rank = ours["output"]["ranks"][0]
    if peer:
        for key, value in peer["output"].items():
            if rank[key] != value:
                raise Broken(f"{key}: weft says {rank[key]}, Python {value}")
    rows = {"weft": ours} | ({"python": peer} if peer else {})
    figures = {"uncompressed_bytes": size, "file_bytes": on_disk, "kernels": rank["kernels"]}
    print(f"{size / 1e6:.0f} MB of JSON, {on_disk / 1e6:.0f} MB on disk, {rank['kernels']} kernels counted")
    for name, row in rows.items():
        figures[name] = {"cpu_s": row["cpu_s"], "wall_s": row["wall_s"], "mb_per_s": size / 1e6 / row["cpu_s"],
                         "memory_ratio": row["peak_bytes"] / size}
        print(f"{name:8} {row['cpu_s']:8.2f} s of processor time ({row['wall_s']:.2f} s by the clock), "
              f"{figures[name]['mb_per_s']:7.1f} MB/s, peak memory {row['peak_bytes'] / 1e6:.0f} MB "
              f"= {figures[name]['memory_ratio']:.2f} x the JSON")
    if peer:
        print(f"weft is {peer['cpu_s'] / ours['cpu_s']:.1f} times as fast; both give the same numbers")
    headline = {"megabytes": size / 1e6, "mb_per_s": figures["weft"]["mb_per_s"],
                "memory_ratio": figures["weft"]["memory_ratio"]}
    if peer:
        headline |= {"python_mb_per_s": figures["python"]["mb_per_s"],
                     "python_memory_ratio": figures["python"]["memory_ratio"]}
    record_if_asked("analyze_speed", headline, options)
    if options.out:
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        Path(options.out).write_text(json.dumps({"machine": machine.end(), **figures}, indent=1) + "\n")
    met = figures["weft"]["mb_per_s"] >= GOAL_MB_PER_S and figures["weft"]["memory_ratio"] <= GOAL_MEMORY
    return 0 if met or not options.require else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--python-pass"]:
        print(json.dumps(python_pass(sys.argv[2])))
        sys.exit(0)
    sys.exit(main())
