"""Schedules of learning rates, clipping, steps that are skipped, and hooks that change gradients."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

from .kit import Language, job_kind, perceptron


def train(job, wrapped, optimizer, scheduler=None, before_step=None, steps=12, scale=1.0):
    for step, (x, y) in job.batches(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        (scale * loss).backward()
        if before_step:
            before_step(step)
        optimizer.step()
        if scheduler:
            scheduler.step()
        job.note("loss", loss)


def train_scheduled(job, make_scheduler, made_before, make_optimizer=None):
    model = perceptron()
    optimizer = make_optimizer(model) if make_optimizer else torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = make_scheduler(optimizer) if made_before else None
    wrapped, optimizer = job.wrap(model, optimizer)
    scheduler = scheduler or make_scheduler(optimizer)
    train(job, wrapped, optimizer, scheduler)
    job.note("rates", [group["lr"] for group in optimizer.param_groups])
    job.finish(wrapped)


@job_kind()
def cosine_made_before(job):
    train_scheduled(job, lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 10), True)


@job_kind()
def cosine_made_after(job):
    train_scheduled(job, lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4), False)


@job_kind()
def step_and_exponential(job):
    train_scheduled(job, lambda optimizer: lr_scheduler.ChainedScheduler([
        lr_scheduler.StepLR(optimizer, 3, 0.5), lr_scheduler.ExponentialLR(optimizer, 0.95)]), True)


@job_kind()
def warm_up_then_linear(job):
    train_scheduled(job, lambda optimizer: lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4), lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=8)], [4]), False)


@job_kind()
def one_cycle_with_momentum(job):
    """Changes the momentum or betas too."""
    train_scheduled(job, lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=14), True,
                    lambda model: torch.optim.Adam(model.parameters(), lr=0.01))


@job_kind()
def cyclic(job):
    train_scheduled(job, lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.2, step_size_up=3), False)


@job_kind()
def lambda_per_group(job):
    """The schedule of transformers: a function for each group."""
    def optimizer_of(model):
        return torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[2:].parameters(), "weight_decay": 0.1}], lr=0.02)
    train_scheduled(job, lambda optimizer: lr_scheduler.LambdaLR(optimizer, [lambda step: min(1.0, (step + 1) / 5), lambda step: 0.9 ** step]),
                    True, optimizer_of)


@job_kind()
def reduce_on_plateau(job):
    """Told of a loss that all ranks know."""
    import torch.distributed as dist
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches(15):
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        scheduler.step(mean.item())
    job.note("rate", optimizer.param_groups[0]["lr"])
    job.finish(wrapped)


@job_kind()
def clip_norm_always(job):
    model = Language()
    wrapped, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    for step, _ in job.batches():
        tokens = job.integers(24, 3, 9)
        optimizer.zero_grad()
        loss = F.cross_entropy(wrapped(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        job.note("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def clip_norm_of_infinity(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    train(job, wrapped, optimizer, before_step=lambda step: job.note("norm", nn.utils.clip_grad_norm_(
        wrapped.parameters(), 0.02, norm_type=math.inf)))
    job.finish(wrapped)


@job_kind()
def clip_value_always(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    train(job, wrapped, optimizer, before_step=lambda step: nn.utils.clip_grad_value_(model.parameters(), 0.03))
    job.finish(wrapped)


@job_kind()
def clip_norm_from_step_6(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5))
    train(job, wrapped, optimizer, steps=15,
          before_step=lambda step: step >= 6 and job.note("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
    job.finish(wrapped)


@job_kind()
def clip_norm_until_step_5(job):
    """Only in the warm-up."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    train(job, wrapped, optimizer, steps=16,
          before_step=lambda step: step <= 5 and job.note("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
    job.finish(wrapped)


@job_kind()
def clip_value_from_step_6(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.2))
    train(job, wrapped, optimizer, steps=15, before_step=lambda step: step >= 6 and nn.utils.clip_grad_value_(model.parameters(), 0.02))
    job.finish(wrapped)


@job_kind()
def clip_only_if_large(job):
    """The norm is looked at in each step, and gradients are changed at spikes of the loss alone."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
    for step, (x, y) in job.batches(16):
        optimizer.zero_grad()
        (F.mse_loss(wrapped(x), y) * (30.0 if step in (7, 12) else 1.0)).backward()
        norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm().item()
        job.note("norm", norm)
        if norm > 2.0:
            for parameter in model.parameters():
                parameter.grad.mul_(2.0 / norm)
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def clip_only_at_spikes_of_the_loss(job):
    """Gradients are not even read in other steps."""
    import torch.distributed as dist
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches(16):
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y) * (30.0 if step in (7, 12) else 1.0)
        loss.backward()
        worst = loss.detach().clone()
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        if worst > 10:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def clip_on_one_rank_only(job):
    """Each rank decides by the averaged gradients, so both do the same; but one writes by .data and the other in place."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def halve(step):
        if step % 4 == 3:
            for parameter in model.parameters():
                if job.rank:
                    parameter.grad.data.mul_(0.5)
                else:
                    parameter.grad.mul_(0.5)
    train(job, wrapped, optimizer, before_step=halve, steps=14)
    job.finish(wrapped)


