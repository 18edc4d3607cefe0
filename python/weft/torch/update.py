"""The user's optimizer: applied to a few parameters at a time, and later than it was asked for, where that is known to be the same; called
once and whole, as its user wrote it, everywhere else."""

import contextlib
import inspect
import sys
from typing import Dict, Iterator, List, Sequence

import torch

from .watched_state import raw_state

_OPTIMIZERS = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
# Optimizers of torch.optim by exact class: each treats every parameter by itself, and all that it remembers is in `state`. A class that
# merely inherits may do anything in its `step`.
PER_PARAMETER = frozenset(("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"))
# These treat even every element by itself, so a slice of a parameter can be updated alone.
ELEMENTWISE = PER_PARAMETER - {"Adafactor", "Muon"}


def _is_of_pytorch(optimizer: torch.optim.Optimizer) -> bool:
    kind = type(optimizer)
    return (kind.__module__.startswith("torch.optim") and kind is getattr(torch.optim, kind.__name__, None)
            and inspect.unwrap(kind.step).__module__.startswith("torch.optim"))


def is_per_parameter(optimizer: torch.optim.Optimizer) -> bool:
    return _is_of_pytorch(optimizer) and type(optimizer).__name__ in PER_PARAMETER


def is_elementwise(optimizer: torch.optim.Optimizer) -> bool:
    return _is_of_pytorch(optimizer) and type(optimizer).__name__ in ELEMENTWISE


def replaced_step(optimizer: torch.optim.Optimizer) -> bool:
    """Whether somebody has put a `step` of his own on this object. Schedulers do too, but theirs only counts."""
    step = optimizer.__dict__.get("step")
    while step is not None and (getattr(step, "_with_counter", False) or getattr(step, "_wrapped_by_lr_sched", False)):
        within = inspect.getclosurevars(step).nonlocals
        step = within.get("func")
        if getattr(step, "__wrapped__", step) in (type(optimizer).step, getattr(type(optimizer).step, "__wrapped__", None)):
            return False
    return step is not None


@contextlib.contextmanager
def plain_context() -> Iterator[None]:
    """Without autocast, inference mode and modes of the user's, in which forward may be when it updates what it needs."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        for kind, enabled in (("cuda", torch.is_autocast_enabled()), ("cpu", torch.is_autocast_cpu_enabled())):
            if enabled:
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch._C._get_tracing_state() is not None:
            stack.enter_context(untraced())
        if getattr(torch._C, "_len_torch_dispatch_stack", int)():
            from torch.utils._python_dispatch import _disable_current_modes
            stack.enter_context(_disable_current_modes())
        yield


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """torch.jit.trace records what happens in a forward; updates are no part of it."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


def _is_plain_context() -> bool:
    return not (torch.is_inference_mode_enabled() or torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()
                or torch._C._get_tracing_state() is not None or getattr(torch._C, "_len_torch_dispatch_stack", int)())


class DeferredUpdate:
    """Remembers the settings of a step, so that updates use them however much later they happen: a scheduler may have changed the
    learning rate by then. `per_parameter`: its user says that the optimizer treats each parameter by itself."""

    def __init__(self, optimizer: torch.optim.Optimizer, per_parameter: bool = False):
        self.optimizer = optimizer
        kind = type(optimizer).__name__
        if replaced_step(optimizer):
            self._why_whole = f"the step of this {kind} was replaced"
        elif per_parameter or is_per_parameter(optimizer):
            self._why_whole = ""
        else:
            self._why_whole = (f"{kind} is none of torch.optim's that are known to treat each parameter by itself "
                               "(overlap(..., per_parameter=True) says that it does)")
        # Updates go through a copy, so that nobody sees the user's own with a part of its parameters. State is shared.
        self._shadow = object.__new__(type(optimizer))
        self._known: List[int] = []
        self._group_of: Dict[torch.nn.Parameter, int] = {}
        self._settings: List[dict] = []
        self._state = raw_state(optimizer)
        self.look_at_groups()

    def look_at_groups(self) -> bool:
        """Returns whether parameters came or went."""
        found = [id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]]
        if found == self._known:
            return False
        self._known = found
        self._group_of = {parameter: index for index, group in enumerate(self.optimizer.param_groups) for parameter in group["params"]}
        return True

    def handles(self, parameter: torch.nn.Parameter) -> bool:
        return parameter in self._group_of

    def parameters(self) -> List[torch.nn.Parameter]:
        return list(self._group_of)

    def why_whole(self) -> str:
        """Why a step is one call of the optimizer, now; empty where its parameters may be updated one by one."""
        optimizer = self.optimizer
        if self._why_whole:
            return self._why_whole
        if getattr(optimizer, "_optimizer_step_pre_hooks", None) or getattr(optimizer, "_optimizer_step_post_hooks", None) or any(
                getattr(_OPTIMIZERS, name, None) for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")):
            return "the optimizer has hooks that look at whole steps"
        if getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None:
            return "a gradient scaler works inside the optimizer"
        if any(group.get("differentiable") for group in optimizer.param_groups):
            return "the optimizer is differentiable"
        return ""

    def remember_settings(self) -> None:
        self._state = raw_state(self.optimizer)  # should somebody put another in its place, this one was meant
        def fixed(value):
            return value.clone() if isinstance(value, torch.Tensor) else value
        self._settings = [{key: fixed(value) for key, value in group.items() if key != "params"}
                          for group in self.optimizer.param_groups]

    def apply(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Updates these parameters by their .grad, with the remembered settings."""
        groups: Dict[int, list] = {}
        for parameter in parameters:
            groups.setdefault(self._group_of[parameter], []).append(parameter)
        shadow = self._shadow
        shadow.__dict__.update({key: value for key, value in self.optimizer.__dict__.items() if key not in _OWN})
        shadow.param_groups = [{**self._settings[index], "params": chosen} for index, chosen in groups.items()]
        shadow.state = self._state
        if _is_plain_context():
            type(shadow).step(shadow)
        else:
            with plain_context():
                type(shadow).step(shadow)


_OWN = frozenset(("step", "zero_grad", "state_dict", "load_state_dict", "weft", "param_groups"))
