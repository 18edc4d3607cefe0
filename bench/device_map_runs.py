#!/usr/bin/env python3
"""Ranks put on devices by --device-map auto against ranks in their order: four emulated nodes, the card of one at a fifth.

Usage: device_map_runs.py WEFT [--layers 8] [--hidden 256] [--steps 9]. A pipeline of four stages; in rank order the slow card
is below its second stage. Both plans are run in turn over paced links, and all ways to put four ranks are predicted.
Goals: at least 1.2 x faster than in rank order, and within 2 % of the best of all. Prints one line of JSON.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_kit import Broken, commit, machine_name, policy_of

NODES, SLOW_NODE = 4, 1
MEGABYTES, SLOW_MEGABYTES = 20, 4


def cluster_json():
    return {"name": "one-slow-card", "device": "cpu", "nodes": NODES, "devices_per_node": 1, "emulated": True,
            "levels": [{"name": "nic", "joins": "cluster", "bandwidth": f"{MEGABYTES}MB/s", "latency": "20us"}],
            "overrides": [{"node": SLOW_NODE, "level": "nic", "bandwidth": f"{SLOW_MEGABYTES}MB/s"}]}


def weft(options, *words):
    command = [str(word) for word in (options.weft, *words)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        raise Broken(f"{' '.join(command)}: {said.stderr.strip()}")
    return said.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weft", type=Path)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--steps", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster, profile = folder / "cluster.json", folder / "profile.json"
        cluster.write_text(json.dumps(cluster_json()))
        question = ["--cluster", cluster, "--layers", options.layers, "--hidden", options.hidden, "--heads", 4, "--vocab", 512,
                    "--seq", 256, "--pp", NODES, "--micro-batch", 2, "--global-batch", 16, "--policy", "priority"]
        weft(options, "calibrate", *question[:-2], "--calibrate-seconds", 2, "--out", folder)
        question += ["--profile", profile]

        def planned(to, *words):
            report = json.loads(weft(options, "plan", *question, *words, "--out", folder / to, "--json"))
            return policy_of(report, "priority")["step_s"]

        predicted = {"in_order": planned("in_order"), "chosen": planned("chosen", "--device-map", "auto")}
        all_maps = [planned("any", "--device-map", ",".join(map(str, order)))
                    for order in itertools.permutations(range(NODES))]
        measured = {"in_order": [], "chosen": []}
        for _ in range(2):
            for plan, steps in measured.items():
                report = json.loads(weft(options, "run", folder / plan / "plan.json", "--steps", options.steps, "--warm-up", 2,
                                         "--profile", profile, "--json"))
                steps.append(policy_of(report, "priority")["step_median_s"])
    result = {"bench": "device_map_runs", "machine": machine_name(), "commit": commit(), "predicted_s": predicted,
              "measured_s": measured, "predicted_ratio": predicted["in_order"] / predicted["chosen"],
              "measured_ratio": min(measured["in_order"]) / min(measured["chosen"]),
              "over_best_of_all": predicted["chosen"] / min(all_maps) - 1}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
