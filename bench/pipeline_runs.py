#!/usr/bin/env python3
"""Pipeline schedules for real: what each gains over 1F1B, measured beside predicted.

    bench/pipeline_runs.py build/release/weft                    # ranks are threads, links are paced
    bench/pipeline_runs.py build/release/weft --only "4 ranks" --steps 20
    bench/pipeline_runs.py build/release/weft --only "4 ranks, 1 micro" --steps 5      # slices of one long sequence

Every schedule is calibrated with its own operations and then run with policy `weft`. Gains are of medians. Goal: the gain
over 1F1B is within 5 points of the predicted one, and slices of one long sequence are at least 1.5 times as fast on 4 ranks.
Needs a core for every rank and one for their messages: run it on a quiet machine.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import bench_kit as kit

SHAPE = ["--hidden", 256, "--heads", 4, "--no-dropout", "--precision", "fp32", "--micro-batch", 1]
GOAL_POINTS, GOAL_SLICES = 5, 1.5


def case(ranks, micro_batches, seq, schedules, layers_of_stage=4):
    return {"name": f"{ranks} ranks, {micro_batches} micro-batches of {seq}", "ranks": ranks,
            "flags": ["--layers", layers_of_stage * ranks, "--pp", ranks, "--global-batch", micro_batches, "--seq", seq],
            "schedules": {"1f1b": ["--schedule", "1f1b"], **schedules}}


SPLIT = {"zb-h1": ["--schedule", "zb-h1"], "zbv": ["--schedule", "zbv"], "dualpipev": ["--schedule", "dualpipev"],
         "hanayo": ["--schedule", "hanayo"], "searched": ["--schedule", "auto"]}
SLICES = {"slices": ["--slices", 8], "slices, zb-h1": ["--slices", 8, "--schedule", "zb-h1"]}
# Attention to 4096 tokens takes seconds a layer on one core: one layer a stage shows what slices gain.
CASES = [case(2, 8, 256, SPLIT), case(4, 8, 256, SPLIT), case(2, 2, 4096, SLICES, 1), case(4, 1, 4096, SLICES, 1)]


def run_schedule(name, flags, options, shell, folder):
    out = Path(folder) / name.replace(" ", "-").replace(",", "")
    shell.run([options.weft, "calibrate", *flags, "--policy", "weft", "--budget", options.budget, "--calibrate-seconds",
               options.calibrate_seconds, "--out", out])
    report = shell.json([options.weft, "run", *flags, "--policy", "weft", "--budget", options.budget, "--steps",
                         options.steps, "--profile", out / "profile.json", "--json"])
    policy = kit.policy_of(report, "weft")
    return {**{key: policy[key] for key in ("step_median_s", "predicted_step_s", "loss")},
            "other_cores": shell.other_cores}


def run_case(what, options, shell, folder):
    flags = [*SHAPE, *what["flags"], "--cluster", f"local:{what['ranks']},nic={options.rate}Mb/s", "--threads", 1]
    result = {"name": what["name"], "schedules": {}}
    for name, own in what["schedules"].items():
        result["schedules"][name] = run_schedule(name, [*flags, *own], options, shell, folder)
    return result


def gains(result):
    """By schedule: how many percent faster than 1F1B, measured and predicted."""
    base = result["schedules"]["1f1b"]
    return {name: tuple(100 * (base[key] / s[key] - 1) for key in ("step_median_s", "predicted_step_s"))
            for name, s in result["schedules"].items()}


def print_case(result):
    rows = []
    for name, (measured, predicted) in gains(result).items():
        s = result["schedules"][name]
        rows.append([name, f"{1e3 * s['step_median_s']:.0f}", f"{1e3 * s['predicted_step_s']:.0f}",
                     f"{100 * (s['predicted_step_s'] / s['step_median_s'] - 1):+.1f} %", f"{measured:+.1f} %",
                     f"{predicted:+.1f} %", f"{s['loss']:.6f}", f"{s['other_cores']:.1f}"])
    print(f"\n{result['name']}")
    kit.print_table(["schedule", "measured ms", "predicted ms", "error", "gain", "predicted", "loss", "others' cores"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", type=Path)
    parser.add_argument("--rate", type=int, default=1000, help="megabits a second of every paced link")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--budget", type=float, default=2, help="seconds of search for each schedule")
    parser.add_argument("--calibrate-seconds", type=int, default=10)
    kit.add_common_flags(parser)
    options = parser.parse_args()
    machine, shell, results = kit.Machine(), kit.Shell(options.timeout, options.verbose), []
    with tempfile.TemporaryDirectory() as folder:
        for what in CASES:
            if options.only and options.only not in what["name"]:
                continue
            results.append(run_case(what, options, shell, folder))
            print_case(results[-1])
            sys.stdout.flush()
    print()
    goals, off, best = [], [], []
    for result in results:
        losses = [s["loss"] for s in result["schedules"].values()]
        same = max(losses) - min(losses) <= 1e-5 * min(losses)
        goals.append(kit.verdict(f"{result['name']}: all schedules train alike", max(losses) - min(losses),
                                 1e-5 * min(losses), same))
        for name, (measured, predicted) in gains(result).items():
            if name == "1f1b":
                continue
            off.append(abs(measured - predicted))
            best.append(measured)
            goals.append(kit.verdict(f"{result['name']}, {name}: points off the predicted gain", off[-1], GOAL_POINTS,
                                     off[-1] <= GOAL_POINTS))
            if name == "slices" and result["name"].startswith("4 ranks"):
                times = 1 + measured / 100
                goals.append(kit.verdict(f"{result['name']}: times as fast in slices", times, GOAL_SLICES,
                                         times >= GOAL_SLICES))
    headline = {"cases": len(results), "gain_max_pct": max(best), "gain_off_by_points": max(off)}
    return kit.finish("pipeline_runs", machine, shell, {"cases": results, "goals": goals, "figures": headline}, options)


if __name__ == "__main__":
    kit.run_main(main)
