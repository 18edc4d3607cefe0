"""Transfers by torch.distributed: NCCL for tensors of a GPU. Waiting for one makes the GPU wait, not the host.

Transfers take turns on several *lanes*, each a communicator with a stream of high priority: over sockets one communicator of NCCL
leaves links idle that several at once fill. rehearsal.py measures how many are best. With a backend for processors the same code
runs, and waits where it says so; tests use that.
"""

import contextlib
import time
from typing import Callable, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from .errors import NotSupported
from .plan import Plan
from .wire import packed_bytes, unpacked

MOST_LANES = 3
Choice = Tuple[int, int]  # how many communicators, and the thread blocks of each; 0: NCCL's own choice


def words_of(choice: Choice) -> str:
    return f"{choice[0]} lanes, {choice[1] or 'any'} thread blocks"


def _high_priority(thread_blocks: int):
    """Options of a communicator of NCCL; thread_blocks: the most that its kernels take, 0: NCCL's own choice."""
    options = dist.ProcessGroupNCCL.Options()
    options.is_high_priority_stream = True
    if thread_blocks and hasattr(options, "config"):
        options.config.max_ctas = thread_blocks
    return options


class TorchWire:
    """The job's ranks by groups of torch.distributed's. All ranks make the same calls in the same order."""

    host_waits = False

    def __init__(self, rank: int, ranks: int, device: torch.device, lanes: int = 0):
        if lanes and not 1 <= lanes <= MOST_LANES:
            raise NotSupported(f"communicators={lanes}: 1 to {MOST_LANES} are allowed")
        self.rank, self.ranks, self.device = rank, ranks, device
        self.on_gpu = device.type == "cuda"
        backend = dist.get_backend()
        self._backend = "nccl" if self.on_gpu else backend
        self._averages = self._backend in ("nccl", "weft")  # gloo only adds
        self.chooses_lanes = not lanes
        self.thread_blocks = 0
        self.rehearsed: dict = {}
        self.tried: dict = {}  # seconds of a step by choice (step_trial.py)
        self._groups = {}
        self.records = False  # when each transfer begins and ends
        self._works: List[Optional[object]] = []
        self._moments: List[list] = []
        self._tensors: List[Optional[torch.Tensor]] = []
        self.lanes = lanes or 1
        self.group = self.lane(0)
        # Sharded jobs: gradients are waited for, and updated, in one stream; new values are gathered from another.
        self.update_stream, self.gather_stream = (torch.cuda.Stream(device, priority=-1) if self.on_gpu else None for _ in range(2))
        self._watching_stream = torch.cuda.Stream(device) if self.on_gpu else None  # waits for transfers, to see when they end

    # --- lanes ---

    def lane(self, number: int, kind: str = "", thread_blocks: Optional[int] = None):
        """The group of a lane; made at its first use, by all ranks together. `kind`: gathers have lanes of their own."""
        blocks = self.thread_blocks if thread_blocks is None else thread_blocks
        key = (number, kind, blocks)
        if key not in self._groups:
            options = {"pg_options": _high_priority(blocks)} if self._backend == "nccl" else {}
            self._groups[key] = dist.new_group(backend=self._backend, **options)
        return self._groups[key]

    def make_lanes(self, choice: Choice, kinds: Sequence[str] = ("",)) -> None:
        for number in range(choice[0]):
            for kind in kinds:
                self.lane(number, kind, choice[1])

    def choose(self, choice: Choice) -> None:
        """For transfers that are started from now on."""
        self.lanes, self.thread_blocks = choice

    def use_lanes(self, *choices: Choice) -> None:
        """The first is chosen. Communicators of none of them are given back, but for the one that carries small things. Nothing may be
        under way."""
        self.choose(choices[0])
        kept = {(number, blocks) for lanes, blocks in choices for number in range(lanes)}
        for key in [key for key in self._groups if key not in ((0, "", 0), (0, "buffers", 0)) and (key[0], key[2]) not in kept]:
            dist.destroy_process_group(self._groups.pop(key))

    def _next_group(self, turn: int, kind: str = ""):
        return self.lane(turn % self.lanes, kind)

    # --- streams; without a GPU all of this is nothing ---

    def on(self, stream):
        """A context in which work goes to that stream."""
        return torch.cuda.stream(stream) if self.on_gpu else contextlib.nullcontext()

    def after_current(self, stream) -> None:
        """The stream goes on when what was enqueued so far has ended."""
        if self.on_gpu:
            stream.wait_stream(torch.cuda.current_stream(self.device))

    def current_stream(self):
        return torch.cuda.current_stream(self.device) if self.on_gpu else None

    def after(self, stream, other) -> None:
        """The stream goes on when what was enqueued so far in the other has ended."""
        if self.on_gpu:
            stream.wait_stream(other)

    def moment(self):
        """Of the current stream."""
        return torch.cuda.current_stream(self.device).record_event() if self.on_gpu else None

    def wait_for(self, moment) -> None:
        """The current stream goes on after that moment."""
        if moment is not None:
            torch.cuda.current_stream(self.device).wait_event(moment)

    # --- transfers ---

    def apply(self, plan: Plan) -> None:
        self._works = [None] * len(plan.transfers)
        self._tensors = [None] * len(plan.transfers)
        self._moments = []
        for number in range(min(self.lanes, len(plan.transfers))):
            self.lane(number)

    def all_reduce(self, tensor: torch.Tensor, turn: int):
        """Begins an average in place (a sum where the backend cannot); returns what to wait for."""
        op = dist.ReduceOp.AVG if self._averages else dist.ReduceOp.SUM
        return dist.all_reduce(tensor, op, group=self._next_group(turn), async_op=True)

    def start(self, index: int, tensor: torch.Tensor) -> None:
        begin = self.now() if self.records else None
        self._works[index], self._tensors[index] = self.all_reduce(tensor, index), tensor
        if begin is None:
            return
        if index == 0:
            self._moments = []
        self._moments.append([begin, None])
        if self.on_gpu:
            with self.on(self._watching_stream):
                self._works[index].wait()
                self._moments[index][1] = self.now()

    def has_landed(self, index: int) -> bool:
        return self._works[index] is None

    def flags_of(self, index: int) -> List[bool]:
        return []

    def wait(self, index: int) -> None:
        work, tensor = self._works[index], self._tensors[index]
        self._works[index] = self._tensors[index] = None
        if work is not None:
            work.wait()
            self._divide(tensor)
            if index < len(self._moments) and self._moments[index][1] is None:  # no stream has watched it
                self._moments[index][1] = self.now()

    def _divide(self, tensor: torch.Tensor) -> None:
        if not self._averages:
            tensor.div_(self.ranks)

    def reduce_scatter(self, output: torch.Tensor, packed: torch.Tensor, turn: int):
        scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base  # the former since PyTorch 1.13
        op = dist.ReduceOp.AVG if self._averages else dist.ReduceOp.SUM
        return scatter(output, packed, op=op, group=self._next_group(turn), async_op=True)

    def all_gather(self, output: torch.Tensor, own: torch.Tensor, turn: int):
        gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
        return gather(output, own, group=self._next_group(turn, "gather"), async_op=True)

    # --- when things happen ---

    def now(self):
        """A moment of the current stream, or of the host where there are no streams."""
        if not self.on_gpu:
            return time.monotonic()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def moments(self) -> List[list]:
        """Of each transfer of the last step that was recorded: when it was started, and when it had ended."""
        return self._moments

    def seconds_since(self, first):
        """What turns moments into seconds."""
        if not self.on_gpu:
            return lambda moment: moment - first
        torch.cuda.synchronize(self.device)
        return lambda moment: first.elapsed_time(moment) / 1e3

    # --- small things that all ranks agree on ---

    def _reduced(self, values, dtype, op):
        tensor = torch.tensor(values, dtype=dtype, device=self.device)
        dist.all_reduce(tensor, op, group=self.group)
        return tensor.tolist()

    def average(self, values: Sequence[float]) -> List[float]:
        return [value / self.ranks for value in self._reduced(values, torch.float64, dist.ReduceOp.SUM)]

    def largest(self, values: Sequence[int]) -> List[int]:
        return self._reduced(values, torch.int64, dist.ReduceOp.MAX)

    def broadcast(self, tensor: torch.Tensor) -> None:
        data = tensor.detach()
        on_device = data.to(self.device).contiguous()
        dist.broadcast(on_device, 0, group=self.group)
        if on_device is not data:
            data.copy_(on_device)

    def begin_broadcast(self, tensors: Sequence[torch.Tensor]) -> Callable[[], List[torch.Tensor]]:
        """Rank 0's content leaves; returns what waits for it and gives it. One at a time."""
        data = packed_bytes(tensors)
        work = dist.broadcast(data, 0, group=self.lane(0, "buffers", 0), async_op=True)

        def finish() -> List[torch.Tensor]:
            work.wait()
            return unpacked(data, tensors)
        return finish

    def text_of_rank_0(self, text: str) -> str:
        box = [text]
        dist.broadcast_object_list(box, 0, group=self.group, device=self.device)
        return box[0]

    def gather_bytes(self, data: bytes) -> List[bytes]:
        found: List[Optional[bytes]] = [None] * self.ranks
        dist.all_gather_object(found, data, group=self.group)
        return found

    def finish(self) -> float:
        """Returns the time when all that was enqueued has ended."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def at(self, place: str) -> None:
        pass

    def fail(self, why: str) -> None:
        """NCCL's own watch ends the others; it knows no words."""

    def leave(self) -> None:
        """At the end of the process, which takes the communicators along."""

    def close(self) -> None:
        """All ranks together: gives the communicators back, with their memory and threads."""
        for key in list(self._groups):
            dist.destroy_process_group(self._groups.pop(key))
