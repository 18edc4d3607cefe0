"""Weights and gradients that scripts read or write themselves between the calls of a step."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from .kit import CLASSES, WIDTH, Language, job_kind, perceptron


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
    """Of the last layer always, of the others from step 6 on."""
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
