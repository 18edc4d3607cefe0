"""One rank of the sharded jobs of pytorch_test.py: pytorch_shard_job.py LEVEL. The cases of pytorch_job.py with ZeRO, against
DistributedDataParallel on the same data; what each rank holds; checkpoints that go from a plain job to a sharded one and back."""

import copy
import sys
import tempfile
from pathlib import Path

import pytorch_job as job
import torch
import torch.distributed as dist
import weft.torch as weft
from weft.torch.watched_state import raw_state
from torch import nn


class Layers(nn.Module):
    """Units between an embedding and a head, one of whose weights is the embedding's."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, job.WIDTH)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(job.WIDTH, 2, 24, dropout=0.0, batch_first=True) for _ in range(5))
        self.head = nn.Linear(job.WIDTH, 11)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def layers_loss(model, step, rank):
    tokens = torch.randint(0, 11, (3, 7))
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


class ByRows(torch.optim.Optimizer):
    """Looks at whole parameters: its slices would be updated otherwise."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    state["norm"] = 0.9 * state.get("norm", 0.0) + 0.1 * parameter.grad.norm()
                    parameter.sub_(group["lr"] * parameter.grad / (state["norm"] + 1e-3))


def by_rows(model):
    return ByRows(model.parameters(), 1e-3)


CASES = [*job.CASES, job.Case("layers with a tied head", Layers, layers_loss),
         job.Case("an optimizer that needs whole parameters", Layers, layers_loss, by_rows, steps=30, per_parameter=True),
         job.Case("layers, three backward passes a step, two of them under no_sync", Layers, layers_loss, job.two_groups, steps=20,
                  passes=3, no_sync=True)]


def holdings(level, rank, ranks):
    """What is there between steps: a share of the optimizer's state, and under ZeRO 3 of the layers' parameters."""
    case = CASES[len(job.CASES)]
    model, optimizer = case.make(rank)
    plain = sum(parameter.numel() for parameter in model.parameters())
    in_layers = sum(parameter.numel() for parameter in model.layers.parameters())
    model, optimizer = weft.overlap(model, optimizer, shard=level)
    measured = job.train(case, model, model, optimizer, None, rank)
    optimizer.weft.synchronize()
    moments = sum(entries["exp_avg"].numel() for entries in raw_state(optimizer).values())
    assert abs(moments - plain / ranks) <= len(list(model.parameters())), f"{moments} of {plain} elements of state"
    held = optimizer.weft._sharding.held_bytes() // 4
    assert held == (plain - in_layers if level == "zero3" else plain), f"{held} of {plain} elements are there"
    if level == "zero3":
        most = optimizer.weft._sharding.residency.most_here
        assert most <= optimizer.weft.plan.ahead + 2, f"{most} layers at a time, {optimizer.weft.plan.ahead} ahead"
    with torch.no_grad():  # evaluation between steps, twice
        losses = [case.loss(model, 0, rank).isfinite().item() for _ in range(2)]
    assert all(losses)
    plan = optimizer.weft.plan
    optimizer.weft.close()
    with tempfile.TemporaryDirectory() as folder:  # a job that begins with a plan is sharded from its first step on
        plan.save(Path(folder) / "plan.json")
        model, optimizer = case.make(rank)
        model, optimizer = weft.overlap(model, optimizer, shard=level, plan=Path(folder) / "plan.json")
    assert optimizer.weft._sharding.held_bytes() // 4 == held
    planned = job.train(case, model, model, optimizer, None, rank)
    assert planned == measured, "other losses with a plan from a file"
    optimizer.weft.close()
    print(f"case: {level}: {moments} of {plain} elements of state, {held} of parameters between steps", flush=True)


def checkpoints(level, rank):
    """Ten steps plain, ten sharded, ten plain again, against thirty plain: saved and loaded each time."""
    case = copy.copy(CASES[len(job.CASES)])
    case.steps = 10

    def leg(saved, how, seed):
        model, optimizer = case.make(rank)
        if how == "sharded, loaded before":
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        forward = model
        if how == "plain":
            forward = nn.parallel.DistributedDataParallel(model)
        else:
            model, optimizer = weft.overlap(model, optimizer, shard=level)
            forward = model
        if saved and how != "sharded, loaded before":
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(copy.deepcopy(saved[1]))
        losses = []
        torch.manual_seed(seed + rank)
        for step in range(case.steps):
            optimizer.zero_grad()
            loss = case.loss(forward, step, rank)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if how != "plain":
            optimizer.weft.close()
        return losses, saved

    def chain(kinds):
        saved, losses = None, []
        for number, how in enumerate(kinds):
            more, saved = leg(saved, how, 50 * number)
            losses += more
        return losses

    expected = chain(["plain"] * 4)
    found = chain(["plain", "sharded", "plain", "sharded, loaded before"])
    off = job.require_close(case, "losses over checkpoints", found, expected)
    print(f"case: {level}: checkpoints between plain and sharded jobs, losses {off:.1g} apart", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    level, rank, ranks = sys.argv[1], dist.get_rank(), dist.get_world_size()
    chosen = CASES if ranks == 2 else CASES[3:4]
    for case in chosen:
        job.compare(case, rank, level)
    if ranks == 2:
        holdings(level, rank, ranks)
        checkpoints(level, rank)
    dist.barrier()


if __name__ == "__main__":
    main()
