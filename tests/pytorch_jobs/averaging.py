"""Averages of weights, teachers and momentum encoders: weights read between step and forward."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import swa_utils

from .kit import CLASSES, UNSHARDED, WIDTH, Picture, job_kind, perceptron


@torch.no_grad()
def move_towards(average, model, share):
    for theirs, ours in zip(average.parameters(), model.parameters()):
        theirs.mul_(1 - share).add_(ours, alpha=share)


@job_kind()
def moving_average(job):
    model = perceptron()
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        move_towards(average, model, 0.1)
    job.finish(model, average)


@job_kind()
def moving_average_by_foreach(job):
    """As timm's ModelEmaV3 does."""
    model = perceptron()
    shadow = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_mul_(shadow, 0.9)
            torch._foreach_add_(shadow, [parameter.detach() for parameter in model.parameters()], alpha=0.1)
    job.finish(model, shadow)


@job_kind()
def moving_average_by_state_dict(job):
    model = Picture()
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, _ in job.batches():
        optimizer.zero_grad()
        F.cross_entropy(wrapped(job.normal(6, 3, 8, 8)), job.integers(CLASSES, 6)).backward()
        optimizer.step()
        with torch.no_grad():
            now = model.state_dict()
            for name, entry in average.state_dict().items():
                entry.copy_(0.9 * entry + 0.1 * now[name])
    job.finish(wrapped, average)


@job_kind()
def moving_average_from_step_5(job):
    """It begins after the plan was made, and only every second step."""
    model = perceptron()
    average = None
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    model, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        if step == 5:
            average = [parameter.detach().clone() for parameter in model.parameters()]
        elif step > 5 and step % 2:
            for mine, parameter in zip(average, model.parameters()):
                mine.lerp_(parameter.data, 0.2)
    job.finish(model, average)


@job_kind()
def swapped_average_for_evaluation(job):
    """Weights are swapped with their averages before an evaluation and back after it, as EMA classes do with store and restore."""
    model = perceptron()
    shadow = {name: parameter.data.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        for name, parameter in model.named_parameters():
            shadow[name] = 0.8 * shadow[name] + 0.2 * parameter.data
        if step % 4 == 3:
            kept = {name: parameter.data.clone() for name, parameter in model.named_parameters()}
            for name, parameter in model.named_parameters():
                parameter.data = shadow[name].clone()
            model.eval()
            with torch.no_grad():
                job.note("evaluation", F.mse_loss(model(x), y))
            model.train()
            for name, parameter in model.named_parameters():
                parameter.data = kept[name]
    job.finish(wrapped, shadow)


@job_kind(modes=(*UNSHARDED, "zero1", "zero2"), why="parameters become views of the average, which then changes with them: not where they are given back")
def swapped_average_in_place(job):
    """copy_ swaps them, with all weights in one vector."""
    model = perceptron()
    average = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        average.lerp_(nn.utils.parameters_to_vector(model.parameters()).detach(), 0.3)
        if step in (5, 9):
            kept = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
            nn.utils.vector_to_parameters(average, model.parameters())
            with torch.no_grad():
                job.note("evaluation", F.mse_loss(wrapped(x), y))
            with torch.no_grad():
                first = 0
                for parameter in model.parameters():
                    parameter.copy_(kept[first:first + parameter.numel()].view_as(parameter))
                    first += parameter.numel()
    job.finish(wrapped, average)


@job_kind()
def swa_averaged_model(job):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    average = swa_utils.AveragedModel(model)
    schedule = swa_utils.SWALR(optimizer, swa_lr=0.02, anneal_epochs=4)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        if step > 3:
            average.update_parameters(model)
            schedule.step()
    job.finish(wrapped, average)


@job_kind()
def swa_with_update_bn(job):
    """AveragedModel of what overlap gave back, made after it, then batch statistics of all data."""
    model = Picture()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    wrapped, optimizer = job.wrap(model, optimizer)
    average = swa_utils.AveragedModel(model, avg_fn=lambda mean, new, count: 0.7 * mean + 0.3 * new)
    for step, _ in job.batches():
        optimizer.zero_grad()
        F.cross_entropy(wrapped(job.normal(6, 3, 8, 8)), job.integers(CLASSES, 6)).backward()
        optimizer.step()
        average.update_parameters(model)
    swa_utils.update_bn([job.normal(6, 3, 8, 8) for _ in range(3)], average)
    with torch.no_grad():
        job.note("evaluation", average(job.normal(6, 3, 8, 8)).sum())
    job.finish(wrapped, average)


@job_kind()
def mean_teacher(job):
    model = perceptron()
    teacher = copy.deepcopy(model)
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    student, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        with torch.no_grad():
            expected = teacher(x + 0.1 * job.normal(*x.shape))
        found = student(x)
        loss = F.mse_loss(found, y) + F.mse_loss(found, expected)
        job.note("loss", loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        move_towards(teacher, student, min(0.5, 1 / (step + 1)))
    job.finish(student, teacher)


class BootstrapYourOwnLatent(nn.Module):
    """BYOL: the target is no submodule's output that is trained, and is moved by a method that the loop calls after the step."""

    def __init__(self):
        super().__init__()
        self.online, self.predictor = perceptron(2), perceptron(2, CLASSES)
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)

    @torch.no_grad()
    def move_target(self):
        for theirs, ours in zip(self.target.parameters(), self.online.parameters()):
            theirs.data = 0.9 * theirs.data + 0.1 * ours.data

    def forward(self, one, two):
        first, second = self.predictor(self.online(one)), self.predictor(self.online(two))
        with torch.no_grad():
            target_one, target_two = self.target(one), self.target(two)
        return -(F.cosine_similarity(first, target_two).mean() + F.cosine_similarity(second, target_one).mean())


@job_kind()
def byol(job):
    model = BootstrapYourOwnLatent()
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1, momentum=0.9)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, _) in job.batches():
        loss = wrapped(x + 0.1 * job.normal(*x.shape), x + 0.1 * job.normal(*x.shape))
        job.note("loss", loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.move_target()
    job.finish(wrapped)


class MomentumContrast(nn.Module):
    """MoCo: the key encoder is moved at the beginning of forward, and keys wait in a queue that is a buffer."""

    def __init__(self, size: int = 24):
        super().__init__()
        self.query = perceptron(3)
        self.key = copy.deepcopy(self.query)
        self.key.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(size, CLASSES), dim=1))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def move_key(self):
        for theirs, ours in zip(self.key.parameters(), self.query.parameters()):
            theirs.data.mul_(0.8).add_(ours.data, alpha=0.2)

    def forward(self, one, two):
        asked = F.normalize(self.query(one), dim=1)
        with torch.no_grad():
            self.move_key()
            keys = F.normalize(self.key(two), dim=1)
        same = (asked * keys).sum(1, keepdim=True)
        others = asked @ self.queue.clone().detach().t()
        first = int(self.place)
        self.queue[first:first + len(keys)] = keys
        self.place[0] = (first + len(keys)) % len(self.queue)
        return torch.cat([same, others], 1) / 0.2


