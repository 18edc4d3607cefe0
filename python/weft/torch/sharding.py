"""What a sharded job (ZeRO) does beside a data-parallel one, from its first step to its last."""

from typing import Callable, Dict, List, Optional

import torch

from .errors import PlanMismatch
from .plan import Plan
from .residency import Residency, unit_members
from .sharded_run import DeviceShardedRun, ShardedRun, update_whole
from .shards import Shards, storage_of
from .watched_state import raw_state

_FIRST_BUCKET_BYTES = 4 << 20  # while steps are measured


class Sharding:
    """One level of ZeRO for one model. Steps that are measured, or that change gradients, have whole averaged gradients."""

    def __init__(self, level: str, model: torch.nn.Module, slots, optimizer, wire):
        self.level, self.slots = level, slots
        self._model = model
        self.shards = Shards(slots, optimizer, wire)
        self.members: Dict[str, List[int]] = unit_members(model, slots) if level == "zero3" else {}
        self.unit_of: Dict[int, str] = {}
        self._keep_units(self.members)
        self._buckets: Optional[list] = None
        self._run: Optional[ShardedRun] = None
        self.residency: Optional[Residency] = None

    def install(self, attachment, session) -> None:
        """A whole state_dict gathers unit by unit, and keeps copies."""
        if self.level != "zero3":
            return
        plain = self._model.state_dict

        def state_dict(_, *values, **named):
            session.synchronize()
            state = plain(*values, **named)
            if self.residency:
                for name, value in state.items():
                    state[name] = value.detach().clone() if isinstance(value, torch.Tensor) else value
                self.residency.free_fetched()
            return state
        attachment.replace_on_model("state_dict", state_dict)

    def _keep_units(self, names) -> None:
        self.members = {name: indices for name, indices in self.members.items() if name in names}
        self.unit_of = {index: name for name, indices in self.members.items() for index in indices}

    def note_measured_step(self, has_run: Callable[[str], bool]) -> None:
        """Units that some step does not use stay whole: gathering them takes all ranks."""
        self._keep_units([name for name in self.members if has_run(name)])

    def agree_on_units(self) -> None:
        """Those that every rank has used in every measured step."""
        everywhere = sorted(unit_members(self._model, self.slots)) if self.level == "zero3" else []
        if everywhere:
            missing = self.shards.wire.largest([int(name not in self.members) for name in everywhere])
            self._keep_units([name for name, is_missing in zip(everywhere, missing) if not is_missing])

    def run_of(self, plan: Plan, modules: Dict[str, torch.nn.Module]) -> ShardedRun:
        """Begins with a plan that crosses steps."""
        self.end_updates()
        self._keep_units(plan.units)
        if len(self.members) != len(plan.units):
            raise PlanMismatch(f"plan: units {', '.join(plan.units)}; the model has {', '.join(self.members) or 'none'}")
        kind = ShardedRun if self.shards.wire.host_waits else DeviceShardedRun
        self._run = kind(plan, self.slots, self.shards, [self.members[name] for name in plan.units])
        if self.members:
            self.residency = self._run.residency = Residency(self.shards, self._run, self.members, plan.units, plan.ahead)
            self.residency.install(modules)
            self.residency.follow_aliases()
        return self._run

    def update_whole(self) -> None:
        """By averaged whole gradients."""
        if self._run is not None:
            self._run.update_received()
            return
        self.shards.adopt(range(len(self.slots)))
        if self._buckets is None:
            self._buckets = self._first_buckets()
        update_whole(self.shards, self._buckets)

    def _first_buckets(self) -> list:
        groups: List[List[int]] = []
        filled, last = 0, None
        for slot in self.slots:
            parameter = slot.parameter
            size = parameter.numel() * parameter.element_size()
            if last != parameter.dtype or filled + size > _FIRST_BUCKET_BYTES:
                groups.append([])
                filled, last = 0, parameter.dtype
            groups[-1].append(slot.index)
            filled += size
        return [self.shards.bucket(group, number) for number, group in enumerate(groups)]

    # --- backward, under ZeRO 3 ---

    def free_after_gradient(self, slot) -> None:
        if self.residency and slot.index in self.unit_of:
            self.residency.after_gradient(self.unit_of[slot.index])

    def end_of_pass(self) -> None:
        """Every pass ends with units freed, also those without communication."""
        if self.residency:
            self.residency.end_of_backward()

    def before_module(self, module, inputs) -> None:
        if self.residency:
            self.residency.before_module(module, inputs)

    def after_module(self, module, inputs, outputs) -> None:
        if self.residency:
            self.residency.after_module(module, inputs, outputs)

    def fetch_all(self) -> None:
        if self.residency:
            for name in self.residency.order:
                self.residency.fetch(self.slots[self.members[name][0]])

    def held_bytes(self) -> int:
        """Memory of whole parameters that are there now."""
        return sum(storage_of(full).nbytes() for full in self.shards.full)

    # --- the end ---

    def end_updates(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None

    def close(self) -> None:
        """All ranks together: whole parameters and whole optimizer state, as in a plain job."""
        if self.residency:
            self.residency.remove()
            self.residency = None
        whole, state = self.shards.whole_state(), raw_state(self.shards.optimizer)
        for own in self.shards.own:
            state.pop(own, None)
        for index, entries in whole.items():
            state[self.slots[index].parameter] = entries
        self.end_updates()
