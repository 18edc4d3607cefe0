#!/usr/bin/env python3
"""Mixtures of experts for real: policy `weft` against `serial`, `tutel` and `lancet`, measured steps beside predicted ones.

    bench/moe_runs.py build/release/weft                  # ranks are threads, links are paced
    bench/moe_runs.py build/release/weft --namespaces     # processes under mpirun, real TCP (root)

Links are as fast as makes the all-to-alls take the part of compute that a case says (0.4 to 0.8). Goals: `weft` at most 0.80 x
`serial` and 0.92 x `tutel`; predictions within 5 % of the measured steps in the median. Run it on a quiet machine.
"""

import statistics

import bench_kit as kit
import planner_runs
import training_cases

POLICIES = ["serial", "tutel", "lancet", "weft"]


def main():
    machine, shell, options, results = planner_runs.run_cases(__doc__, training_cases.EXPERTS, lambda case: POLICIES)
    goals, errors, ratios = [], [], {"serial": [], "tutel": []}
    for result in results:
        p = result["policies"]
        for other, goal in (("serial", 0.80), ("tutel", 0.92)):
            ratio = p["weft"]["step_median_s"] / p[other]["step_median_s"]
            ratios[other].append(ratio)
            goals.append(kit.verdict(f"{result['name']}: weft over {other}", ratio, goal, ratio <= goal))
        errors += [100 * abs(entry["predicted_step_s"] / entry["step_median_s"] - 1) for entry in p.values()]
    middle = statistics.median(errors)
    goals.append(kit.verdict("median error of predictions, percent", middle, 5, middle <= 5))
    headline = {"cases": len(results), "error_median_pct": middle,
                **{f"over_{other}_{name}": choose(values) for other, values in ratios.items()
                   for name, choose in (("min", min), ("max", max))}}
    return kit.finish("moe_runs", machine, shell, {"cases": results, "goals": goals, "figures": headline}, options)


if __name__ == "__main__":
    kit.run_main(main)