@job_kind()
def clip_by_foreach(job):
    """As newer clipping does, and by the parameters of groups."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def clip(step):
        gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
        norm = torch.stack(list(torch._foreach_norm(gradients))).norm() if hasattr(torch, "_foreach_norm") else torch.tensor(1.0)
        torch._foreach_mul_(gradients, float(torch.clamp(0.1 / (norm + 1e-6), max=1.0)))
    train(job, wrapped, optimizer, before_step=clip)
    job.finish(wrapped)


@job_kind()
def agc_clipping(job):
    """Adaptive clipping of NFNets: gradients against the norms of their weights."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.2))

    def clip(step):
        for parameter in model.parameters():
            most = 0.02 * parameter.detach().norm().clamp(min=1e-3)
            norm = parameter.grad.norm()
            parameter.grad.detach().copy_(torch.where(norm > most, parameter.grad * (most / norm), parameter.grad))
    train(job, wrapped, optimizer, before_step=clip)
    job.finish(wrapped)


@job_kind()
def gradient_centralization_by_hooks(job):
    """Hooks on parameters run on each rank's own gradient, before the average."""
    model = perceptron()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.register_hook(lambda gradient: gradient - gradient.mean(1, keepdim=True))
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    train(job, wrapped, optimizer)
    job.finish(wrapped)


@job_kind()
def hooks_registered_after(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.02, 0.02))
    train(job, wrapped, optimizer)
    job.finish(wrapped)


@job_kind()
def hook_registered_in_the_middle(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    handles = []

    def change(step):
        if step == 5:
            handles.append(model[2].weight.register_hook(lambda gradient: 0.1 * gradient))
        if step == 9:
            handles.pop().remove()
    train(job, wrapped, optimizer, before_step=change)
    job.finish(wrapped)


@job_kind()
def step_skipped_where_not_finite(job):
    """The norm of the averaged gradients decides, so all ranks skip."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    skipped = 0
    for step, (x, y) in job.batches(15):
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        if step in (6, 9) and job.rank == 1:
            loss = loss * float("nan")
        loss.backward()
        norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
        if not torch.isfinite(norm):
            skipped += 1
            optimizer.zero_grad()
            continue
        optimizer.step()
    job.note("skipped", skipped)
    job.finish(wrapped)


@job_kind()
def loss_skipped_where_not_finite(job):
    """The loss of all ranks decides before backward, or after it; gradients are not read."""
    import torch.distributed as dist
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for step, (x, y) in job.batches(16):
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y) * (float("inf") if step in (5, 6, 10) and job.rank == 0 else 1.0)
        bad = (~torch.isfinite(loss.detach())).float()
        dist.all_reduce(bad)
        if bad and step == 5:
            continue  # no backward at all
        loss.backward()
        if bad:
            continue  # a backward without a step
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def scaler_by_hand(job):
    """What GradScaler does: losses are scaled, gradients unscaled in place, steps skipped at overflows, the scale adapted."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    scale = 1024.0
    for step, (x, y) in job.batches(15):
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        (loss * scale * (float("inf") if step in (0, 7) and job.rank == 1 else 1.0)).backward()
        for parameter in model.parameters():
            parameter.grad.div_(scale)
        finite = all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())
        if finite:
            optimizer.step()
        scale = scale * (1.2 if finite else 0.5)
        job.note("scale", scale)
    job.finish(wrapped)


@job_kind()
def scaler_begins_later(job):
    """Unscaling begins in step 6, as where mixed precision is switched on after a warm-up."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches(15):
        optimizer.zero_grad()
        scale = 256.0 if step >= 6 else 1.0
        (F.mse_loss(wrapped(x), y) * scale * (float("nan") if step == 9 and job.rank == 1 else 1.0)).backward()
        finite = True
        if scale != 1:
            for parameter in model.parameters():
                parameter.grad /= scale
                finite = finite and bool(torch.isfinite(parameter.grad).all())
        if finite:
            optimizer.step()
    job.finish(wrapped)


@job_kind()
def step_taken_twice(job):
    """optimizer.step() two times after one backward."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        if step % 3 == 2:
            optimizer.step()
    job.finish(wrapped)


@job_kind()
def step_without_backward(job):
    """A batch that is empty on all ranks: zero_grad and step nevertheless."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1))
    for step, (x, y) in job.batches():
        optimizer.zero_grad(set_to_none=True)
        if step not in (4, 8):
            F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)
