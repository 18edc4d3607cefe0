"""Models that change while they are trained: frozen, unfrozen, other branches, other layers, other shapes."""

import torch
from torch import nn
from torch.nn import functional as F

from .kit import CLASSES, UNSHARDED, WIDTH, Language, job_kind, perceptron

FREEZING = {"why": "DDP of unfrozen parameters needs a new wrapping, so all are trained when it begins"}


def freeze(module, frozen=True):
    for parameter in module.parameters():
        parameter.requires_grad_(not frozen)


@job_kind()
def frozen_from_the_start(job):
    model = perceptron()
    freeze(model[0])
    wrapped, optimizer = job.wrap(model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def frozen_but_in_the_optimizer(job):
    model = perceptron()
    freeze(model[2])
    wrapped, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(**FREEZING)
def freezing_in_the_middle(job):
    """From step 6 on the first layer is frozen; DDP has unused parameters then."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), find_unused_parameters=True)
    for step, (x, y) in job.batches(14):
        if step == 6:
            freeze(model[0])
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(modes=UNSHARDED, why="a second wrapping in the place of the first")
def unfreezing_with_a_new_wrapping(job):
    """ULMFiT, as DDP wants it: undone, unfrozen, wrapped again with a new optimizer."""
    model = perceptron()
    freeze(model[0])
    freeze(model[2])
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model[4].parameters(), lr=0.1))
    for layer in (2, 0):
        for step, (x, y) in job.batches(5):
            optimizer.zero_grad()
            F.mse_loss(wrapped(x), y).backward()
            optimizer.step()
        model = job.unwrap(wrapped, optimizer)
        model.zero_grad(set_to_none=True)
        freeze(model[layer], False)
        wrapped, optimizer = job.wrap(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))
    for step, (x, y) in job.batches(6):
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(**FREEZING)
def frozen_for_a_while(job):
    """The body is frozen in the warm-up, by requires_grad after wrapping, and trained from step 5 on."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), find_unused_parameters=True)
    freeze(model[0])
    for step, (x, y) in job.batches(14):
        if step == 5:
            freeze(model[0], False)
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def biases_frozen_by_their_gradients(job):
    """A hook gives zeros for what should not move."""
    model = perceptron()
    mask = torch.ones(CLASSES, 1)
    mask[0] = 0
    model[4].weight.register_hook(lambda gradient: gradient * mask)
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


class Branches(nn.Module):
    def __init__(self, count=3):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, which):
        return self.head(torch.tanh(self.branches[which](x)))


@job_kind()
def branches_by_step(job):
    model = Branches()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), find_unused_parameters=True)
    for step, (x, y) in job.batches(14):
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(wrapped(x, step // 2 % 3), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def branches_by_rank(job):
    """Ranks use other branches than each other, Adam, and zeros instead of None."""
    model = Branches()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02), find_unused_parameters=True)
    for step, (x, y) in job.batches(14):
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(wrapped(x, (step + job.rank) % 2), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def branch_that_begins_later(job):
    """Progressive training: the second branch is used from step 6 on."""
    model = Branches(2)
    wrapped, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.02), find_unused_parameters=True)
    for step, (x, y) in job.batches(14):
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(wrapped(x, 0 if step < 6 else 1), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


class Experts(nn.Module):
    """Each input goes to its best expert; some experts get nothing."""

    def __init__(self, count=4):
        super().__init__()
        self.gate = nn.Linear(WIDTH, count)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, CLASSES)) for _ in range(count))

    def forward(self, x):
        share, which = self.gate(x).softmax(1).max(1)
        found = torch.zeros(len(x), CLASSES)
        for number, expert in enumerate(self.experts):
            mine = (which == number).nonzero().flatten()
            if len(mine):
                found = found.index_copy(0, mine, expert(x[mine]) * share[mine, None])
        return found


