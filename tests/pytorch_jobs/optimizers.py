"""Optimizers of torch.optim and others, their groups, states and wrappers."""

import types

import torch
from torch import nn
from torch.nn import functional as F

from . import own_optimizers as own
from .kit import CLASSES, UNSHARDED, WIDTH, Language, job_kind, perceptron

NEEDS_ALL = {level: "NotSupported" for level in ("zero1", "zero2", "zero3")}  # of what cannot be sharded


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


@job_kind()
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


@job_kind(least_version=(2, 1))
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
