# weft export --to inductor: gpt, policy fsdp, tp 1, pp 1, dp 2
# Left out: parameters of 1 layer gathered ahead: Inductor moves gathers as far ahead as memory allows
# Left out: what Inductor has no setting for: the shape of the model (gpt); micro-batches of 1, a global batch
#  of 8, sequences of 64; dp 2; ZeRO stage 3; precision fp32; gradients accumulated and reduced in fp32; no
#  dropout; flash attention; how collectives are carried out: ring; 3 queues of a rank; 15 waits
import torch
import torch._inductor.config

OVERLAP = True
# Buckets in MiB, in the order of issue.
GATHERS = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
REDUCTIONS = [1, 1, 1, 1, 1, 1]
# GB/s of one direction, by which Inductor estimates how long collectives take.
INTRA_NODE_BW = 0.125
INTER_NODE_BW = 0.125


def size_of(sizes):
    """MiB of the bucket with an index, as Inductor asks for it; the last size goes for all behind it."""
    return lambda index: sizes[min(index, len(sizes) - 1)]


def settings():
    """The settings by name. Those that this PyTorch does not have are left out."""
    wanted = {
        "reorder_for_compute_comm_overlap": OVERLAP,
        "intra_node_bw": INTRA_NODE_BW,
        "inter_node_bw": INTER_NODE_BW,
    }
    if GATHERS:
        wanted["bucket_all_gathers_fx"] = "all"
        wanted["bucket_all_gathers_fx_bucket_size_determinator"] = size_of(GATHERS)
    if REDUCTIONS:
        wanted["bucket_reduce_scatters_fx"] = "all"
        wanted["bucket_reduce_scatters_fx_bucket_size_determinator"] = size_of(REDUCTIONS)
    return {name: value for name, value in wanted.items() if hasattr(torch._inductor.config, name)}


def compile(model, **others):
    """torch.compile with these settings."""
    return torch.compile(model, options=settings(), **others)
