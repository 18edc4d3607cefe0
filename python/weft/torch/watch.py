"""Notices changes of a model: other modules, other parameters, parameters that are frozen or trained since."""

import contextlib
import inspect
import itertools
import operator
from typing import List

import torch

from .backward import is_called_by
from .compiled import CAN_COMPILE, compiled_calls

_is_trained = operator.attrgetter("requires_grad")


def _functional_calls() -> set:
    found = []
    with contextlib.suppress(ImportError):
        from torch.nn.utils import stateless
        found += [getattr(stateless, "functional_call", None), getattr(stateless, "_functional_call", None)]
    found.append(getattr(getattr(torch, "func", None), "functional_call", None))
    return {inspect.unwrap(function).__code__ for function in found if function is not None}


_FUNCTIONAL_CALLS = _functional_calls()


def modules_of_python(model: torch.nn.Module) -> List[torch.nn.Module]:
    """Without those that TorchScript holds: their dictionaries are none of Python's."""
    return [module for module in model.modules() if isinstance(module._parameters, dict) and isinstance(module._modules, dict)]


class Watch:
    """Compares identities, which costs next to nothing: no line of Python runs for each module."""

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self._look_at_all()

    def _look_at_all(self) -> None:
        self._holders = [holder for module in modules_of_python(self._model) for holder in (module._parameters, module._modules)]
        self._known = self._ids()
        self._kept = [list(holder.values()) for holder in self._holders]  # alive, so that no other object gets its identity
        self._parameters = list(self._model.parameters())
        self._trained = list(map(_is_trained, self._parameters))
        self._modules = list(self._model.modules())
        self._compiled = compiled_calls(self._modules)

    def _ids(self) -> List[int]:
        """Identities of all that modules hold, and how much each holds."""
        return [*map(len, self._holders), *map(id, itertools.chain.from_iterable(map(dict.values, self._holders)))]

    def _lent(self) -> bool:
        """torch.func.functional_call puts other tensors into the modules for one forward. That is looked at only where something differs."""
        return self._ids() != self._known and is_called_by(_FUNCTIONAL_CALLS)

    def has_changed(self) -> bool:
        """Since it was asked last."""
        if self._lent():
            return False
        if self._ids() == self._known and list(map(_is_trained, self._parameters)) == self._trained and (
                not CAN_COMPILE or compiled_calls(self._modules) == self._compiled):
            return False
        self._look_at_all()
        return True
