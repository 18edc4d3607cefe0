"""Groups and states of optimizers, and steps that are called in other ways."""

import types

import torch
from torch import nn
from torch.nn import functional as F

from .kit import UNSHARDED, job_kind, perceptron
from .optimizers import train


# --- groups, states, and steps that are called otherwise ---


@job_kind()
def groups_with_rates_of_their_own(job):
    model = perceptron()
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    plain = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0, "lr": 0.05}], lr=0.01)
    wrapped, optimizer = job.wrap(model, optimizer)
    train(job, wrapped, optimizer)
    job.finish(wrapped, optimizer)


@job_kind()
def layerwise_rates_changed_by_hand(job):
    model = perceptron()
    layers = [module for module in model if isinstance(module, nn.Linear)]
    optimizer = torch.optim.SGD([{"params": layer.parameters(), "lr": 0.05 * 0.8 ** number} for number, layer in enumerate(layers)])
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        for number, group in enumerate(optimizer.param_groups):
            group["lr"] = 0.1 * 0.8 ** number * min(1.0, (step + 1) / 6)
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        optimizer.param_groups[0]["momentum"] = 0.1 * (step % 3)
    job.finish(wrapped)


@job_kind()
def group_added_later(job):
    """A layer that waits until step 6 for its optimizer; DDP averages its gradients all the time."""
    model = perceptron()
    optimizer = torch.optim.SGD(list(model[0].parameters()) + list(model[4].parameters()), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        if step == 6:
            optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.05})
        optimizer.zero_grad()
        model.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def not_all_parameters_in_the_optimizer(job):
    """Linear probing that forgot requires_grad_(False)."""
    model = perceptron()
    optimizer = torch.optim.Adam(model[4].parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        model.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


class Uncertainty(nn.Module):
    """A loss with weights of its own."""

    def __init__(self):
        super().__init__()
        self.log_variances = nn.Parameter(torch.zeros(2))

    def forward(self, found, wanted):
        losses = torch.stack([F.mse_loss(found, wanted), F.l1_loss(found, wanted)])
        return (losses * torch.exp(-self.log_variances) + self.log_variances).sum()


@job_kind(refused="NotSupported", why="DDP does not average parameters outside of the model; replicas of them drift")
def loss_with_parameters(job):
    """They are in the optimizer but not in the model."""
    model, criterion = perceptron(), Uncertainty()
    optimizer = torch.optim.Adam(list(model.parameters()) + list(criterion.parameters()), lr=0.05)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = criterion(wrapped(x), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
        job.note("variances", criterion.log_variances)
    job.finish(wrapped)


@job_kind()
def loss_with_parameters_in_the_model(job):
    """As it is done right: the loss is a part of what is wrapped."""
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.criterion = perceptron(), Uncertainty()

        def forward(self, x, y):
            return self.criterion(self.body(x), y)

    model = Both()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.05))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = wrapped(x, y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
        job.note("variances", model.criterion.log_variances)
    job.finish(wrapped)


@job_kind()
def state_read_between_steps(job):
    """Second moments and step counts, as monitors take them."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        state = optimizer.state[model[0].weight]
        job.note("second moments", state["exp_avg_sq"].sum().item() if state else None)
        job.note("steps", float(state["step"]) if state else None)
        job.note("all", sum(float(entries["exp_avg"].abs().sum()) for entries in optimizer.state.values()))
    job.finish(wrapped)


@job_kind()
def state_reset_in_the_middle(job):
    """Momentum is forgotten by a new defaultdict, and by zeros."""
    import collections
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        if step == 5:
            optimizer.state = collections.defaultdict(dict)
        if step == 8:
            for entries in optimizer.state.values():
                entries["momentum_buffer"].zero_()
    job.finish(wrapped)


@job_kind(refused=dict.fromkeys(("zero1", "zero2", "zero3"), "NotSupported"))
def step_patched_before(job):
    """A library has put a step of its own on the object."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plain_step, calls = optimizer.step, []

    def step_with_warm_up(*args, **named):
        calls.append(len(calls))
        for group in optimizer.param_groups:
            group["lr"] = 0.2 * min(1.0, len(calls) / 6)
        return plain_step(*args, **named)

    optimizer.step = step_with_warm_up
    wrapped, optimizer = job.wrap(model, optimizer)
    train(job, wrapped, optimizer)
    job.note("calls", calls)
    job.finish(wrapped)


@job_kind()
def step_patched_after(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    plain_step, calls = optimizer.step, []

    def counted(self, *args, **named):
        calls.append(1)
        self.param_groups[0]["lr"] *= 0.95
        return plain_step(*args, **named)

    optimizer.step = types.MethodType(counted, optimizer)
    train(job, wrapped, optimizer)
    job.note("calls", len(calls))
    job.finish(wrapped)


@job_kind(least_version=(2, 1), refused=dict.fromkeys(("zero1", "zero2", "zero3"), "NotSupported"))
def step_hooks(job):
    """Hooks before and after a step see one step a step, with all groups."""
    model = perceptron()
    optimizer = torch.optim.SGD([{"params": [parameter]} for parameter in model.parameters()], lr=0.1)
    seen = []
    optimizer.register_step_pre_hook(lambda optimizer, args, named: seen.append(len(optimizer.param_groups)))
    wrapped, optimizer = job.wrap(model, optimizer)
    optimizer.register_step_post_hook(lambda optimizer, args, named: seen.append(-len(optimizer.param_groups)))
    train(job, wrapped, optimizer)
    job.note("seen", seen)
    job.finish(wrapped)


@job_kind()
def closure_that_counts(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    calls = []
    for step, (x, y) in job.batches():
        def closure():
            calls.append(1)
            optimizer.zero_grad()
            loss = F.mse_loss(wrapped(x), y)
            loss.backward()
            return loss
        job.note("loss", optimizer.step(closure))
    job.note("calls", len(calls))
    job.finish(wrapped)


@job_kind(modes=UNSHARDED, why="a shard belongs to one optimizer")
def new_optimizer_in_the_middle(job):
    """Adam first, then SGD of the same parameters, after undoing the wrapping."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    train(job, wrapped, optimizer, 6)
    model = job.unwrap(wrapped, optimizer)
    model.zero_grad(set_to_none=True)
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
    train(job, wrapped, optimizer, 6)
    job.finish(wrapped)


@job_kind()
def optimizer_as_a_wrapper_class(job):
    """A class of the user's own that has an optimizer and calls its step: a Noam schedule as in annotated transformers."""
    class Noam:
        def __init__(self, optimizer):
            self.optimizer, self.count = optimizer, 0

        def step(self):
            self.count += 1
            for group in self.optimizer.param_groups:
                group["lr"] = 0.1 * min(self.count ** -0.5, self.count * 4 ** -1.5)
            self.optimizer.step()

    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.0))
    outer = Noam(optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        outer.step()
    job.note("rate", optimizer.param_groups[0]["lr"])
    job.finish(wrapped)


@job_kind()
def maximize_and_negative_rates(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05, maximize=True))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        (-F.mse_loss(wrapped(x), y)).backward()
        optimizer.step()
    job.finish(wrapped)
