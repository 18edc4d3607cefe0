"""Notices changes of a model: other modules, other parameters, parameters that are frozen or trained since."""

import itertools
import operator
from typing import List

import torch

_is_trained = operator.attrgetter("requires_grad")


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

    def _ids(self) -> List[int]:
        """Of all that modules hold, and how much each holds."""
        return [*map(len, self._holders), *map(id, itertools.chain.from_iterable(map(dict.values, self._holders)))]

    def has_changed(self) -> bool:
        """Since it was asked last."""
        if self._ids() == self._known and list(map(_is_trained, self._parameters)) == self._trained:
            return False
        self._look_at_all()
        return True
