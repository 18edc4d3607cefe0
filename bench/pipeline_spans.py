#!/usr/bin/env python3
"""Why the gain of a pipeline schedule differs from the predicted one: measured spans beside calibrated ones.

    bench/pipeline_spans.py build/release/weft                  # 4 ranks as threads, one profile for all schedules
    bench/pipeline_spans.py build/release/weft --seconds 120 --only 1f1b,zb-h1

For every schedule three tables: the step predicted, measured and *replayed* (the plan's own dependencies with other durations:
all calibrated; compute as measured; compute and transfers as measured); compute by phase, measured over calibrated; and what
lies between operations. The replay that first jumps to the measured step names the culprit. All schedules use one profile, and
1f1b runs first and last, which shows the machine's drift.
"""

import argparse
import collections
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import bench_kit as kit

SCHEDULES = ["1f1b", "zb-h1", "zbv", "dualpipev", "hanayo", "auto", "1f1b"]
WARM_ITERATIONS = 4


class Timeline:
    """A measured timeline: durations by operation, and what every operation waits for."""

    def __init__(self, path):
        said = json.loads(Path(path).read_text())
        self.names, self.operations, steady = said["names"], said["operations"], said["steady"]
        kept = range(steady["first"], steady["first"] + steady["periods"])
        self.spans = [span for span in said["spans"] if span[1] in kept]
        self.periods = steady["periods"]
        self.end = {(span[0], span[1]): span[5] for span in said["spans"]}
        lengths = collections.defaultdict(list)
        for operation, _, _, _, start, end in self.spans:
            lengths[operation].append(end - start)
        self.alone = [operation["alone"] for operation in self.operations]
        self.measured = [statistics.mean(lengths[i]) if i in lengths else self.alone[i] for i in
                         range(len(self.operations))]

    def is_transfer(self, operation):
        return "traffic" in self.operations[operation]

    def phase(self, operation):
        name = self.names[self.operations[operation]["phase"]]
        return f"{self.operations[operation]['traffic']} message" if self.is_transfer(operation) else name

    def replay(self, lengths):
        """The step's period where every operation takes its length and starts when what it waits for has ended."""
        node_of, nodes = {}, 0
        by_transfer = {}
        for i, operation in enumerate(self.operations):
            number = operation.get("transfer", -1)
            if number >= 0 and number in by_transfer:
                node_of[i] = by_transfer[number]
                continue
            node_of[i] = nodes
            if number >= 0:
                by_transfer[number] = nodes
            nodes += 1
        length, waits = [0] * nodes, [set() for _ in range(nodes)]
        for i, operation in enumerate(self.operations):
            node = node_of[i]
            length[node] = max(length[node], lengths[i])
            for other, distance, _ in operation.get("waits", []):
                if node_of[other] != node or distance:
                    waits[node].add((node_of[other], distance))
        order = self.sorted(nodes, waits)
        before, steps = [0] * nodes, []
        for _ in range(WARM_ITERATIONS):
            now = [0] * nodes
            for node in order:
                now[node] = length[node] + max([now[o] if d == 0 else before[o] for o, d in waits[node]], default=0)
            steps.append(max(now))
            before = now
        return steps[-1] - steps[-2]

    @staticmethod
    def sorted(nodes, waits):
        left = [sum(1 for _, distance in waits[node] if distance == 0) for node in range(nodes)]
        behind = [[] for _ in range(nodes)]
        for node in range(nodes):
            for other, distance in waits[node]:
                if distance == 0:
                    behind[other].append(node)
        order = [node for node in range(nodes) if left[node] == 0]
        for node in order:
            for other in behind[node]:
                left[other] -= 1
                if left[other] == 0:
                    order.append(other)
        if len(order) != nodes:
            raise kit.Broken("operations of the timeline wait for each other")
        return order

    def replays(self):
        mixed = [self.alone[i] if self.is_transfer(i) else self.measured[i] for i in range(len(self.operations))]
        return [self.replay(lengths) for lengths in (self.alone, mixed, self.measured)]

    def by_phase(self):
        """Phase -> operations of a step, calibrated and measured nanoseconds of a step, all ranks together."""
        rows = collections.defaultdict(lambda: [0, 0, 0])
        for i in range(len(self.operations)):
            row = rows[self.phase(i)]
            row[0], row[1], row[2] = row[0] + 1, row[1] + self.alone[i], row[2] + self.measured[i]
        return rows

    def slowest_operations(self, count):
        """Kinds of operations by what they take longer than calibrated in a step, all ranks together."""
        rows = collections.defaultdict(lambda: [0, 0, 0])
        for i, operation in enumerate(self.operations):
            words = self.names[operation["name"]].split()
            row = rows[" ".join(words[2:] if words[0] == "layer" else words)]
            row[0], row[1], row[2] = row[0] + 1, row[1] + self.alone[i], row[2] + self.measured[i]
        return sorted(rows.items(), key=lambda item: -abs(item[1][2] - item[1][1]))[:count]

    def gaps(self):
        """Microseconds from the end of the last operation waited for to the start: behind compute, and behind a transfer."""
        found = {"compute behind compute": [], "compute behind a transfer": [], "a transfer behind compute": [],
                 "a transfer behind a transfer": []}
        first_start = {}
        for operation, iteration, _, _, start, _ in self.spans:
            key = (self.operations[operation].get("transfer", -1), iteration)
            if key[0] >= 0:
                first_start.setdefault(key, []).append((operation, start))
        def last_wait(operation, iteration):
            waits = [(self.end[(o, iteration - d)], o) for o, d, _ in self.operations[operation].get("waits", [])
                     if (o, iteration - d) in self.end]
            return max(waits, default=None)
        for operation, iteration, _, _, start, _ in self.spans:
            number = self.operations[operation].get("transfer", -1)
            if number >= 0:
                members = first_start[(number, iteration)]
                if members[0][0] != operation:
                    continue
                waited = max((w for w in (last_wait(o, iteration) for o, _ in members) if w), default=None)
                start = min(s for _, s in members)
            else:
                waited = last_wait(operation, iteration)
            if waited is None:
                continue
            what = "a transfer" if self.is_transfer(operation) else "compute"
            behind = "a transfer" if self.is_transfer(waited[1]) else "compute"
            found[f"{what} behind {behind}"].append((start - waited[0]) / 1e3)
        return found


