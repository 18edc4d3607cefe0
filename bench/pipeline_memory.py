#!/usr/bin/env python3
"""Bubbles at equal memory, by prediction: the pipelines of planner_suite.json with 1F1B, and with what is searched for.

    bench/pipeline_memory.py build/release/weft                       # all pipelines of the suite
    bench/pipeline_memory.py build/release/weft --only 39b --budget 1

For every case: the bubble of `1f1b`; the bubble of the fastest `auto` (one chunk a stage, or two) whose memory is no more than
1F1B's; the bubble of `v-half`; and that of the fastest `auto` in no more than v-half's memory. A bubble is what a rank waits for
passes of other stages, in the mean over ranks, as a share of the time that a rank computes. Goals: the median of auto's bubble over
1F1B's is at most a third, and `auto` is at most v-half's in its memory.
"""

import argparse
import concurrent.futures
import json
import math
import shlex
import statistics
import sys
from pathlib import Path

import bench_kit as kit

GOAL_SHARE = 1 / 3


def flags_of(case):
    """The case's flags without its model chunks and schedule, which are what is compared here."""
    words, kept = shlex.split(case["flags"]), []
    while words:
        word = words.pop(0)
        if word in ("--vpp", "--schedule"):
            words.pop(0)
        else:
            kept.append(word)
    return kept


def plan(options, shell, flags, schedule, memory=None, chunks=None):
    """The figures of policy `weft`, or None where the layout has no such schedule or nothing fits."""
    command = [options.weft, "plan", *flags, "--schedule", schedule, "--policy", "weft", "--budget", options.budget, "--json"]
    if chunks:
        command += ["--vpp", chunks]
    if memory:
        command += ["--memory", f"{math.ceil(1e3 * memory / 2**30) / 1e3:.3f}"]
    try:
        said = shell.run(command, accepted=(0, 1))
    except kit.Broken as error:
        if "exit code 2" in str(error) and schedule != "1f1b":
            return None
        raise
    policy = kit.policy_of(json.loads(said), "weft")
    busy = policy["compute_s"] + policy["slowdown_s"]
    return {"step_s": policy["step_s"], "bubble": policy["bubble_s"] / busy, "exposed": policy["exposed_comm_s"] / busy,
            "memory": policy["memory_peak_bytes"], "fits": policy["fits"]}


def searched(options, shell, flags, memory):
    plans = [plan(options, shell, flags, "auto", memory, chunks) for chunks in (1, 2)]
    plans = [p for p in plans if p and (p["fits"] or memory is None)]
    return min(plans, key=lambda p: p["step_s"], default=None)


def run_case(case, options, shell):
    flags = flags_of(case)
    base, half = plan(options, shell, flags, "1f1b"), plan(options, shell, flags, "v-half")
    # Where it needs more than a device has, the search has all of the device.
    return {"name": case["name"], "1f1b": base, "v-half": half,
            "equal": searched(options, shell, flags, base["memory"] if base["fits"] else None),
            "half": searched(options, shell, flags, half["memory"]) if half and half["fits"] else None}


def figure(what, key="bubble"):
    return "-" if what is None else f"{100 * what[key]:.1f} %"


def share(result):
    return result["equal"]["bubble"] / result["1f1b"]["bubble"] if result["equal"] and result["1f1b"]["bubble"] else None


def print_rows(results):
    rows = []
    for r in results:
        faster = 100 * (r["1f1b"]["step_s"] / r["equal"]["step_s"] - 1) if r["equal"] else 0
        memory = r["v-half"]["memory"] / r["1f1b"]["memory"] if r["v-half"] else None
        rows.append([r["name"], figure(r["1f1b"]), figure(r["equal"]), "-" if share(r) is None else f"{share(r):.2f}",
                     f"{faster:+.1f} %", figure(r["v-half"]), "-" if memory is None else f"{memory:.2f}", figure(r["half"])])
    kit.print_table(["case", "1f1b's bubble", "auto's", "share", "faster", "v-half's", "of the memory", "auto's there"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", type=Path)
    parser.add_argument("--suite", type=Path, default=Path(__file__).parent / "planner_suite.json")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--budget", type=float, default=2, help="seconds of search for each plan")
    parser.add_argument("--jobs", type=int, default=1, help="cases side by side")
    kit.add_common_flags(parser)
    options = parser.parse_args()
    machine, shell = kit.Machine(), kit.Shell(options.timeout, options.verbose)
    cases = [c for c in json.loads(options.suite.read_text())["cases"] if " --pp " in c["flags"]]
    cases = [c for c in cases if not options.only or options.only in c["name"]]

    def one(case):
        result = run_case(case, options, shell)
        print(f"{case['name']}: {figure(result['1f1b'])} with 1f1b, {figure(result['equal'])} with auto", file=sys.stderr)
        return result

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(one, cases))
    print_rows(results)
    shares = [share(r) for r in results if share(r) is not None]
    goals = []
    if shares:
        median = statistics.median(shares)
        goals.append(kit.verdict("median of auto's bubble over 1f1b's in its memory", median, f"{GOAL_SHARE:.2f}",
                                 median <= GOAL_SHARE))
    both = [r for r in results if r["half"] and r["v-half"]]
    below = sum(r["half"]["bubble"] <= r["v-half"]["bubble"] + 1e-9 for r in both)
    compared = [r for r in results if r["equal"]]
    faster = [100 * (r["1f1b"]["step_s"] / r["equal"]["step_s"] - 1) for r in compared]
    figures = {"cases": len(results), "share_median": statistics.median(shares or [math.nan]),
               "bubble_1f1b_median_pct": 100 * statistics.median([r["1f1b"]["bubble"] for r in results]),
               "bubble_median_pct": 100 * statistics.median([r["equal"]["bubble"] for r in compared] or [math.nan]),
               "faster_max_pct": max(faster, default=math.nan), "at_most_v_half": below, "v_half_cases": len(both)}
    if both:
        goals.append(kit.verdict("cases with auto's bubble at most v-half's in its memory", below, len(both),
                                 below == len(both)))
    return kit.finish("pipeline_memory", machine, shell, {"cases": results, "figures": figures, "goals": goals}, options)


if __name__ == "__main__":
    kit.run_main(main)
