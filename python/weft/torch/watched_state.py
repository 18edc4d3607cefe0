"""What an optimizer remembers of its parameters, for those who look into it: the updates that change it come first."""

import copy
from collections import defaultdict
from collections.abc import MutableMapping
from typing import Callable

import torch


class WatchedState(MutableMapping):
    """In the place of an optimizer's `state`. `shards`: of a sharded job, whose own state is of slices; here it is of whole parameters."""

    def __init__(self, raw, settle: Callable[[], None], shards=None):
        self.raw, self._settle, self._shards = raw, settle, shards

    def _settled(self):
        self._settle()
        if self._shards is None:
            return self.raw
        whole = defaultdict(dict, self._shards.lent_state())
        whole.update((key, value) for key, value in self.raw.items() if key not in self._shards.own_keys())
        return whole

    def __getitem__(self, key):
        return self._settled()[key]  # a defaultdict makes what is missing

    def __setitem__(self, key, value):
        self._settle()
        if self._shards is not None and self._shards.owns_state_of(key):
            self._shards.put_state(key, value)
        else:
            self.raw[key] = value

    def __delitem__(self, key):
        self._settle()
        if self._shards is not None and self._shards.owns_state_of(key):
            self._shards.drop_state(key)
        else:
            del self.raw[key]

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


def keep_raw_state(optimizer: torch.optim.Optimizer) -> None:
    """Nobody watches any more."""
    optimizer.state = raw_state(optimizer)
