"""One rank of pytorch_test.py's jobs whose inputs change their shapes, and of those that have nothing to gain."""

import sys
import tempfile
import time
from pathlib import Path

import pytorch_job as job
import torch
import torch.distributed as dist
import weft.torch as weft
from torch import nn


def loss_of_lengths(lengths):
    """Sequences as long as lengths(step, rank) says."""
    def loss(model, step, rank):
        tokens, targets = torch.randint(0, job.Sizes.vocab, (2, job.Sizes.batch, lengths(step, rank)))
        return job.peer_gpt.loss_of(model, tokens, targets)
    return loss


def train_with(case, rank, **named):
    model, optimizer = case.make(rank)
    model, optimizer = weft.overlap(model, optimizer, **named)
    losses = job.train(case, model, model, optimizer, None, rank)
    return losses, model, optimizer


def replans(rank):
    """Rank 1 alone gets longer sequences from step 10 on: all make a second plan, once, and train what DDP trains."""
    def lengths(step, rank):
        return job.Sizes.seq if step >= 10 and rank == 1 else job.Sizes.seq // 2

    for name, more in (("across steps", {}), ("within steps", {"across_steps": False})):
        case = job.Case(f"longer sequences, {name}", lambda: job.peer_gpt.Gpt(job.Sizes), loss_of_lengths(lengths), steps=40)
        losses, _, optimizer = train_with(case, rank, **more)
        report = optimizer.weft.report()
        assert report["plans"] == 2, report
        optimizer.weft.close()
        off = job.require_close(case, "losses", losses, job.with_ddp(case, rank)[0])
        print(f"case: {case.name}: {report['plans']} plans, losses {off:.1g} apart", flush=True)


def other_lengths_now_and_then(rank):
    """Every third step is longer: no reason for a new plan."""
    case = job.Case("now and then longer sequences", lambda: job.peer_gpt.Gpt(job.Sizes),
                    loss_of_lengths(lambda step, rank: job.Sizes.seq // (1 if step % 3 == 2 else 2)), steps=30)
    losses, _, optimizer = train_with(case, rank)
    assert optimizer.weft.report()["plans"] == 1
    optimizer.weft.close()
    off = job.require_close(case, "losses", losses, job.with_ddp(case, rank)[0])
    print(f"case: {case.name}: 1 plan, losses {off:.1g} apart", flush=True)


def hooks_of(model):
    """None: what Weft hangs on modules is in one hook of PyTorch's for all of them."""
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules())


def stands_aside(rank):
    """With a plan that says so: little time in Weft's code, the same losses, also with clipping; and a
    new plan when shapes change."""
    for clip in (0.0, 0.5):
        case = job.Case(f"nothing to gain{', clipped' if clip else ''}", lambda: job.peer_gpt.Gpt(job.Sizes), job.gpt_loss, steps=30,
                        clip=clip)
        losses, _, optimizer = train_with(case, rank)
        plan = optimizer.weft.plan
        optimizer.weft.close()
        aside = weft.Plan(plan.ranks, False, 1, plan.parameters, plan.transfers, plan.predicted_step, plan.profile, aside=True)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan.json"
            aside.save(path)
            found, model, optimizer = train_with(case, rank, plan=path, across_steps=not clip)
        assert hooks_of(model) == 0, hooks_of(model)
        report = optimizer.weft.report()
        assert report["aside"] and not report["across_steps"]
        optimizer.weft.close()
        assert hooks_of(model) == 0
        off = job.require_close(case, "losses", found, losses)
        print(f"case: {case.name}: losses {off:.1g} apart, {1e6 * report['own_s']:.0f} us a step in Weft's code", flush=True)


def overhead(rank):
    """Seconds of a processor in Weft's own code over those of a whole step of a model that computes for some 100 ms; and, because
    clocks of a machine with other work tell little, how many gradients it looks at."""
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*(nn.Linear(256, 256) for _ in range(24)))

        def forward(self, x):
            return self.layers(x)

    case = job.Case("a step of some 100 ms", Wide, lambda model, step, rank: model(torch.randn(1024, 256)).square().mean(), steps=25)
    for name in ("by its plan", "aside"):
        if name == "aside":
            plan = weft.Plan(plan.ranks, False, 1, plan.parameters, plan.transfers, plan.predicted_step, plan.profile, aside=True)
        begin = time.thread_time()
        _, _, optimizer = train_with(case, rank, plan=None if name == "by its plan" else plan)
        step = (time.thread_time() - begin) / case.steps
        plan, report = optimizer.weft.plan, optimizer.weft.report()
        # Each of the 48 gradients tells that a pass has begun; those that end a transfer do more.
        told = len(optimizer.weft._engine.last_of_transfers()) if name == "by its plan" else 0
        assert told <= len(plan.transfers), f"{told} gradients, {len(plan.transfers)} transfers"
        optimizer.weft.close()
        share = report["own_s"] / step
        print(f"case: overhead {name}: {1e6 * report['own_s']:.0f} us of {1e3 * step:.1f} ms, {100 * share:.2f} %, {told} gradients that are looked at", flush=True)
        assert name != "aside" or share <= 0.01


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for body in (replans, other_lengths_now_and_then, stands_aside, overhead):
        body(dist.get_rank())
    dist.barrier()


if __name__ == "__main__":
    sys.exit(main())
