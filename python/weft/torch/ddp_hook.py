"""For those who stay with DistributedDataParallel: its buckets by Weft's collectives instead of gloo's."""

import queue
import threading
from typing import Dict, Tuple

import torch
import torch.distributed

from . import library
from .errors import NotSupported
from .wire import TYPES, pipelined_parts


class DdpHook:
    """A communication hook: `ddp.register_comm_hook(None, weft.DdpHook())`. All ranks make it together.

    Each bucket becomes one all-reduce of Weft's; what DDP does with it stays as it is. A failed job raises in backward.
    """

    def __init__(self, timeout: float = 1800.0):
        from . import join
        self.__name__ = self.__qualname__ = type(self).__name__  # register_comm_hook asks for them
        self._group = join(timeout)
        self._calls: Dict[Tuple[int, int, torch.dtype], int] = {}
        self._started: queue.Queue = queue.Queue()
        self._thread = threading.Thread(target=self._wait_for_all, name="weft ddp hook", daemon=True)
        self._thread.start()

    def __call__(self, state, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        if buffer.device.type != "cpu" or buffer.dtype not in TYPES:
            raise NotSupported(f"a bucket of {buffer.dtype} on {buffer.device}; Weft's own collectives carry float32, bfloat16 "
                               "and float16 of processors")
        key = (bucket.index(), buffer.numel(), buffer.dtype)
        if key not in self._calls:
            parts = pipelined_parts(buffer.numel() * buffer.element_size(), self._group.ranks)
            self._calls[key] = self._group.prepare(library.ALL_REDUCE, TYPES[buffer.dtype], library.AVERAGE, buffer.numel(),
                                                   f"bucket {bucket.index()}", parts=parts)
        segment = library.Segment(buffer.data_ptr(), buffer.numel() * buffer.element_size())
        self._group.start(self._calls[key], (library.Segment * 1)(segment))
        future: torch.futures.Future = torch.futures.Future()
        self._started.put((self._calls[key], buffer, future))
        return future

    def _wait_for_all(self) -> None:
        """Buckets end in the order in which they were started."""
        while True:
            call, buffer, future = self._started.get()
            if call is None:
                return
            try:
                self._group.wait(call)
                future.set_result(buffer)
            except Exception as error:
                future.set_exception(error)

    def close(self) -> None:
        """Leaves the job in order, after the last backward."""
        self._started.put((None, None, None))
        self._thread.join()
        self._group.leave()
