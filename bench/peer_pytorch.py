#!/usr/bin/python3
"""One rank of bench/pytorch_vs_ddp.py: the GPT of peer_gpt.py with DistributedDataParallel and with weft.torch, in turns.

Who it is comes from WEFT_RANK, WEFT_RANKS and WEFT_ROOT_ADDRESS, as tools/netns.sh and tools/gpu_ranks.sh set them. Rank 0
prints one JSON object. A step is timed from its beginning to the beginning of the next, nothing between them; on a GPU so
many steps together, from one moment at which it is idle to another.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from pathlib import Path

import peer_gpt
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import weft.torch as weft  # noqa: E402

RANK, RANKS = int(os.environ["WEFT_RANK"]), int(os.environ["WEFT_RANKS"])

MEASURED_STEPS = 2  # by Weft, at the beginning; DDP takes as many, so that their losses can be compared


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer_gpt.add_size_flags(parser)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--buckets", default="25,8,4,2,1", help="bucket_cap_mb of DDP to try, with commas between")
    for name, value in (("rounds", 3), ("steps", 10), ("search-steps", 4), ("warm", 2), ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    return parser.parse_args()


class Trainer:
    """`bucket`: MiB of DDP; None: weft.torch."""

    def __init__(self, options, bucket):
        self.device = torch.device(options.device)
        torch.manual_seed(0)
        model = peer_gpt.Gpt(options).to(self.device)
        if options.device == "cuda":
            model = model.bfloat16()
        kind = {"fused": True} if options.device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 if options.device == "cpu" else 1e-4, **kind)
        self.keeps_gradients = bucket is not None  # they lie in the buckets
        if bucket is None:
            self.net, self.optimizer = weft.overlap(model, self.optimizer)
        else:
            self.net = DistributedDataParallel(model, bucket_cap_mb=bucket, gradient_as_bucket_view=True)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        torch.manual_seed(1 + RANK)
        self.tokens, self.targets = torch.randint(0, options.vocab, (2, options.batch, options.seq)).to(self.device)

    def step(self):
        self.optimizer.zero_grad(set_to_none=not self.keeps_gradients)
        loss = peer_gpt.loss_of(self.net, self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def finish(self):
        if not self.keeps_gradients:
            self.optimizer.weft.synchronize()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, warm, steps):
        """Seconds of the steps that count, and the last loss."""
        for _ in range(warm):
            self.step()
        self.finish()
        dist.barrier()
        moments = [time.perf_counter()]
        for _ in range(steps):
            loss = self.step()
            if self.device.type == "cpu":
                loss.item()
                moments.append(time.perf_counter())
        self.finish()
        if self.device.type == "cuda":
            return [(time.perf_counter() - moments[0]) / steps], loss.item()
        moments[-1] = time.perf_counter()  # with the updates that were left
        return [end - begin for begin, end in zip(moments, moments[1:])], loss.item()

    def close(self):
        if not self.keeps_gradients:
            self.optimizer.weft.close()


def measure(options, bucket, steps, rows):
    trainer = Trainer(options, bucket)
    times, loss = trainer.timed(options.warm + MEASURED_STEPS, steps)
    rows.setdefault("weft" if bucket is None else f"ddp {bucket:g}", []).extend(times)
    facts = {} if trainer.keeps_gradients else {"report": trainer.optimizer.weft.report(), "plan": trainer.optimizer.weft.plan.profile,
                                                "transfers": len(trainer.optimizer.weft.plan.transfers)}
    trainer.close()
    return {"loss": loss, "parameters": trainer.parameters, **facts}


def main():
    options = arguments()
    if options.device == "cuda":
        torch.cuda.set_device(0)
    else:
        peer_gpt.limit_threads(options.threads)
    device = {"device_id": torch.device("cuda", 0)} if options.device == "cuda" else {}
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo", init_method="tcp://" + os.environ["WEFT_ROOT_ADDRESS"],
                            rank=RANK, world_size=RANKS, timeout=datetime.timedelta(minutes=5), **device)
    search, rows, facts = {}, {}, {}
    for bucket in map(float, options.buckets.split(",")):
        measure(options, bucket, options.search_steps, search)
    medians = [statistics.median(times) for times in search.values()]
    chosen = torch.tensor(medians.index(min(medians)), device=options.device)
    dist.broadcast(chosen, 0)  # rank 0's choice
    best = [float(bucket) for bucket in options.buckets.split(",")][int(chosen)]
    for turn in range(options.rounds):
        for bucket in (best, None) if turn % 2 == 0 else (None, best):
            facts["weft" if bucket is None else "ddp"] = measure(options, bucket, options.steps, rows)
    ddp, ours = statistics.median(rows[f"ddp {best:g}"]), statistics.median(rows["weft"])
    if RANK == 0:
        print(json.dumps({"torch": torch.__version__, "device": options.device, "ranks": RANKS, "best_bucket_mib": best,
                          "ddp_by_bucket_s": dict(zip(search, medians)), "ddp_s": ddp, "weft_s": ours, "over_ddp": ours / ddp,
                          "steps_s": rows, "facts": facts}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
