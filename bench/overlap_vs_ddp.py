#!/usr/bin/env python3
"""Steps of `weft run` against PyTorch DDP at its best bucket size, and against the bound, in turns on one machine.

    bench/overlap_vs_ddp.py build/release/weft             # 2 ranks in namespaces with 200 Mbit links (root); 25 minutes
    bench/overlap_vs_ddp.py build/release/weft --local     # ranks are threads, links are paced: the bound alone

First a short search for DDP's bucket size and one calibration, then rounds in which DDP and policy `priority` take
turns; the first round also has DDP with barriers and Weft's other policies. Without clipping, then with it. Steps are
timed from their beginning to the beginning of the next one on rank 0, by both; DDP is granted the better of that and
barrier to barrier. Goals without clipping: `priority` at most 0.80 x DDP and 1.10 x the bound; 1.05 x the bound with --local.

The peer needs a Python with PyTorch (--python; Debian's is /usr/bin/python3). Exit code 1 where something fails, or with
--require where a goal is missed; 77 where namespaces are not permitted.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import bench_kit as kit

PEER = Path(__file__).with_name("peer_ddp.py")
SIZES = {"layers": 4, "width": 512, "batch": 9, "seq": 128, "vocab": 256, "heads": 8}


def add_row(rows, what, detail, run):
    """Collects the steps of all rounds; `run` has steps_s and perhaps bound_s."""
    row = rows.setdefault((what, detail), {"what": what, "detail": detail, "steps_s": [], "over_bound": []})
    row["steps_s"] += run["steps_s"]
    if "bound_s" in run:
        row.setdefault("bounds_s", []).append(run["bound_s"])
        row["over_bound"].append(statistics.median(run["steps_s"]) / run["bound_s"])
        row.setdefault("predicted_s", []).append(run["predicted_s"])


class Comparison:
    """All measurements with one setting of clipping."""

    def __init__(self, options, shell, folder, clip):
        self.options, self.shell, self.clip = options, shell, clip
        self.folder = Path(folder) / f"clip{clip:g}"
        self.folder.mkdir()
        self.parameters = None
        config = {"model_type": "gpt2", "n_layer": options.layers, "n_embd": options.width, "n_head": options.heads,
                  "n_positions": options.seq, "vocab_size": options.vocab}
        self.model = self.folder / "model.json"
        self.model.write_text(json.dumps(config))
        self.profiles = {}

    def prefix(self, launcher):
        return kit.Namespaces(self.options.rate).prefix(2, launcher) if launcher != "local" else []

    def weft_flags(self, launcher):
        cluster = ["--cluster", f"local:2,nic={self.options.link}"] if launcher == "local" else []
        return ["--model", self.model, *cluster, "--seq", self.options.seq, "--micro-batch", self.options.batch,
                "--clip-grad", self.clip, "--threads", 1]

    def calibrate(self, launcher):
        out = self.folder / launcher
        self.shell.run([*self.prefix(launcher), self.options.weft, "calibrate", *self.weft_flags(launcher),
                        "--calibrate-seconds", self.options.calibrate_seconds, "--out", out])
        self.profiles[launcher] = out / "profile.json"

    def weft(self, launcher, policy):
        buckets = ["--bucket-mib", self.options.weft_bucket] if policy == "ddp" and self.options.weft_bucket else []
        # Two steps to warm up, and one at the end that has no next one to be timed by.
        report = self.shell.json([*self.prefix(launcher), self.options.weft, "run", *self.weft_flags(launcher),
                                  "--policy", policy, *buckets, "--steps", self.options.steps + 3, "--warm-up", 2,
                                  "--profile", self.profiles[launcher], "--json"])
        self.same_model(report["model"]["parameters"])
        figures = kit.policy_of(report, policy)
        return {"steps_s": figures["steps_s"], "bound_s": report["bound_s"], "predicted_s": figures["predicted_step_s"]}

    def peer(self, buckets, modes, steps, warm):
        sizes = [word for name in SIZES for word in (f"--{name}", getattr(self.options, name))]
        report = self.shell.json([*self.prefix("tcp"), self.options.python, "-B", PEER, *sizes, "--clip", self.clip,
                                  "--buckets", ",".join(f"{bucket:g}" for bucket in buckets), "--modes", modes,
                                  "--steps", steps, "--warm", warm], env={"GLOO_SOCKET_IFNAME": "eth0"})
        self.same_model(report["parameters"])
        return report["runs"]

    def same_model(self, parameters):
        """Both must train the same: one parameter more is more to send."""
        if self.parameters not in (None, parameters):
            raise kit.Broken(f"Weft and PyTorch train {self.parameters} and {parameters} parameters")
        self.parameters = parameters

    def best_bucket(self, search):
        runs = self.peer(self.options.buckets, "run", self.options.search_steps, 1)
        for run in runs:
            search[f"{run['bucket_mib']:g}"] = statistics.median(run["steps_s"])
        print("  DDP by bucket: " + ", ".join(f"{bucket} MiB {1e3 * step:.0f} ms" for bucket, step in search.items()),
              flush=True)
        return float(min(search, key=search.get))

    def peer_turn(self, rows, bucket, modes):
        for run in self.peer([bucket], modes, self.options.steps, 2):
            add_row(rows, "PyTorch DDP", f"{bucket:g} MiB, {run['mode']}", run)

    def weft_turn(self, rows, launcher, policies):
        for policy in policies:
            add_row(rows, f"weft {policy}", launcher, self.weft(launcher, policy))

    def measure(self):
        rows, search, options = {}, {}, self.options
        for launcher in options.launchers:
            self.calibrate(launcher)
        bucket = None if options.local else self.best_bucket(search)
        others = [policy for policy in options.policies if policy != "priority"]
        for turn in range(options.rounds):
            policies = ["priority", *(others if turn == 0 else [])]
            turns = [lambda l=l, p=policies: self.weft_turn(rows, l, p) for l in options.launchers]
            if bucket:
                turns.insert(0, lambda t=turn: self.peer_turn(rows, bucket, "run,barrier" if t == 0 else "run"))
            for take in turns if turn % 2 == 0 else reversed(turns):
                take()
            print(f"  round {turn + 1} of {options.rounds} done", flush=True)
        return list(rows.values()), search


def complete(rows):
    """Medians, and the ratio to DDP's best."""
    for row in rows:
        row["median_s"] = statistics.median(row["steps_s"])
        row["over_bound"] = statistics.median(row["over_bound"]) if row["over_bound"] else None
    peers = [row["median_s"] for row in rows if row["what"] == "PyTorch DDP"]
    for row in rows:
        row["over_ddp"] = row["median_s"] / min(peers) if peers else None


