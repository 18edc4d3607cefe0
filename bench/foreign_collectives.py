#!/usr/bin/env python3
"""Collectives that others published as MSCCL XML: proven, run on ranks with their results compared, and raced in simulation.

Usage: foreign_collectives.py WEFT FOLDER [--sizes 1KiB,...] [--run-sizes 64KiB,1MiB] [--largest 32]. FOLDER holds .xml files at any
depth: TACCL's own are in github.com/parasailteam/sccl-presynth, Azure's in Azure/msccl-scheduler, AMD's in ROCm/rccl. Every
file is verified, and run by threads on this machine, which compare every byte with what it must be. On the machines that
TACCL made its files for (two NDv2, two DGX-2) the fastest program that Weft knows is simulated beside ring, tree and the
files. Goal: no file, ring or tree is faster in any row. Prints a table, then one line of JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from bench_kit import Broken, commit, machine_name

COLLECTIVES = {"allgather": "all_gather", "allreduce": "all_reduce", "alltoall": "all_to_all", "reduce_scatter": "reduce_scatter",
               "reducescatter": "reduce_scatter"}
MEBIBYTE = 1 << 20
# Pairs of GPUs of a DGX-1V that NVLink joins, with the number of links.
CUBE_MESH = [(0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2), (2, 6, 1), (3, 7, 1), (4, 5, 1),
             (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)]


def ndv2(nodes):
    """Azure's NDv2 with the costs of TACCL's topo-ndv2-1MB.json: 46 us a MiB and link, 0.3 us; one NIC: 107 us a MiB, 2.6 us."""
    vertices, links = [], []
    vertices += [{"name": f"{n}.gpu{g}", "kind": "device", "node": n} for n in range(nodes) for g in range(8)]
    for n in range(nodes):
        vertices += [{"name": f"{n}.pcie", "kind": "switch", "node": n}, {"name": f"{n}.nic", "kind": "nic", "node": n}]
        for a, b, count in CUBE_MESH:
            links.append({"from": f"{n}.gpu{a}", "to": f"{n}.gpu{b}", "bandwidth": f"{count * MEBIBYTE / 46e-6:.0f}B/s",
                          "latency": "300ns"})
        for g in range(8):
            links.append({"from": f"{n}.gpu{g}", "to": f"{n}.pcie", "bandwidth": "12GB/s", "latency": "0ns"})
        links.append({"from": f"{n}.pcie", "to": f"{n}.nic", "bandwidth": "12GB/s", "latency": "0ns"})
        links.append({"from": f"{n}.nic", "to": "infiniband", "bandwidth": f"{MEBIBYTE / 107e-6:.0f}B/s", "latency": "1300ns"})
    vertices.append({"name": "infiniband", "kind": "switch"})
    return {"topology": f"ndv2:{nodes}", "vertices": vertices, "links": links}


def weft(options, *words):
    command = [str(word) for word in (options.weft, *words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read_head(path):
    head = ElementTree.parse(path).getroot()
    return {"path": path, "ranks": int(head.get("ngpus", 0)), "collective": COLLECTIVES.get(head.get("coll", ""), ""),
            "in_place": head.get("inplace") == "1"}


def proof_of(options, file):
    said = weft(options, "collective", "verify", file["path"], "--json")
    if said.returncode == 2:
        return said.stderr.strip()
    answer = json.loads(said.stdout)["files"][0]
    return "" if answer["safe"] else answer["message"]


def run_of(options, file):
    said = weft(options, "collective", "bench", file["path"], "--ranks", file["ranks"], "--size", options.run_sizes, "--repeat", 1,
                "--json")
    return "" if said.returncode == 0 else said.stderr.strip()


def race(options, topology, collective, in_place, files):
    words = ["--in-place"] if in_place and collective != "all_to_all" else []
    said = weft(options, "collective", "synthesize", "--topology", topology, "--collective", collective, "--size", options.sizes,
                *words, "--json", *files)
    if said.returncode != 0:
        raise Broken(said.stderr.strip())
    answer = json.loads(said.stdout)
    rows = []
    for size in answer["sizes"]:
        def best(matches, row=size):
            return min((c["time_s"] for c in row["candidates"] if matches(c)), default=None)
        own = next(c for c in size["candidates"] if c["origin"] != "file")  # they come fastest first
        rows.append({"topology": answer["topology"], "collective": collective, "size_bytes": size["size_bytes"],
                     "program": own["program"], "time_s": own["time_s"],
                     "made_s": best(lambda c: c["origin"] == "made"), "file_s": best(lambda c: c["origin"] == "file"),
                     "ring_s": best(lambda c: c["origin"] == "generator" and c["program"].split()[0] == "ring"),
                     "tree_s": best(lambda c: c["origin"] == "generator" and c["program"].split()[0] == "tree")})
    return rows


def micros(seconds):
    return "-" if seconds is None else f"{seconds * 1e6:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weft", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="1KiB,4KiB,16KiB,64KiB,256KiB,1MiB")
    parser.add_argument("--run-sizes", default="64KiB,1MiB")
    parser.add_argument("--largest", type=int, default=32, help="files for more ranks are proven but not run")
    parser.add_argument("--require", action="store_true", help="exit with 1 where a goal is missed")
    options = parser.parse_args()
    files = [read_head(path) for path in sorted(options.folder.rglob("*.xml")) if path.stat().st_size > 0]
    counts = {"files": len(files), "proven": 0, "run": 0, "refused": [], "wrong": []}
    proven = []
    for file in files:
        why = proof_of(options, file)
        if why:
            counts["refused"].append(why)
            print(f"refused: {file['path'].name}: {why}")
            continue
        proven.append(file)
        counts["proven"] += 1
        if file["ranks"] > options.largest:
            continue
        if why := run_of(options, file):
            counts["wrong"].append(why)
            print(f"wrong: {file['path'].name}: {why}")
        else:
            counts["run"] += 1
    print(f"{counts['proven']} of {counts['files']} files proven, {counts['run']} run on ranks with the right result")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        wiring = Path(name) / "ndv2.json"
        wiring.write_text(json.dumps(ndv2(2)))
        for machine, topology, ranks in (("DGX1", wiring, 16), ("DGX2", "dgx2:2", 32)):
            for collective in ("all_gather", "all_reduce", "all_to_all"):
                own = [f for f in proven if f["ranks"] == ranks and f["collective"] == collective and machine in f["path"].name]
                if own:
                    rows += race(options, topology, collective, own[0]["in_place"], [f["path"] for f in own])
    lost = 0
    print("topology   collective    size      own  made   ring   tree   TACCL (us)   program")
    for row in rows:
        rivals = [t for t in (row["ring_s"], row["tree_s"], row["file_s"]) if t is not None]
        lost += any(row["time_s"] > t for t in rivals)
        print(f"{row['topology']:10} {row['collective']:12} {row['size_bytes']:8}  {micros(row['time_s'])}  {micros(row['made_s'])}  "
              f"{micros(row['ring_s'])}  {micros(row['tree_s'])}  {micros(row['file_s'])}  {row['program']}")
    print(f"{len(rows) - lost} of {len(rows)} rows: neither ring, tree nor TACCL's file is faster than Weft's own program")
    print(json.dumps({"bench": "foreign_collectives", "machine": machine_name(), "commit": commit(), **counts, "rows": rows}))
    return 1 if options.require and (lost or counts["wrong"] or not rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as broken:
        sys.exit(f"{Path(__file__).name}: {broken}")
