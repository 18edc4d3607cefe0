#!/usr/bin/env python3
"""Predicted against measured steps of `weft run --device cuda`: layouts of 1, 2 and 4 ranks, each under several policies.

    bench/gpu_suite.py build/cuda/weft                      # all of it
    bench/gpu_suite.py build/cuda/weft --ranks 1,2          # a part; also --only TEXT (of the names)
    bench/gpu_suite.py build/cuda/weft --dry-run            # print the commands, run none

Ranks share one GPU and talk over NCCL (tools/gpu_ranks.sh). A layout is one command: it measures GPU and NCCL once, unless
--profile is given, and then trains under each policy in turn. Errors are (predicted - measured) / measured, against the median
step. Gain: how much faster `weft` is than the best other policy of its layout. Memory is that of all ranks together: what the
plans say, with what each rank takes beside its plan (BESIDE_PLAN), against the most that nvidia-smi saw in use while the
ranks trained, less what was in use before; the command's largest plan counts. Steps that are tried before have other plans. Goals: |error| 4 % in the median and 10 % at worst, gains
within 5 points of the predicted ones, memory within 5 %. A command that fails is reported and the others go on. `--cpu` tries the script
without a GPU, on small models.
"""

import argparse
import re
import statistics
import subprocess
import threading
import time
from typing import NamedTuple

import bench_kit as kit
import planner_runs

GIB = 2**30
STEP = re.compile(r"\bstep +\d+/\d+\b")  # what a run says of a step that it has trained
# What src/app/inputs.cpp reserves for: context and kernels of a rank, and NCCL where it has peers.
BESIDE_PLAN = {"context": 0.75 * GIB, "nccl": 0.43 * GIB}
GPT = {"layers": 12, "hidden": 1024, "heads": 16, "vocab": 8192, "seq": 1024}  # 160 million parameters
DEEP = {**GPT, "layers": 24}  # 310 million
LONG = {**GPT, "seq": 2048}
MOE = {**GPT, "layers": 8, "hidden": 768, "heads": 12}  # with the experts below 200 million
TINY = {"layers": 4, "hidden": 64, "heads": 4, "vocab": 256, "seq": 32}
EXPERTS = ["--experts", 8, "--top-k", 2, "--capacity-factor", 1.25, "--moe-every", 2, "--expert-exchange", "padded"]
SP = "--sequence-parallel"


class Case(NamedTuple):
    name: str
    ranks: int
    model: dict
    flags: list
    policies: list


CASES = [
    Case("one rank", 1, GPT, ["--micro-batch", 16], ["serial"]),
    Case("one rank, deep", 1, DEEP, ["--micro-batch", 8], ["serial"]),
    Case("dp 2", 2, GPT, ["--micro-batch", 16], ["serial", "ddp", "weft"]),
    Case("dp 2, zero 1", 2, GPT, ["--zero", 1, "--micro-batch", 8, "--global-batch", 32], ["serial", "megatron", "weft"]),
    Case("dp 2, zero 3", 2, GPT, ["--zero", 3, "--micro-batch", 16], ["serial", "fsdp", "weft"]),
    Case("tp 2 + sp", 2, GPT, ["--tp", 2, SP, "--micro-batch", 4], ["serial", "megatron", "weft"]),
    Case("pp 2", 2, DEEP, ["--pp", 2, "--micro-batch", 2, "--global-batch", 16], ["serial", "megatron", "weft"]),
    Case("cp 2", 2, LONG, ["--cp", 2, "--micro-batch", 4], ["serial", "ddp", "weft"]),
    Case("ep 2", 2, MOE, [*EXPERTS, "--ep", 2, "--micro-batch", 8], ["serial", "tutel", "weft"]),
    Case("dp 4", 4, GPT, ["--micro-batch", 16], ["serial", "ddp", "weft"]),
    Case("dp 4, zero 3", 4, GPT, ["--zero", 3, "--micro-batch", 16], ["serial", "fsdp", "weft"]),
    Case("tp 4 + sp", 4, GPT, ["--tp", 4, SP, "--micro-batch", 4], ["serial", "megatron", "weft"]),
    Case("pp 4", 4, DEEP, ["--pp", 4, "--micro-batch", 2, "--global-batch", 16], ["serial", "megatron", "weft"]),
    Case("tp 2 x dp 2", 4, GPT, ["--tp", 2, "--micro-batch", 4], ["serial", "megatron", "weft"]),
    Case("ep 4", 4, MOE, [*EXPERTS, "--ep", 4, "--micro-batch", 8], ["serial", "tutel", "weft"]),
]