def measure(schedule, flags, profile, options, shell, folder):
    report = shell.json([options.weft, "run", *flags, "--schedule", schedule, "--policy", "weft", "--budget", options.budget,
                         "--steps", options.steps, "--profile", profile, "--json", "--out", folder])
    policy = kit.policy_of(report, "weft")
    return policy, Timeline(folder / "timeline.json")


def print_schedule(schedule, policy, timeline, base):
    alone, compute, all_measured = (value / 1e6 for value in timeline.replays())
    measured, predicted = 1e3 * policy["step_median_s"], 1e3 * policy["predicted_step_s"]
    steps = " ".join(f"{1e3 * step:.0f}" for step in policy["steps_s"])
    print(f"\n== {schedule}: measured {measured:.1f} ms (steps {steps}), predicted {predicted:.1f} ms "
          f"({100 * (predicted / measured - 1):+.1f} %), loss {policy['loss']:.6f}")
    print(f"   replayed with calibrated durations {alone:.1f} ms, with measured compute {compute:.1f} ms, with measured "
          f"transfers too {all_measured:.1f} ms")
    if base:
        print(f"   gain over 1f1b: measured {100 * (base[0] / measured - 1):+.1f} %, predicted "
              f"{100 * (base[1] / predicted - 1):+.1f} %")
    rows = [[phase, str(count), f"{a / 1e6:.1f}", f"{m / 1e6:.1f}", f"{m / a if a else 0:.2f}"]
            for phase, (count, a, m) in sorted(timeline.by_phase().items())]
    kit.print_table(["phase (all ranks)", "operations", "calibrated ms", "measured ms", "ratio"], rows)
    rows = [[name, str(count), f"{a / 1e6:.2f}", f"{m / 1e6:.2f}", f"{m / a if a else 0:.2f}"]
            for name, (count, a, m) in timeline.slowest_operations(6)]
    kit.print_table(["furthest off", "operations", "calibrated ms", "measured ms", "ratio"], rows)
    rows = []
    for what, gaps in timeline.gaps().items():
        if gaps:
            rows.append([what, str(len(gaps) // timeline.periods), f"{statistics.median(gaps):.1f}",
                         f"{sorted(gaps)[len(gaps) * 9 // 10]:.1f}", f"{sum(gaps) / timeline.periods / 1e3:.2f}"])
    kit.print_table(["time between", "in a step", "median us", "9 of 10 below", "sum ms"], rows)
    return measured, predicted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--rate", type=int, default=1000, help="megabits a second of every paced link")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--budget", type=float, default=1, help="seconds of search for each schedule")
    parser.add_argument("--calibrate-seconds", type=int, default=8)
    parser.add_argument("--only", help="schedules, with commas")
    parser.add_argument("--seconds", type=float, default=140, help="begin no schedule after so many")
    kit.add_common_flags(parser)
    options = parser.parse_args()
    begin = time.monotonic()
    machine, shell = kit.Machine(), kit.Shell(options.timeout, options.verbose)
    flags = ["--hidden", options.hidden, "--heads", 4, "--no-dropout", "--precision", "fp32", "--micro-batch", 1, "--layers",
             options.layers, "--pp", options.ranks, "--global-batch", options.micro_batches, "--seq", options.seq, "--cluster",
             f"local:{options.ranks},nic={options.rate}Mb/s", "--threads", 1]
    schedules, results, base = options.only.split(",") if options.only else SCHEDULES, {}, None
    with tempfile.TemporaryDirectory() as folder:
        said = shell.run([options.weft, "calibrate", *flags, "--schedule", schedules[0], "--policy", "weft", "--budget",
                          options.budget, "--calibrate-seconds", options.calibrate_seconds, "--out", folder])
        print("\n".join(line for line in said.splitlines() if "between operations" in line))
        device = json.loads((Path(folder) / "profile.json").read_text())["devices"]["cpu"]
        print({key: value for key, value in device.items() if key.endswith(("_us", "_slowdown"))})
        for place, schedule in enumerate(schedules):
            if time.monotonic() - begin > options.seconds:
                print(f"\n== {schedule}: not run, {options.seconds:.0f} s are over")
                continue
            policy, timeline = measure(schedule, flags, Path(folder) / "profile.json", options, shell,
                                       Path(folder) / f"run-{place}")
            times = print_schedule(schedule, policy, timeline, base)
            base = base or times
            results[f"{place} {schedule}"] = {"measured_ms": times[0], "predicted_ms": times[1], "loss": policy["loss"],
                                              "other_cores": shell.other_cores}
            sys.stdout.flush()
    print(f"\n{time.monotonic() - begin:.0f} s in all")
    return kit.finish("pipeline_spans", machine, shell, {"schedules": results}, options)


if __name__ == "__main__":
    kit.run_main(main)
