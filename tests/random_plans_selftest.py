#!/usr/bin/env python3
"""tools/random_plans.py finds what it is there for: an answer whose figures hold is taken, each broken one is not."""

import copy
import importlib.util
import random
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent / "tools" / "random_plans.py"
spec = importlib.util.spec_from_file_location("random_plans", TOOL)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def account(compute, exposed, bubble):
    kinds = dict.fromkeys(tool.KINDS, 0.0)
    kinds["tp"] = exposed
    return {
        "compute_s": compute, "slowdown_s": 0.0, "comm_s": 2.0, "exposed_comm_s": exposed, "exposed_by_kind": kinds,
        "hidden_pct": 100 * (1 - exposed / 2), "bubble_s": bubble, "idle_s": 0.0,
    }


def policy():
    """Two stages of 2 and 6 ranks; a step of 10 s."""
    stages = [
        {"stage": "stage 0", "rank": 0, "ranks": 2, "step_s": 10.0, **account(8.0, 1.0, 1.0)},
        {"stage": "stage 1", "rank": 2, "ranks": 6, "step_s": 10.0, **account(9.0, 0.5, 0.5)},
    ]
    memory = {
        "stage": "stage 0", "bytes": 100, "device_bytes": 200, "terms": {"weights": 60, "scratch": 40},
        "peak": {"live_bytes": 90, "block": "backward 0", "micro_batch": 0, "in_flight": 1},
    }
    return {
        "step_s": 10.0, **account(8.75, 0.625, 0.625), "bound_s": 8.0, "gap_to_bound_pct": 25.0, "mfu": 0.4, "hfu": 0.5,
        "critical_path": {"compute_s": 9.0, "waiting_s": 0.0, "transfer_s": {"tp": 1.0}},
        "memory_peak_bytes": 100, "fits": True, "max": account(9.0, 1.0, 1.0), "stages": stages, "memory": [memory],
    }


def answer():
    names = ["serial", "ddp", "megatron-dist", "megatron-grad", "megatron-param", "fsdp", "priority", "centauri", "weft"]
    return {"bound_s": 8.0, "cluster": {"devices": 8}, "policies": {name: policy() for name in names}, "best": "serial"}


def scaled(step):
    """A policy with another step, whose figures still hold."""
    one = policy()
    factor = step / one["step_s"]
    for own in [one, one["max"], *one["stages"]]:
        for key in [*tool.TERMS, "comm_s"] + (["step_s"] if "step_s" in own else []):
            own[key] *= factor
        own["exposed_by_kind"] = {kind: factor * seconds for kind, seconds in own["exposed_by_kind"].items()}
    path = one["critical_path"]
    one["critical_path"] = {"compute_s": step, "waiting_s": 0.0, "transfer_s": dict.fromkeys(path["transfer_s"], 0.0)}
    one["gap_to_bound_pct"] = 100 * (step / 8 - 1)
    return one


def too_large(one):
    one["memory"][0]["device_bytes"] = 50
    one["fits"] = False
    return one


# What is changed in policy `weft`, and a word of the complaint.
BROKEN = {
    "terms add up to": lambda p: p.update(idle_s=0.1),
    "negative": lambda p: p.update(idle_s=-0.5, bubble_s=p["bubble_s"] + 0.5),
    "bound": lambda p: p.update(bound_s=9.0),
    "exposed_by_kind adds up": lambda p: p["exposed_by_kind"].update(tp=0.1),
    "hidden_pct is": lambda p: p.update(hidden_pct=101.0),
    "hidden_pct is null": lambda p: p.update(hidden_pct=None),
    "critical path": lambda p: p["critical_path"].update(compute_s=8.0),
    "stages' ranks": lambda p: p["stages"][0].update(ranks=3),
    "another step": lambda p: p["stages"][0].update(step_s=11.0),
    "largest is": lambda p: p.update(max=account(9.0, 1.5, 1.0)),
    "stages' mean": lambda p: p["stages"][1].update(account(8.5, 0.5, 1.0)),
    "live of": lambda p: p["memory"][0]["peak"].update(live_bytes=101),
    "memory of stage 0: terms add up": lambda p: p["memory"][0]["terms"].update(scratch=41),
    "not the largest": lambda p: p.update(memory_peak_bytes=99),
    "the bytes say": lambda p: p.update(fits=False),
    "mfu": lambda p: p.update(mfu=0.6),
}


def complaint_of(broken):
    try:
        tool.check_answer(broken)
    except tool.Violation as violation:
        return str(violation)
    return "none"


def main():
    failures = []

    def expect(found, word):
        if word not in found:
            failures.append(f"expected a complaint with '{word}', got: {found}")

    expect(complaint_of(answer()), "none")
    for word, change in BROKEN.items():
        broken = copy.deepcopy(answer())
        change(broken["policies"]["weft"])
        expect(complaint_of(broken), word)

    slower = answer()
    slower["policies"]["weft"] = scaled(11.0)
    expect(complaint_of(slower), "weft takes")
    fastest_elsewhere = answer()
    fastest_elsewhere["policies"]["weft"] = scaled(9.0)
    expect(complaint_of(fastest_elsewhere), "best is serial, but weft is better")
    does_not_fit = answer()
    too_large(does_not_fit["policies"]["weft"])
    expect(complaint_of(does_not_fit), "weft does not fit, serial does")
    none_fits = answer()
    none_fits["policies"] = {name: too_large(one) for name, one in none_fits["policies"].items()}
    expect(complaint_of(none_fits), "none")
    slower_than_what_does_not_fit = answer()
    slower_than_what_does_not_fit["policies"]["ddp"] = too_large(scaled(9.0))
    expect(complaint_of(slower_than_what_does_not_fit), "none")

    layouts = [tool.random_layout(random.Random(f"1 {i}")) for i in range(200)]
    if layouts != [tool.random_layout(random.Random(f"1 {i}")) for i in range(200)]:
        failures.append("the same seed gives other layouts")
    words = {word for layout in layouts for word in layout}
    for word in ["--tp", "--pp", "--vpp", "--cp", "--ep", "--sequence-parallel", "--memory", "--stage-layers", "--slices",
                 "gpipe"]:
        if word not in words:
            failures.append(f"no layout has {word}")
    print("\n".join(failures) or "ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
