#!/usr/bin/env python3
"""Is K-FAC worth it here? The same model trained with K-FAC in the bubbles of a pipeline and with AdamW, on the generated corpus.

    bench/kfac_vs_adamw.py build/release/weft                     # two ranks, three seeds
    bench/kfac_vs_adamw.py build/release/weft --seeds 1,2 --steps 40 --interval 4

For every seed AdamW trains first, once with each of --adam-lrs; then K-FAC trains as long, under `serial`, which computes
curvature in line, and under `weft`, which computes it in bubbles. Losses are means of ten steps. The loss that counts is AdamW's
at its end, with the learning rate that ends lowest over all seeds: K-FAC is worth it where it gets there in less time. Runs of all
kinds go in turns, seed after seed, and the time of a step is the median over all seeds; on a machine that does something else too, the
tenth of the steps that were quickest says more. The report says how many cores others took.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import bench_kit as kit

SIZES = {"layers": 4, "hidden": 64, "heads": 4, "seq": 64, "vocab": 256, "micro-batch": 8, "global-batch": 32}
LOSSES_OF_A_MEAN = 10


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--seeds", default="1,2,3", help="with commas between (default: 1,2,3)")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--adam-lrs", default="0.001,0.002", help="of AdamW, with commas between (default: 0.001,0.002)")
    parser.add_argument("--interval", default="auto", help="steps for which a factor is kept (default: auto, PipeFisher's rule)")
    parser.add_argument("--cluster", default="local:2,nic=1Gb/s")
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--zero", type=int, default=0, choices=(0, 1, 2))
    parser.add_argument("--budget", type=float, default=2, help="seconds in which policy weft searches (default: 2)")
    for name, value in SIZES.items():
        parser.add_argument("--" + name, type=int, default=value)
    kit.add_common_flags(parser)
    options = parser.parse_args()
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.adam_lrs = options.adam_lrs.split(",")
    if options.steps < LOSSES_OF_A_MEAN:
        parser.error(f"--steps {options.steps}: must be at least {LOSSES_OF_A_MEAN}, over which losses are averaged")
    return options


def mean_loss(losses, steps):
    return statistics.fmean(losses[steps - LOSSES_OF_A_MEAN:steps])


class Trainings:
    def __init__(self, options, shell, folder):
        self.options, self.shell, self.folder = options, shell, Path(folder)
        self.runs, self.other_cores = {}, []  # by optimizer and policy: a report of that policy for every seed

    def model(self):
        sizes = [word for size in SIZES for word in (f"--{size}", getattr(self.options, size.replace("-", "_")))]
        return [*sizes, "--no-dropout", "--cluster", self.options.cluster, "--pp", self.options.pp, "--schedule",
                self.options.schedule, "--zero", self.options.zero]

    def profile(self, name, flags):
        """One for each optimizer: plans of all seeds are made from the same durations."""
        path = self.folder / name / "profile.json"
        if not path.exists():
            self.shell.run([self.options.weft, "calibrate", *self.model(), "--threads", 1, *flags, "--out", path.parent])
        return path

    def interval(self, profile):
        """What --kfac-interval auto makes of this pipeline, once for all runs."""
        if self.options.interval != "auto":
            return int(self.options.interval)
        planned = self.shell.json([self.options.weft, "plan", *self.model(), "--profile", profile, "--precision", "fp32",
                                   "--policy", "serial", "--kfac-interval", "auto", "--json"])
        return planned["layout"]["kfac_interval"]

    def train(self, name, policies, profile, seed, flags):
        said = self.shell.json([self.options.weft, "run", *self.model(), "--threads", 1, "--profile", profile, "--policy", policies, "--seed",
                                seed, "--steps", self.options.steps, "--budget", self.options.budget, *flags, "--json"])
        self.other_cores.append(self.shell.other_cores)
        for policy in policies.split(","):
            self.runs.setdefault((name, policy), []).append(kit.policy_of(said, policy))

    def measure(self):
        of_adam = self.profile("adam", [])
        of_kfac = self.profile("kfac", ["--optimizer", "kfac"])
        interval = self.interval(of_kfac)
        print(f"K-FAC computes and inverts each factor once in {interval} step{'s' if interval > 1 else ''} "
              f"(--kfac-interval {self.options.interval})\n", flush=True)
        for seed in self.options.seeds:
            for rate in self.options.adam_lrs:
                self.train(f"AdamW --lr {rate}", "weft", of_adam, seed, ["--lr", rate])
            self.train("K-FAC", "serial,weft", of_kfac, seed, ["--optimizer", "kfac", "--kfac-interval", interval])
        return interval


class Comparison:
    """K-FAC in bubbles beside the best AdamW: losses per step and per second."""

    def __init__(self, options, runs):
        self.options, self.runs = options, runs
        adams = [key for key in runs if key[0].startswith("AdamW")]
        self.adam = min(adams, key=lambda key: statistics.fmean(mean_loss(run["losses"], options.steps) for run in runs[key]))
        self.kfac = ("K-FAC", "weft")

    def step(self, key):
        """Median seconds over the steps of all seeds."""
        return statistics.median(s for run in self.runs[key] for s in run["steps_s"])

    def quick_step(self, key):
        """Seconds that the quickest tenth of all steps did not exceed."""
        times = sorted(s for run in self.runs[key] for s in run["steps_s"])
        return times[len(times) // 10]

    def predicted(self, key):
        return statistics.fmean(run["predicted_step_s"] for run in self.runs[key])

    def reached(self, losses, wanted):
        """Steps until the mean loss is that; None where it never is."""
        return next((steps for steps in range(LOSSES_OF_A_MEAN, len(losses) + 1) if mean_loss(losses, steps) <= wanted), None)

    def print_losses(self):
        print("Losses (means of ten steps):")
        points = sorted({max(LOSSES_OF_A_MEAN, self.options.steps * part // 4) for part in range(1, 5)})
        rows = [[f"{name}, {policy}", f"seed {seed}", *(f"{mean_loss(run['losses'], at):.3f}" for at in points)]
                for (name, policy), of_seeds in self.runs.items() if (name, policy) != ("K-FAC", "serial")
                for seed, run in zip(self.options.seeds, of_seeds)]
        kit.print_table(["optimizer, policy", "seed", *(f"to step {at}" for at in points)], rows)

    def print_steps(self):
        print("\nSteps, and the share of it in which a rank computes:")
        rows = []
        for key, of_seeds in self.runs.items():
            predicted = self.predicted(key)
            busy, without = "-", f"{100 * statistics.fmean(run['compute_s'] / run['step_s'] for run in of_seeds):.1f} %"
            if "bubble_use" in of_seeds[0]:
                busy, without = (f"{100 * statistics.fmean(run['bubble_use'][word] for run in of_seeds):.1f} %"
                                 for word in ("utilisation", "utilisation_without"))
            rows.append([", ".join(key), f"{1e3 * predicted:.2f}", f"{1e3 * self.step(key):.2f}",
                         f"{1e3 * self.quick_step(key):.2f}", f"{100 * (predicted / self.step(key) - 1):+.1f} %", without, busy])
        kit.print_table(["optimizer, policy", "predicted ms", "measured ms", "quickest tenth", "error", "busy without K-FAC's extra work",
                         "busy with it"], rows)

    def print_time_to_loss(self):
        adam_step, kfac_step = self.step(self.adam), self.step(self.kfac)
        steps = self.options.steps
        print(f"\nTime to {self.adam[0]}'s loss at step {steps} (steps of {1e3 * adam_step:.2f} ms), and K-FAC's in the same "
              f"time (steps of {1e3 * kfac_step:.2f} ms):")
        rows, ratios = [], []
        for seed, adam, kfac in zip(self.options.seeds, self.runs[self.adam], self.runs[self.kfac]):
            wanted = mean_loss(adam["losses"], steps)
            own = self.reached(kfac["losses"], wanted)
            in_time = min(steps, max(LOSSES_OF_A_MEAN, int(steps * adam_step / kfac_step)))
            ratios.append(steps / own if own else None)
            rows.append([f"seed {seed}", f"{wanted:.3f}", f"{steps * adam_step:.2f} s", str(own or "-"),
                         f"{own * kfac_step:.2f} s" if own else "not reached",
                         f"{ratios[-1] * adam_step / kfac_step:.2f} x" if own else "-",
                         f"{mean_loss(kfac['losses'], in_time):.3f}"])
        kit.print_table(["seed", "AdamW's loss", "AdamW's time", "K-FAC's steps", "K-FAC's time", "speed-up",
                         "K-FAC's loss in AdamW's time"], rows)
        return ratios

    def verdict(self, ratios):
        """`ratios`: of AdamW's steps to K-FAC's."""
        known = [ratio for ratio in ratios if ratio]
        speed_ups = {}
        if len(known) < len(ratios):
            print(f"\nK-FAC does not reach AdamW's loss on {len(ratios) - len(known)} of {len(ratios)} seeds.")
        for words, step in (("median steps", self.step), ("the quickest tenth of steps", self.quick_step),
                            ("predicted steps", self.predicted)):
            if known:
                speed_ups[words] = [ratio * step(self.adam) / step(self.kfac) for ratio in known]
        if known:
            middle = statistics.median(speed_ups["median steps"])
            print(f"\nK-FAC is {'worth it' if middle > 1 and len(known) == len(ratios) else 'not worth it'} here: it has AdamW's "
                  f"loss {middle:.2f} times as fast in the median over seeds.")
        for words, values in speed_ups.items():
            print(f"  by {words}: {', '.join(f'{value:.2f}' for value in values)} times")
        return speed_ups


def main():
    options = arguments()
    machine, shell = kit.Machine(), kit.Shell(options.timeout, options.verbose)
    with tempfile.TemporaryDirectory() as folder:
        trainings = Trainings(options, shell, folder)
        interval = trainings.measure()
    comparison = Comparison(options, trainings.runs)
    comparison.print_losses()
    comparison.print_steps()
    ratios = comparison.print_time_to_loss()
    speed_ups = comparison.verdict(ratios)
    print(f"Others took {statistics.fmean(trainings.other_cores):.2f} cores of {kit.cores()} while it ran.")
    kept = ("losses", "steps_s", "predicted_step_s", "step_s", "bubble_use")
    result = {"interval": interval, "best_adam": name_of(comparison.adam), "steps_of_adam_over_kfac": ratios, "speed_ups": speed_ups,
              "runs": {name_of(key): [{word: run[word] for word in kept if word in run} for run in of_seeds]
                       for key, of_seeds in trainings.runs.items()},
              "other_cores": trainings.other_cores}
    return kit.finish("kfac_vs_adamw", machine, shell, result, options)


def name_of(key):
    return ", ".join(key)


if __name__ == "__main__":
    kit.run_main(main)
