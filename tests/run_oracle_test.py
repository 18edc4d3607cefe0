#!/usr/bin/env python3
"""`weft run` against PyTorch: layouts, policies and optimizers, every pair of their values at least once.

    run_oracle_test.py WEFT [--list] [--only TEXT] [--keep FOLDER] [-- FLAGS OF weft run]

Every run sees the same global batch, so runs that share model, optimizer and clipping are the same training: each is
checked against PyTorch and against one rank alone. Some are run twice and must give the same bits.
Exit code 77 where there is no torch (see oracle/oracle.py).
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "oracle"))
import oracle  # noqa: E402  (exits 77 where there is no torch)
import reference_model  # noqa: E402
from records import BadRecord, read_record  # noqa: E402

STEPS, SEQ, SEED = 20, 16, 7
GLOBAL_BATCH = 24  # every ranks * micro_batches divides it
FACTORS = {
    "model": ["gpt", "llama"],
    "ranks": [2, 4],  # one rank has nothing to send, whatever the policy: see SINGLE
    "zero": [0, 1, 2, 3],
    "micro_batches": [1, 2, 3],
    "clip": [0, 0.3],  # below the first gradients' norm, so that it bites
    "optimizer": ["adam", "sgd"],
    "policy": ["serial", "ddp", "megatron-dist", "megatron-grad", "megatron-param", "fsdp", "priority"],
}
SINGLE = [{"zero": 1, "micro_batches": 3, "policy": "ddp"}, {"zero": 2, "micro_batches": 2, "policy": "priority"},
          {"zero": 3, "micro_batches": 2, "policy": "fsdp"}]
# So small that even these models have several.
BUCKETS = ["--bucket-mib", "0.03", "--bucket-size", "8000"]
LEARNING_RATE = {"adam": 1e-3, "sgd": 0.05}
# Sizes that four ranks do not divide: shards have padding. A vocabulary with padded rows; heads wider than hidden.
CONFIGS = {
    "gpt": {"model_type": "gpt2", "n_layer": 3, "n_embd": 33, "n_head": 3, "n_positions": 18, "vocab_size": 300},
    "llama": {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 30, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 50, "max_position_embeddings": 64,
              "vocab_size": 256, "tie_word_embeddings": False},
}


def pairs_of(case):
    return set(itertools.combinations(sorted(case.items()), 2))


def all_pairs(factors):
    pairs = set()
    for a, b in itertools.combinations(sorted(factors), 2):
        pairs |= {((a, x), (b, y)) for x in factors[a] for y in factors[b]}
    return pairs


def covering_cases(factors):
    """Greedy: every case starts from an uncovered pair and takes, factor by factor, the value that covers most (of
    equals the one used least)."""
    left, cases = all_pairs(factors), []

    def gain(case, name, value):
        return len(pairs_of({**case, name: value}) & left), -sum(other[name] == value for other in cases)

    while left:
        case = dict(min(left, key=repr))
        for name in sorted(factors, key=lambda f: -len(factors[f])):
            if name not in case:
                case[name] = max(factors[name], key=lambda value: gain(case, name, value))
        left -= pairs_of(case)
        cases.append({name: case[name] for name in factors})
    return cases


def all_cases():
    covering = covering_cases(FACTORS)
    missing = all_pairs(FACTORS) - set().union(*map(pairs_of, covering))
    if missing:
        raise AssertionError(f"pairs that no case covers: {missing}")
    baselines = {name_of(alone(case)): alone(case) for case in covering}.values()
    return [*baselines, *({**base, **single} for base, single in zip(baselines, SINGLE)), *covering]


def alone(case):
    """The same training on one rank."""
    return {**case, "ranks": 1, "zero": 0, "micro_batches": 1, "policy": "serial"}


def name_of(case):
    return (f"{case['model']}-{case['optimizer']}-clip{case['clip']}-ranks{case['ranks']}-zero{case['zero']}"
            f"-micro{case['micro_batches']}-{case['policy']}")


class Failure(Exception):
    pass


class Runs:
    def __init__(self, weft, folder, extra):
        self.weft, self.folder, self.extra = weft, Path(folder), extra
        self.records, self.references = {}, {}
        for name, config in CONFIGS.items():
            (self.folder / f"{name}.json").write_text(json.dumps(config))

    def command(self, case, record):
        return [self.weft, "run", "--model", self.folder / f"{case['model']}.json", "--cluster",
                f"local:{case['ranks']},nic=1GB/s", "--seq", SEQ, "--global-batch", GLOBAL_BATCH, "--micro-batch",
                GLOBAL_BATCH // (case["ranks"] * case["micro_batches"]), "--zero", case["zero"], "--policy",
                case["policy"], "--clip-grad", case["clip"], "--optimizer", case["optimizer"], "--lr",
                LEARNING_RATE[case["optimizer"]], "--steps", STEPS, "--seed", SEED, "--record", record, "--json",
                *BUCKETS, *self.extra]

    def run(self, case, suffix=""):
        """The record of a case; run once for every suffix."""
        name = name_of(case) + suffix
        if name not in self.records:
            command = [str(part) for part in self.command(case, self.folder / name)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired as error:
                raise Failure(f"does not end within 120 s: {' '.join(command)}") from error
            if done.returncode != 0:
                raise Failure(f"exit code {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
            record = read_record(self.folder / name)
            self.check_case(case, record.run)
            self.records[name] = record
        return self.records[name]

    def check_case(self, case, run):
        """A run that ignored a flag would be checked for the wrong thing."""
        said = {"ranks": run["data_ranks"], "zero": run["zero"], "policy": run["policy"], "clip": run["clip_grad"],
                "optimizer": run["optimizer"]["name"],
                "micro_batches": run["global_batch"] // (run["micro_batch"] * run["data_ranks"])}
        for key, value in said.items():
            if value != case[key]:
                raise Failure(f"the record says {key} {value}, asked for was {case[key]}")
        if run["steps"] != STEPS or run["global_batch"] != GLOBAL_BATCH or run["seed"] != SEED:
            raise Failure("the record says other steps, batches or seed than were asked for")

    def reference(self, record):
        """PyTorch's training, once for all runs that start from the same bytes with the same settings."""
        digest = hashlib.sha256(record.batches.tobytes())
        for name in sorted(record.initial):
            digest.update(name.encode() + record.initial[name].tobytes())
        for key in ("model", "optimizer", "clip_grad", "steps"):
            digest.update(json.dumps(record.run[key], sort_keys=True).encode())
        key = digest.hexdigest()
        if key not in self.references:
            self.references[key] = reference_model.train(record)
        return self.references[key]


