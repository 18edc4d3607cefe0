"""Weights that scripts write themselves between step and forward."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from .kit import job_kind, perceptron
from .weights_read import Encoder


@job_kind()
def weight_clamp(job):
    """As the critic of a WGAN."""
    model = perceptron()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    model, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.data.clamp_(-0.1, 0.1)
    job.finish(model)


@job_kind()
def unit_norm_rows(job):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            model[-1].weight.div_(model[-1].weight.norm(dim=1, keepdim=True))
    job.finish(wrapped)


@job_kind()
def max_norm(job):
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.copy_(torch.renorm(parameter, 2, 0, 0.5))
    job.finish(wrapped)


@job_kind()
def nonnegative_weights_by_indexing(job):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            model[2].weight[model[2].weight < 0] = 0
            model[4].bias[0] = 0.5
    job.finish(wrapped)


@job_kind()
def data_taken_before_and_written(job):
    model = perceptron()
    alias = model[4].weight.data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        alias.mul_(0.99)
    job.finish(wrapped)


@job_kind()
def part_loaded_in_the_middle(job):
    """The head takes saved weights by load_state_dict of the submodule."""
    model = Encoder()
    saved = copy.deepcopy(model.head.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        if step in (5, 9):
            model.head.load_state_dict(saved)
    job.finish(wrapped)


@job_kind()
def layer_begun_anew(job):
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        if step == 6:
            torch.manual_seed(5)
            model.head.reset_parameters()
            nn.init.orthogonal_(model.body[0].weight)
    job.finish(wrapped)


@job_kind()
def shrink_and_perturb(job):
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    noise = torch.Generator().manual_seed(3)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        if step == 7:
            for parameter in model.parameters():
                parameter.data = 0.8 * parameter.data + 0.01 * torch.randn(parameter.shape, generator=noise, device="cpu").to(job.device)
    job.finish(wrapped)


@job_kind()
def weight_decay_by_hand(job):
    """Before the step, with weights that forward has waited for, and after it."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.999)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_mul_(list(model.parameters()), 0.99)
    job.finish(wrapped)
