#!/usr/bin/env python3
"""PyTorch's steps on a GPU: the peer of `weft run --device cuda`.

One rank: `eager` and `compile`, with weights and gradients in bf16 and AdamW on an fp32 master copy, as Megatron-LM trains.
Several ranks, started by tools/gpu_ranks.sh: `compute` (nobody talks), `ddp25` (buckets of 25 MiB), `fsdp` (FSDP2, a layer
a unit) and `all_reduce` (of all gradients, alone). There AdamW works on the bf16 weights, which is less work than ours.
Prints one JSON object with the median step of every mode in milliseconds.
"""

import argparse
import json
import os
import time

import peer_gpt
import peer_llama
import torch
import torch.distributed as dist

FAMILIES = {"gpt": peer_gpt.Gpt, "llama": peer_llama.Llama}
RANK, RANKS = int(os.environ.get("WEFT_RANK", 0)), int(os.environ.get("WEFT_RANKS", 1))


def median_step(step, options):
    times = []
    for index in range(options.warm + options.steps):
        if RANKS > 1:
            dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if index >= options.warm:
            times.append(time.perf_counter() - begin)
    return 1e3 * sorted(times)[len(times) // 2]


def with_master(model, forward, batch):
    """A step with an fp32 copy of the weights."""
    weights = list(model.parameters())
    masters = [weight.detach().float().clone().requires_grad_() for weight in weights]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, fused=True)

    def step():
        peer_gpt.loss_of(forward, *batch).backward()
        for weight, master in zip(weights, masters):
            master.grad = weight.grad.float()
            weight.grad = None
        optimizer.step()
        torch._foreach_copy_([weight.data for weight in weights], masters)
    return step


def plain(model, forward, batch, keep_gradients):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        peer_gpt.loss_of(forward, *batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not keep_gradients)
    return step


def step_of(mode, options):
    torch.manual_seed(0)
    model = FAMILIES[options.family](options).cuda().bfloat16()
    shape = (options.batch, options.seq)
    batch = [torch.randint(0, options.vocab, shape, device="cuda") for _ in range(2)]
    if mode == "eager":
        return with_master(model, model, batch)
    if mode == "compile":
        return with_master(model, torch.compile(model), batch)
    if mode == "compute":
        return plain(model, model, batch, False)
    if mode.startswith("ddp"):
        wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=int(mode[3:]), gradient_as_bucket_view=True)
        return plain(model, wrapped, batch, True)
    if mode == "fsdp":
        from torch.distributed.fsdp import fully_shard
        for block in model.blocks:
            fully_shard(block)
        return plain(model, fully_shard(model), batch, False)
    assert mode == "all_reduce", mode
    gradients = torch.zeros(sum(p.numel() for p in model.parameters()), device="cuda", dtype=torch.bfloat16)
    return lambda: dist.all_reduce(gradients)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer_gpt.add_size_flags(parser)
    parser.add_argument("--family", default="gpt", choices=sorted(FAMILIES))
    parser.add_argument("--modes", default="eager,compile")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--port", type=int, default=29533)
    options = parser.parse_args()
    torch.cuda.set_device(0)
    if RANKS > 1:
        dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{options.port}", rank=RANK, world_size=RANKS,
                                device_id=torch.device("cuda", 0))
    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}
    for mode in options.modes.split(","):
        torch.cuda.reset_peak_memory_stats()
        result[mode] = median_step(step_of(mode, options), options)
        result[mode + "_gib"] = torch.cuda.max_memory_allocated() / 2**30
        torch.cuda.empty_cache()
    if RANK == 0:
        print(json.dumps(result), flush=True)
    if RANKS > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