@job_kind()
def moco_update_in_forward(job):
    model = MomentumContrast()
    optimizer = torch.optim.SGD(model.query.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, _) in job.batches():
        scores = wrapped(x + 0.1 * job.normal(*x.shape), x)
        loss = F.cross_entropy(scores, torch.zeros(len(x), dtype=torch.long))
        job.note("loss", loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    job.finish(wrapped)


class KeyFirst(MomentumContrast):
    """The key encoder is moved before the query encoder's forward, which would have waited."""

    def forward(self, one, two):
        self.move_key()
        asked = F.normalize(self.query(one), dim=1)
        with torch.no_grad():
            keys = F.normalize(self.key(two), dim=1)
        return asked @ keys.t() / 0.2


@job_kind()
def momentum_encoder_before_forward(job):
    model = KeyFirst()
    optimizer = torch.optim.AdamW(model.query.parameters(), lr=0.01)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, _) in job.batches():
        loss = F.cross_entropy(wrapped(x + 0.1 * job.normal(*x.shape), x), torch.arange(len(x)))
        job.note("loss", loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def target_network(job):
    """Q-learning: the target is a hard copy every few steps, by load_state_dict, and a soft one by data.copy_ in others."""
    model = perceptron()
    hard, soft = copy.deepcopy(model), copy.deepcopy(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.005)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, _) in job.batches():
        acts, rewards = job.integers(CLASSES, len(x), 1), job.normal(len(x))
        with torch.no_grad():
            wanted = rewards + 0.9 * torch.min(hard(x).max(1).values, soft(x).max(1).values)
        loss = F.smooth_l1_loss(wrapped(x).gather(1, acts).squeeze(1), wanted)
        job.note("loss", loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 2:
            hard.load_state_dict(model.state_dict())
        for theirs, ours in zip(soft.parameters(), model.parameters()):
            theirs.data.copy_(0.1 * ours.data + 0.9 * theirs.data)
    job.finish(wrapped, hard, soft)


class AverageByHook(nn.Module):
    """An average that follows by a forward hook of the model, which runs after its forward."""

    def __init__(self, model):
        super().__init__()
        self.weights = [parameter.detach().clone() for parameter in model.parameters()]
        model.register_forward_hook(self.follow)

    def follow(self, model, inputs, output):
        with torch.no_grad():
            for mine, parameter in zip(self.weights, model.parameters()):
                mine.add_(parameter - mine, alpha=0.1)


@job_kind()
def average_in_a_forward_hook(job):
    model = perceptron()
    average = AverageByHook(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped, average.weights)


@job_kind()
def polyak_history(job):
    """Checkpoints in memory: lists of detached clones, of which the last three are averaged."""
    model = perceptron()
    history = []
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        history.append([parameter.detach().clone() for parameter in model.parameters()])
        history = history[-3:]
    job.finish(wrapped, [sum(entries) / 3 for entries in zip(*history)])


@job_kind()
def fast_and_slow_weights_at_epochs(job):
    """At the end of each epoch weights become the mean of what they were and what they are, as Reptile's outer loop does."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, optimizer)
    for epoch in range(4):
        before = copy.deepcopy(model.state_dict())
        for step, (x, y) in job.batches(4, width=WIDTH):
            optimizer.zero_grad()
            F.mse_loss(wrapped(x), y).backward()
            optimizer.step()
        after = model.state_dict()
        model.load_state_dict({name: 0.5 * before[name] + 0.5 * after[name] for name in before})
    job.finish(wrapped)
