#!/usr/bin/env python3
"""Checks what `weft run --record FOLDER` computed against PyTorch, or two records against each other.

    oracle.py FOLDER...                  the same training by torch's autograd and optimizers
    oracle.py --compare A B              two runs of the same training, say on one rank and on four
    oracle.py --compare A B --identical  the same bits
    oracle.py --losses FOLDER            prints what PyTorch's losses are, as JSON, also in bfloat16

Exit code 0: all agree; 1: something differs (the worst of every kind is printed); 2: a record cannot be read;
77: there is no torch here. The folder and the tolerances are described in docs/oracle.md.
"""

import argparse
import json
import sys

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"skipped: this python has no {missing.name} (Debian: apt install python3-torch, and /usr/bin/python3)")
    sys.exit(77)

import reference_model
from records import BadRecord, read_record

LOSS = 1e-4  # relative, every step
GRADIENT = 1e-5  # |difference| / |gradient| per tensor
RATE = 1e-12  # learning rates, relative
FINAL = 1e-3  # |difference| / |weights| per tensor
# A small learning rate moves weights by less than FINAL: what moved must be right too, as far as rounding to float32
# lets it be.
MOVED = 1e-3
ROUNDING = 1e-6


class Finding:
    """One comparison; it fails where the error is above the tolerance, or no number."""

    def __init__(self, kind, name, error, tolerance):
        self.kind, self.name, self.error, self.tolerance = kind, name, float(error), tolerance

    @property
    def failed(self):
        return not self.error <= self.tolerance


def relative(difference, size):
    """0 / 0 is no difference at all."""
    return 0.0 if difference == 0 else difference / size if size > 0 else float("inf")


def norm(array):
    return numpy.linalg.norm(numpy.asarray(array, numpy.float64))


def missing_or_misshapen(kind, ours, theirs):
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs or ours[name].shape != theirs[name].shape:
            yield Finding(kind, f"{name} (is there, and of one shape)", float("inf"), 0)


def without_key_bias(name, array, shape):
    """The weights that count. All keys of a row share their bias, so without rotation softmax cancels it: its gradient
    is zero but for rounding, which Adam blows up to steps of the learning rate. It changes no result."""
    if not name.endswith(".qkv.bias") or shape["positions"] == "rotary":
        return array
    begin = shape["heads"] * shape["head_dim"]
    return numpy.delete(array, slice(begin, begin + shape["kv_heads"] * shape["head_dim"]))


def compare_losses(ours, theirs):
    for step, (a, b) in enumerate(zip(ours, theirs), 1):
        yield Finding("loss", f"step {step}", relative(abs(a - b), abs(b)), LOSS)


def compare_validation(run, theirs):
    """The same tolerance as of a training loss."""
    for entry in run.get("validation", []):
        ours, other = entry["loss"], theirs[entry["step"]]
        yield Finding("validation", f"step {entry['step']}", relative(abs(ours - other), abs(other)), LOSS)


def compare_rates(run):
    for step, rate in enumerate(run.get("learning_rates", [])):
        expected = reference_model.learning_rate(run, step)
        yield Finding("rate", f"step {step + 1}", relative(abs(rate - expected), abs(expected)), RATE)


def compare_gradients(ours, theirs):
    yield from missing_or_misshapen("gradient", ours, theirs)
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name].shape == theirs[name].shape:
            yield Finding("gradient", name, relative(norm(ours[name] - theirs[name]), norm(theirs[name])), GRADIENT)


def compare_weights(record, theirs):
    ours, initial, shape = record.final, record.initial, record.run["model"]
    yield from missing_or_misshapen("weights", ours, theirs)
    for name in sorted(ours.keys() & theirs.keys() & initial.keys()):
        if not ours[name].shape == theirs[name].shape == initial[name].shape:
            continue
        a, b, start = (without_key_bias(name, array, shape) for array in (ours[name], theirs[name], initial[name]))
        difference = norm(a - b)
        yield Finding("weights", name, relative(difference, norm(b)), FINAL)
        beyond_rounding = max(0.0, difference - ROUNDING * norm(b))
        yield Finding("moved", name, relative(beyond_rounding, norm(b - start)), MOVED)


def check(record, dtype=torch.float32, device="cpu"):
    """The record against PyTorch's training from the same weights on the same batches."""
    return check_against(record, reference_model.train(record, dtype, device))


