#!/usr/bin/env python3
"""`weft run --optimizer kfac` against an implementation of K-FAC in PyTorch (oracle/reference_kfac.py), over 12 steps.

    run_kfac_test.py WEFT [--only TEXT] [--keep FOLDER]

Every run is checked against PyTorch; those of several ranks also against one rank. Exit code 77 where there is no torch.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "oracle"))
import oracle  # noqa: E402  (exits 77 where there is no torch)
import warm_program  # noqa: E402
from records import read_record  # noqa: E402

CONFIGS = {
    "gpt": {"model_type": "gpt2", "n_layer": 4, "n_embd": 28, "n_head": 4, "n_inner": 52, "n_positions": 18,
            "vocab_size": 256},
    "llama": {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 24, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 64, "vocab_size": 256,
              "tie_word_embeddings": False},
}
SHARED = ("--seq 16 --global-batch 16 --no-dropout --bucket-mib 0.03 --bucket-size 8000 --budget 0.1 --json --steps 12 --seed 7 "
          "--threads 1 --optimizer kfac --lr 0.002 --kfac-lr 0.0003").split()
# Name, model, ranks, flags. What comes first for a model and its settings is the one rank that others are compared with.
CASES = [
    ("gpt-one", "gpt", 1, "--micro-batch 16 --policy serial"),
    ("gpt-one-micro", "gpt", 1, "--micro-batch 2 --policy weft"),
    ("gpt-dp2", "gpt", 2, "--micro-batch 4 --policy serial"),
    ("gpt-dp4", "gpt", 4, "--micro-batch 2 --policy weft"),
    ("gpt-pp2-gpipe", "gpt", 2, "--pp 2 --micro-batch 4 --schedule gpipe --policy weft"),
    ("gpt-pp4", "gpt", 4, "--pp 4 --micro-batch 2 --policy weft"),
    ("gpt-pp2-dp2", "gpt", 4, "--pp 2 --micro-batch 2 --policy weft"),
    ("gpt-pp2-zb", "gpt", 2, "--pp 2 --micro-batch 2 --schedule zb-h1 --policy weft"),
    ("llama3-one", "llama", 1, "--micro-batch 8 --policy serial --kfac-interval 3 --weight-decay 0.1 --clip-grad 0.5"),
    ("llama3-pp2-dp2", "llama", 4, "--pp 2 --micro-batch 2 --policy weft --kfac-interval 3 --weight-decay 0.1 --clip-grad 0.5"),
    ("llama3-dp2", "llama", 2, "--micro-batch 2 --policy ddp --kfac-interval 3 --weight-decay 0.1 --clip-grad 0.5"),
    ("gpt-zero1-dp2", "gpt", 2, "--zero 1 --micro-batch 4 --policy serial"),
    ("gpt-zero1-pp2-dp2", "gpt", 4, "--zero 1 --pp 2 --micro-batch 2 --policy weft"),
    ("gpt-zero2-dp2", "gpt", 2, "--zero 2 --micro-batch 2 --policy weft"),
    ("llama3-zero1-dp2", "llama", 2, "--zero 1 --micro-batch 2 --policy ddp --kfac-interval 3 --weight-decay 0.1 --clip-grad 0.5"),
    ("llama3-zero2-dp2", "llama", 2, "--zero 2 --micro-batch 2 --policy priority --kfac-interval 3 --weight-decay 0.1 "
                                     "--clip-grad 0.5"),
    ("gpt-damped-one", "gpt", 1, "--micro-batch 4 --policy serial --kfac-damping 0.3 --kfac-decay 0.5 --momentum 0.5 "
                                 "--lr-schedule cosine --lr-warmup 3"),
    # Factors are those of each tensor-parallel rank's part, so losses are not those of one rank.
    ("gpttp-tp2", "gpt", 2, "--tp 2 --micro-batch 4 --policy serial"),
    ("gpttp-tp2-sp-pp2", "gpt", 4, "--tp 2 --sequence-parallel --pp 2 --micro-batch 2 --policy weft"),
    ("llamatp-tp2", "llama", 2, "--tp 2 --micro-batch 4 --policy serial --kfac-interval 2"),
]
# Flags, reason.
REFUSED = [
    (4, "--tp 4 --micro-batch 4 --kv-heads 2", "--optimizer kfac: --tp 4 is more than"),
    (2, "--zero 3 --micro-batch 4", "--optimizer kfac: is not for --zero 3"),
    (2, "--cp 2 --micro-batch 4", "--optimizer kfac: is not for --cp 2"),
    (1, "--micro-batch 4 --kfac-interval 0", "--kfac-interval"),
]


def call(weft, folder, model, ranks, flags):
    return warm_program.run([weft, "run", "--model", folder / f"{model}.json", "--cluster", f"local:{ranks},nic=1GB/s",
                             *SHARED, *flags, "--profile", folder / "any_machine.json"], timeout=120)


def report(label, findings):
    good = oracle.agree(findings)
    worst = {}
    for finding in findings:
        worst[finding.kind] = max(worst.get(finding.kind, 0.0), finding.error)
    print(f"{'ok' if good else 'FAIL':4}  {label:40}  " +
          "  ".join(f"{kind} {error:.1e}" for kind, error in worst.items() if kind != "start"), flush=True)
    if not good:
        print(*(f"      {line}" for line in oracle.summary(findings)), sep="\n", flush=True)
    return good


def check(weft, folder, only):
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    (folder / "any_machine.json").write_text('{"weft_profile": 1}')  # nothing is measured before a run
    good, alone = True, {}
    for name, model, ranks, flags in CASES:
        family = name.split("-")[0]
        if only and only not in name and family in alone:
            continue
        done = call(weft, folder, model, ranks, [*flags.split(), "--record", folder / name])
        if done.returncode != 0:
            print(f"FAIL  {name}: exit code {done.returncode}: {done.stderr[-1500:]}", flush=True)
            good = False
            continue
        record = read_record(folder / name)
        if record.run["optimizer"]["name"] != "kfac":
            print(f"FAIL  {name}: the record says {record.run['optimizer']}")
            good = False
        good = report(f"{name} and PyTorch", oracle.check(record)) and good
        if family in alone and ranks > 1:
            good = report(f"{name} and one rank", oracle.compare(record, alone[family])) and good
        alone.setdefault(family, record)
    for ranks, flags, reason in REFUSED:
        done = call(weft, folder, "gpt", ranks, flags.split())
        refused = done.returncode == 2 and reason in done.stderr
        print(f"{'ok' if refused else 'FAIL':4}  refused: {reason}" + ("" if refused else f": {done.returncode} {done.stderr}"),
              flush=True)
        good = good and refused
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--only", help="cases whose name has this, beside the first of each model")
    parser.add_argument("--keep", help="folder for the records")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(arguments.keep or stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        return 0 if check(arguments.weft, folder, arguments.only) else 1


if __name__ == "__main__":
    sys.exit(main())
