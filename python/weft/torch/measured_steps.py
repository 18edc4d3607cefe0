"""A profile of the user's own modules, from steps that run as with DDP: when each parameter is needed, when its gradient is ready, and how
fast the optimizer and the wire are."""

from typing import Dict, List, Tuple

import torch

from .clock import StepClock
from .engine import Slot
from .plan import Parameter, Profile
from .wire import latency_of, type_name

BEGIN, BACKWARD_END, STEP_BEGIN, STEP_END = "begin", "backward end", "step begin", "step end"  # marks of a step


def parameters_unmeasured(slots: List[Slot]) -> List[Parameter]:
    return [Parameter(slot.name, slot.parameter.numel(), slot.parameter.element_size(), type_name(slot.parameter.dtype), 0.0, 0.0)
            for slot in slots]


def _gate_of(slot: Slot, modules: Dict[str, torch.nn.Module], clock: StepClock) -> Tuple[float, str]:
    """(when the parameter is first needed, the module that waits for it where no owner does)."""
    owners = [name for name, module in modules.items()
              if any(parameter is slot.parameter for parameter in module.parameters(recurse=False))]
    seen = [clock.between(BEGIN, ("gate", name)) for name in owners if clock.has(("gate", name))]
    if seen:
        return min(seen), ""
    for owner in owners:  # the nearest module around it that runs, or else the first of the step
        parts = owner.split(".")
        for length in range(len(parts) - 1, -1, -1):
            around = ".".join(parts[:length])
            if clock.has(("gate", around)):
                return clock.between(BEGIN, ("gate", around)), around or "*"
    return 0.0, "*"


def measured_profile(slots: List[Slot], modules: Dict[str, torch.nn.Module], clock: StepClock, wire, wire_seconds: float,
                     transfers: int) -> Profile:
    """The same on all ranks: times are averages. wire_seconds: what so many transfers of all gradients took together."""
    clock.mark(BEGIN)
    clock.mark(BACKWARD_END)
    backward = clock.between(BEGIN, BACKWARD_END)
    gates = [_gate_of(slot, modules, clock) for slot in slots]
    readies = [clock.between(BEGIN, ("ready", slot.index)) if clock.has(("ready", slot.index)) else backward for slot in slots]
    size = sum(slot.parameter.numel() * slot.parameter.element_size() for slot in slots)
    compute = clock.between(BEGIN, STEP_BEGIN)
    update = clock.between(STEP_BEGIN, STEP_END)
    latency = latency_of(wire)
    transfer = max(0.0, wire_seconds - latency * transfers)
    figures = wire.average([compute, update / size, latency, transfer / size, *(gate[0] for gate in gates), *readies])
    (compute, update, latency, transfer), times = figures[:4], figures[4:]
    count = len(slots)
    parameters = [Parameter(p.name, p.elements, p.element_bytes, p.element_type, times[i], times[count + i], gates[i][1])
                  for i, p in enumerate(parameters_unmeasured(slots))]
    return Profile(parameters, compute, update, latency, transfer)
