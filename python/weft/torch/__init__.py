"""Weft inside a PyTorch job of your own.

    import weft.torch as weft
    model, optimizer = weft.overlap(model, optimizer)

makes a data-parallel job of a script that torchrun, mpirun or tools/netns.sh starts on several ranks. Gradients are averaged
while backward and the *next* forward compute; parameters are updated as their gradients arrive. The first two steps are
measured and a plan is made of them. See docs/pytorch.md.
"""

from pathlib import Path
from typing import Optional, Tuple, TypeVar, Union

import torch

from . import backend as _backend
from . import launch as _launch
from . import library as _library
from .alone import Alone
from .ddp_hook import DdpHook
from .errors import (JobFailed, LaunchError, ModelsDiffer, ModuleChanged, NotSupported, PlanMismatch, StepChanged,
                     WeftError)
from .fsdp import FsdpHooks
from .given_plan import plan_from, plan_given
from .plan import Plan
from .session import Session
from .shards import LEVELS
from .torch_wire import TorchWire
from .wire import HostWire, describe, require_same_model

__all__ = ["DdpHook", "FsdpHooks", "JobFailed", "LaunchError", "ModelsDiffer", "ModuleChanged", "NotSupported", "Plan", "PlanMismatch",
           "StepChanged", "WeftError", "overlap"]

_backend.register()


ModelType = TypeVar("ModelType", bound=torch.nn.Module)
OptimizerType = TypeVar("OptimizerType", bound=torch.optim.Optimizer)


def overlap(model: ModelType, optimizer: OptimizerType, *, plan: Union[str, Path, Plan, None] = None,
            shard: Optional[str] = None, across_steps: bool = True, per_parameter: bool = False, broadcast_buffers: bool = True,
            communicators: int = 0, timeout: float = 1800.0) -> Tuple[ModelType, OptimizerType]:
    """Trains the model on all ranks of the job, each with its own data, as DistributedDataParallel would.

    Returns the same two objects, hooked. Parameters and buffers become those of rank 0. In a job of one rank nothing is hooked.

    plan: a file that `optimizer.weft.plan.save(path)` wrote, or a Plan; by default two steps are measured and planned.
    shard: "zero1" shards the optimizer's state over the ranks, "zero2" also gradients, "zero3" also the parameters of layers.
        `state_dict()` is that of a plain job; all ranks call it together.
    across_steps: False ends every backward with averaged gradients, as DDP does. Jobs that change gradients between backward
        and step (clipping, a gradient scaler) are noticed while they are measured, and treated so by themselves.
    per_parameter: True says of an optimizer that is none of torch.optim's that it treats each parameter by itself and keeps all that it
        remembers in its `state`. Without this it is called as its author wrote it, once a step, when all gradients are there.
    broadcast_buffers: buffers (the statistics of batch normalization) are those of rank 0 before each forward, as with DDP.
    communicators: on GPUs, of NCCL, on which transfers take turns; 0: as many as are fastest in a rehearsal and in twelve steps.
    timeout: seconds without progress after which a collective counts as failed.

    Whoever reads a parameter or a gradient that is not there yet waits for it. `model.no_sync()` is DDP's; `optimizer.weft` has `plan`,
    `report()`, `synchronize()`, and `close()`, which gives model and optimizer back as they were.
    """
    if isinstance(model, torch.optim.Optimizer) or isinstance(optimizer, torch.nn.Module):
        raise NotSupported(f"overlap({type(model).__name__}, {type(optimizer).__name__}): first the model, then its optimizer")
    if not isinstance(model, torch.nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
        raise NotSupported(f"overlap({type(model).__name__}, {type(optimizer).__name__}): a torch.nn.Module and a torch.optim.Optimizer are needed")
    if hasattr(optimizer, "weft"):
        raise WeftError("overlap was called before with this optimizer")
    if shard is not None and shard not in LEVELS:
        raise NotSupported(f"shard={shard!r}: {', '.join(LEVELS)} are allowed")
    rank, ranks, _ = _launch.rank_and_size()
    if ranks == 1:
        if plan is not None:
            plan_from(plan)  # a name without a file is a mistake here too
        Alone(model, optimizer)
        return model, optimizer
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if any(parameter.device != device for parameter in model.parameters()):
        raise NotSupported("the parameters of the model are on several devices")
    wire = HostWire(join(timeout)) if device.type == "cpu" else _gpu_wire(rank, ranks, device, communicators)
    begin(model, optimizer, wire, device, plan, across_steps, shard or "", per_parameter, broadcast_buffers)
    return model, optimizer


def begin(model, optimizer, wire, device, plan=None, across_steps: bool = True, shard: str = "", per_parameter: bool = False,
          broadcast_buffers: bool = True) -> Session:
    """The same with a wire of the caller's own. All ranks call it together."""
    require_same_model(wire, describe(model))
    for tensor in (*model.parameters(), *model.buffers()):
        wire.broadcast(tensor)
    return Session(model, optimizer, wire, device, plan_given(plan, model, wire.ranks, shard), across_steps, shard, per_parameter,
                   broadcast_buffers)


def join(timeout: float) -> _library.Group:
    """Joins the ranks of the job over TCP. All of them call it together."""
    job = _launch.launch()
    group = _library.Group(job.rank, job.ranks, job.root, job.secret, root_listener=job.root_listener, timeout=timeout)
    _launch.all_have_joined()
    return group


def _gpu_wire(rank: int, ranks: int, device: torch.device, communicators: int) -> TorchWire:
    import os

    import torch.distributed as dist
    if device.type != "cuda":
        raise NotSupported(f"parameters on {device}: processors and CUDA devices can be used")
    if not dist.is_initialized():
        root = os.environ.get("WEFT_ROOT_ADDRESS")
        dist.init_process_group("nccl", init_method=f"tcp://{root}" if root else None, rank=rank, world_size=ranks,
                                device_id=device)
    return TorchWire(rank, ranks, device, communicators)
