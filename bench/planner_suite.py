#!/usr/bin/env python3
"""Policies compared by prediction over a committed suite of training steps.

For every case: how far `serial` lies above the bound (at least 15 %, or the case proves nothing), the best of the other
policies, and `weft`: its gap to the bound, and its speed-up over the best of `megatron` and `fsdp`.

    python3 bench/planner_suite.py build/release/weft
"""
import argparse
import concurrent.futures
import json
import math
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

import bench_kit as kit


def plan(weft, case, budget):
    begin = time.monotonic()
    command = [weft, "plan", *shlex.split(case["flags"]), "--budget", str(budget), "--json"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode not in (0, 1):  # 1: no policy fits in memory
        raise SystemExit(f"{case['name']}: {' '.join(command)}\n{run.stderr}")
    return json.loads(run.stdout), time.monotonic() - begin


def figures(case, report, seconds):
    steps = {name: p["step_s"] for name, p in report["policies"].items()}
    bound = report["bound_s"]
    fits = {name: p["fits"] for name, p in report["policies"].items()}
    # What does not fit in memory is no rival of what does.
    others = {name: s for name, s in steps.items() if name != "weft" and fits[name] == fits["weft"]}
    best = min(others, key=others.get)
    usual = min((others[name] for name in ("megatron-param", "fsdp") if name in others), default=others[best])
    return {
        "name": case["name"],
        "pipeline": report["layout"]["pp"] > 1,
        "fits": report["policies"]["weft"]["fits"],
        "serial_gap_pct": 100 * (steps["serial"] / bound - 1),
        "best_other": best,
        "other_gap_pct": 100 * (others[best] / bound - 1),
        "weft_gap_pct": 100 * (steps["weft"] / bound - 1),
        "gain_pct": 100 * (others[best] / steps["weft"] - 1),
        "speedup": usual / steps["weft"],
        "hidden_pct": report["policies"]["weft"]["hidden_pct"],
        "slowdown_pct": 100 * report["policies"]["weft"]["slowdown_s"] / bound,
        "bubble_pct": 100 * report["policies"]["weft"]["bubble_s"] / bound,
        "seconds": seconds,
    }


def table(rows):
    print(f"{'case':30} {'serial':>7} {'best other':>15} {'weft':>7} {'gain':>6} {'x usual':>8} {'hidden':>7}"
          f" {'slowed':>7} {'bubble':>7} {'plan s':>7}")
    for r in rows:
        print(f"{r['name']:30} {r['serial_gap_pct']:+6.1f}% {r['best_other'][:9]:>9}{r['other_gap_pct']:+5.1f}%"
              f" {r['weft_gap_pct']:+6.1f}% {r['gain_pct']:+5.1f}% {r['speedup']:7.3f}x {r['hidden_pct']:6.1f}%"
              f" {r['slowdown_pct']:6.1f}% {r['bubble_pct']:6.1f}% {r['seconds']:7.1f}" + ("" if r["fits"] else "  too large"))


def summary(rows):
    flat = [r["weft_gap_pct"] for r in rows if not r["pipeline"]]
    piped = [r["weft_gap_pct"] for r in rows if r["pipeline"]]
    return {
        "cases": len(rows),
        "serial_at_least_15_pct_above_bound": sum(r["serial_gap_pct"] >= 15 for r in rows),
        "never_slower_than_another": all(r["gain_pct"] >= -1e-6 for r in rows),
        "more_than_1_pct_faster_than_all": sum(r["gain_pct"] > 1 for r in rows),
        "median_gap_without_pipeline_pct": statistics.median(flat) if flat else None,
        "median_gap_with_pipeline_pct": statistics.median(piped) if piped else None,
        "speedup_over_megatron_and_fsdp_max": max(r["speedup"] for r in rows),
        "speedup_over_megatron_and_fsdp_geomean": math.exp(statistics.mean(math.log(r["speedup"]) for r in rows)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--suite", default=pathlib.Path(__file__).parent / "planner_suite.json")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--budget", type=float, default=10, help="seconds of search for each case")
    parser.add_argument("--jobs", type=int, default=1, help="cases side by side (planning times then mean little)")
    parser.add_argument("--json", action="store_true")
    kit.add_record_flags(parser)
    arguments = parser.parse_args()
    cases = json.loads(pathlib.Path(arguments.suite).read_text())["cases"]
    cases = [c for c in cases if not arguments.only or arguments.only in c["name"]]

    def one(case):
        row = figures(case, *plan(arguments.weft, case, arguments.budget))
        print(f"{case['name']}: {row['weft_gap_pct']:+.1f} % over the bound", file=sys.stderr)
        return row

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(one, cases))
    kit.record_if_asked("planner_suite", summary(rows), arguments)
    if arguments.json:
        print(json.dumps({"cases": rows, "summary": summary(rows)}, indent=1))
        return
    table(rows)
    for key, value in summary(rows).items():
        print(f"{key.replace('_', ' '):45} {value if not isinstance(value, float) else round(value, 3)}")


if __name__ == "__main__":
    main()
