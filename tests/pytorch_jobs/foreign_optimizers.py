"""Optimizers that are more than one parameter at a time, as many packages have them (own_optimizers.py)."""

import torch
from torch import nn
from torch.nn import functional as F

from . import own_optimizers as own
from .kit import CLASSES, WIDTH, Language, job_kind, perceptron
from .optimizers import train, train_with

NEEDS_ALL = {level: "NotSupported" for level in ("zero1", "zero2", "zero3")}  # of what cannot be sharded


# --- optimizers that are more than one parameter at a time ---


@job_kind(refused=NEEDS_ALL)
def step_number_in_the_group(job):
    _, optimizer = train_with(job, own.Adapted)
    job.note("step", optimizer.param_groups[0]["step"])


@job_kind(refused=NEEDS_ALL)
def counter_of_its_own(job):
    _, optimizer = train_with(job, own.Counting)
    job.note("count", optimizer.count)


@job_kind(refused=NEEDS_ALL)
def rate_by_its_own_counter(job):
    _, optimizer = train_with(job, own.Cosine)
    job.note("rate", optimizer.param_groups[0]["lr"])


@job_kind(refused=NEEDS_ALL)
def norm_of_all_gradients(job):
    train_with(job, own.GloballyNormed)


@job_kind(refused=NEEDS_ALL)
def random_numbers_in_the_step(job):
    """All ranks draw the same, and a dropout in the model draws in between."""
    model = nn.Sequential(nn.Linear(WIDTH, 20), nn.Dropout(0.2), nn.Tanh(), nn.Linear(20, CLASSES))
    wrapped, optimizer = job.wrap(model, own.Noisy(model.parameters()))
    train(job, wrapped, optimizer)
    job.finish(wrapped)


@job_kind(refused=NEEDS_ALL)
def lamb(job):
    train_with(job, own.Lamb)


@job_kind(refused=NEEDS_ALL)
def lars(job):
    train_with(job, own.LayerwiseScaled)


@job_kind(refused=NEEDS_ALL)
def lion(job):
    train_with(job, own.Lion)


@job_kind(refused=NEEDS_ALL)
def adafactor(job):
    train_with(job, own.Adafactor)


@job_kind(refused=NEEDS_ALL)
def muon(job):
    train_with(job, own.Muon)


@job_kind(refused=NEEDS_ALL, tolerance=1e-4, why="eigenvalues of products")
def shampoo(job):
    train_with(job, own.Shampoo)


@job_kind(refused=NEEDS_ALL)
def muon_and_adamw(job):
    """Matrices by one optimizer, the rest by another, behind one step."""
    model = Language()
    matrices = [parameter for name, parameter in model.named_parameters() if parameter.dim() == 2 and "blocks" in name]
    rest = [parameter for parameter in model.parameters() if all(parameter is not other for other in matrices)]
    wrapped, optimizer = job.wrap(model, own.Together(own.Muon(matrices), torch.optim.AdamW(rest, lr=0.01)))
    for step, _ in job.batches():
        tokens = job.integers(24, 3, 9)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(refused=NEEDS_ALL)
def schedule_free(job):
    """Evaluation by the average, which the optimizer swaps in and out."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, own.ScheduleFree(model.parameters()))
    for step, (x, y) in job.batches():
        optimizer.train()
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        if step % 4 == 3:
            optimizer.eval()
            with torch.no_grad():
                job.note("evaluation", F.mse_loss(model(x), y))
    job.finish(wrapped)


@job_kind(refused=NEEDS_ALL)
def lookahead(job):
    _, optimizer = train_with(job, lambda parameters: own.Lookahead(torch.optim.Adam(parameters, lr=0.03)))
    job.note("count", optimizer.count)


@job_kind(refused=NEEDS_ALL)
def sharpness_aware(job):
    """Two forward and backward passes a step."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, own.SharpnessAware(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9))
    for step, (x, y) in job.batches():
        F.mse_loss(wrapped(x), y).backward()
        optimizer.first_step()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.second_step()
    job.finish(wrapped)


@job_kind(refused=NEEDS_ALL)
def sharpness_aware_by_closure(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, own.SharpnessAware(model.parameters(), torch.optim.SGD, lr=0.1))
    for step, (x, y) in job.batches():
        def closure():
            loss = F.mse_loss(wrapped(x), y)
            loss.backward()
            return loss
        closure()
        optimizer.step(closure)
    job.finish(wrapped)


@job_kind(refused=NEEDS_ALL)
def subclass_that_centralizes(job):
    train_with(job, lambda parameters: own.Centralized(parameters, lr=0.1, momentum=0.9))


@job_kind(refused=NEEDS_ALL)
def subclass_that_clips(job):
    train_with(job, lambda parameters: own.ClippingAdam(parameters, lr=0.02))
