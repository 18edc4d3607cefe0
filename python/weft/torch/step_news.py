"""What every rank of a job on GPUs tells all others once a step: whether it wants a new plan, and which parameters it has used."""

from typing import List, Sequence, Tuple

import torch
import torch.distributed as dist

from .torch_wire import TorchWire


class StepNews:
    """Numbers of which all ranks get to know the largest, without a host that waits.

    They are copied to the host when they have arrived. The wish is read `LATER` steps after it was told: by then the copy is over
    unless the host is further ahead of its GPU than that, and all ranks read the wish of the same step. Which parameters were used
    is asked only by a rank that has not used some itself: it waits.
    """

    LATER = 2

    def __init__(self, wire: TorchWire, parameters: int):
        self._wire = wire
        self._usual = torch.ones(1 + parameters, dtype=torch.int32, device=wire.device)
        self._usual[0] = 0
        self._told: List[Tuple[torch.Tensor, torch.Tensor, object]] = []  # the last steps: on the host, on the device, when copied

    def tell(self, wants: bool, used: Sequence[bool]) -> bool:
        """Of this step and rank; returns whether any rank wanted a new plan in an earlier step."""
        wire = self._wire
        with wire.on(wire.update_stream):
            wire.after_current(wire.update_stream)
            # Memory of this stream: an engine that is replaced leaves while NCCL writes, and whoever gets the memory next waits.
            numbers = self._usual.clone()
            if wants or not all(used):
                numbers.copy_(torch.tensor([wants, *used], dtype=torch.int32, device="cpu"))
            work = dist.all_reduce(numbers, dist.ReduceOp.MAX, group=wire.group, async_op=True)
            work.wait()
            here = torch.zeros(len(numbers), dtype=torch.int32, device="cpu", pin_memory=wire.on_gpu)
            here.copy_(numbers, non_blocking=True)
            self._told.append((here, numbers, wire.moment()))
        if len(self._told) <= self.LATER:
            return False
        return bool(self._read(self._told.pop(0))[0])

    def used_by_any(self) -> List[bool]:
        """By parameter, in the step that was told last."""
        return [number > 0 for number in self._read(self._told[-1])[1:]]

    def _read(self, told) -> List[int]:
        here, _, moment = told
        if moment is not None:
            moment.synchronize()
        return here.tolist()