def command_of(case, options):
    model = [word for key, value in (TINY if options.cpu else case.model).items() for word in (f"--{key}", value)]
    if options.cpu:
        prefix, place = [], ["--cluster", f"local:{case.ranks},nic=1GB/s", "--threads", 1]
    else:
        prefix = [kit.ROOT / "tools" / "gpu_ranks.sh", case.ranks] if case.ranks > 1 else []
        place = ["--device", "cuda", "--grad-dtype", "bf16"]
    durations = ["--profile", options.profile] if options.profile else ["--calibrate-seconds", options.calibrate_seconds]
    return [*prefix, options.weft, "run", *place, *model, *case.flags, "--policy", ",".join(case.policies), "--steps",
            options.steps + 4, "--warm-up", 4, *durations, "--json"]


def socket_settings(options):
    """What NCCL reads; nothing where it is to choose."""
    if not options.sockets:
        return {}
    return {"NCCL_SOCKET_NTHREADS": "1", "NCCL_NSOCKS_PERTHREAD": str(options.sockets)}


class DeviceMemory:
    """The most memory of GPU 0 in use since a step was heard of, less what was in use before it watched; None where nothing
    says it."""

    PERIOD = 0.5  # seconds

    def __init__(self):
        self.before, self.most = self.now(), None
        self.counts, self.over = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def hear(self, line):
        """Counts from the first line on that a step has trained."""
        if self.before is not None and STEP.search(line) and not self.counts.is_set():
            self.counts.set()
            self._look()  # a training may be over before the next look

    @staticmethod
    def now():
        command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
            return int(said.strip()) * 2**20
        except (OSError, subprocess.SubprocessError, ValueError):
            return None

    def _watch(self):
        while self.before is not None and not self.over.wait(self.PERIOD):
            if self.counts.is_set():
                self._look()

    def _look(self):
        if (used := self.now()) is not None:
            self.most = max(used, self.most or 0)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def grown(self):
        return None if self.most is None else self.most - self.before


def planned_memory(case, report):
    """Of all ranks: the largest of the command's plans, and what ranks take beside it. Stages have equally many ranks."""
    beside = case.ranks * (BESIDE_PLAN["context"] + (BESIDE_PLAN["nccl"] if case.ranks > 1 else 0))
    sums = [sum(stage["bytes"] for stage in kit.policy_of(report, policy)["memory"]) * case.ranks
            / len(kit.policy_of(report, policy)["memory"]) for policy in case.policies]
    return max(sums), beside


def run_case(case, options, shell):
    with DeviceMemory() as memory:
        report = shell.json(command_of(case, options), socket_settings(options), memory.hear)
    plan_bytes, beside_bytes = planned_memory(case, report)
    keys = ("step_s", "step_median_s", "predicted_step_s", "hidden_pct", "steps_s", "loss")
    return {"name": case.name, "ranks": case.ranks, "parameters": report["model"]["parameters"], "profile": report["profile"],
            "bound_s": report["bound_s"], "plan_bytes": plan_bytes, "beside_bytes": beside_bytes,
            "device_bytes": memory.grown(),
            "policies": {policy: {key: kit.policy_of(report, policy)[key] for key in keys} for policy in case.policies}}


def error_pct(figures):
    return 100 * (figures["predicted_step_s"] / figures["step_median_s"] - 1)


def print_steps(results):
    rows = [[result["name"], policy, f"{1e3 * f['predicted_step_s']:.1f}", f"{1e3 * f['step_median_s']:.1f}",
             f"{1e3 * f['step_s']:.1f}", f"{error_pct(f):+.1f} %"]
            for result in results for policy, f in result["policies"].items()]
    print()
    kit.print_table(["layout", "policy", "predicted ms", "measured ms (median)", "mean", "error"], rows)


def print_gains(results):
    """Whether `weft` is the fastest of each layout; the gains measured and predicted of those that have it."""
    gains, rows = {}, []
    for result in results:
        if "weft" not in result["policies"]:
            continue
        measured, predicted, over_bound = planner_runs.figures(result)
        fastest = min(result["policies"], key=lambda policy: result["policies"][policy]["step_median_s"])
        gains[result["name"]] = (measured, predicted)
        rows.append([result["name"], fastest, f"{measured:+.1f} %", f"{predicted:+.1f} %", f"{measured - predicted:+.1f}",
                     f"{over_bound:+.1f} %"])
    if rows:
        print()
        kit.print_table(["layout", "fastest", "gain of weft", "predicted gain", "points apart", "over bound"], rows)
    return gains


