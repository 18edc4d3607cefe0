"""Weights that scripts read themselves between step and forward."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from .kit import CLASSES, WIDTH, Language, job_kind, perceptron


@job_kind()
def weights_logged(job):
    """Norms and histograms of weights, as loggers take them, in three ways."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        for name, parameter in model.named_parameters():
            job.note(f"norm of {name}", parameter.norm().item())
        job.note("first weight", float(model[0].weight[0, 0]))
        job.note("numbers", model[2].bias.detach().numpy().tolist() if job.device == "cpu" else model[2].bias.detach())
        job.note("text", f"{model[4].bias.data[0]:.3g}")
    job.finish(wrapped)


@job_kind()
def weights_logged_now_and_then(job):
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches(15):
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        if step % 5 == 4:
            job.note("sum of squares", sum(parameter.pow(2).sum().item() for parameter in model.parameters()))
            job.note("largest", max(parameter.abs().max().item() for parameter in model.parameters()))
    job.finish(wrapped)


@job_kind()
def change_of_weights_logged(job):
    """How far a step goes, against the weights: read before and after the step."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer.step()
        job.note("ratio", [((after - old).norm() / (old.norm() + 1e-8)).item() for after, old in zip(model.parameters(), before)])
    job.finish(wrapped)


@job_kind()
def penalty_on_weights(job):
    """L2 of all parameters in the loss, after the forward."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y) + 1e-2 * sum(parameter.pow(2).sum() for parameter in wrapped.parameters())
        job.note("loss", loss)
        loss.backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def penalty_before_forward(job):
    """L1 of some weights, computed before the model runs; DDP must be told that these weights are used twice in one backward."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        penalty = model[0].weight.abs().sum() + model[4].weight.abs().sum()
        loss = F.mse_loss(wrapped(x), y) + 1e-3 * penalty
        job.note("loss", loss)
        loss.backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def distance_to_first_weights(job):
    """L2-SP: a penalty on the distance to where training began."""
    model = perceptron()
    first = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        distance = sum((parameter - old).square().sum() for parameter, old in zip(model.parameters(), first))
        loss = F.mse_loss(wrapped(x), y) + 0.1 * distance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.note("distance", distance)
    job.finish(wrapped)


@job_kind()
def orthogonality_penalty(job):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        found = wrapped(x)
        weight = model[2].weight
        loss = F.mse_loss(found, y) + 0.01 * (weight @ weight.t() - torch.eye(weight.shape[0])).norm()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def generate_between_steps(job):
    """Text is sampled between steps by a method of the bare model."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, _ in job.batches():
        tokens = job.integers(24, 3, 9)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        if step % 3 == 1:
            job.note("text", model.generate(tokens[:1, :4]))
    job.finish(wrapped)


class Encoder(nn.Module):
    """Methods beside forward read its weights."""

    def __init__(self):
        super().__init__()
        self.body, self.head = perceptron(2, classes=8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))

    def prototypes(self):
        return F.normalize(self.head.weight, dim=1)

    def embed(self, x):
        return F.linear(torch.tanh(F.linear(x, self.body[0].weight, self.body[0].bias)), self.body[2].weight, self.body[2].bias)


@job_kind()
def methods_beside_forward(job):
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        job.note("prototypes", model.prototypes().detach())
        with torch.no_grad():
            job.note("embedding", model.embed(x[:1]))
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


class Borrower(nn.Module):
    """A module uses the weight of another one, before that one's forward."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.shelf = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = F.linear(torch.tanh(self.first(x)), self.second.weight.t())
        x = torch.tanh(self.second(x)) * self.shelf.weight.mean()
        return F.linear(x, self.shelf.weight, self.shelf.bias)


@job_kind()
def weights_of_other_modules(job):
    model = Borrower()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        job.note("loss", loss)
        loss.backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def data_taken_before(job):
    """Detached aliases, views and an array of numpy of the weights that were made before the first step."""
    model = perceptron()
    aliases = [parameter.detach() for parameter in model.parameters()]
    rows = model[0].weight.data[:2]
    array = model[2].bias.detach().numpy() if job.device == "cpu" else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        job.note("sums", [alias.sum().item() for alias in aliases])
        job.note("rows", rows.sum().item())
        if array is not None:
            job.note("array", float(array.sum()))
    job.finish(wrapped)


@job_kind()
def early_stop_with_best_weights(job):
    """The best weights are kept by a deep copy of state_dict and loaded in the end."""
    import torch.distributed as dist
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    wrapped, optimizer = job.wrap(model, optimizer)
    best, best_loss = None, float("inf")
    for step, (x, y) in job.batches(16):
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if mean.item() < best_loss:
            best, best_loss = copy.deepcopy(model.state_dict()), mean.item()
    model.load_state_dict(best)
    job.note("best", best_loss)
    job.finish(wrapped)
