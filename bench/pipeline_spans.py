#!/usr/bin/env python3
"""Why the gain of a pipeline schedule differs from the predicted one: measured spans beside calibrated ones.

    bench/pipeline_spans.py build/release/weft                  # 4 ranks as threads, one profile for all schedules
    bench/pipeline_spans.py build/release/weft --seconds 120 --only 1f1b,zb-h1

For every schedule: the step predicted, measured and *replayed* (the plan's own dependencies with other durations: all calibrated;
compute as measured; compute and transfers as measured); compute by phase and by rank, measured over calibrated; and what lies
between operations. The replay that first jumps to the measured step names the culprit. All schedules use one profile and run in
rounds, one after the other, so that a machine that becomes slower becomes it for all. Last, the gains over 1f1b of the same round:
predicted, replayed with what compute took, measured. A pipeline waits for its slowest rank: where ranks differ by 10 %, so do gains.
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

SCHEDULES = ["1f1b", "zb-h1", "zbv", "dualpipev", "hanayo", "auto"]
GOAL_POINTS = 5
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

    def by_rank(self):
        """Measured over calibrated compute of each rank."""
        sums = collections.defaultdict(lambda: [0, 0])
        for i, operation in enumerate(self.operations):
            if not self.is_transfer(i):
                sums[operation["rank"]][0] += self.alone[i]
                sums[operation["rank"]][1] += self.measured[i]
        return [measured / alone for _, (alone, measured) in sorted(sums.items())]

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
    pinned = ["taskset", "-c", options.cpus] if options.cpus else []
    report = shell.json([*pinned, options.weft, "run", *flags, "--schedule", schedule, "--policy", "weft", "--budget",
                         options.budget, "--steps", options.steps, "--profile", profile, "--json", "--out", folder])
    policy = kit.policy_of(report, "weft")
    timeline = Timeline(folder / "timeline.json")
    replays = [value / 1e6 for value in timeline.replays()]
    return policy, timeline, {"measured": 1e3 * policy["step_median_s"], "predicted": 1e3 * policy["predicted_step_s"],
                              "replayed": replays[1], "replays": replays, "ranks": timeline.by_rank()}


def print_schedule(schedule, policy, timeline, times):
    steps = " ".join(f"{1e3 * step:.0f}" for step in policy["steps_s"])
    print(f"\n== {schedule}: measured {times['measured']:.1f} ms (steps {steps}), predicted {times['predicted']:.1f} ms "
          f"({100 * (times['predicted'] / times['measured'] - 1):+.1f} %), loss {policy['loss']:.6f}")
    alone, compute, all_measured = times["replays"]
    print(f"   replayed with calibrated durations {alone:.1f} ms, with measured compute {compute:.1f} ms, with measured "
          f"transfers too {all_measured:.1f} ms")
    print("   compute of each rank over calibrated: " + " ".join(f"{ratio:.3f}" for ratio in times["ranks"]))
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


def print_gains(rounds):
    """Gains over 1f1b of the same round, in percent; of several rounds the median. Returns the goals."""
    rows, goals = [], []
    for schedule in [name for name in rounds[0] if name != "1f1b"]:
        both = [r for r in rounds if schedule in r and "1f1b" in r]
        gain = {key: statistics.median(100 * (r["1f1b"][key] / r[schedule][key] - 1) for r in both)
                for key in ("predicted", "replayed", "measured")}
        rows.append([schedule, *(f"{gain[key]:+.1f} %" for key in ("predicted", "replayed", "measured")),
                     f"{gain['measured'] - gain['predicted']:+.1f}", f"{gain['measured'] - gain['replayed']:+.1f}"])
        goals.append((schedule, gain))
    print(f"\ngains over 1f1b, median of {len(rounds)} rounds")
    kit.print_table(["schedule", "predicted", "with measured compute", "measured", "points off", "points off the replay"], rows)
    return [kit.verdict(f"{schedule}: points off the predicted gain", abs(gain["measured"] - gain["predicted"]), GOAL_POINTS,
                        abs(gain["measured"] - gain["predicted"]) <= GOAL_POINTS) for schedule, gain in goals]


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
    parser.add_argument("--only", help="schedules, with commas; 1f1b among them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brief", action="store_true", help="a line for each schedule and the gains, without the tables")
    parser.add_argument("--cpus", metavar="LIST", help="run on these processors alone, as taskset -c takes them")
    parser.add_argument("--seconds", type=float, default=140, help="begin no schedule after so many")
    kit.add_common_flags(parser)
    options = parser.parse_args()
    begin = time.monotonic()
    machine, shell = kit.Machine(), kit.Shell(options.timeout, options.verbose)
    flags = ["--hidden", options.hidden, "--heads", 4, "--no-dropout", "--precision", "fp32", "--micro-batch", 1, "--layers",
             options.layers, "--pp", options.ranks, "--global-batch", options.micro_batches, "--seq", options.seq, "--cluster",
             f"local:{options.ranks},nic={options.rate}Mb/s", "--threads", 1]
    schedules, rounds = options.only.split(",") if options.only else SCHEDULES, []
    with tempfile.TemporaryDirectory() as folder:
        pinned = ["taskset", "-c", options.cpus] if options.cpus else []
        said = shell.run([*pinned, options.weft, "calibrate", *flags, "--schedule", "zb-h1", "--policy", "weft", "--budget",
                          options.budget, "--calibrate-seconds", options.calibrate_seconds, "--out", folder])
        print("\n".join(line for line in said.splitlines() if "between operations" in line))
        device = json.loads((Path(folder) / "profile.json").read_text())["devices"]["cpu"]
        print({key: value for key, value in device.items() if key.endswith(("_us", "_slowdown"))})
        for number in range(options.rounds):
            rounds.append({})
            for schedule in schedules:
                if time.monotonic() - begin > options.seconds:
                    print(f"\n== {schedule}: not run, {options.seconds:.0f} s are over")
                    continue
                policy, timeline, times = measure(schedule, flags, Path(folder) / "profile.json", options, shell,
                                                  Path(folder) / f"{number}-{schedule}")
                rounds[-1][schedule] = {**times, "loss": policy["loss"], "other_cores": shell.other_cores}
                if number == 0 and not options.brief:
                    print_schedule(schedule, policy, timeline, times)
                else:
                    ranks = " ".join(f"{ratio:.3f}" for ratio in times["ranks"])
                    print(f"round {number + 1}, {schedule}: predicted {times['predicted']:.1f} ms, replayed with measured compute "
                          f"{times['replayed']:.1f} ms, measured {times['measured']:.1f} ms; ranks {ranks}")
                sys.stdout.flush()
    goals = print_gains([r for r in rounds if r])
    print(f"\n{time.monotonic() - begin:.0f} s in all")
    return kit.finish("pipeline_spans", machine, shell, {"rounds": rounds, "goals": goals}, options)


if __name__ == "__main__":
    kit.run_main(main)
