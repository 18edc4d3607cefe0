#!/usr/bin/env python3
"""K-FAC in the bubbles of a pipeline, predicted, beside PipeFisher's performance model (Osawa et al. 2022).

    pipefisher.py WEFT [--markdown]

PipeFisher's authors measured on a V100 how long one layer of BERT takes for forward, backward, curvature, inversion and
preconditioning (their repository, prof/bert-{base,large}_time_memory_v100.csv, commit 753fdf0), and predict from that a
pipeline of D stages with one layer each and D micro-batches (scripts/plot_perf_model.py): GPipe and 1F1B take
(2 D - 1)(F + B), of which (D - 1)(F + B) are bubbles. The same pipelines are planned here by weft for the same device from its
data sheet alone. Rows say what both give for the time of a layer's passes, for how many steps of bubbles hold curvature
and inversions, for the step with K-FAC, and for the share of it in which a device computes.
"""

import argparse
import json
import math
import subprocess
import sys

# Milliseconds of one layer on a V100, sequences of 128 tokens: micro-batch, forward, backward, curvature of one micro-batch;
# inversion and preconditioning of a step.
MEASURED = {
    ("bert-base", 8): (1.985, 2.834, 4.863, 49.125, 3.898),
    ("bert-base", 16): (3.261, 5.198, 8.510, 49.139, 3.892),
    ("bert-base", 32): (6.065, 9.727, 16.181, 49.094, 3.889),
    ("bert-large", 8): (2.901, 4.548, 7.757, 80.776, 8.959),
    ("bert-large", 16): (5.438, 8.603, 14.806, 80.796, 8.965),
    ("bert-large", 32): (10.386, 16.285, 27.447, 80.846, 8.896),
}
SHAPES = {"bert-base": (768, 12), "bert-large": (1024, 16)}
DEPTHS = {8: "dgx1-v100:1", 16: "dgx1-v100:2"}


def theirs(model, depth, batch):
    forward, backward, curvature, inversion, precondition = MEASURED[model, batch]
    passes = forward + backward
    extra = depth * curvature + inversion
    ratio = extra / ((depth - 1) * passes)
    step = (2 * depth - 1) * passes + precondition
    busy = depth * passes + extra / math.ceil(ratio) + precondition
    return {"passes": passes, "ratio": ratio, "without": depth / (2 * depth - 1), "step": step, "busy": busy / step}


def plan(weft, model, depth, batch, schedule, flags):
    hidden, heads = SHAPES[model]
    # A vocabulary of 128 words makes the ends of the model as small as the authors' model has them: not there.
    shape = (f"--layers {depth} --hidden {hidden} --heads {heads} --vocab 128 --seq 128 --no-dropout --precision fp32 "
             f"--cluster {DEPTHS[depth]} --pp {depth} --micro-batch {batch} --global-batch {depth * batch} --budget 0.3 --json")
    done = subprocess.run([weft, "plan", *shape.split(), "--schedule", schedule, *flags], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.args}: {done.stderr}")
    return json.loads(done.stdout)


def ours(weft, model, depth, batch, schedule):
    without = plan(weft, model, depth, batch, schedule, ["--policy", "serial"])["policies"]["serial"]
    every = plan(weft, model, depth, batch, schedule, ["--policy", "serial", "--kfac-interval", "1"])["policies"]["serial"]
    filled = plan(weft, model, depth, batch, schedule, ["--policy", "weft", "--kfac-interval", "auto"])
    found = filled["policies"]["weft"]
    return {"passes": 1e3 * without["compute_s"] / depth,
            "ratio": every["bubble_use"]["extra_s"] / (without["step_s"] - without["compute_s"]),
            "interval": filled["layout"]["kfac_interval"],
            "without": without["compute_s"] / without["step_s"], "step": 1e3 * found["step_s"],
            "busy": found["bubble_use"]["utilisation"], "step_without": 1e3 * without["step_s"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/kfac.md")
    arguments = parser.parse_args()
    bar = " | " if arguments.markdown else "  "
    header = ["model, schedule", "D", "batch", "layer ms", "ours", "bubbles needed", "ours", "step ms", "ours", "busy without",
              "ours", "busy with", "ours"]
    print(bar.join(header).strip() if not arguments.markdown else "| " + bar.join(header) + " |")
    if arguments.markdown:
        print("|" + "---|" * len(header))
    errors = {"passes": [], "ratio": [], "step": [], "busy": []}
    for model, batch in MEASURED:
        for depth in DEPTHS:
            published = theirs(model, depth, batch)
            for schedule in ("gpipe", "1f1b"):
                found = ours(arguments.weft, model, depth, batch, schedule)
                for key, list_of in errors.items():
                    list_of.append(found[key] - published[key] if key == "busy" else found[key] / published[key] - 1)
                row = [f"{model}, {schedule}", f"{depth}", f"{batch}", f"{published['passes']:.1f}", f"{found['passes']:.1f}",
                       f"{published['ratio']:.2f}", f"{found['ratio']:.2f}", f"{published['step']:.0f}", f"{found['step']:.0f}",
                       f"{100 * published['without']:.1f} %", f"{100 * found['without']:.1f} %",
                       f"{100 * published['busy']:.1f} %", f"{100 * found['busy']:.1f} %"]
                print("| " + bar.join(row) + " |" if arguments.markdown else bar.join(row), flush=True)
    for key, list_of in errors.items():
        middle = sorted(abs(e) for e in list_of)[len(list_of) // 2]
        worst = max(list_of, key=abs)
        unit = "points" if key == "busy" else "%"
        print(f"{key}: median error {100 * middle:.1f} {unit}, worst {100 * worst:+.1f} {unit}, mean "
              f"{100 * sum(list_of) / len(list_of):+.1f} {unit}")


if __name__ == "__main__":
    main()
