"""What an optimizer remembers of its parameters, for those who look into it: the updates that change it come first."""

import copy
from collections.abc import MutableMapping
from typing import Callable

import torch


class WatchedState(MutableMapping):
    """In the place of an optimizer's `state`."""

    def __init__(self, raw, settle: Callable[[], None]):
        self.raw, self._settle = raw, settle

    def _settled(self):
        self._settle()
        return self.raw

    def __getitem__(self, key):
        return self._settled()[key]  # a defaultdict makes what is missing

    def __setitem__(self, key, value):
        self._settled()[key] = value

    def __delitem__(self, key):
        del self._settled()[key]

    def __contains__(self, key):
        return key in self._settled()

    def __iter__(self):
        return iter(self._settled())

    def __len__(self):
        return len(self._settled())

    def __repr__(self):
        return repr(self._settled())

    def copy(self):
        return self._settled().copy()

    def __reduce__(self):
        return copy.copy, (self._settled(),)

    def __deepcopy__(self, memo):
        return copy.deepcopy(self._settled(), memo)


def raw_state(optimizer: torch.optim.Optimizer):
    """For the optimizer itself and whoever updates for it."""
    state = optimizer.state
    return state.raw if isinstance(state, WatchedState) else state
