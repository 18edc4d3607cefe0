"""Runs a job on two ranks, each in a process of its own that is forked from one that has PyTorch already and has run no backward."""

import atexit
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Optional

import torch
import torch.distributed as dist

from . import forcing
from .kit import Job, Kind

RANKS = 2
AFTER_A_FAILURE = 6  # seconds that the other rank has to end


@dataclass
class Found:
    """What a rank has left behind."""
    result: dict = field(default_factory=dict)
    notes: list = field(default_factory=list)
    error: str = ""       # its name
    words: str = ""       # its text
    trace: str = ""
    is_wefts: bool = False  # one of weft.torch's exceptions
    steps_done: int = 0
    crosses: bool = False   # a plan that crosses steps was made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_body(kind: Kind, job: Job) -> Found:
    found = Found()
    try:
        kind.body(job)
    except BaseException as error:
        found.error, found.words, found.trace = type(error).__name__, str(error), traceback.format_exc()
        found.is_wefts = "weft.torch" in " ".join(f"{base.__module__}.{base.__name__}" for base in type(error).__mro__)
    found.result, found.notes, found.steps_done = job.result, job.notes, job.steps_done
    found.crosses = not found.error and any(optimizer.weft.report()["across_steps"] for optimizer in job.optimizers if hasattr(optimizer, "weft"))
    return found


def be_rank(rank: int, ranks: int, folder: Path, body, has_group: bool, backend: str = "gloo") -> None:
    """Never returns. Leaves in the folder what body() gives."""
    code = 1
    try:
        weakref.finalize._registry.clear()  # folders of the process before stay
        output = os.open(folder / f"output{rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=(folder / "port").read_text())
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        # Both ranks may have one GPU: NCCL takes them for hosts of their own.
        os.environ.update(NCCL_HOSTID=f"weft-rank-{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
        if has_group:
            dist.init_process_group(backend, init_method=f"file://{folder.resolve()}/store", rank=rank, world_size=ranks)
        found = body()
        (folder / f"found{rank}.new").write_bytes(pickle.dumps(found))
        (folder / f"found{rank}.new").rename(folder / f"found{rank}")
        threading._shutdown()
        atexit._run_exitfuncs()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_ranks(folder: Path, make_body, limit: float, has_group: bool = True, backend: str = "gloo", ranks: int = RANKS):
    """(by rank what it found or None, words of what went wrong with the processes). make_body(rank) is called in the rank's process."""
    (folder / "port").write_text(str(free_port()))
    sys.stdout.flush()
    sys.stderr.flush()
    running: Dict[int, int] = {}
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            be_rank(rank, ranks, folder, lambda rank=rank: make_body(rank), has_group, backend)
        running[pid] = rank
    end, trouble = time.monotonic() + limit, ""
    while running:
        for pid, rank in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del running[pid]
            code = os.waitstatus_to_exitcode(status)
            if code:
                trouble = trouble or f"rank {rank} ended with {code}: {last_line(folder / f'output{rank}')}"
                end = min(end, time.monotonic() + AFTER_A_FAILURE)
            elif running and has_failed(folder / f"found{rank}"):
                end = min(end, time.monotonic() + AFTER_A_FAILURE)
        if running and time.monotonic() > end:
            for pid, rank in running.items():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                trouble = trouble or f"rank {rank} did not end"
            running = {}
        time.sleep(0.002)
    return [read_found(folder / f"found{rank}") for rank in range(ranks)], trouble


def last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "nothing was said"


def read_found(path: Path) -> Optional[Found]:
    return pickle.loads(path.read_bytes()) if path.exists() else None


def has_failed(path: Path) -> bool:
    found = read_found(path)
    return found is None or bool(getattr(found, "error", ""))


def use_device(device: str) -> None:
    """What scripts make lies there."""
    if device == "cuda":
        torch.cuda.set_device(0)
        torch.set_default_device("cuda")


def run_kind(kind: Kind, mode: str, folder: Path, limit: float, device: str = "cpu", seed: int = 0):
    """The kind in one mode, or with DDP."""
    def body_of(rank: int):
        use_device(device)
        if mode not in ("ddp", "aside"):
            forcing.force_plans()
        if mode != "ddp":
            forcing.delay_transfers(f"{kind.name} {seed} {rank}")
        torch.manual_seed(7)
        return run_body(kind, Job(mode, rank, RANKS, device, seed))
    return run_ranks(folder, body_of, limit, kind.has_group)
