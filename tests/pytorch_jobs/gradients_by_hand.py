"""Gradients that scripts read or change themselves between backward and step, or after it."""

import torch
from torch import nn
from torch.nn import functional as F

from .kit import job_kind, perceptron


@job_kind()
def gradient_norm_logged(job):
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        job.note("norm", torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm().item())
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def gradient_norm_logged_now_and_then(job):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches(14):
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        if step % 4 == 3:
            job.note("norms", [parameter.grad.data.norm(2).item() for parameter in wrapped.parameters()])
            job.note("flat", torch.cat([parameter.grad.flatten() for parameter in wrapped.parameters()]).abs().mean().item())
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def gradients_read_after_the_step(job):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        job.note("norms", [parameter.grad.norm().item() for parameter in model.parameters()])
    job.finish(wrapped)


@job_kind()
def zero_grad_after_the_step(job):
    """The other usual order; what is zeroed is on its way or pending."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    job.finish(wrapped)


@job_kind()
def model_zero_grad(job):
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        wrapped.zero_grad(set_to_none=False)
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def gradients_set_to_none_by_hand(job):
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        for parameter in wrapped.parameters():
            parameter.grad = None
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def gradient_data_clamp(job):
    """PyTorch's own lesson on Q-learning."""
    model = perceptron()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.005)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        (10 * F.mse_loss(wrapped(x), y)).backward()
        for parameter in wrapped.parameters():
            parameter.grad.data.clamp_(-0.05, 0.05)
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def gradient_noise(job):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    noise = torch.Generator().manual_seed(3)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        for parameter in wrapped.parameters():
            parameter.grad += 0.05 / (1 + step) * torch.randn(parameter.shape, generator=noise, device="cpu").to(job.device)
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def gradient_replaced(job):
    """By its sign, as a new tensor."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        for parameter in wrapped.parameters():
            parameter.grad = parameter.grad.sign()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def gradient_none_later(job):
    """From step 5 on the first layer keeps what it has."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        if step >= 5:
            model[0].weight.grad = None
            model[0].bias.grad = None
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def gradient_scaled_for_some_layers(job):
    """The last layer always takes part, the others from step 6 on."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        model[4].weight.grad.mul_(0.1)
        if step >= 6:
            model[0].weight.grad *= 0.5
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def gradients_compared_over_steps(job):
    """Cosine of this step's gradient with the one before, which is kept."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    before = None
    for step, (x, y) in job.batches():
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(wrapped(x), y).backward()
        now = nn.utils.parameters_to_vector([parameter.grad for parameter in model.parameters()]).clone()
        if before is not None:
            job.note("cosine", F.cosine_similarity(now, before, dim=0).item())
        before = now
        optimizer.step()
    job.finish(wrapped)
