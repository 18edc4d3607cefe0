#!/usr/bin/env python3
"""Policy `weft` against all others, for real: measured steps beside predicted ones and the bound.

    bench/planner_runs.py build/release/weft                       # ranks are threads, links are paced
    bench/planner_runs.py build/release/weft --namespaces          # processes under mpirun, real TCP (root)

Every case is calibrated once; then all policies run it in turn. Goals: `weft` beats every other policy by what was predicted,
within 5 points, and lies within 5 % of the bound (10 % across namespaces). Run it on a quiet machine.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import bench_kit as kit
import training_cases

POLICIES = ["serial", "ddp", "megatron", "fsdp", "priority", "centauri", "weft"]
OF_EXPERTS = ["tutel", "lancet"]
MODELS = Path(__file__).resolve().parent / "models"
FIRST_RATE = 400


def plan_flags(case):
    return ["--model", MODELS / f"{case['model']}.json", "--seq", 128, *case["flags"]]


def fitting_rate(case, options, shell, folder):
    """Megabits a second, in steps of 10."""
    flags = [*plan_flags(case), "--cluster", f"local:2,nic={FIRST_RATE}Mb/s"]
    out = Path(folder) / "rate"
    shell.run([options.weft, "calibrate", *flags, "--threads", 1, "--calibrate-seconds", 2, "--policy", "serial",
               "--out", out])
    serial = kit.policy_of(shell.json([options.weft, "plan", *flags, "--profile", out / "profile.json", "--policy", "serial",
                                       "--json"]), "serial")
    wanted = FIRST_RATE * serial["comm_s"] / (case["communication"] * serial["compute_s"])
    return max(10, 10 * round(wanted / 10))


def run_case(case, options, shell, folder, policies):
    rate = options.rate or fitting_rate(case, options, shell, folder)
    prefix = kit.Namespaces(f"{rate}mbit").prefix(2, "mpi") if options.namespaces else []
    cluster = [] if options.namespaces else ["--cluster", f"local:2,nic={rate}Mb/s"]
    flags = [*plan_flags(case), *cluster, "--threads", 1]
    out = Path(folder) / case["name"].replace(" ", "-")
    shell.run([*prefix, options.weft, "calibrate", *flags, "--calibrate-seconds", options.calibrate_seconds, "--out", out])
    report = shell.json([*prefix, options.weft, "run", *flags, "--policy", ",".join(policies), "--steps", options.steps,
                         "--profile", out / "profile.json", "--json"])
    return {"name": case["name"], "rate_mbit": rate, "bound_s": report["bound_s"],
            "policies": {name: {key: kit.policy_of(report, name)[key]
                                for key in ("step_s", "step_median_s", "predicted_step_s", "hidden_pct", "loss")}
                         for name in policies}}


def print_case(result):
    rows = [[name, f"{1e3 * p['step_median_s']:.0f}", f"{1e3 * p['predicted_step_s']:.0f}",
             f"{100 * (p['predicted_step_s'] / p['step_median_s'] - 1):+.1f} %", f"{p['hidden_pct']:.1f} %",
             f"{100 * (p['step_median_s'] / result['bound_s'] - 1):+.1f} %", f"{p['loss']:.6f}"]
            for name, p in result["policies"].items()]
    print(f"\n{result['name']}, {result['rate_mbit']} Mb/s, bound {1e3 * result['bound_s']:.0f} ms")
    kit.print_table(["policy", "measured ms", "predicted ms", "error", "hidden", "over bound", "loss"], rows)


def figures(result):
    """How much faster than the best other, in percent: measured and predicted; and the distance to the bound."""
    p = result["policies"]
    others = [name for name in p if name != "weft"]
    gain = {key: 100 * (min(p[name][key] for name in others) / p["weft"][key] - 1)
            for key in ("step_median_s", "predicted_step_s")}
    return gain["step_median_s"], gain["predicted_step_s"], 100 * (p["weft"]["step_median_s"] / result["bound_s"] - 1)


def policies_of(case):
    return [*POLICIES, *OF_EXPERTS] if case in training_cases.EXPERTS else POLICIES


def run_cases(description, cases, policies):
    """Reads the flags, runs the cases with policies(case) and prints them: machine, shell, options, results."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", type=Path)
    parser.add_argument("--namespaces", action="store_true", help="two namespaces under mpirun instead of paced threads")
    parser.add_argument("--rate", type=int, help="megabits a second, instead of what fits each case")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--calibrate-seconds", type=int, default=10)
    kit.add_common_flags(parser)
    options = parser.parse_args()
    if options.namespaces:
        kit.Namespaces("100mbit").require()
    machine, shell, results = kit.Machine(), kit.Shell(options.timeout, options.verbose), []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            if options.only and options.only not in case["name"]:
                continue
            results.append(run_case(case, options, shell, folder, policies(case)))
            print_case(results[-1])
            sys.stdout.flush()
    print()
    return machine, shell, options, results


def main():
    machine, shell, options, results = run_cases(__doc__, [*training_cases.DENSE, *training_cases.ACCUMULATED, *training_cases.EXPERTS], policies_of)
    goals, outcomes = [], []
    for result in results:
        measured, predicted, gap = figures(result)
        outcomes.append((measured, abs(measured - predicted), gap))
        print(f"{result['name']}: weft is {measured:+.1f} % faster than the best other policy, predicted {predicted:+.1f} %")
        goals.append(kit.verdict(f"{result['name']}: gain within 5 points of the predicted one", abs(measured - predicted), 5,
                                 measured > 0 and abs(measured - predicted) <= 5))
        limit = 10 if options.namespaces else 5
        goals.append(kit.verdict(f"{result['name']}: percent over the bound", gap, limit, gap <= limit))
    gains, differences, gaps = zip(*outcomes)
    headline = {"cases": len(results), "over_bound_min_pct": min(gaps), "over_bound_max_pct": max(gaps),
                "gain_min_pct": min(gains), "gain_max_pct": max(gains), "gain_off_by_points": max(differences)}
    return kit.finish("planner_runs", machine, shell, {"cases": results, "goals": goals, "figures": headline}, options)


if __name__ == "__main__":
    kit.run_main(main)
