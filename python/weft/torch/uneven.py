"""Ranks with unequal numbers of batches, as DDP has them: torch.distributed's Join, and `model.join()`.

A rank whose data is over shadows what the others do: it takes part in their rounds, with nothing of its own."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, JoinHook

from .errors import NotSupported

ON_MODEL = ("join", "join_hook", "join_device", "join_process_group", "_join_config")


class _Shadow(JoinHook):
    def __init__(self, session):
        self._session = session

    def main_hook(self) -> None:
        if _any_rank_averages(self._session, mine=False):
            self._session.shadow_round()

    def post_hook(self, is_last_joiner: bool) -> None:
        """All ranks end with the model of one that has seen the most batches."""
        session = self._session
        session.synchronize()
        told = torch.tensor([dist.get_rank() if is_last_joiner else -1], device=session.model.join_device)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        with torch.no_grad():
            for tensor in (*session.model.parameters(), *session.model.buffers()):
                dist.broadcast(tensor.data, int(told))


def _any_rank_averages(session, mine: bool) -> bool:
    told = torch.tensor([int(mine)], device=session.model.join_device)
    dist.all_reduce(told)
    return bool(told)


def make_joinable(session, device: torch.device) -> None:
    """What Join asks of a model."""
    model = session.model

    def join_hook(**options: Any) -> JoinHook:
        if session.is_sharded:
            raise NotSupported("Join with shard=")
        if not options.get("divide_by_initial_world_size", True):
            raise NotSupported("Join with divide_by_initial_world_size=False")
        return _Shadow(session)

    def join(divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Join:
        return Join([model], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    from torch.distributed.algorithms.join import _JoinConfig
    group = dist.group.WORLD if dist.is_initialized() else None
    for name, value in zip(ON_MODEL, (join, join_hook, device, group, _JoinConfig.construct_disabled_join_config())):
        object.__setattr__(model, name, value)


def is_joining(model: torch.nn.Module) -> bool:
    return model._join_config.enable


def begin_forward(session) -> None:
    """Before each forward that is trained, while ranks join: tells those that have joined that there is another."""
    Join.notify_join_context(session.model)
    _any_rank_averages(session, mine=True)
