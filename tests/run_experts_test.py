#!/usr/bin/env python3
"""`weft run` of mixtures of experts against PyTorch: the same gates, the same dropped tokens, the same balance loss.

    run_experts_test.py WEFT [--only TEXT] [--keep FOLDER]

What a gate drops depends on the tokens that its rank has, so every run is checked against a reference of its own layout
(oracle/reference_experts.py). Exit code 77 where there is no torch (see oracle/oracle.py).
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "oracle"))
import oracle  # noqa: E402  (exits 77 where there is no torch)
import warm_program  # noqa: E402
from records import BadRecord, read_record  # noqa: E402

CONFIGS = {
    # GELU and biases.
    "gpt": {"model_type": "gpt2", "n_layer": 4, "n_embd": 28, "n_head": 4, "n_inner": 52, "n_positions": 18,
            "vocab_size": 256},
    # SwiGLU, two choices of a token.
    "mixtral": {"model_type": "mixtral", "num_hidden_layers": 3, "hidden_size": 24, "num_attention_heads": 4,
                "num_key_value_heads": 2, "intermediate_size": 20, "max_position_embeddings": 64, "vocab_size": 256,
                "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": False},
}
PLANNED = "--seq 16 --global-batch 16 --bucket-mib 0.03 --bucket-size 8000".split()
TRAINED = "--json --steps 6 --seed 7 --threads 1".split()
PROFILE = "any_machine.json"  # predictions are not what is tested here: nothing is measured before a run
SGD_CLIP = "--optimizer sgd --lr 0.05 --clip-grad 0.3"
SWITCH = "--experts 8 --top-k 1 --capacity-factor 1.25 --moe-every 2 --aux-loss-coeff 0.01"
TOP2 = "--capacity-factor 1.25 --aux-loss-coeff 0.02"
# Name, model, ranks, flags.
CASES = [
    ("switch-one-rank", "gpt", 1, f"{SWITCH} --micro-batch 4"),
    ("switch-one-rank-ample", "gpt", 1, "--experts 8 --top-k 1 --capacity-factor 8 --micro-batch 4"),
    ("switch-priority", "gpt", 1, f"{SWITCH} --token-drop-policy probs --micro-batch 8"),
    ("switch-ep2", "gpt", 2, f"{SWITCH} --ep 2 --micro-batch 4 --policy priority"),
    ("switch-ep4-zero1", "gpt", 4, f"{SWITCH} --ep 4 --micro-batch 2 --zero 1 --clip-grad 0.3"),
    ("switch-ep2-edp2-zero2", "gpt", 4, f"{SWITCH} --ep 2 --micro-batch 2 --zero 2 {SGD_CLIP}"),
    ("switch-ep8", "gpt", 8, f"{SWITCH} --ep 8 --micro-batch 2"),
    ("switch-tp2-ep2", "gpt", 4, f"{SWITCH} --tp 2 --ep 2 --micro-batch 4 {SGD_CLIP}"),
    ("switch-tp2sp-ep2", "gpt", 4, f"{SWITCH} --tp 2 --sequence-parallel --ep 2 --micro-batch 4 {SGD_CLIP}"),
    ("switch-tp2sp-etp1-ep4", "gpt", 4, f"{SWITCH} --tp 2 --sequence-parallel --etp 1 --ep 4 --micro-batch 4"),
    ("switch-cp2-ep2", "gpt", 2, f"{SWITCH} --cp 2 --ep 2 --micro-batch 4"),
    ("switch-pp2-ep2", "gpt", 4, f"{SWITCH} --pp 2 --ep 2 --micro-batch 2"),
    ("top2-one-rank", "mixtral", 1, f"{TOP2} --micro-batch 4"),
    ("top2-gshard", "mixtral", 1, f"{TOP2} --token-drop-policy gshard --micro-batch 8"),
    ("top2-probs-ep2", "mixtral", 2, f"{TOP2} --token-drop-policy probs --ep 2 --micro-batch 4"),
    ("top3-ep2", "mixtral", 2, f"{TOP2} --top-k 3 --ep 2 --micro-batch 4 --recompute full"),
    ("top2-ep2-zero3", "mixtral", 2, f"{TOP2} --ep 2 --micro-batch 4 --zero 3 --policy fsdp"),
    ("top2-ep2-edp2-zero3", "mixtral", 4, f"{TOP2} --ep 2 --micro-batch 2 --zero 3 --policy fsdp --clip-grad 0.3"),
    ("top2-tp2sp-ep2-zero1-shared", "mixtral", 4,
     f"{TOP2} --shared-ffn 12 --tp 2 --sequence-parallel --ep 2 --micro-batch 4 --zero 1 --clip-grad 0.3"),
    ("top2-shared-every2", "mixtral", 2, f"{TOP2} --shared-ffn 12 --moe-every 2 --ep 2 --micro-batch 4"),
    ("switch-ep2-uneven", "gpt", 2, f"{SWITCH} --ep 2 --micro-batch 4 --policy priority --expert-exchange uneven"),
    ("top2-ep4-uneven-zero1", "mixtral", 4, f"{TOP2} --ep 4 --micro-batch 2 --zero 1 --expert-exchange uneven"),
    ("top2-ep2-dropless", "mixtral", 2, "--capacity-factor 0 --aux-loss-coeff 0.02 --ep 2 --micro-batch 4"),
    ("switch-ep2-tutel", "gpt", 2, f"{SWITCH} --ep 2 --micro-batch 8 --policy tutel"),
    ("top2-tp2sp-ep2-weft", "mixtral", 4,
     f"{TOP2} --tp 2 --sequence-parallel --ep 2 --micro-batch 4 --policy weft --budget 2"),
    ("top2-etp2", "mixtral", 2, f"{TOP2} --etp 2 --micro-batch 4 {SGD_CLIP}"),
    ("switch-pp2-ep2-slices-zero1", "gpt", 4, f"{SWITCH} --pp 2 --ep 2 --slices 5,8,3 --zero 1 {SGD_CLIP}"),
    ("top2-pp2-slices-zb-h1-dropless", "mixtral", 2,
     f"--capacity-factor 0 --aux-loss-coeff 0.02 --pp 2 --slices 4 --schedule zb-h1 {SGD_CLIP}"),
    ("top2-pp2-ep2-slices-uneven-zb-h2", "mixtral", 4,
     f"{TOP2} --pp 2 --ep 2 --slices 8,6,2 --expert-exchange uneven --schedule zb-h2 --policy priority {SGD_CLIP}"),
    ("switch-tp2sp-pp2-ep2-slices", "gpt", 4,
     f"{SWITCH} --tp 2 --sequence-parallel --etp 1 --pp 2 --ep 2 --slices 6,4,6 --recompute full {SGD_CLIP}"),
    ("switch-cp2-pp2-ep2-slices-zero1", "gpt", 4,
     f"{SWITCH} --cp 2 --pp 2 --ep 2 --slices 8,2,6 --zero 1 {SGD_CLIP}"),
    ("top2-cp2-pp2-slices-zb-h1", "mixtral", 4,
     f"{TOP2} --cp 2 --pp 2 --slices 2 --schedule zb-h1 --policy priority {SGD_CLIP}"),
]
# Planned first, from figures that no machine's mood changes: with links so slow that experts come in parts.
IN_PARTS = [
    ("switch-ep4-lancet", "gpt", 4, f"{SWITCH} --ep 4 --micro-batch 4 --policy lancet"),
    ("top2-ep2-lancet-shared", "mixtral", 2, f"{TOP2} --shared-ffn 12 --ep 2 --micro-batch 8 --policy lancet"),
    ("top2-ep2-weft-zero1", "mixtral", 2, f"{TOP2} --ep 2 --micro-batch 4 --zero 1 --policy weft --budget 2"),
]


def call(command):
    done = warm_program.run(command, timeout=300)
    if done.returncode != 0:
        raise BadRecord(f"exit code {done.returncode}: {' '.join(done.args)}\n{done.stderr[-2000:]}")


def plan_in_parts(weft, folder, case):
    """The file of a plan that cuts the exchanges of experts."""
    name, model, ranks, flags = case
    call([weft, "plan", "--model", folder / f"{model}.json", "--cluster", f"local:{ranks},nic=10MB/s", *PLANNED,
          *"--no-dropout --precision fp32 --grad-dtype fp32".split(), *flags.split(), "--out", folder / f"{name}-plan"])
    file = folder / f"{name}-plan" / "plan.json"
    if not any(operation.get("role") == "expert_dispatch" and operation["origins"][0][-1] > 1
               for operation in json.loads(file.read_text())["operations"]):
        raise BadRecord(f"{file}: has no parts of the exchanges of experts: nothing is tested")
    return file


def make_record(weft, folder, case):
    name, model, ranks, flags = case
    if case in IN_PARTS:
        call([weft, "run", plan_in_parts(weft, folder, case), *TRAINED, "--profile", folder / PROFILE, "--record",
              folder / name])
    else:
        defaults = [] if "--policy" in flags else ["--policy", "serial"]
        defaults += [] if "--lr" in flags else ["--lr", "1e-3"]
        call([weft, "run", "--model", folder / f"{model}.json", "--cluster", f"local:{ranks},nic=1GB/s", *PLANNED,
              *TRAINED, "--profile", folder / PROFILE, *flags.split(), *defaults, "--record", folder / name])
    record = read_record(folder / name)
    length = sum(oracle.norm(gradient)**2 for gradient in record.gradients.values())**0.5
    if length <= record.run["clip_grad"]:
        raise BadRecord(f"gradients of norm {length} are not clipped at {record.run['clip_grad']}: nothing is tested")
    return record


def check(case, pending):
    """True where the run and PyTorch agree, and training trains."""
    try:
        record = pending.result()
        findings = oracle.check(record)
    except (BadRecord, KeyError, RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"FAIL  {case[0]}  {error}", flush=True)
        return False
    losses = record.run["losses"]
    good = oracle.agree(findings) and losses[-1] < losses[0]
    worst = {}
    for finding in findings:
        worst[finding.kind] = max(worst.get(finding.kind, 0.0), finding.error)
    figures = "  ".join(f"{kind} {error:.1e}" for kind, error in worst.items())
    figures += f"  losses {losses[0]:.3f} to {losses[-1]:.3f}"
    print(f"{'ok' if good else 'FAIL':4}  {case[0]:32}  {figures}", flush=True)
    if not good:
        print(*(f"      {line}" for line in oracle.summary(findings)), sep="\n", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", help="the program")
    parser.add_argument("--only", default="", help="only runs with this text in their names")
    parser.add_argument("--keep", help="leave the records in this folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time (default: cores)")
    arguments = parser.parse_args()
    oracle.torch.set_num_threads(1)
    cases = [case for case in CASES + IN_PARTS if arguments.only in case[0]]
    if not cases:
        parser.error(f"--only {arguments.only}: no run has that in its name")
    if arguments.keep:
        Path(arguments.keep).mkdir(parents=True, exist_ok=True)
    scratch = contextlib.nullcontext(arguments.keep) if arguments.keep else tempfile.TemporaryDirectory()
    with scratch as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        folder = Path(folder)
        for name, config in CONFIGS.items():
            (folder / f"{name}.json").write_text(json.dumps(config))
        (folder / PROFILE).write_text('{"weft_profile": 1}')
        runs = [pool.submit(make_record, arguments.weft, folder, case) for case in cases]
        results = [check(case, pending) for case, pending in zip(cases, runs)]
    print(f"{results.count(True)} of {len(results)} runs agree with PyTorch")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
