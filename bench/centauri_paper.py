#!/usr/bin/env python3
"""Policy `centauri` beside what its paper states: "up to 1.49x speedup over prevalent methods across various parallel
training configurations" (Chen et al., ASPLOS 2024, abstract).

The steps are those of the planner suite. "Prevalent methods" are the best of `megatron-param` and `fsdp` of the same
step; beside it stands `serial`, which overlaps nothing. All by prediction.

    python3 bench/centauri_paper.py build/release/weft
"""
import argparse
import concurrent.futures
import json
import pathlib
import shlex
import statistics
import subprocess

import bench_kit as kit

PUBLISHED_MOST = 1.49
POLICIES = ("serial", "megatron-param", "fsdp", "centauri")


def speedups(weft, case):
    command = [weft, "plan", *shlex.split(case["flags"]), "--policy", ",".join(POLICIES), "--json"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{case['name']}: {' '.join(command)}\n{run.stderr}")
    policies = json.loads(run.stdout)["policies"]
    step = {name: policies[name]["step_s"] for name in POLICIES}
    if not policies["centauri"]["fits"]:
        raise SystemExit(f"{case['name']}: centauri does not fit in memory")
    usual = min(step[name] for name in ("megatron-param", "fsdp") if policies[name]["fits"])
    return {"name": case["name"], "over_usual": usual / step["centauri"], "over_serial": step["serial"] / step["centauri"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--jobs", type=int, default=2)
    kit.add_record_flags(parser)
    options = parser.parse_args()
    cases = json.loads((pathlib.Path(__file__).parent / "planner_suite.json").read_text())["cases"]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda case: speedups(options.weft, case), cases))
    print(f"{'case':30} {'over megatron, fsdp':>20} {'over serial':>12}")
    for row in rows:
        print(f"{row['name']:30} {row['over_usual']:19.3f}x {row['over_serial']:11.3f}x")
    headline = {"published_max": PUBLISHED_MOST}
    for key, words in (("over_usual", "the best of megatron-param and fsdp"), ("over_serial", "serial")):
        values = [row[key] for row in rows]
        headline |= {f"{key}_max": max(values), f"{key}_median": statistics.median(values)}
        most = max(rows, key=lambda row: row[key])
        print(f"centauri over {words}: {min(values):.3f} to {max(values):.3f} x ({most['name']}), "
              f"{statistics.median(values):.3f} x in the median; published: up to {PUBLISHED_MOST} x")
    kit.record_if_asked("planner_suite", headline, options)


if __name__ == "__main__":
    main()