@job_kind(modes=(*UNSHARDED, "zero1", "zero2"), why="zero3 gathers an expert where all ranks use it, as FSDP does; one that some ranks leave out ends with JobFailed")
def mixture_of_experts(job):
    model = Experts()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02), find_unused_parameters=True)
    for step, (x, y) in job.batches(16, rows=3):
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def stochastic_depth(job):
    """Layers are left out by chance; all ranks by the same."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            for layer in self.layers:
                if torch.rand((), device="cpu") < 0.7:
                    x = x + torch.tanh(layer(x))
            return self.head(x)

    model = Net()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), find_unused_parameters=True)
    for step, (x, y) in job.batches(14):
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def never_used(job):
    model = nn.ModuleDict({"used": perceptron(), "unused": nn.Linear(3, 3)})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            return self.parts["used"](x)

    net = Net()
    wrapped, optimizer = job.wrap(net, torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1), find_unused_parameters=True)
    for step, (x, y) in job.batches():
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def output_that_is_not_in_the_loss(job):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.aside = perceptron(), nn.Linear(WIDTH, 2)

        def forward(self, x):
            return self.body(x), self.aside(x)

    model = Net()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02), find_unused_parameters=True)
    for step, (x, y) in job.batches(14):
        optimizer.zero_grad(set_to_none=True)
        found, aside = wrapped(x)
        loss = F.mse_loss(found, y) + (aside.square().mean() if step % 4 == 3 else 0)
        loss.backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def lengths_that_vary(job):
    model = Language()
    wrapped, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    for step, _ in job.batches(16):
        tokens = job.integers(24, 3, 4 + (5 * step + 3 * job.rank) % 9)
        optimizer.zero_grad()
        loss = F.cross_entropy(wrapped(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def lengths_that_grow(job):
    """Curriculum: from step 6 on for good, so that steps are measured again."""
    model = Language()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, _ in job.batches(22):
        tokens = job.integers(24, 3, 5 if step < 6 else 12)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def last_batch_is_smaller(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for epoch in range(4):
        for rows in (6, 6, 6, 2 + job.rank):
            x, y = job.normal(rows, WIDTH), job.normal(rows, CLASSES)
            optimizer.zero_grad()
            F.mse_loss(wrapped(x), y).backward()
            optimizer.step()
            job.steps_done += 1
    job.finish(wrapped)


@job_kind(refused=dict.fromkeys(("zero1", "zero2", "zero3"), "NotSupported"))
def uneven_data_with_join(job):
    """Rank 1 has three batches more than rank 0."""
    from torch.distributed.algorithms.join import Join
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with Join([wrapped]):
        for step, (x, y) in job.batches(8 + 3 * job.rank):
            optimizer.zero_grad()
            F.mse_loss(wrapped(x), y).backward()
            optimizer.step()
    job.finish(wrapped)


@job_kind(modes=UNSHARDED, why="a second wrapping in the place of the first")
def head_replaced(job):
    """Another head in the middle, with a new wrapping."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches(6):
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    model = job.unwrap(wrapped, optimizer)
    model.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    model[4] = nn.Linear(20, CLASSES)
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches(8):
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind()
def embedding_rows_written(job):
    """New words get the mean of the others, and the padding row is kept zero by hand."""
    model = Language()
    wrapped, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    for step, _ in job.batches():
        tokens = job.integers(24, 3, 9)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        model.words.weight.data[0] = 0
        if step == 7:
            with torch.no_grad():
                model.words.weight[20:] = model.words.weight[:20].mean(0)
    job.finish(wrapped)


@job_kind()
def statistics_of_a_late_branch(job):
    """A branch whose batch statistics no measured step has changed."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.late, self.head = nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.Linear(16, CLASSES)
            self.is_late = False

        def forward(self, x):
            x = self.body(x)
            return self.head(self.late(x) if self.is_late else torch.tanh(x))

    model = Net()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), find_unused_parameters=True)
    for step, (x, y) in job.batches():
        model.is_late = step >= 5
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)
