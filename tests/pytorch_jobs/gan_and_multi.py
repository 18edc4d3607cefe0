"""Several models and optimizers in one loop."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from .kit import CLASSES, WIDTH, job_kind, perceptron

OTHER_SUMS = {"tolerance": 2e-5, "why": "several backward passes between two steps: sums round otherwise"}


def generator_and_critic():
    return perceptron(3, 6, classes=WIDTH), perceptron(3, classes=1)


def require(model, yes):
    for parameter in model.parameters():
        parameter.requires_grad_(yes)


def bce(scores, real):
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))


@job_kind(**OTHER_SUMS)
def gan(job):
    """As in PyTorch's DCGAN: the critic gets gradients of the generator's loss, which its zero_grad throws away."""
    generator, critic = generator_and_critic()
    made, for_made = job.wrap(generator, torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.9)))
    judged, for_judged = job.wrap(critic, torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.9)))
    for step, (x, _) in job.batches():
        for_judged.zero_grad()
        bce(judged(x), 1).backward()
        fake = made(job.normal(6, 6))
        bce(judged(fake.detach()), 0).backward()
        for_judged.step()
        for_made.zero_grad()
        loss = bce(judged(fake), 1)
        loss.backward()
        for_made.step()
        job.note("loss", loss)
    job.finish(made, judged)


@job_kind()
def gan_with_toggles(job):
    """pix2pix and CycleGAN: requires_grad of the critic is off while the generator learns."""
    generator, critic = generator_and_critic()
    made, for_made = job.wrap(generator, torch.optim.Adam(generator.parameters(), lr=0.01))
    judged, for_judged = job.wrap(critic, torch.optim.Adam(critic.parameters(), lr=0.01))
    for step, (x, _) in job.batches():
        fake = made(job.normal(6, 6))
        require(critic, False)
        for_made.zero_grad()
        bce(critic(fake), 1).backward()
        for_made.step()
        require(critic, True)
        for_judged.zero_grad()
        loss = bce(judged(torch.cat([x, fake.detach()])), 1)
        loss.backward()
        for_judged.step()
        job.note("loss", loss)
    job.finish(made, judged)


@job_kind()
def gan_with_both_toggles(job):
    """requires_grad of each model is off while the other learns, and wrapped models are called in both."""
    generator, critic = generator_and_critic()
    made, for_made = job.wrap(generator, torch.optim.SGD(generator.parameters(), lr=0.05))
    judged, for_judged = job.wrap(critic, torch.optim.SGD(critic.parameters(), lr=0.05))
    for step, (x, _) in job.batches():
        require(generator, False)
        require(critic, True)
        for_judged.zero_grad()
        (critic_loss(judged, x, generator(job.normal(6, 6)))).backward()
        for_judged.step()
        require(generator, True)
        require(critic, False)
        for_made.zero_grad()
        loss = -critic(made(job.normal(6, 6))).mean()
        loss.backward()
        for_made.step()
        job.note("loss", loss)
    job.finish(made, judged)


def critic_loss(critic, real, fake):
    scores = critic(torch.cat([real, fake]))
    return scores[len(real):].mean() - scores[:len(real)].mean()


@job_kind()
def wasserstein_with_clamp(job):
    """Several critic steps for one of the generator, and the critic's weights clamped after each."""
    generator, critic = generator_and_critic()
    made, for_made = job.wrap(generator, torch.optim.RMSprop(generator.parameters(), lr=0.005))
    judged, for_judged = job.wrap(critic, torch.optim.RMSprop(critic.parameters(), lr=0.005))
    for step, (x, _) in job.batches():
        for_judged.zero_grad()
        with torch.no_grad():
            fake = generator(job.normal(6, 6))
        loss = critic_loss(judged, x, fake)
        loss.backward()
        for_judged.step()
        for parameter in critic.parameters():
            parameter.data.clamp_(-0.15, 0.15)
        job.note("loss", loss)
        if step % 3 == 2:
            for_made.zero_grad()
            (-critic(made(job.normal(6, 6))).mean()).backward()
            for_made.step()
            for_judged.zero_grad()
    job.finish(made, judged)


