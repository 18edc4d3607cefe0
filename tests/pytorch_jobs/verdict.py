"""Compares what the ranks of a job have left behind with what they leave with DDP."""

from typing import List

import torch

CROSSES = ", across steps"  # of a case whose plan crosses steps

def apart(result: dict, other: dict) -> List[str]:
    """Paths whose values are not the same to the bit."""
    return [path for path in result if path in other and not same_bits(result[path], other[path])]


def same_bits(a, b) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    return a == b


def distance(a, b) -> float:
    """Relative to the largest element; infinity where something else than figures differs."""
    if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            if len(a) != len(b):
                return float("inf")
            return max(map(distance, a, b), default=0.0)
        if a == b or (a != a and b != b):
            return 0.0
        if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
            return float("inf")
    a, b = (torch.as_tensor(value, dtype=torch.float64) for value in (a, b))
    if a.shape != b.shape:
        return float("inf")
    if same_bits(a, b):
        return 0.0
    both = (a != a) & (b != b)
    a, b = (value.masked_fill(both, 0.0) for value in (a, b))
    off = float((a - b).abs().max() / (b.abs().max() + 1e-8))
    return off if off == off else float("inf")


def ddp_trouble(found, trouble):
    """Why DDP itself did not train the job; else nothing."""
    errors = [each.error + ": " + each.words.strip()[:300] for each in found if each is not None and each.error]
    return errors[0] if errors else trouble or ("" if all(found) else "a rank has left nothing behind")


def judge(kind, mode, found, trouble, expected):
    """(outcome, words): equal, refused, wrong, died or hung."""
    errors = [each for each in found if each is not None and each.error]
    own = next((each for each in errors if each.error not in ("JobFailed",)), errors[0] if errors else None)
    if own is not None:
        last = f"{own.error}: {' '.join(own.words.split())[:200]} (after {own.steps_done} steps)"
        may = kind.refused.get(mode)
        if may and own.error == may and own.is_wefts and not own.steps_done and len(errors) == len(found):
            return "refused", last
        return "died", last
    if trouble:
        return ("hung" if "did not end" in trouble else "died"), trouble
    worst, where, missing = 0.0, "", ""
    for rank, (here, there) in enumerate(zip(found, expected)):
        if here.result.keys() != there.result.keys():
            missing = f"results have other names: {sorted(here.result.keys() ^ there.result.keys())[:3]}"
        if [name for name, _ in here.notes] != [name for name, _ in there.notes]:
            missing = f"{len(here.notes)} figures instead of {len(there.notes)}"
        pairs = [(path, here.result.get(path), value) for path, value in there.result.items()]
        pairs += [(f"figure {name} (the {number + 1}th)", mine[1], value)
                  for number, (mine, (name, value)) in enumerate(zip(here.notes, there.notes))]
        for path, mine, theirs in pairs:
            off = distance(mine, theirs)
            if off > worst:
                worst, where = off, f"{path} on rank {rank}"
    if missing:
        return "wrong", missing
    drifted = set(apart(found[0].result, found[1].result)) - set(apart(expected[0].result, expected[1].result))
    if drifted and worst <= kind.tolerance:
        return "wrong", f"ranks differ in {sorted(drifted)[0]}"
    words = f"{worst:.2g} off in {where}" if worst else "to the bit"
    if found[0].crosses:
        words += CROSSES
    if drifted:
        words += f", and ranks differ in {sorted(drifted)[0]}"
    return ("equal" if worst <= kind.tolerance else "wrong"), words
