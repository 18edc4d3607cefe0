"""Optimizers of torch.optim."""

import torch
from torch import nn
from torch.nn import functional as F

from .kit import CLASSES, WIDTH, job_kind, perceptron


def train(job, wrapped, optimizer, steps=12):
    for step, (x, y) in job.batches(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)


def train_with(job, make):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, make(model.parameters()))
    train(job, wrapped, optimizer)
    job.finish(wrapped)
    return wrapped, optimizer


@job_kind()
def sgd_nesterov(job):
    train_with(job, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3))


@job_kind()
def adam_amsgrad(job):
    _, optimizer = train_with(job, lambda parameters: torch.optim.Adam(parameters, lr=0.02, amsgrad=True))
    job.finish(optimizer)


@job_kind()
def adamw_foreach(job):
    train_with(job, lambda parameters: torch.optim.AdamW(parameters, lr=0.02, foreach=True))


@job_kind()
def adam_capturable_state(job):
    """State loaded before training begins, of a job that was shorter."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    x, y = torch.ones(2, WIDTH), torch.ones(2, CLASSES)
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    wrapped, optimizer = job.wrap(model, optimizer)
    train(job, wrapped, optimizer)
    job.finish(wrapped, optimizer)


@job_kind()
def adagrad(job):
    train_with(job, lambda parameters: torch.optim.Adagrad(parameters, lr=0.05))


@job_kind()
def rmsprop_centered(job):
    train_with(job, lambda parameters: torch.optim.RMSprop(parameters, lr=0.005, centered=True, momentum=0.5))


@job_kind()
def adadelta(job):
    train_with(job, lambda parameters: torch.optim.Adadelta(parameters, lr=1.0))


@job_kind()
def adamax(job):
    train_with(job, lambda parameters: torch.optim.Adamax(parameters, lr=0.02))


@job_kind()
def nadam(job):
    train_with(job, lambda parameters: torch.optim.NAdam(parameters, lr=0.02))


@job_kind()
def radam(job):
    train_with(job, lambda parameters: torch.optim.RAdam(parameters, lr=0.02))


@job_kind()
def asgd(job):
    train_with(job, lambda parameters: torch.optim.ASGD(parameters, lr=0.05, t0=4))


@job_kind()
def rprop(job):
    train_with(job, lambda parameters: torch.optim.Rprop(parameters, lr=0.01))


@job_kind(refused="NotSupported")
def lbfgs(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=3))
    for step, (x, y) in job.batches(6):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(wrapped(x), y)
            loss.backward()
            return loss
        # Every rank sees losses of its own data; a step is the same on all because only gradients count without a line search.
        optimizer.step(closure)
    job.finish(wrapped)


@job_kind(refused="NotSupported")
def sparse_embedding(job):
    model = nn.Sequential(nn.EmbeddingBag(30, 8, sparse=True, mode="sum"))
    wrapped, optimizer = job.wrap(model, torch.optim.SparseAdam(list(model.parameters()), lr=0.02))
    for step, _ in job.batches():
        optimizer.zero_grad()
        wrapped(job.integers(30, 4, 3)).square().mean().backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(refused="NotSupported", devices=("cpu",))
def sparse_embedding_by_sgd(job):
    model = nn.Sequential(nn.Embedding(30, WIDTH, sparse=True), nn.Flatten(), nn.Linear(3 * WIDTH, CLASSES))
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (_, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(job.integers(30, 6, 3)), y).backward()
        optimizer.step()
    job.finish(wrapped)
