#!/usr/bin/env python3
"""Programs made for their links against a ring and against Open MPI, over real TCP in namespaces whose links differ.

Usage: synthesized_links.py WEFT [--only line-4,slow-link-6] [--size 2MiB] [--repeat 5] [--no-mpi]; needs root, about four
minutes for all. Cases (link_wirings.py), with four and six ranks each: one link at a quarter of the others' rate, a line, a
cube mesh by routes, two network cards for all ranks. Every result is checked by `weft collective bench`, which times the
programs of a run in turns. The prediction is the simulation of both programs over the same links. Open MPI's figure is the
fastest of its all-reduce algorithms, each timed in turns with our program under the same mpirun.
Goals: at least the predicted ratio to ring within 5 points, 1.5 x with the slow link, and faster than Open MPI's best.
Prints a table and one line of JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_kit import NETNS, SKIPPED, Broken, commit, machine_name
from link_wirings import WIRINGS

# coll_tuned's all-reduces; basic linear, the first, sends everything to one rank.
OPEN_MPI = {2: "non-overlapping", 3: "recursive doubling", 4: "ring", 5: "segmented ring", 6: "rabenseifner"}
TOLERANCE = 0.05


def run(command, more=None):
    words = [str(word) for word in command]
    said = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **(more or {})})
    if said.returncode != 0:
        raise Broken(f"{' '.join(words)}: {said.stderr.strip()}")
    return said.stdout


def times(printed, key):
    return {row["algorithm"]: row[key] for row in json.loads(printed[printed.index("{"):])["rows"]}


def made_program(options, wiring, folder):
    """The fastest of the family by simulation for this size."""
    cluster, program = folder / "cluster.json", folder / "made.xml"
    cluster.write_text(wiring.cluster())
    topology = folder / "topology.json"
    topology.write_text(json.dumps(wiring.topology()))
    run([options.weft, "collective", "synthesize", "--topology", topology, "--collective", "all_reduce", "--in-place",
         "--size", options.size, "--out", program])
    return cluster, program


def measure(options, wiring):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster, program = made_program(options, wiring, folder)
        (folder / "wires").write_text(wiring.namespaces())
        bench = [options.weft, "collective", "bench", program, "--in-place", "--size", options.size, "--json"]
        predicted = times(run(bench + ["--algorithm", "ring", "--cluster", cluster, "--repeat", 1]), "predicted_s")
        spaces = [NETNS, "--ranks", wiring.ranks, "--wiring", folder / "wires", "--burst", "32kb"]
        measured = times(run(spaces + ["--no-mpi", "--"] + bench + ["--algorithm", "ring", "--repeat", options.repeat]),
                         "time_s")
        result = {"case": wiring.name, "ring_s": measured["ring"], "made_s": measured["made"],
                  "measured_ratio": measured["ring"] / measured["made"],
                  "predicted_ratio": predicted["ring"] / predicted["made"], "predicted_made_s": predicted["made"]}
        result["as_predicted"] = result["measured_ratio"] >= result["predicted_ratio"] - TOLERANCE
        if options.mpi:
            result["open_mpi"] = {}
            for number, words in OPEN_MPI.items():
                choice = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_tuned_allreduce_algorithm": str(number)}
                both = times(run(spaces + ["--"] + bench + ["--repeat", max(3, options.repeat // 2)], choice), "time_s")
                result["open_mpi"][words] = {"library_s": both["native"], "made_s": both["made"]}
            best = min(result["open_mpi"], key=lambda words: result["open_mpi"][words]["library_s"])
            pair = result["open_mpi"][best]
            result["open_mpi_best"], result["open_mpi_ratio"] = best, pair["library_s"] / pair["made_s"]
    return result


def print_row(row):
    text = (f"{row['case']:14} ring {row['ring_s'] * 1e3:7.1f} ms, made {row['made_s'] * 1e3:7.1f} ms: "
            f"{row['measured_ratio']:.3f} x (predicted {row['predicted_ratio']:.3f} x"
            f"{'' if row['as_predicted'] else ', MISSED'})")
    if "open_mpi_best" in row:
        text += f"; Open MPI's {row['open_mpi_best']}: {row['open_mpi_ratio']:.3f} x"
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weft", type=Path)
    parser.add_argument("--only", default="", help="cases, e.g. line-4,slow-link-6 (default: all)")
    parser.add_argument("--size", default="2MiB")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-mpi", dest="mpi", action="store_false", help="leave Open MPI out")
    options = parser.parse_args()
    names = {wiring.name: wiring for wiring in WIRINGS}
    chosen = options.only.split(",") if options.only else list(names)
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"--only {unknown[0]}: the cases are {', '.join(names)}")
    if subprocess.run([NETNS, "--ranks", "1", "--rate", "200mbit", "--no-mpi", "--", "true"], capture_output=True,
                      check=False).returncode != 0:
        print("skipped: namespaces with limited links are not permitted here")
        return SKIPPED
    rows = []
    for name in chosen:
        rows.append(measure(options, names[name]))
        print_row(rows[-1])
    print(json.dumps({"bench": "synthesized_links", "machine": machine_name(), "commit": commit(), "load": os.getloadavg()[0],
                      "size": options.size, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
