"""Who this process is and where rank 0 is, as the launcher says: torchrun, mpirun, Weft's own scripts, or by hand."""

import datetime
import logging
import os
import secrets
import socket
import time
from dataclasses import dataclass

from .errors import LaunchError

LEAST_SECRET = 16  # characters
_STORE_TIMEOUT = datetime.timedelta(seconds=60)


@dataclass(frozen=True)
class Launch:
    rank: int = 0
    ranks: int = 1
    root: str = ""  # the address of rank 0
    secret: str = ""
    root_listener: int = -1


def _number(name):
    try:
        return int(os.environ[name])
    except ValueError as error:
        raise LaunchError(f"{name}={os.environ[name]} is not a number") from error


def rank_and_size():
    """(rank, ranks, by whom); (0, 1, None) for a job of one process."""
    import torch.distributed as dist
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size(), "process group"
    if os.environ.get("WEFT_RANK"):
        return _number("WEFT_RANK"), _number("WEFT_RANKS"), "weft"
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _number("RANK"), _number("WORLD_SIZE"), "torchrun"
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return _number("OMPI_COMM_WORLD_RANK"), _number("OMPI_COMM_WORLD_SIZE"), "mpirun"
    if "PMI_RANK" in os.environ:
        return _number("PMI_RANK"), _number("PMI_SIZE"), "mpirun"
    if "SLURM_PROCID" in os.environ and "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_STEP_ID"):  # by srun, not in a batch script
        return _number("SLURM_PROCID"), _number("SLURM_NTASKS"), "srun"
    told = {launcher: os.environ[name] for launcher, name in _OTHER_LAUNCHERS.items() if os.environ.get(name, "1") != "1"}
    if told:
        _LOG.warning("weft: this process trains alone, though %s speaks of %s processes: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                     *next(iter(told.items())))
    return 0, 1, None


def _store(rank, ranks):
    """PyTorch's store of the job: that of its process group, or one at MASTER_ADDR:MASTER_PORT, which torchrun serves."""
    global _own_store
    import torch.distributed as dist
    if dist.is_initialized():
        return dist.distributed_c10d._get_default_store()
    if _own_store is not None:
        return _own_store
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise LaunchError(f"{' and '.join(missing)} not set: where is rank 0 (rank {rank} of {ranks})? torchrun sets them; with "
                          "mpirun say `-x MASTER_ADDR=host -x MASTER_PORT=29500`")
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        _own_store = dist.TCPStore(os.environ["MASTER_ADDR"], _number("MASTER_PORT"), ranks, rank == 0 and not served,
                                   timeout=_STORE_TIMEOUT, wait_for_workers=False)
        return _own_store
    except Exception as error:
        raise LaunchError(f"no store at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {error}") from error


_joined = 0  # how often this process has joined, so that a second job finds keys of its own
_own_store = None  # rank 0 serves it until all have joined
# What launchers say of a job of several processes that is none of those below: by each, the variable with the number of processes.
_OTHER_LAUNCHERS = {"SLURM": "SLURM_NTASKS", "PMIx": "PMIX_SIZE", "MPICH": "PMI_SIZE", "MVAPICH": "MV2_COMM_WORLD_SIZE"}
_LOG = logging.getLogger("weft")


def _own_address(rank):
    """How the others reach this process: rank 0 of the job as its launcher calls it, others by the way they reach that one."""
    master = os.environ.get("MASTER_ADDR") or os.environ.get("WEFT_ROOT_ADDRESS", "").rpartition(":")[0]
    if master and rank_and_size()[0] == 0 and rank == 0:
        return master
    try:
        if not master:
            return socket.gethostbyname(socket.gethostname())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master, 1))  # sends nothing
            return probe.getsockname()[0]
    except OSError:
        return "127.0.0.1"


def _secret_of_user() -> str:
    secret = os.environ["WEFT_JOB_SECRET"]
    if len(secret) < LEAST_SECRET:
        raise LaunchError(f"WEFT_JOB_SECRET has {len(secret)} characters: at least {LEAST_SECRET} are needed")
    return secret


def meet(store, key, rank, ranks) -> Launch:
    """Rank 0 listens at a port of its own and says so in the store, with a secret of 256 random bits unless all know one."""
    known = _secret_of_user() if os.environ.get("WEFT_JOB_SECRET") else ""
    if rank != 0:
        root, *told = store.get(key).decode().split()
        return Launch(rank, ranks, root, known or "".join(told))
    address = _own_address(rank)
    # Where the job is on one machine, nobody else is to knock.
    listener = socket.create_server(("127.0.0.1" if address in ("127.0.0.1", "localhost") else "0.0.0.0", 0), backlog=ranks)
    root = f"{address}:{listener.getsockname()[1]}"
    secret = secrets.token_hex(32)
    store.set(key, root if known else f"{root} {secret}")
    return Launch(rank, ranks, root, known or secret, listener.detach())


def _tell_root(rank, ranks):
    global _joined, _own_store
    key = f"weft/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{_joined}"
    _joined += 1
    until = time.monotonic() + _STORE_TIMEOUT.total_seconds()
    while True:
        try:
            return meet(_store(rank, ranks), key, rank, ranks)
        except LaunchError:
            raise
        except Exception as error:  # the store of a join before this one, which rank 0 has just closed
            if _own_store is None or time.monotonic() > until:
                raise LaunchError(f"the store at {os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')} does not answer: {error}") from error
            _own_store = None
            time.sleep(0.05)


def all_have_joined() -> None:
    """The port is free again for a store of the job's own."""
    global _own_store
    _own_store = None


def launch() -> Launch:
    rank, ranks, by = rank_and_size()
    if ranks == 1:
        return Launch()
    if by == "weft":
        missing = [name for name in ("WEFT_ROOT_ADDRESS", "WEFT_JOB_SECRET") if name not in os.environ]
        if missing:
            raise LaunchError(f"WEFT_RANK is set, but not {' and '.join(missing)}")
        return Launch(rank, ranks, os.environ["WEFT_ROOT_ADDRESS"], _secret_of_user())
    return _tell_root(rank, ranks)
