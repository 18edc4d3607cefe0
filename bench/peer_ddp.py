#!/usr/bin/python3
"""PyTorch's DistributedDataParallel over gloo on the GPT of peer_gpt.py: the peer of bench/overlap_vs_ddp.py.

One process for each rank; who it is comes from WEFT_RANK, WEFT_RANKS and WEFT_ROOT_ADDRESS, as tools/netns.sh sets them:

    tools/netns.sh --ranks 2 --rate 200mbit --no-mpi -- /usr/bin/python3 bench/peer_ddp.py --buckets 25,8,4

Rank 0 prints one JSON object. Two ways to time a step: `run`, from its beginning to the beginning of the next, nothing
between them, as `weft run` does; `barrier`, from a barrier to the next.
"""

import argparse
import datetime
import itertools
import json
import os
import time

import peer_gpt
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer_gpt.add_size_flags(parser)
    parser.add_argument("--buckets", default="25", help="bucket_cap_mb, one after the other, with commas between")
    parser.add_argument("--modes", default="run", help="run, barrier or both with a comma between")
    parser.add_argument("--hooks", default="none", help="none, fp16, powersgd: communication hooks, one after the other")
    parser.add_argument("--rank-of-powersgd", type=int, default=4, help="of PowerSGD's approximation (default: 4)")
    parser.add_argument("--clip", type=float, default=0, help="clip the global norm; 0: off")
    for name, value in (("steps", 10), ("warm", 2), ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    return parser.parse_args()


def join():
    rank, ranks = int(os.environ["WEFT_RANK"]), int(os.environ["WEFT_RANKS"])
    dist.init_process_group("gloo", init_method="tcp://" + os.environ["WEFT_ROOT_ADDRESS"], rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(minutes=5))
    return rank


class Trainer:
    def __init__(self, options, bucket, rank, hook="none"):
        torch.manual_seed(0)
        model = peer_gpt.Gpt(options)
        self.clip = options.clip
        # PyTorch 1.13 over gloo mixes up the collectives that PowerSGD's hook starts for several buckets: one holds all.
        one_bucket = hook == "powersgd"
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << (32 if one_bucket else 20)
        bucket = 4096 if one_bucket else bucket
        self.net = DistributedDataParallel(model, bucket_cap_mb=bucket, gradient_as_bucket_view=True)
        if hook == "fp16":
            self.net.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif hook == "powersgd":
            # The first two steps are those of the warm-up: PyTorch needs them to build its buckets anew.
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=options.rank_of_powersgd, start_powerSGD_iter=2)
            self.net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        torch.manual_seed(1 + rank)
        self.tokens, self.targets = torch.randint(0, options.vocab, (2, options.batch, options.seq))

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)  # the gradients lie in the buckets
        loss = peer_gpt.loss_of(self.net, self.tokens, self.targets)
        loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimizer.step()
        return loss.item()

    def timed(self, mode, warm, steps):
        """Seconds of every step that counts, and the last loss."""
        for _ in range(warm):
            self.step()
        dist.barrier()
        moments = [time.perf_counter()]
        for _ in range(steps):
            loss = self.step()
            if mode == "barrier":
                dist.barrier()
            moments.append(time.perf_counter())
        return [end - begin for begin, end in zip(moments, moments[1:])], loss


def main():
    options = arguments()
    peer_gpt.limit_threads(options.threads)
    rank = join()
    runs = []
    for bucket in options.buckets.split(","):
        for mode, hook in itertools.product(options.modes.split(","), options.hooks.split(",")):
            trainer = Trainer(options, float(bucket), rank, hook)
            # PowerSGD's hook begins with the third step.
            times, loss = trainer.timed(mode, max(options.warm, 3) if hook == "powersgd" else options.warm, options.steps)
            runs.append({"bucket_mib": float(bucket), "mode": mode, "hook": hook, "steps_s": times, "loss": loss})
    if rank == 0:
        parameters = sum(parameter.numel() for parameter in trainer.net.parameters())
        print(json.dumps({"torch": torch.__version__, "attention": peer_gpt.ATTENTION, "parameters": parameters,
                          "ranks": dist.get_world_size(), "runs": runs}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
