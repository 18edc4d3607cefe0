"""Whether the code that runs now was called by a backward pass: by one that computes activations again, or by one inside another."""

import sys

import torch

_CODES = {function.__code__ for function in (torch.autograd.backward, torch.autograd.grad)}
_NODE = {torch.autograd.function.BackwardCFunction.apply.__code__}
_task_id = getattr(torch._C, "_current_graph_task_id", None)


def _callers(codes) -> int:
    frame, found = sys._getframe(2), 0
    while frame is not None:
        found += frame.f_code in codes
        frame = frame.f_back
    return found


def is_called_by(codes) -> bool:
    """Whether a function with one of these codes has called what runs now."""
    return _callers(codes) > 0


def inside_backward() -> bool:
    """Also inside a function that recomputes."""
    if _task_id is not None:
        return _task_id() != -1
    return _callers(_CODES | _NODE) > 0


def inside_another_backward() -> bool:
    """In what runs when a backward pass ends: whether that one was started by a node of another."""
    return _callers(_NODE) > 0
