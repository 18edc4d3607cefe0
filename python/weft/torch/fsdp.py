"""For those who stay with FSDP2 (`fully_shard`, PyTorch 2.6 and newer): a plan drives its own hooks.

    hooks = weft.FsdpHooks(model, optimizer)

Two steps are measured: when each sharded module's forward begins, when its gradients are reduced, and how long its gathers take.
Then FSDP2 is told how many modules ahead to gather, in forward and in backward, and gathers and reductions travel in groups of
their own, on a GPU with streams of high priority. After each `optimizer.step()` the next gathers wait for the optimizer alone.
Where several communicators at once carry more than one (rehearsal.py measures it), gathers of modules take turns on them and every
reduction is cut into as many parts.
"""

import time
from typing import Callable, Dict, List, Optional

import torch
import torch.distributed as dist

from .errors import NotSupported
from .plan import Parameter, Profile
from .rehearsal import rehearse
from .shard_plan import MOST_AHEAD, gather_waits
from .torch_wire import TorchWire

MEASURED_STEPS = 2  # the first one allocates


def fsdp_modules(model: torch.nn.Module) -> Dict[str, torch.nn.Module]:
    """Modules that fully_shard was applied to, by name."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "set_modules_to_forward_prefetch")}


class _Collective:
    """What FSDP2 calls instead of a collective of its own. Sizes and times are noted while steps are measured."""

    def __init__(self, hooks: "FsdpHooks", name: str):
        self._hooks, self._name = hooks, name

    def allocate(self, size, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class PlannedAllGather(_Collective):
    def __call__(self, output_tensor, input_tensor, group, async_op: bool = False):
        return self._hooks.gather(self._name, output_tensor, input_tensor, group, async_op)


class PlannedReduceScatter(_Collective):
    def __call__(self, output_tensor, input_tensor, group, op, async_op: bool = False):
        return self._hooks.reduce(self._name, output_tensor, input_tensor, group, op, async_op)


def own_group(group, kind: str, thread_blocks: int = 0):
    """A further group of the same ranks, so that gathers and reductions do not queue behind each other."""
    if not hasattr(dist, "get_process_group_ranks"):
        return group
    options = None
    if dist.get_backend(group) == "nccl":
        options = dist.ProcessGroupNCCL.Options()
        options.is_high_priority_stream = True
        if thread_blocks and hasattr(options, "config"):
            options.config.max_ctas = thread_blocks
    return dist.new_group(dist.get_process_group_ranks(group), backend=dist.get_backend(group), pg_options=options,
                          use_local_synchronization=True, group_desc=f"weft {kind}")


class FsdpHooks:
    """Drives the hooks of one model whose layers and whole were given to fully_shard. `ahead` is None while steps are measured.

    communicators: for gathers, and as many for reductions; 0: on a GPU as many as are fastest when a part of a step is rehearsed.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, ahead: Optional[int] = None,
                 communicators: int = 0, make_group: Callable = own_group):
        self.modules = fsdp_modules(model)
        if "" not in self.modules or len(self.modules) < 2:
            raise NotSupported("fully_shard must have been applied to the model and to its layers (FSDP2 of PyTorch 2.6 or newer)")
        missing = [name for name in ("set_custom_all_gather", "set_custom_reduce_scatter", "set_post_optim_event")
                   if not hasattr(self.modules[""], name)]
        if missing:
            raise NotSupported(f"this version of FSDP2 has no {', '.join(missing)}")
        self._model, self._optimizer, self._make_group = model, optimizer, make_group
        self._groups: Dict[tuple, object] = {}
        self._device = next(model.parameters()).device
        self._on_gpu = self._device.type == "cuda"
        self.communicators, self._asked, self._thread_blocks = communicators or 1, communicators, 0
        self._place = {name: place for place, name in enumerate(self.modules)}
        self.ahead, self.profile = ahead, None
        self._steps, self._begin = 0, 0.0
        self._forward: Dict[str, float] = {}
        self._reduced: Dict[str, float] = {}
        self._gathers: Dict[str, tuple] = {}  # bytes, seconds
        for name, module in self.modules.items():
            module.set_custom_all_gather(PlannedAllGather(self, name))
            module.set_custom_reduce_scatter(PlannedReduceScatter(self, name))
        self._handles = [module.register_forward_pre_hook(lambda _, inputs, name=name: self._mark(self._forward, name))
                         for name, module in self.modules.items()]
        self._step = optimizer.register_step_post_hook(lambda *_: self._after_step())
        if ahead is not None:
            self._apply(list(self.modules)[1:])

    # --- what is measured ---

    def _now(self) -> float:
        if self._on_gpu:
            torch.cuda.synchronize()  # in measured steps only
        return time.perf_counter()

    def _mark(self, marks: Dict[str, float], name: str) -> None:
        if self.ahead is None and name not in marks:
            if name == "":
                self._begin = self._now()
            marks[name] = self._now() - self._begin

    def _lane(self, group, kind: str, number: int):
        """A group of Weft's own; all ranks need it for the first time at the same place of a step."""
        key = (kind, id(group), number, self._thread_blocks)
        if key not in self._groups:
            blocks = {"thread_blocks": self._thread_blocks} if self._thread_blocks else {}
            self._groups[key] = self._make_group(group, kind, **blocks)
        return self._groups[key]

    def gather(self, name: str, output, own, group, async_op: bool):
        if self.ahead is None:
            return self._timed(name, output, lambda: dist.all_gather_into_tensor(
                output, own, group=self._lane(group, "gather", 0), async_op=async_op))
        # FSDP2 waits for the work that it is given before it uses the output. Without one it would wait in the stream of all
        # gathers, and hold the next one back.
        lane = self._lane(group, "gather", self._place[name] % self.communicators)
        return dist.all_gather_into_tensor(output, own, group=lane, async_op=async_op or self.communicators > 1)

    def reduce(self, name: str, output, whole, group, op, async_op: bool):
        if self.ahead is None:
            self._mark(self._reduced, name)
            return self._timed(name, whole, lambda: dist.reduce_scatter_tensor(
                output, whole, op=op, group=self._lane(group, "reduce", 0), async_op=async_op))
        parts = self.communicators
        if parts == 1 or async_op or output.numel() < parts:
            return dist.reduce_scatter_tensor(output, whole, op=op, group=self._lane(group, "reduce", 0), async_op=async_op)
        borders = [output.numel() * part // parts for part in range(parts + 1)]
        rows, flat, works = whole.view(-1, output.numel()), output.view(-1), []
        for part, (begin, end) in enumerate(zip(borders, borders[1:])):
            piece = rows[:, begin:end].contiguous().view(-1)
            works.append((piece, dist.reduce_scatter_tensor(flat[begin:end], piece, op=op, group=self._lane(group, "reduce", part),
                                                            async_op=True)))
        for _, work in works:
            work.wait()
        return None

    def _timed(self, name: str, whole: torch.Tensor, call: Callable):
        begin = self._now()
        work = call()
        if work is not None:
            work.wait()
        self._gathers[name] = (whole.numel() * whole.element_size(), self._now() - begin)
        return work

    def _after_step(self) -> None:
        self._steps += 1
        if self.ahead is None and self._steps >= MEASURED_STEPS:
            self._plan()
        elif self.ahead is None:
            self._forward, self._reduced = {}, {}
        if self._on_gpu:
            self.modules[""].set_post_optim_event(torch.cuda.current_stream().record_event())

    # --- the plan ---

    def _plan(self) -> None:
        """The same on all ranks: each has the times of rank 0."""
        facts = [self._measured()]
        dist.broadcast_object_list(facts, 0)
        order, parameters, per_byte = facts[0]
        self.profile = Profile([Parameter(*values) for values in parameters], parameters[-1][5] if parameters else 0.0, 0.0, 0.0,
                               2 * per_byte)  # of an all-reduce, which gathers are half of
        unit_of = dict(enumerate(order))
        waits = {ahead: gather_waits(self.profile, unit_of, ahead) for ahead in range(1, MOST_AHEAD + 1)}
        ahead = min(waits, key=lambda ahead: (round(waits[ahead], 6), ahead))
        self._choose_communicators()
        # A gather that is alone on the wire uses one communicator.
        self.ahead = max(ahead, min(self.communicators, MOST_AHEAD))
        self._apply(order)
        for handle in self._handles:
            handle.remove()

    def _choose_communicators(self) -> None:
        """For all ranks of the job together. Two gathers and a reduction of every byte are one and a half all-reduces."""
        if self._asked or not self._on_gpu or self._make_group is not own_group:
            return
        wire = TorchWire(dist.get_rank(), dist.get_world_size(), self._device)
        bytes_of_step = [Parameter(p.name, 3 * p.elements // 2, p.element_bytes, p.element_type, p.needed, p.ready)
                         for p in self.profile.parameters]
        # Measured steps wait for each of their three transfers.
        last = max((p.ready for p in self.profile.parameters), default=0.0)
        moved = 3 * sum(p.bytes for p in self.profile.parameters) * self.profile.wire_per_byte / 2
        rehearse(wire, Profile(bytes_of_step, max(last - moved, 0.3 * last), 0.0, 0.0, 0.0))
        self.communicators, self._thread_blocks = wire.lanes, wire.thread_blocks
        wire.close()

    def _measured(self):
        order = sorted((name for name in self._forward if name), key=lambda name: self._forward[name])
        last = max(self._reduced.values(), default=0.0)
        parameters = [(name, self._gathers.get(name, (0, 0.0))[0], 1, "bytes", self._forward[name], self._reduced.get(name, last))
                      for name in order]
        size, seconds = (sum(entry[i] for entry in self._gathers.values()) for i in (0, 1))
        return order, parameters, seconds / size if size else 0.0

    def _apply(self, order: List[str]) -> None:
        """FSDP2's own lists: which modules' gathers follow when this one's has been issued."""
        names = ["", *order]
        for place, name in enumerate(names):
            after = names[place + 1:place + 1 + self.ahead]
            before = [other for other in reversed(names[max(0, place - self.ahead):place]) if other]
            self.modules[name].set_modules_to_forward_prefetch([self.modules[other] for other in after])
            self.modules[name].set_modules_to_backward_prefetch([self.modules[other] for other in before])

    def close(self) -> None:
        """Takes the marks away; FSDP2 keeps its lists."""
        self._step.remove()
        for handle in self._handles:
            handle.remove()
