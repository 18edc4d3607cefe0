"""Several backward passes a step."""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F

from .kit import UNSHARDED, job_kind, perceptron

OTHER_SUMS = {"tolerance": 2e-5, "why": "DDP averages each pass, so sums round otherwise"}


def accumulate(job, wrapped, optimizer, passes_of, no_sync, steps=12, before_step=None):
    """passes_of(step): backward passes of the step; under no_sync but for the last."""
    for step, _ in job.batches(steps):
        optimizer.zero_grad()
        count = passes_of(step)
        for number in range(count):
            x, y = job.normal(6, 12), job.normal(6, 4)
            with wrapped.no_sync() if no_sync and number < count - 1 else contextlib.nullcontext():
                loss = F.mse_loss(wrapped(x), y) / count
                loss.backward()
            job.note("loss", loss)
        if before_step:
            before_step(step)
        optimizer.step()


def train(job, passes_of, no_sync, before_step=None, steps=12, make=lambda model: torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, make(model))
    accumulate(job, wrapped, optimizer, passes_of, no_sync, steps, (lambda step: before_step(model, step)) if before_step else None)
    job.finish(wrapped)


@job_kind(**OTHER_SUMS)
def accumulation(job):
    train(job, lambda step: 3, False)


@job_kind()
def accumulation_under_no_sync(job):
    train(job, lambda step: 3, True)


@job_kind(**OTHER_SUMS)
def accumulation_that_grows(job):
    """Batch ramp-up after the plan was made."""
    train(job, lambda step: 1 if step < 5 else 2 if step < 9 else 4, False, steps=15)


@job_kind()
def accumulation_that_grows_under_no_sync(job):
    train(job, lambda step: 1 if step < 5 else 2 if step < 9 else 4, True, steps=15)


@job_kind(**OTHER_SUMS)
def accumulation_that_shrinks(job):
    train(job, lambda step: 3 if step < 5 else 1, False, steps=14)


@job_kind(**OTHER_SUMS)
def shorter_last_accumulation(job):
    """What is left at the end of an epoch of eleven batches, four a step."""
    train(job, lambda step: 3 if step % 3 == 2 else 4, False)


@job_kind()
def accumulation_with_clipping(job):
    train(job, lambda step: 2, True, lambda model, step: job.note("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.2)))


@job_kind(**OTHER_SUMS)
def accumulation_with_clipping_later(job):
    train(job, lambda step: 2, False, lambda model, step: step >= 5 and job.note("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.05)))


@job_kind(**OTHER_SUMS)
def step_every_second_batch(job):
    """The usual loop with a modulo, zero_grad after the step."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches(26):
        (F.mse_loss(wrapped(x), y) / 2).backward()
        if (step + 1) % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
    job.finish(wrapped)


@job_kind(tolerance=2e-5, why="sums round otherwise")
def several_forwards_one_backward(job):
    """Losses of several forward passes are added, and one backward ends them."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss = loss + F.mse_loss(wrapped(x + 0.1 * job.normal(*x.shape)), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def forward_that_is_not_trained(job):
    """A forward under no_grad before the one that counts, and one after backward."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        with torch.no_grad():
            soft = wrapped(x)
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y) + 0.1 * F.mse_loss(wrapped(x), soft)
        loss.backward()
        with torch.no_grad():
            job.note("before", F.mse_loss(model(x), y))
        optimizer.step()
    job.finish(wrapped)


@job_kind(**OTHER_SUMS)
def adversarial_training(job):
    """FGSM: a backward for the gradient of the input, whose gradients of weights are thrown away, then the one that counts."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        x.requires_grad_(True)
        F.mse_loss(wrapped(x), y).backward()
        moved = (x + 0.1 * x.grad.sign()).detach()
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(moved), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def projected_gradient_attack(job):
    """autograd.grad does it several times, which leaves gradients of weights alone."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        moved = x.clone()
        for _ in range(2):
            moved.requires_grad_(True)
            (slope,) = torch.autograd.grad(F.mse_loss(model(moved), y), moved)
            moved = (moved + 0.05 * slope.sign()).detach()
        optimizer.zero_grad()
        F.mse_loss(wrapped(moved), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(**OTHER_SUMS)
def retained_graph(job):
    """Two backward passes of one forward, the second of another loss. DDP averages in the first alone, so the second is of ranks that
    see the same."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
    for step in range(12):
        torch.manual_seed(step)
        x, y = torch.randn(6, 12), torch.randn(6, 4)
        optimizer.zero_grad()
        found = wrapped(x)
        F.mse_loss(found, y).backward(retain_graph=True)
        (0.1 * found.abs().mean()).backward()
        optimizer.step()
        job.steps_done += 1
    job.finish(wrapped)


@job_kind(tolerance=2e-5, why="sums round otherwise")
def gradient_penalty(job):
    """Double backward through the input, inside the loss."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        x.requires_grad_(True)
        found = wrapped(x)
        (slope,) = torch.autograd.grad(found.sum(), x, create_graph=True)
        loss = F.mse_loss(found, y) + 0.1 * (slope.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def gradients_of_weights_by_autograd_grad(job):
    """GradNorm-like: norms of a layer's gradients for each loss by autograd.grad, then one backward."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        found = wrapped(x)
        losses = [F.mse_loss(found, y), F.l1_loss(found, y)]
        norms = [torch.autograd.grad(loss, model[4].weight, retain_graph=True)[0].norm().item() for loss in losses]
        job.note("norms", norms)
        sum(loss / norm for loss, norm in zip(losses, norms)).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(**OTHER_SUMS)
def per_task_backward(job):
    """Two tasks, a forward and backward each, in every step; DDP with unused heads."""
    class Tasks(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = perceptron(2, classes=8)
            self.heads = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])

        def forward(self, x, task):
            return self.heads[task](torch.tanh(self.body(x)))

    model = Tasks()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02), find_unused_parameters=True)
    for step, _ in job.batches():
        optimizer.zero_grad()
        for task in range(2):
            F.mse_loss(wrapped(job.normal(6, 12), task), job.normal(6, 4)).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(tolerance=2e-4, why="DDP averages each pass, and Adam makes as much of small gradients as of large ones")
def truncated_backpropagation(job):
    """A recurrent net: backward every few tokens, a step at the end of the sequence."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(12, 10), nn.Linear(10, 4)

        def forward(self, tokens, state):
            for x in tokens:
                state = self.cell(x, state)
            return self.head(state), state

    model = Net()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (_, y) in job.batches():
        optimizer.zero_grad()
        state = torch.zeros(6, 10)
        for _ in range(3):
            found, state = wrapped(job.normal(2, 6, 12), state.detach())
            F.mse_loss(found, y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(modes=UNSHARDED, tolerance=2e-5, why="sums round otherwise; every rank goes its own way in such a step, which shards cannot")
def whole_step_under_no_sync(job):
    """Local SGD: some steps stay each rank's own. The weights of all are averaged by hand now and then."""
    import torch.distributed as dist
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        with wrapped.no_sync() if step % 3 else contextlib.nullcontext():
            F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        if step % 3 == 2:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data.div_(job.ranks)
    job.finish(wrapped)