@job_kind(**OTHER_SUMS)
def wasserstein_with_gradient_penalty(job):
    generator, critic = generator_and_critic()
    made, for_made = job.wrap(generator, torch.optim.Adam(generator.parameters(), lr=0.005, betas=(0.0, 0.9)))
    judged, for_judged = job.wrap(critic, torch.optim.Adam(critic.parameters(), lr=0.005, betas=(0.0, 0.9)))
    for step, (x, _) in job.batches():
        fake = made(job.normal(6, 6)).detach()
        share = job.normal(6, 1).sigmoid()
        between = (share * x + (1 - share) * fake).requires_grad_(True)
        scores = judged(torch.cat([x, fake, between]))
        (slope,) = torch.autograd.grad(scores[12:].sum(), between, create_graph=True)
        loss = scores[6:12].mean() - scores[:6].mean() + (slope.norm(2, 1) - 1).square().mean()
        for_judged.zero_grad()
        loss.backward()
        for_judged.step()
        job.note("loss", loss)
        if step % 2:
            for_made.zero_grad()
            (-critic(made(job.normal(6, 6))).mean()).backward()
            for_made.step()
            critic.zero_grad()
    job.finish(made, judged)


@job_kind()
def generator_average(job):
    """StyleGAN: an average of the generator is evaluated between steps."""
    generator, critic = generator_and_critic()
    average = copy.deepcopy(generator).eval()
    made, for_made = job.wrap(generator, torch.optim.Adam(generator.parameters(), lr=0.01))
    judged, for_judged = job.wrap(critic, torch.optim.Adam(critic.parameters(), lr=0.01))
    for step, (x, _) in job.batches():
        for_judged.zero_grad()
        critic_loss(judged, x, made(job.normal(6, 6)).detach()).backward()
        for_judged.step()
        for_made.zero_grad()
        critic.requires_grad_(False)
        (-critic(made(job.normal(6, 6))).mean()).backward()
        critic.requires_grad_(True)
        for_made.step()
        with torch.no_grad():
            for mine, parameter in zip(average.parameters(), generator.parameters()):
                mine.copy_(torch.lerp(parameter, mine, 0.8))
            job.note("picture", average(torch.ones(1, 6)))
    job.finish(made, judged, average)


