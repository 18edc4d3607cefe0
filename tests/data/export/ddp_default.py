# weft export --to ddp: gpt, policy ddp, tp 1, pp 1, dp 2
# Left out: micro-batches of 1, a global batch of 8, sequences of 64: the job calls 4 micro-batches itself,
#  see micro_batch()
# Left out: what DistributedDataParallel has no setting for: the shape of the model (gpt); precision fp32;
#  gradients accumulated and reduced in fp32; no dropout; flash attention; how collectives are carried out:
#  ring
import contextlib
import inspect

from torch.nn.parallel import DistributedDataParallel

MICRO_BATCHES = 4
# The buckets that follow: bytes of their gradients, in the order in which gradients arrive.
BUCKETS = [
    [4096, 4196352],
    [4202496, 4096, 1050624, 3151872, 4096, 4196352, 4202496, 4096, 1050624, 3151872, 4096, 4196352, 4202496],
    [4096, 1050624, 3151872, 4096, 4196352, 4202496, 4096, 1050624, 3151872, 4096, 524288, 4194304],
]
ARGUMENTS = {}  # DDP's own: a first bucket of 1 MiB, then 25 MiB
BUCKET_CAP_MB_LIST = []


def wrap(module, **others):
    """Returns the module in DistributedDataParallel with the buckets of the plan."""
    arguments = dict(ARGUMENTS)
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    if BUCKET_CAP_MB_LIST and "bucket_cap_mb_list" in known:
        arguments = {"bucket_cap_mb_list": BUCKET_CAP_MB_LIST}
    return DistributedDataParallel(module, **arguments, **others)


def micro_batch(ddp, index):
    """Context of forward and backward of a micro-batch: gradients are reduced with the last one."""
    return contextlib.nullcontext() if index + 1 == MICRO_BATCHES else ddp.no_sync()
