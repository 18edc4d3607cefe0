"""The backend "weft" of torch.distributed: `init_process_group("weft")` after `import weft.torch`.

Its C++ part (the folder c10d) is compiled at the first use by torch.utils.cpp_extension, because every version of PyTorch needs
its own; PyTorch keeps the result. This needs a compiler, ninja, Python's headers, and for Debian's PyTorch pybind11-dev.
"""

import atexit
import contextlib
import datetime
import fcntl
import functools
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from . import launch, library
from .errors import LaunchError

_SOURCES = ("calls.cpp", "tensors.cpp", "weft_group.cpp", "module.cpp")


def _headers() -> Path:
    """The folder of embed/embed.hpp: inside a wheel, or in a source tree."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "include", package.parent.parent / "src"):
        if (folder / "embed" / "embed.hpp").is_file():
            return folder
    raise LaunchError(f"embed/embed.hpp is not beside {package}: the package is not whole")


def _build_folder() -> Path:
    """Below PyTorch's folder of extensions, one for each version of PyTorch and Python."""
    from torch.utils import cpp_extension
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    folder = Path(root) / f"weft_c10d-torch-{torch.__version__}-python-{sys.version_info.major}.{sys.version_info.minor}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def alone_in(folder: Path):
    """Only one process at a time. The system takes this lock away from a process that dies. PyTorch's own is a file that stays, so
    whoever is alone here removes it: nobody can be compiling."""
    with open(folder / "weft.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            (folder / "lock").unlink()
        yield


@functools.lru_cache(maxsize=None)
def module():
    """The compiled part. Ranks of one machine compile it once."""
    from torch.utils import cpp_extension
    folder, built, place = Path(__file__).resolve().parent / "c10d", library.find(), _build_folder()
    # Newer versions of PyTorch choose the standard that their headers need; 1.13 would take C++14.
    standard = ["-std=c++17"] if torch.__version__.startswith("1.") else []
    try:
        with alone_in(place):
            loaded = cpp_extension.load(
                name="weft_c10d", sources=[str(folder / source) for source in _SOURCES], extra_cflags=[*standard, "-O2"],
                extra_include_paths=[str(folder), str(_headers())], build_directory=str(place),
                extra_ldflags=[str(built), f"-Wl,-rpath,{built.parent}"], with_cuda=False)
    except (RuntimeError, OSError, ImportError) as error:
        raise LaunchError(f"the backend could not be compiled for PyTorch {torch.__version__}: {error}") from error
    atexit.register(loaded.leave_all)
    return loaded


def _make_group(store, rank: int, ranks: int, timeout: datetime.timedelta):
    """What torch.distributed calls for each group, on all of its members together."""
    made = module()
    job = launch.meet(store, "weft/root", rank, ranks)
    checks = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "") == "DETAIL"
    return made.make_group(store, rank, ranks, job.root, job.secret, job.root_listener, timeout.total_seconds(), checks)


def register() -> None:
    """Makes the name known. Nothing is compiled before a group is made."""
    if not dist.is_available() or hasattr(dist.Backend, "WEFT"):
        return
    # Tensors of GPUs pass through the processor's memory; "cpu:weft,cuda:nccl" leaves them to NCCL.
    devices = {"devices": ["cpu", "cuda"]} if int(torch.__version__.split(".", maxsplit=1)[0]) >= 2 else {}
    dist.Backend.register_backend("weft", _make_group, **devices)
