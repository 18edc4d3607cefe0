#!/usr/bin/env python3
"""Predicted against measured steps of paced ranks: four partitions of one GPU with emulated links, in six layouts.

    bench/gpu_paced.py build/cuda/weft                      # the six layouts, shapes that nothing was tuned on
    bench/gpu_paced.py build/cuda/weft --set other          # six others
    bench/gpu_paced.py build/cuda/weft --only "tp 4"        # of the names; also --dry-run
    bench/gpu_paced.py build/cuda/weft --keep out/paced     # keeps the report of every layout

A layout is one command (`weft run --device cuda --cluster gpu:4,link=...`): it measures the GPU, tries steps, and then trains under
each policy in turn. Errors are (predicted - measured) / measured, against the median step; gain: how much faster `weft` is than the
best other policy of its layout. Goals: |error| 5 % in the median and 10 % at worst, `weft` the fastest or within 1 %, gains
within 5 points of the predicted ones.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import bench_kit as kit

SP = "--sequence-parallel"
SHAPE = {"layers": 8, "hidden": 1536, "heads": 12, "vocab": 16384, "seq": 1024}
WIDE = {"layers": 6, "hidden": 2048, "heads": 16, "vocab": 8192, "seq": 2048}
NARROW = {"layers": 16, "hidden": 1024, "heads": 16, "vocab": 32768, "seq": 512}
EXPERTS = ["--experts", 8, "--top-k", 2, "--capacity-factor", 1.25, "--moe-every", 2, "--expert-exchange", "padded", "--ep", 4]


class Case(NamedTuple):
    name: str
    link: str
    shape: dict
    flags: list
    policies: list


SETS = {
    "issue": [
        Case("tp 4 + sp", "90GB/s", SHAPE, ["--tp", 4, SP, "--micro-batch", 8], ["serial", "megatron", "centauri", "weft"]),
        Case("tp 2 x dp 2, zero 1", "30GB/s", SHAPE, ["--tp", 2, "--zero", 1, "--micro-batch", 8], ["serial", "megatron", "weft"]),
        Case("dp 4, zero 1", "10GB/s", SHAPE, ["--zero", 1, "--micro-batch", 8], ["serial", "megatron", "weft"]),
        Case("pp 4", "10GB/s", SHAPE, ["--pp", 4, "--micro-batch", 2, "--global-batch", 16], ["serial", "megatron", "weft"]),
        Case("ep 4, top 2", "20GB/s", SHAPE, [*EXPERTS, "--micro-batch", 4], ["serial", "tutel", "weft"]),
        Case("dp 4, zero 3", "10GB/s", SHAPE, ["--zero", 3, "--micro-batch", 8], ["serial", "fsdp", "weft"]),
    ],
    "other": [
        Case("tp 2 + sp x dp 2", "50GB/s", WIDE, ["--tp", 2, SP, "--micro-batch", 4], ["serial", "megatron", "weft"]),
        Case("tp 4", "45GB/s", NARROW, ["--tp", 4, "--micro-batch", 16], ["serial", "megatron", "weft"]),
        Case("dp 4", "20GB/s", NARROW, ["--micro-batch", 16], ["serial", "ddp", "weft"]),
        Case("pp 2 x dp 2", "10GB/s", WIDE, ["--pp", 2, "--zero", 1, "--micro-batch", 1, "--global-batch", 16],
             ["serial", "megatron", "weft"]),
        Case("cp 4", "40GB/s", WIDE, ["--cp", 4, "--micro-batch", 4], ["serial", "ddp", "weft"]),
        Case("tp 2 x dp 2, zero 3", "25GB/s", NARROW, ["--tp", 2, SP, "--zero", 3, "--micro-batch", 16], ["serial", "fsdp", "weft"]),
    ],
}


def command_of(case, options):
    shape = [word for key, value in case.shape.items() for word in (f"--{key}", value)]
    return [options.weft, "run", "--device", "cuda", "--cluster", f"gpu:4,link={case.link}", "--grad-dtype", "bf16", *shape,
            *case.flags, "--policy", ",".join(case.policies), "--steps", options.steps + 4, "--warm-up", 4,
            "--calibrate-seconds", options.calibrate_seconds, *options.extra, "--json"]


def run_case(case, options, shell):
    said = []
    try:
        report = shell.json(command_of(case, options), hear=said.append)
    except kit.Broken:
        print("".join(said[-8:]), end="")
        raise
    if options.keep:
        folder = Path(options.keep)
        folder.mkdir(parents=True, exist_ok=True)
        name = case.name.replace(" ", "-").replace(",", "")
        (folder / f"{name}.json").write_text(json.dumps(report))
        (folder / f"{name}.txt").write_text("".join(said))
    keys = ("step_s", "step_median_s", "predicted_step_s", "hidden_pct", "steps_s", "loss")
    policies = {policy: {key: kit.policy_of(report, policy)[key] for key in keys} for policy in case.policies}
    return {"name": case.name, "link": case.link, "bound_s": report["bound_s"], "trials": report.get("trials", []),
            "remarks": [line.strip() for line in said if "trial" in line], "policies": policies}


def error_pct(figures):
    return 100 * (figures["predicted_step_s"] / figures["step_median_s"] - 1)


def gain_pct(result, key):
    """How much faster weft is than the best other policy."""
    others = min(figures[key] for policy, figures in result["policies"].items() if policy != "weft")
    return 100 * (others / result["policies"]["weft"][key] - 1)


def print_results(results):
    rows = []
    for result in results:
        for policy, figures in result["policies"].items():
            rows.append([result["name"], policy, f"{1e3 * figures['predicted_step_s']:.1f}",
                         f"{1e3 * figures['step_median_s']:.1f}", f"{error_pct(figures):+.1f} %",
                         f"{100 * (figures['step_median_s'] / result['bound_s'] - 1):+.1f} %", f"{figures['hidden_pct']:.0f} %"])
    print()
    kit.print_table(["layout", "policy", "predicted ms", "measured ms", "error", "over bound", "hidden"], rows)
    print()
    kit.print_table(["layout", "gain of weft", "predicted gain", "tried"],
                    [[result["name"], f"{gain_pct(result, 'step_median_s'):+.1f} %", f"{gain_pct(result, 'predicted_step_s'):+.1f} %",
                      ", ".join(f"{trial['plan']} {1e3 * trial['step_s']:.1f}{'*' if trial['taken'] else ''}"
                                for trial in result["trials"])]
                     for result in results])


def summary(results):
    errors = [abs(error_pct(figures)) for result in results for figures in result["policies"].values()]
    gains = [(gain_pct(result, "step_median_s"), gain_pct(result, "predicted_step_s")) for result in results]
    figures = {"plans": len(errors), "median_pct": round(statistics.median(errors), 1), "worst_pct": round(max(errors), 1),
               "layouts": len(gains), "weft_fastest": sum(measured >= -1 for measured, _ in gains),
               "gain_least_pct": round(min(measured for measured, _ in gains), 1),
               "gain_max_pct": round(max(measured for measured, _ in gains), 1),
               "gains_within_5_points": sum(abs(measured - predicted) <= 5 for measured, predicted in gains)}
    print_results(results)
    print()
    goals = [kit.verdict("median |error| in %", figures["median_pct"], "<= 5", figures["median_pct"] <= 5),
             kit.verdict("worst |error| in %", figures["worst_pct"], "<= 10", figures["worst_pct"] <= 10),
             kit.verdict("layouts where weft is the fastest, within 1 %", figures["weft_fastest"], figures["layouts"],
                         figures["weft_fastest"] == figures["layouts"]),
             kit.verdict("gains within 5 points of the predicted", figures["gains_within_5_points"], f">= {figures['layouts'] - 1}",
                         figures["gains_within_5_points"] >= figures["layouts"] - 1)]
    return figures, goals


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--set", choices=SETS, default="issue", help="of layouts (default: issue)")
    parser.add_argument("--only", metavar="TEXT", action="append", help="layouts whose names contain it; may be repeated")
    parser.add_argument("--steps", type=int, default=10, help="that count, after 4 that do not (default: 10)")
    parser.add_argument("--calibrate-seconds", type=float, default=4, metavar="X", help="for a layout (default: 4)")
    parser.add_argument("--keep", metavar="FOLDER", help="keep reports and remarks of all layouts there")
    parser.add_argument("--extra", metavar="FLAG", nargs="*", default=[], help="more flags of weft run, after --extra=")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    kit.add_common_flags(parser)
    parser.set_defaults(timeout=240)
    options = parser.parse_args()
    options.extra = [word for text in options.extra for word in text.split()]
    cases = [case for case in SETS[options.set] if not options.only or any(text in case.name for text in options.only)]
    if not cases:
        parser.error(f"no layout of {options.set} has {options.only} in its name")
    return options, cases


def main():
    options, cases = arguments()
    if options.dry_run:
        for case in cases:
            print(f"# {case.name}, {case.link}")
            print(*command_of(case, options))
        return 0
    kit.require_gpu()
    machine, shell, results, failed = kit.Machine(), kit.Shell(options.timeout, options.verbose), [], []
    for case in cases:
        begin = time.monotonic()
        try:
            results.append(run_case(case, options, shell))
        except kit.Broken as error:
            failed.append(case.name)
            print(f"  {case.name}: FAILED: {error}", flush=True)
            continue
        errors = ", ".join(f"{policy} {error_pct(f):+.1f} %" for policy, f in results[-1]["policies"].items())
        print(f"  {case.name} ({time.monotonic() - begin:.0f} s): {errors}", flush=True)
        for remark in results[-1]["remarks"]:
            print(f"    {remark}")
    if not results:
        raise kit.Broken("no layout ran")
    figures, goals = summary(results)
    if failed:
        print(f"failed: {', '.join(failed)}")
    code = kit.finish("prediction_suite", machine, shell, {"cases": results, "failed": failed, "figures": figures, "goals": goals},
                      options)
    return 1 if failed else code


if __name__ == "__main__":
    kit.run_main(main)
