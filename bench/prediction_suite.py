#!/usr/bin/env python3
"""Predicted against measured steps of `weft run`, over the plans of bench/prediction_suite.json.

    bench/prediction_suite.py build/release/weft                      # ranks are threads, links are paced
    bench/prediction_suite.py build/release/weft --calibrate-each     # every run measures the machine for itself
    bench/prediction_suite.py build/release/weft --namespaces 2       # processes under mpirun, real TCP (root)
    bench/prediction_suite.py build/release/weft --dry-run            # only plans, with the built-in durations

Plans with more ranks than cores are left out, and said so. Runs that differ in the policy alone share one calibration
unless --calibrate-each is given. Errors are (predicted - measured) / measured, against the mean step as `weft run` states
it and against the median step. Goals: |error| in the median of the plans 5 % and at worst 10 %; across namespaces 8 % in
the median. Exit code 1 where a run fails, or with --require where a goal is missed; 77 where namespaces are not permitted.
Run it on a quiet machine: the last column says how many cores other programs took during a run.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import bench_kit as kit

TINY = ["--layers", 2, "--hidden", 64, "--heads", 4]
KNOWN = {"name", "model", "ranks", "zero", "seq", "micro_batch", "micro_batches", "link", "clip", "policy",
         "bucket_mib", "bucket_size", "tp", "cp", "pp", "vpp", "schedule", "stage_layers", "sequence_parallel"}


def read_suite(file):
    suite = json.loads(Path(file).read_text())
    for plan in suite["plans"]:
        if unknown := set(plan) - KNOWN:
            raise kit.Broken(f"{file}: plan {plan.get('name')}: {sorted(unknown)} is not among {sorted(KNOWN)}")
        plan.setdefault("seq", suite["seq"])
        plan["model_file"] = Path(file).resolve().parent / "models" / f"{plan['model']}.json"
        if not plan["model_file"].is_file():
            raise kit.Broken(f"{file}: plan {plan['name']}: there is no {plan['model_file'].name} in models/")
    return suite["plans"]


def layout_flags(plan):
    """How a plan is spread beside data parallelism."""
    flags = []
    for key in ("tp", "cp", "pp", "vpp", "schedule", "stage_layers"):
        if key in plan:
            flags += [f"--{key.replace('_', '-')}", plan[key]]
    return [*flags, *(["--sequence-parallel"] if plan.get("sequence_parallel") else [])]


def layout_in_words(plan):
    """tp2+sp pp2 dp2 zero1"""
    words = [f"{key}{plan[key]}" for key in ("tp", "cp", "pp", "vpp") if plan.get(key, 1) > 1]
    if plan.get("sequence_parallel"):
        words[0] += "+sp"
    if data_ranks(plan) > 1:
        words.append(f"dp{data_ranks(plan)}")
    return " ".join([*words, f"zero{plan.get('zero', 0)}"])


def data_ranks(plan):
    return plan["ranks"] // (plan.get("tp", 1) * plan.get("cp", 1) * plan.get("pp", 1))


def tc_rate(link):
    """What tc calls a speed such as 200Mb/s or 1GB/s."""
    amount, unit = link[:-4], link[-4:]
    factor = {"Mb/s": 1, "Gb/s": 1000, "MB/s": 8, "GB/s": 8000}
    if unit not in factor:
        raise kit.Broken(f"link {link}: Mb/s, Gb/s, MB/s and GB/s are allowed")
    return f"{float(amount) * factor[unit]:g}mbit"


class Suite:
    def __init__(self, options, shell, folder):
        self.options, self.shell, self.folder = options, shell, Path(folder)
        self.profiles = {}

    def world_flags(self, plan):
        """All but the policy: what a calibration depends on."""
        batch = plan["micro_batch"] * plan.get("micro_batches", 1) * data_ranks(plan)
        cluster = [] if self.options.namespaces else ["--cluster", f"local:{plan['ranks']},nic={plan['link']}"]
        return ["--model", plan["model_file"], *(TINY if self.options.tiny else []), *cluster, "--seq", plan["seq"],
                "--micro-batch", plan["micro_batch"], "--global-batch", batch, "--zero", plan.get("zero", 0),
                "--clip-grad", plan.get("clip", 0), *layout_flags(plan)]

    def policy_flags(self, plan):
        buckets = [*(["--bucket-mib", plan["bucket_mib"]] if "bucket_mib" in plan else []),
                   *(["--bucket-size", plan["bucket_size"]] if "bucket_size" in plan else [])]
        return ["--policy", plan["policy"], *buckets]

    def prefix(self, plan):
        if not self.options.namespaces:
            return []
        return kit.Namespaces(self.options.rate or tc_rate(plan["link"])).prefix(plan["ranks"], self.options.launcher)

    def calibration_flags(self, plan):
        """--profile of a calibration that earlier runs may have made, or the time a run may take for its own."""
        budget = ["--calibrate-seconds", self.options.calibrate_seconds]
        if self.options.calibrate_each:
            return budget
        key = json.dumps([str(flag) for flag in [*self.prefix(plan), *self.world_flags(plan)]])
        if key not in self.profiles:
            out = self.folder / f"profile{len(self.profiles)}"
            self.shell.run([*self.prefix(plan), self.options.weft, "calibrate", *self.world_flags(plan), "--threads", 1,
                            *budget, "--out", out])
            self.profiles[key] = out / "profile.json"
        return ["--profile", self.profiles[key]]

    def run(self, plan):
        report = self.shell.json([*self.prefix(plan), self.options.weft, "run", *self.world_flags(plan),
                                  *self.policy_flags(plan), "--threads", 1, "--steps", self.options.steps,
                                  *self.calibration_flags(plan), "--json"])
        figures = kit.policy_of(report, plan["policy"])
        predicted, mean, median = (figures[key] for key in ("predicted_step_s", "step_s", "step_median_s"))
        return {**described(plan), "predicted_s": predicted, "mean_s": mean, "median_s": median,
                "error_pct": 100 * (predicted / mean - 1), "error_of_median_pct": 100 * (predicted / median - 1),
                "steps_s": figures["steps_s"], "compute_s": figures["compute_s"] + figures["slowdown_s"],
                "comm_s": figures["comm_s"], "hidden_pct": figures["hidden_pct"], "bound_s": report["bound_s"],
                "links": report["world"]["links"],
                "other_cores": None if self.under_mpirun() else self.shell.other_cores}

    def under_mpirun(self):
        return self.options.namespaces and self.options.launcher == "mpi"

    def plan_only(self, plan):
        report = self.shell.json([self.options.weft, "plan", *self.world_flags(plan), *self.policy_flags(plan), "--json"])
        figures = kit.policy_of(report, plan["policy"])
        return {**described(plan), "predicted_s": figures["step_s"], "compute_s": figures["compute_s"],
                "comm_s": figures["comm_s"]}


def described(plan):
    return {"name": plan["name"], "model": plan["model"], "ranks": plan["ranks"], "layout": layout_in_words(plan),
            "micro_batches": plan.get("micro_batches", 1), "clip": plan.get("clip", 0), "link": plan["link"],
            "policy": plan["policy"]}


def milliseconds(seconds):
    return f"{1e3 * seconds:.1f}"


def line_of(result):
    ratio = f"{result['compute_s'] / result['comm_s']:.2f}" if result["comm_s"] else "-"
    line = [result["name"], str(result["ranks"]), result["layout"], str(result["micro_batches"]),
            "clip" if result["clip"] else "", result["link"], result["policy"], ratio,
            milliseconds(result["predicted_s"])]
    if "mean_s" in result:
        line += [milliseconds(result["mean_s"]), milliseconds(result["median_s"]), f"{result['error_pct']:+.1f}",
                 f"{result['error_of_median_pct']:+.1f}",
                 "-" if result["other_cores"] is None else f"{result['other_cores']:.2f}"]
    return line


HEAD = ["plan", "ranks", "layout", "micro-batches", "clip", "link", "policy", "compute/comm", "predicted ms", "mean ms",
        "median ms", "error %", "of median %", "others' cores"]


def summary(results, goal_of_median, goal_of_worst):
    goals = []
    for label, key in (("mean", "error_pct"), ("median", "error_of_median_pct")):
        errors = [abs(result[key]) for result in results]
        print(f"|error| against the {label} step: median {statistics.median(errors):.2f} %, worst {max(errors):.2f} % "
              f"({max(results, key=lambda r: abs(r[key]))['name']})")
    errors = [abs(result["error_pct"]) for result in results]
    goals.append(kit.verdict("median |error| in %", statistics.median(errors), f"<= {goal_of_median}",
                             statistics.median(errors) <= goal_of_median))
    if goal_of_worst:
        goals.append(kit.verdict("worst |error| in %", max(errors), f"<= {goal_of_worst}",
                                 max(errors) <= goal_of_worst))
    return goals


def chosen(plans, options):
    """The plans to run; says which not and why."""
    most = options.ranks_up_to if options.ranks_up_to else kit.cores()
    kept = []
    for plan in plans:
        if options.only and options.only not in plan["name"]:
            continue
        if options.namespaces and plan["ranks"] != options.namespaces:
            continue
        if plan["ranks"] > most and not options.dry_run:
            print(f"skipped: {plan['name']}: {plan['ranks']} ranks, {most} at most here")
            continue
        kept.append(plan)
    if not kept:
        raise kit.Broken("no plan of the suite is left to run")
    return kept


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--suite", default=Path(__file__).with_suffix(".json"), metavar="FILE")
    parser.add_argument("--ranks-up-to", type=int, metavar="N", help="leave out larger plans (default: the cores)")
    parser.add_argument("--only", metavar="TEXT", help="plans whose names contain it")
    parser.add_argument("--steps", type=int, default=10, help="of every run; the first two do not count (default: 10)")
    parser.add_argument("--calibrate-seconds", type=float, default=15, metavar="X", help="for a calibration (default: 15)")
    parser.add_argument("--calibrate-each", action="store_true", help="every run calibrates for itself")
    parser.add_argument("--namespaces", type=int, metavar="N", help="the plans of N ranks, as processes in namespaces")
    parser.add_argument("--rate", metavar="RATE", help="of all links between namespaces, as tc writes it (200mbit); "
                        "default: each plan's own")
    parser.add_argument("--launcher", choices=["mpi", "tcp"], default="mpi", help="who starts the processes")
    parser.add_argument("--dry-run", action="store_true", help="plan all, run none")
    parser.add_argument("--tiny", action="store_true", help="models of two small layers: a test of this script")
    kit.add_common_flags(parser)
    return parser.parse_args()


def main():
    options = arguments()
    plans = read_suite(options.suite)
    if options.namespaces and not options.dry_run:
        kit.Namespaces("100mbit").require()
    machine, shell, results = kit.Machine(), kit.Shell(options.timeout, options.verbose), []
    plans = chosen(plans, options)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(options, shell, folder)
        for plan in plans:
            results.append(suite.plan_only(plan) if options.dry_run else suite.run(plan))
            if not options.dry_run:
                print(f"  {plan['name']}: {results[-1]['error_pct']:+.1f} %", flush=True)
    print()
    kit.print_table(HEAD[:len(line_of(results[0]))], [line_of(result) for result in results])
    print()
    goals, outcome = [], {}
    if not options.dry_run:
        goals = summary(results, *((8, None) if options.namespaces else (5, 10)))
        errors = [abs(result["error_pct"]) for result in results]
        outcome = {"figures": {"plans": len(errors), "median_pct": statistics.median(errors), "worst_pct": max(errors)}}
    settings = {key: value for key, value in vars(options).items() if key not in ("weft", "suite", "out")}
    return kit.finish("prediction_suite", machine, shell,
                      {"settings": settings, "plans": results, "goals": goals, **outcome}, options)


if __name__ == "__main__":
    kit.run_main(main)