def report(label, findings, seconds):
    good = oracle.agree(findings)
    worst = {}
    for finding in findings:
        worst[finding.kind] = max(worst.get(finding.kind, 0.0), finding.error)
    figures = "  ".join(f"{kind} {error:.1e}" for kind, error in worst.items() if kind != "start")
    print(f"{'ok' if good else 'FAIL':4}  {label:72}  {figures}  ({seconds:.1f} s)", flush=True)
    if not good:
        print(*(f"      {line}" for line in oracle.summary(findings)), sep="\n", flush=True)
    return good


def attempt(label, make_findings):
    begin = time.monotonic()
    try:
        return report(label, make_findings(), time.monotonic() - begin)
    except (Failure, BadRecord, KeyError, RuntimeError) as error:
        print(f"FAIL  {label}  {error}", flush=True)
        return False


def check_case(runs, case):
    def against_torch():
        record = runs.run(case)
        return oracle.check_against(record, runs.reference(record))

    results = [attempt(f"{name_of(case)} and PyTorch", against_torch)]
    if case != alone(case) and results[0]:
        results.append(attempt(f"{name_of(case)} and one rank",
                               lambda: oracle.compare(runs.run(case), runs.run(alone(case)))))
    return all(results)


def twice(cases):
    """A case of every ZeRO stage on the most ranks, and one of every policy on several."""
    chosen = {}
    for case in sorted(cases, key=lambda c: -c["ranks"]):
        if case["ranks"] > 1:
            chosen.setdefault(("zero", case["zero"]), case)
            chosen.setdefault(("policy", case["policy"]), case)
    return list({name_of(case): case for case in chosen.values()}.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft", help="the program")
    parser.add_argument("--list", action="store_true", help="the runs, not run")
    parser.add_argument("--only", default="", help="only runs with this text in their names")
    parser.add_argument("--keep", help="leave the records in this folder")
    parser.add_argument("extra", nargs="*", help="behind --: more flags for every run")
    arguments = parser.parse_args()
    oracle.torch.set_num_threads(1)
    cases = [case for case in all_cases() if arguments.only in name_of(case)]
    if arguments.list:
        print(*map(name_of, cases), sep="\n")
        return 0
    if not cases:
        parser.error(f"--only {arguments.only}: no run has that in its name")
    if arguments.keep:
        Path(arguments.keep).mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    scratch = contextlib.nullcontext(arguments.keep) if arguments.keep else tempfile.TemporaryDirectory()
    with scratch as folder:
        runs = Runs(arguments.weft, folder, arguments.extra)
        results = [check_case(runs, case) for case in cases]
        for case in twice(cases):
            results.append(attempt(f"{name_of(case)} twice, bit by bit",
                                   lambda: oracle.compare(runs.run(case), runs.run(case, "-again"), identical=True)))
    print(f"{results.count(True)} of {len(results)} checks passed in {time.monotonic() - begin:.0f} s")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
