"""Any torch.optim optimizer, applied to a few parameters at a time and later than its user asked for it."""

from typing import List, Sequence

import torch

from .errors import NotSupported

_NEEDS_ALL = {"LBFGS": "it looks at all parameters at once", "SparseAdam": "its gradients are sparse"}


class DeferredUpdate:
    """Remembers the settings of a step, so that updates use them however much later they happen: a scheduler may have
    changed the learning rate by then."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        for kind in type(optimizer).__mro__:
            if kind.__name__ in _NEEDS_ALL:
                raise NotSupported(f"{type(optimizer).__name__}: {_NEEDS_ALL[kind.__name__]}")
        self.optimizer = optimizer
        self._group_of = {}
        self._settings: List[dict] = []
        for index, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                self._group_of[parameter] = index

    def handles(self, parameter) -> bool:
        return parameter in self._group_of

    def remember_settings(self) -> None:
        def fixed(value):
            return value.clone() if isinstance(value, torch.Tensor) else value
        self._settings = [{key: fixed(value) for key, value in group.items() if key != "params"}
                          for group in self.optimizer.param_groups]

    def apply(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Updates these parameters by their .grad, with the remembered settings."""
        groups = {}
        for parameter in parameters:
            groups.setdefault(self._group_of[parameter], []).append(parameter)
        optimizer, whole = self.optimizer, self.optimizer.param_groups
        optimizer.param_groups = [{**self._settings[index], "params": chosen} for index, chosen in groups.items()]
        try:
            type(optimizer).step(optimizer)  # not the instance's, which schedulers wrap to count steps
        finally:
            optimizer.param_groups = whole
