"""One rank that runs PyTorch's own cases for its process groups (torch.testing's distributed_test.py, as installed):
pytorch_own_cases.py gloo|weft STORE [NAME...]. With `weft` every group that a case makes with gloo is one of Weft's.

Prints `passed NAME`, `skipped NAME` or `failed NAME: WORDS` for each. The cases are PyTorch's; barriers between processes are the
store's, and what the profiler says of gloo's own names is not looked at.
"""

import datetime
import os
import sys
import types
import unittest
from pathlib import Path

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ.update(BACKEND="gloo", INIT_METHOD="env://")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
if "expecttest" not in sys.modules:  # which Debian lacks, and no case here uses
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)

BACKEND, STORE, *NAMES = sys.argv[1:]
sys.argv[1:] = []  # torch.testing reads them too

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import weft.torch.backend as backend  # noqa: E402
from torch.testing._internal.common_utils import TestCase  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

TIMEOUT = datetime.timedelta(seconds=20)


class Cases(distributed_test.DistributedTest._DistTestBase, TestCase):
    rank = RANK
    world_size = RANKS
    store, barriers = None, 0

    def _barrier(self, *_, **__):
        Cases.barriers += 1
        key = f"barrier {Cases.barriers}"
        if Cases.store.add(key, 1) == RANKS:
            Cases.store.set(key + " open", "1")
        Cases.store.wait([key + " open"], datetime.timedelta(seconds=30))


def run(name, store):
    Cases.store, Cases.barriers = dist.PrefixStore(f"{name} barriers", store), 0
    case = Cases(name)
    result = unittest.TestResult()
    try:
        dist.init_process_group("gloo", store=dist.PrefixStore(name, store), rank=RANK, world_size=RANKS, timeout=TIMEOUT)
        case._barrier()
        case.run(result)
    except Exception as error:
        return f"failed {name}: {type(error).__name__}: {error}"
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    trouble = [words for _, words in (*result.failures, *result.errors)]
    # By SystemExit cases say that they need GPUs.
    if result.skipped or (trouble and trouble[0].strip().splitlines()[-1].startswith("SystemExit")):
        return f"skipped {name}"
    return f"failed {name}: {trouble[0].strip().splitlines()[-1]}" if trouble else f"passed {name}"


def main():
    torch.set_num_threads(1)
    store = dist.FileStore(STORE, RANKS)
    if BACKEND == "weft":
        backend.module()
        dist.distributed_c10d.ProcessGroupGloo = lambda found, rank, ranks, timeout: backend._make_group(found, rank, ranks, timeout)
        # Under TORCH_DISTRIBUTED_DEBUG=DETAIL PyTorch has its own checks in a wrapper around gloo's groups; Weft's compare calls themselves.
        dist.distributed_c10d._create_process_group_wrapper = lambda wrapped_pg, **_: wrapped_pg
    distributed_test.PROFILING_SUPPORTED_BACKENDS = []
    names = NAMES or [name for name in dir(Cases) if name.startswith("test_")]
    for name in names:
        print(run(name, store).replace("\n", " "), flush=True)
        store.add(f"after {name}", 1)
        while store.add(f"after {name}", 0) < RANKS:  # failures of one rank take others some time to notice
            pass


if __name__ == "__main__":
    main()
