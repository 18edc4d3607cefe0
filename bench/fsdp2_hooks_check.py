#!/usr/bin/env python3
"""FSDP2, FSDP2 with weft.FsdpHooks, and weft.overlap(shard="zero3"): the same losses, and their steps in turns. PyTorch 2.6 or newer,
two ranks on one GPU.

    bench/fsdp2_hooks_check.py                    # GPT 12 x 1024, batch 16, NCCL under MPS; two minutes
    bench/fsdp2_hooks_check.py --device cpu --layers 4 --width 128 --batch 2 --seq 64      # over gloo, without a GPU

Prints one JSON object: medians, their ratios to FSDP2 (goal 0.85), how far ahead the plan gathers, the last losses. Exit code 1
where losses differ; 77 where this PyTorch has no FSDP2.
"""

import argparse
import datetime
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]
ON_GPU = {"layers": 12, "width": 1024, "batch": 16, "seq": 1024, "vocab": 8192, "heads": 16}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--kinds", default="hooks,hooks 1,zero3", help="beside FSDP2, with commas between: hooks, hooks N (communicators), "
                        "zero3, zero3 N; zero3 on a GPU alone (default: hooks,hooks 1,zero3)")
    for name, value in {**ON_GPU, "rounds": 2, "steps": 10, "warm": 16}.items():
        parser.add_argument("--" + name, type=int, default=value)
    return parser.parse_args()


def start_ranks(options):
    """This script again, once for each rank."""
    command = [sys.executable, "-B", __file__, *sys.argv[1:]]
    if options.device == "cuda":
        return subprocess.run([str(ROOT / "tools" / "gpu_ranks.sh"), "2", *command], check=False).returncode
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        root = f"127.0.0.1:{probe.getsockname()[1]}"
    variables = {"WEFT_RANKS": "2", "WEFT_ROOT_ADDRESS": root, "WEFT_JOB_SECRET": secrets.token_hex(16)}
    ranks = [subprocess.Popen(command, env={**os.environ, **variables, "WEFT_RANK": str(rank)}) for rank in range(2)]
    return max(rank.wait() for rank in ranks)


def trained(options, kind, rank):
    """Seconds of a step, the last loss, and what Weft chose. `kind`: "fsdp2", or one of --kinds."""
    import peer_gpt
    import torch
    import torch.distributed as dist
    import weft.torch as weft
    from torch.distributed.fsdp import fully_shard
    device = torch.device(options.device)
    word, communicators = (kind.split() + ["0"])[:2]
    torch.manual_seed(0)
    model = peer_gpt.Gpt(options).to(device)
    if options.device == "cuda":
        model = model.bfloat16()
    if word != "zero3":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    hooks = weft.FsdpHooks(model, optimizer, communicators=int(communicators)) if word == "hooks" else None
    if word == "zero3":
        model, optimizer = weft.overlap(model, optimizer, shard="zero3", communicators=int(communicators))
    torch.manual_seed(1 + rank)
    tokens, targets = torch.randint(0, options.vocab, (2, options.batch, options.seq)).to(device)

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            loss = peer_gpt.loss_of(model, tokens, targets)
            loss.backward()
            optimizer.step()
        return loss.item()  # waits for the GPU

    steps(options.warm)
    dist.barrier()
    begin = time.perf_counter()
    loss = steps(options.steps)
    seconds = (time.perf_counter() - begin) / options.steps
    chosen = None
    if hooks:
        hooks.close()
        chosen = {"ahead": hooks.ahead, "communicators": hooks.communicators}
    if word == "zero3":
        chosen = {"ahead": optimizer.weft.plan.ahead, "transfers": len(optimizer.weft.plan.transfers), **optimizer.weft.report()}
        optimizer.weft.close()
    peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else 0
    if peak:
        torch.cuda.reset_peak_memory_stats()
    return seconds, loss, chosen, peak


def main():
    options = arguments()
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except (ImportError, ValueError) as error:  # Debian's 1.13 cannot import its own under Python 3.11
        print(f"skipped: no FSDP2 in this PyTorch: {error}")
        return 77
    if "WEFT_RANK" not in os.environ:
        return start_ranks(options)
    import torch
    import torch.distributed as dist
    rank = int(os.environ["WEFT_RANK"])
    device = {"device_id": torch.device("cuda", 0)} if options.device == "cuda" else {}
    if options.device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if device else "gloo", init_method="tcp://" + os.environ["WEFT_ROOT_ADDRESS"], rank=rank,
                            world_size=int(os.environ["WEFT_RANKS"]), timeout=datetime.timedelta(minutes=5), **device)
    kinds = ["fsdp2", *options.kinds.split(",")]
    rows, losses, chosen, peaks = {kind: [] for kind in kinds}, {}, {}, {}
    for turn in range(options.rounds):
        for kind in kinds if turn % 2 == 0 else reversed(kinds):
            seconds, losses[kind], chosen[kind], peaks[kind] = trained(options, kind, rank)
            rows[kind].append(seconds)
            if rank == 0:
                print(f"{kind}: {1e3 * seconds:.1f} ms, loss {losses[kind]:.4f}", file=sys.stderr, flush=True)
    medians = {kind: statistics.median(times) for kind, times in rows.items()}
    off = max(abs(losses[kind] - losses["fsdp2"]) for kind in kinds)
    same = off <= (2e-2 if device else 1e-5) * abs(losses["fsdp2"])
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "device": options.device, "seconds": medians,
                          "over_fsdp2": {kind: value / medians["fsdp2"] for kind, value in medians.items()}, "chosen": chosen,
                          "peak_bytes": peaks, "losses": losses, "same_losses": same}))
    dist.barrier()
    dist.destroy_process_group()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