def print_memory(results):
    """Errors of the layouts whose memory the device told."""
    rows, errors = [], []
    if not any(result["device_bytes"] for result in results):
        print("\nno memory of a device was seen: nvidia-smi is not here, or does not say it")
        return errors
    for result in results:
        planned = result["plan_bytes"] + result["beside_bytes"]
        row = [result["name"], f"{result['plan_bytes'] / GIB:.2f}", f"{planned / GIB:.2f}"]
        if result["device_bytes"]:
            errors.append(100 * (planned / result["device_bytes"] - 1))
            beside = (result["device_bytes"] - result["plan_bytes"]) / result["ranks"] / GIB
            row += [f"{result['device_bytes'] / GIB:.2f}", f"{errors[-1]:+.1f} %", f"{beside:.2f}"]
        else:
            row += ["-"] * 3
        rows.append(row)
    print()
    kit.print_table(["layout", "plans GiB", "with contexts and NCCL", "device GiB", "error", "beside the plan, per rank"], rows)
    return errors


def summary(results):
    """Figures and goals."""
    errors = [abs(error_pct(f)) for result in results for f in result["policies"].values()]
    print_steps(results)
    gains, memory = print_gains(results), print_memory(results)
    print()
    figures = {"plans": len(errors), "median_pct": round(statistics.median(errors), 1),
               "worst_pct": round(max(errors), 1)}
    goals = [kit.verdict("median |error| in %", figures["median_pct"], "<= 4", figures["median_pct"] <= 4),
             kit.verdict("worst |error| in %", figures["worst_pct"], "<= 10", figures["worst_pct"] <= 10)]
    if gains:
        figures["layouts"] = len(gains)
        figures["weft_fastest"] = sum(measured >= 0 for measured, _ in gains.values())
        figures["gain_max_pct"] = max(measured for measured, _ in gains.values())
        figures["gain_off_by_points"] = max(abs(measured - predicted) for measured, predicted in gains.values())
        goals.append(kit.verdict("layouts where weft is the fastest", figures["weft_fastest"], figures["layouts"],
                                 figures["weft_fastest"] == figures["layouts"]))
        goals.append(kit.verdict("gains, points off the predicted", figures["gain_off_by_points"], "<= 5",
                                 figures["gain_off_by_points"] <= 5))
    if memory:
        figures["memory_median_pct"] = statistics.median(map(abs, memory))
        figures["memory_worst_pct"] = max(map(abs, memory))
        goals.append(kit.verdict("worst |error| of memory in %", figures["memory_worst_pct"], "<= 5",
                                 figures["memory_worst_pct"] <= 5))
    return figures, goals


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--only", metavar="TEXT", help="layouts whose names contain it")
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2, 4],
                        metavar="1,2,4")
    parser.add_argument("--steps", type=int, default=10, help="that count, after 4 that do not (default: 10)")
    parser.add_argument("--calibrate-seconds", type=float, default=8, metavar="X", help="for a layout (default: 8)")
    parser.add_argument("--profile", metavar="FILE", help="durations for all layouts, instead of measuring them")
    parser.add_argument("--sockets", type=int, default=0, metavar="N",
                        help="sockets of a connection of NCCL (default: NCCL's own number, which is 1 on loopback)")
    parser.add_argument("--cpu", action="store_true", help="tiny models on processors: a test of this script")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    kit.add_common_flags(parser)
    parser.set_defaults(timeout=180)
    options = parser.parse_args()
    cases = [case for case in CASES if case.ranks in options.ranks and (options.only or "") in case.name]
    if not cases:
        parser.error(f"no layout has ranks {options.ranks} and '{options.only}' in its name")
    return options, cases


def main():
    options, cases = arguments()
    if options.dry_run:
        for case in cases:
            print(f"# {case.name}")
            print(*command_of(case, options))
        return 0
    if not options.cpu:
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
        print(f"  {case.name} ({time.monotonic() - begin:.0f} s, durations {results[-1]['profile']}): {errors}", flush=True)
    if not results:
        raise kit.Broken("no layout ran")
    figures, goals = summary(results)
    if failed:
        print(f"failed: {', '.join(failed)}")
    code = kit.finish("prediction_suite", machine, shell, {"cases": results, "failed": failed, "figures": figures,
                                                           "goals": goals}, options)
    return 1 if failed else code


if __name__ == "__main__":
    kit.run_main(main)
