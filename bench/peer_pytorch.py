#!/usr/bin/python3
"""One rank of bench/pytorch_vs_ddp.py: the GPT of peer_gpt.py with DistributedDataParallel and with weft.torch, in turns.

Who it is comes from WEFT_RANK, WEFT_RANKS and WEFT_ROOT_ADDRESS, as tools/netns.sh and tools/gpu_ranks.sh set them. Rank 0
prints one JSON object. A step is timed from its beginning to the beginning of the next, nothing between them; on a GPU so
many steps together, from one moment at which it is idle to another. How many steps a turn has follows from the seconds that are left.
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
from weft.torch.agreed_plan import TRIED_CHOICES  # noqa: E402
from weft.torch.step_trial import COUNTED, SETTLING  # noqa: E402

RANK, RANKS = int(os.environ["WEFT_RANK"]), int(os.environ["WEFT_RANKS"])

# By Weft, at the beginning: steps that it measures, and on a GPU those with which it tries communicators. DDP takes as many, so that
# their losses can be compared.
MEASURED_STEPS, TRIED_STEPS = 2, TRIED_CHOICES * (SETTLING + COUNTED) + 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer_gpt.add_size_flags(parser)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--buckets", default="25,8,4,2,1", help="bucket_cap_mb of DDP to try, with commas between")
    parser.add_argument("--communicators", default="0", help="of weft.torch on a GPU, with commas between; 0: its own choice")
    parser.add_argument("--seconds", type=float, default=240, help="for all of it, about; turns have fewer steps where there is less")
    for name, value in (("rounds", 2), ("steps", 10), ("search-steps", 2), ("warm", 1), ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    return parser.parse_args()


class Trainer:
    """`bucket`: MiB of DDP; None: weft.torch, on a GPU with so many communicators."""

    def __init__(self, options, bucket, communicators=0):
        self.device = torch.device(options.device)
        torch.manual_seed(0)
        model = peer_gpt.Gpt(options).to(self.device)
        if options.device == "cuda":
            model = model.bfloat16()
        kind = {"fused": True} if options.device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 if options.device == "cpu" else 1e-4, **kind)
        self.keeps_gradients = bucket is not None  # they lie in the buckets
        if bucket is None:
            self.net, self.optimizer = weft.overlap(model, self.optimizer, communicators=communicators)
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


def name_of(bucket, communicators):
    """Of a contender."""
    return f"ddp {bucket:g}" if bucket is not None else f"weft {communicators}" if communicators else "weft"


def measure(options, contender, warm, steps, rows):
    """Takes a turn; its last loss, after as many steps as any other turn of that length, and what Weft says of it."""
    trainer = Trainer(options, *contender)
    times, loss = trainer.timed(warm, steps)
    rows.setdefault(name_of(*contender), []).extend(times)
    facts = {}
    if not trainer.keeps_gradients:
        facts["report"], plan = trainer.optimizer.weft.report(), trainer.optimizer.weft.plan
        if plan is not None:  # none where Weft stands aside, or in a turn that is too short
            facts.update(plan=plan.profile, transfers=len(plan.transfers))
    trainer.close()
    return {"loss": loss, "steps": warm + steps, "parameters": trainer.parameters, **facts}


def told_by_rank_0(options, value):
    box = torch.tensor([float(value)], device=options.device)
    dist.broadcast(box, 0)
    return box.item()


def best_bucket(options):
    """Of DDP, by a short turn with each size. The first step of a model allocates, and DDP makes its buckets anew after it."""
    search, buckets = {}, [float(bucket) for bucket in options.buckets.split(",")]
    for bucket in buckets:
        measure(options, (bucket, 0), 1, options.search_steps, search)
    medians = [statistics.median(times) for times in search.values()]
    best = int(told_by_rank_0(options, medians.index(min(medians))))
    return buckets[best], dict(zip(search, medians)), min(medians)


def main():
    options, begin = arguments(), time.perf_counter()
    if options.device == "cuda":
        torch.cuda.set_device(0)
    else:
        peer_gpt.limit_threads(options.threads)
    device = {"device_id": torch.device("cuda", 0)} if options.device == "cuda" else {}
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo", init_method="tcp://" + os.environ["WEFT_ROOT_ADDRESS"],
                            rank=RANK, world_size=RANKS, timeout=datetime.timedelta(minutes=5), **device)
    rows, facts = {}, {}
    best, search, step = best_bucket(options)
    contenders = [(best, 0), *((None, int(count)) for count in options.communicators.split(","))]
    warm, turns = options.warm + MEASURED_STEPS + (TRIED_STEPS if options.device == "cuda" else 0), options.rounds * len(contenders)
    left = options.seconds - (time.perf_counter() - begin)
    steps = int(told_by_rank_0(options, max(3, min(options.steps, left / (turns * step) - warm))))
    for turn in range(options.rounds):
        for contender in contenders if turn % 2 == 0 else reversed(contenders):
            facts[name_of(*contender)] = measure(options, contender, warm, steps, rows)
    ddp = statistics.median(rows[name_of(best, 0)])
    ours = {name: statistics.median(times) for name, times in rows.items() if name.startswith("weft")}
    first = name_of(*contenders[1])  # the others are there to compare
    if RANK == 0:
        print(json.dumps({"torch": torch.__version__, "device": options.device, "ranks": RANKS, "best_bucket_mib": best,
                          "ddp_by_bucket_s": search, "ddp_s": ddp, "weft_s": ours[first], "over_ddp": ours[first] / ddp,
                          "over_ddp_of": {name: value / ddp for name, value in ours.items()}, "seconds": time.perf_counter() - begin,
                          "steps_s": rows, "facts": {**facts, "ddp": facts[name_of(best, 0)], "weft": facts[first]}}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