def show(rows):
    def ratio(value):
        return "-" if value is None else f"{value:.3f}"

    lines = [[row["what"], row["detail"], str(len(row["steps_s"])), f"{1e3 * row['median_s']:.1f}",
              f"{1e3 * min(row['steps_s']):.1f}", f"{1e3 * max(row['steps_s']):.1f}",
              f"{1e3 * statistics.median(row['predicted_s']):.1f}" if "predicted_s" in row else "-",
              f"{1e3 * statistics.median(row['bounds_s']):.1f}" if "bounds_s" in row else "-", ratio(row["over_bound"]),
              ratio(row["over_ddp"])] for row in rows]
    kit.print_table(["who", "how", "steps", "median ms", "min", "max", "predicted ms", "bound ms", "x bound", "x DDP"],
                    lines)


def verdicts(rows, local):
    goals = []
    for row in rows:
        if row["what"] != "weft priority":
            continue
        most = 1.05 if local else 1.10
        goals.append(kit.verdict(f"priority over the bound ({row['detail']})", row["over_bound"], f"<= {most:.2f}",
                                 row["over_bound"] <= most))
        if row["over_ddp"] is not None:
            goals.append(kit.verdict(f"priority over DDP ({row['detail']})", row["over_ddp"], "<= 0.80",
                                     row["over_ddp"] <= 0.80))
    return goals


def headline(rows):
    """The fastest policy of ours, beside the bound and DDP."""
    best = min((row for row in rows if row["over_bound"]), key=lambda row: row["median_s"])
    return {"step_ms": 1e3 * best["median_s"], "bound_ms": 1e3 * statistics.median(best["bounds_s"]),
            "over_bound": best["over_bound"], **({"over_ddp": best["over_ddp"]} if best["over_ddp"] else {})}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--local", action="store_true", help="threads with paced links, no DDP")
    parser.add_argument("--rate", default="200mbit", help="of the links between namespaces (default: 200mbit)")
    parser.add_argument("--link", default="200Mb/s", help="of paced links (default: 200Mb/s)")
    parser.add_argument("--launchers", default="mpi", help="mpi, tcp or both with a comma between (default: mpi)")
    parser.add_argument("--policies", default="priority,ddp,serial")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="that count, of every turn (default: 10)")
    parser.add_argument("--search-steps", type=int, default=4, help="for each bucket size tried (default: 4)")
    parser.add_argument("--buckets", default="25,8,4,2,1", help="MiB to try for DDP (default: 25,8,4,2,1)")
    parser.add_argument("--weft-bucket", type=float, metavar="MIB", help="--bucket-mib of Weft's policy ddp")
    parser.add_argument("--clips", default="0,1", help="clipping norms, 0: off (default: 0,1)")
    parser.add_argument("--calibrate-seconds", type=float, default=20, metavar="X")
    parser.add_argument("--python", default="/usr/bin/python3", help="with PyTorch (default: /usr/bin/python3)")
    for name, value in SIZES.items():
        parser.add_argument("--" + name, type=int, default=value)
    kit.add_common_flags(parser)
    options = parser.parse_args()
    options.launchers = ["local"] if options.local else options.launchers.split(",")
    options.policies = options.policies.split(",")
    options.buckets = [float(size) for size in options.buckets.split(",")]
    return options


def main():
    options = arguments()
    if not options.local:
        kit.Namespaces(options.rate).require()
    machine, shell = kit.Machine(), kit.Shell(options.timeout, options.verbose)
    tables, goals = [], []
    with tempfile.TemporaryDirectory() as folder:
        for clip in map(float, options.clips.split(",")):
            title = f"clipping at {clip:g}" if clip else "no clipping"
            print(f"\n{title}", flush=True)
            rows, search = Comparison(options, shell, folder, clip).measure()
            complete(rows)
            print()
            show(rows)
            print()
            # The norm is a barrier: no goal is set with it.
            goals += verdicts(rows, options.local) if not clip else []
            tables.append({"clip": clip, "ddp_by_bucket_s": search, "rows": rows})
    settings = {key: value for key, value in vars(options).items() if key not in ("weft", "out")}
    result = {"settings": settings, "tables": tables, "goals": goals, "figures": headline(tables[-1]["rows"])}
    return kit.finish("overlap_vs_ddp", machine, shell, result, options)


if __name__ == "__main__":
    kit.run_main(main)
