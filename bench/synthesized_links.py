#!/usr/bin/env python3
"""A program made for its links against a ring, over real TCP in namespaces where one link is slower than the others.

Usage: synthesized_links.py WEFT [--ranks 4] [--size 4MiB] [--repeat 7]; needs root. The prediction is the simulation
of both programs over the same links. Every result is checked by `weft collective bench`. Prints one line of JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_kit import NETNS, SKIPPED, Broken, commit, machine_name

FAST_MBIT, SLOW_MBIT = 200, 50


def cluster_json(ranks):
    """Ranks at links of one rate, the last at a quarter of it. TCP's headers take 4 % of a packet on the wire."""
    goodput = 0.957 * FAST_MBIT / 8
    return {"name": "slow", "device": "cpu", "nodes": ranks, "devices_per_node": 1, "emulated": True,
            "levels": [{"name": "nic", "joins": "cluster", "bandwidth": f"{goodput}MB/s", "latency": "100us"}],
            "overrides": [{"node": ranks - 1, "level": "nic",
                           "bandwidth": f"{goodput * SLOW_MBIT / FAST_MBIT}MB/s"}]}


def run(command):
    said = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        raise Broken(f"{' '.join(str(word) for word in command)}: {said.stderr.strip()}")
    return said.stdout


def times(printed, key):
    return {row["algorithm"]: row[key] for row in json.loads(printed[printed.index("{"):])["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weft", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", default="4MiB")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    if subprocess.run([NETNS, "--ranks", "1", "--rate", "200mbit", "--no-mpi", "--", "true"], capture_output=True,
                      check=False).returncode != 0:
        print("skipped: namespaces with limited links are not permitted here")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        cluster, program = Path(folder) / "cluster.json", Path(folder) / "trees.xml"
        cluster.write_text(json.dumps(cluster_json(options.ranks)))
        run([options.weft, "collective", "synthesize", "--topology", cluster, "--collective", "all_reduce", "--in-place",
             "--parts", options.parts, "--out", program])
        bench = [options.weft, "collective", "bench", program, "--algorithm", "ring", "--in-place", "--size", options.size,
                 "--json"]
        predicted = times(run(bench + ["--cluster", cluster, "--repeat", 1]), "predicted_s")
        measured = times(run([NETNS, "--ranks", options.ranks, "--rate", f"{FAST_MBIT}mbit",
                              "--slow", f"{options.ranks - 1}={SLOW_MBIT}mbit", "--no-mpi", "--"]
                             + bench + ["--repeat", options.repeat]), "time_s")
    result = {"bench": "synthesized_links", "machine": machine_name(), "commit": commit(), "ranks": options.ranks,
              "size": options.size, "ring_s": measured["ring"], "trees_s": measured["trees"],
              "measured_ratio": measured["ring"] / measured["trees"],
              "predicted_ratio": predicted["ring"] / predicted["trees"]}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