def check_against(record, reference):
    return [*compare_losses(record.run["losses"], reference.losses),
            *compare_gradients(record.gradients, reference.gradients), *compare_weights(record, reference.final),
            *compare_rates(record.run), *compare_validation(record.run, reference.validation)]


def same_bits(kind, ours, theirs):
    yield from missing_or_misshapen(kind, ours, theirs)
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name].shape == theirs[name].shape:
            changed = numpy.count_nonzero(ours[name].view(numpy.uint32) != theirs[name].view(numpy.uint32))
            yield Finding(kind, f"{name} (elements)", changed, 0)


def same_start(a, b):
    """What must be equal before anything else can be."""
    yield from same_bits("start", a.initial, b.initial)
    same_batches = a.batches.shape == b.batches.shape and numpy.array_equal(a.batches, b.batches)
    yield Finding("start", "batches", 0 if same_batches else float("inf"), 0)
    for key in ("steps", "optimizer", "clip_grad", "lr_schedule"):
        yield Finding("start", key, 0 if a.run.get(key) == b.run.get(key) else float("inf"), 0)


def compare(a, b, identical=False):
    """Two records of the same training."""
    findings = list(same_start(a, b))
    if not identical:
        theirs = {entry["step"]: entry["loss"] for entry in b.run.get("validation", [])}
        return findings + [*compare_losses(a.run["losses"], b.run["losses"]), *compare_validation(a.run, theirs),
                           *compare_gradients(a.gradients, b.gradients), *compare_weights(a, b.final)]
    for step, (x, y) in enumerate(zip(a.run["losses"], b.run["losses"]), 1):
        findings.append(Finding("loss", f"step {step}", abs(x - y), 0))
    same = a.run.get("validation") == b.run.get("validation")
    findings.append(Finding("validation", "all", 0 if same else float("inf"), 0))
    return findings + [*same_bits("gradient", a.gradients, b.gradients), *same_bits("weights", a.final, b.final)]


def summary(findings):
    """The worst of every kind, and all that failed: lines of a table."""
    lines = []
    for kind in dict.fromkeys(f.kind for f in findings):
        of_kind = sorted((f for f in findings if f.kind == kind), key=lambda f: (not f.failed, -f.error))
        shown = [f for f in of_kind if f.failed][:8] or of_kind[:1]
        for f in shown:
            lines.append(f"{'FAIL' if f.failed else 'ok':4}  {f.kind:8}  {f.error:9.2e} of {f.tolerance:7.0e}  {f.name}")
    return lines


def agree(findings):
    return bool(findings) and not any(f.failed for f in findings)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="records to check against PyTorch")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two records against each other")
    parser.add_argument("--identical", action="store_true", help="with --compare: bit by bit")
    parser.add_argument("--losses", metavar="FOLDER", help="print the losses of PyTorch's training")
    parser.add_argument("--precision", choices=["float32", "float64", "bfloat16"], default="float32",
                        help="of the reference; bfloat16 (with an fp32 master copy) for --losses only")
    parser.add_argument("--device", default="cpu", help="of the reference: cpu or cuda (default: cpu)")
    arguments = parser.parse_args()
    if sum(map(bool, (arguments.folders, arguments.compare, arguments.losses))) != 1:
        parser.error("give record folders, or --compare A B, or --losses FOLDER")
    if arguments.precision == "bfloat16" and not arguments.losses:
        parser.error("--precision bfloat16: is for --losses; what must agree is stated for fp32")
    return arguments


def main():
    arguments = read_arguments()
    torch.set_num_threads(1)
    good, dtype = True, getattr(torch, arguments.precision)
    try:
        if arguments.losses:
            print(json.dumps(reference_model.train(read_record(arguments.losses), dtype, arguments.device).losses))
            return 0
        if arguments.compare:
            results = [(" and ".join(arguments.compare),
                        compare(*map(read_record, arguments.compare), arguments.identical))]
        else:
            results = ((folder, check(read_record(folder), dtype, arguments.device)) for folder in arguments.folders)
        for name, findings in results:
            print(f"{name}: {'agree' if agree(findings) else 'DIFFER'}", *summary(findings), sep="\n  ")
            good = good and agree(findings)
    except BadRecord as error:
        print(f"oracle.py: {error}", file=sys.stderr)
        return 2
    except (KeyError, RuntimeError) as error:
        print(f"oracle.py: the record describes no model that can be built: {error}", file=sys.stderr)
        return 2
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