@job_kind()
def two_models_two_optimizers(job):
    """They never meet."""
    first, second = perceptron(), perceptron(2)
    one, for_one = job.wrap(first, torch.optim.SGD(first.parameters(), lr=0.1))
    two, for_two = job.wrap(second, torch.optim.Adam(second.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        for_one.zero_grad()
        for_two.zero_grad()
        F.mse_loss(one(x), y).backward()
        F.mse_loss(two(x), y).backward()
        for_one.step()
        for_two.step()
    job.finish(one, two)


@job_kind()
def two_models_one_loss(job):
    """An encoder and a head, each wrapped with an optimizer of its own; one backward reaches both."""
    encoder, head = perceptron(2, classes=8), perceptron(2, 8)
    encoded, for_encoder = job.wrap(encoder, torch.optim.AdamW(encoder.parameters(), lr=0.01))
    headed, for_head = job.wrap(head, torch.optim.SGD(head.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        for_encoder.zero_grad()
        for_head.zero_grad()
        loss = F.mse_loss(headed(torch.tanh(encoded(x))), y)
        loss.backward()
        for_encoder.step()
        for_head.step()
        job.note("loss", loss)
    job.finish(encoded, headed)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(WIDTH, 16), nn.Linear(16, CLASSES), nn.Linear(16, 1)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return self.actor(x), self.critic(x).squeeze(1)


@job_kind()
def policy_gradient_with_several_epochs(job):
    """PPO: actions are drawn by the model under no_grad, then several steps on the same data, with clipping."""
    model = ActorCritic()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.01))
    for step, (x, _) in job.batches(6):
        with torch.no_grad():
            scores, values = model(x)
            acts = (scores + job.normal(*scores.shape)).argmax(1)
            old = scores.log_softmax(1).gather(1, acts[:, None]).squeeze(1)
            gains = x.sum(1) - values
        for _ in range(3):
            scores, values = wrapped(x)
            ratio = (scores.log_softmax(1).gather(1, acts[:, None]).squeeze(1) - old).exp()
            loss = -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean() + 0.5 * F.mse_loss(values, x.sum(1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            job.note("loss", loss)
    job.finish(wrapped)


@job_kind(**OTHER_SUMS)
def soft_actor_critic(job):
    """Two critics with targets, an actor whose loss goes through a critic, and a temperature that is no module."""
    actor, critic = perceptron(2, classes=CLASSES), perceptron(2, WIDTH + CLASSES, classes=1)
    target = copy.deepcopy(critic)
    acting, for_actor = job.wrap(actor, torch.optim.Adam(actor.parameters(), lr=0.01))
    judging, for_critic = job.wrap(critic, torch.optim.Adam(critic.parameters(), lr=0.01))
    for step, (x, _) in job.batches():
        following, rewards = job.normal(6, WIDTH), x.sum(1, keepdim=True)
        with torch.no_grad():
            wanted = rewards + 0.9 * target(torch.cat([following, torch.tanh(actor(following))], 1))
        for_critic.zero_grad()
        loss = F.mse_loss(judging(torch.cat([x, torch.tanh(actor(x)).detach()], 1)), wanted)
        loss.backward()
        for_critic.step()
        for_actor.zero_grad()
        (-critic(torch.cat([x, torch.tanh(acting(x))], 1)).mean()).backward()
        for_actor.step()
        with torch.no_grad():
            for theirs, ours in zip(target.parameters(), critic.parameters()):
                theirs.data.mul_(0.9)
                theirs.data.add_(0.1 * ours.data)
        job.note("loss", loss)
    job.finish(acting, judging, target)


@job_kind()
def knowledge_distillation(job):
    """A teacher that stays as it is, and hidden layers read by forward hooks."""
    teacher, student = perceptron(3, hidden=30), perceptron(3)
    taken = {}
    student[1].register_forward_hook(lambda module, inputs, output: taken.update(hidden=output))
    bridge = nn.Linear(20, 30)
    both = nn.ModuleDict({"student": student, "bridge": bridge})

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = both

        def forward(self, x):
            found = self.parts["student"](x)
            return found, self.parts["bridge"](taken["hidden"])

    model = Pair()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for step, (x, y) in job.batches():
        with torch.no_grad():
            inner = teacher[:2](x)
            expected = teacher(x)
        found, hidden = wrapped(x)
        loss = F.mse_loss(found, y) + F.kl_div(found.log_softmax(1), expected.softmax(1), reduction="batchmean") + F.mse_loss(hidden, inner)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def meta_learning_by_functions(job):
    """MAML: an inner step on weights made by hand, the outer one through it."""
    class Maml(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(WIDTH, 16), nn.Linear(16, CLASSES)

        def apply_with(self, x, weights):
            x = torch.tanh(F.linear(x, weights[0], weights[1]))
            return F.linear(x, weights[2], weights[3])

        def forward(self, x, y):
            weights = list(self.parameters())
            slopes = torch.autograd.grad(F.mse_loss(self.apply_with(x, weights), y), weights, create_graph=True)
            return self.apply_with(x, [weight - 0.1 * slope for weight, slope in zip(weights, slopes)])

    model = Maml()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x, y), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind(refused=dict.fromkeys(("zero1", "zero2", "zero3"), "NotSupported"))
def two_optimizers_of_one_model(job):
    """Body and head have an optimizer each; the model is wrapped with the first, the second runs beside it as with DDP."""
    class Both(torch.optim.SGD):
        """What is wrapped owns all parameters; rates of the halves change in turns."""

    model = perceptron()
    wrapped, optimizer = job.wrap(model, Both([{"params": model[:2].parameters()}, {"params": model[2:].parameters()}], lr=0.1))
    for step, (x, y) in job.batches():
        for number, group in enumerate(optimizer.param_groups):
            group["lr"] = 0.1 if step % 2 == number else 0.0
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(refused="NotSupported")
def second_optimizer_beside(job):
    """The head belongs to an optimizer that is not wrapped; DDP averages its gradients all the same."""
    model = perceptron()
    beside = torch.optim.SGD(model[4].parameters(), lr=0.1)
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model[:4].parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        beside.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        beside.step()
    job.finish(wrapped)
