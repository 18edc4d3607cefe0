"""Kinds of models, trained as always."""

import torch
from torch import nn
from torch.nn import functional as F

from .kit import CLASSES, UNSHARDED, WIDTH, Language, Picture, job_kind, perceptron

OTHER_SUMS = {"tolerance": 2e-5, "why": "sums round otherwise"}


def train(job, model, inputs, wanted, make=lambda model: torch.optim.Adam(model.parameters(), lr=0.01), loss_of=F.mse_loss, **ddp_options):
    wrapped, optimizer = job.wrap(model, make(model), **ddp_options)
    for step, _ in job.batches():
        optimizer.zero_grad()
        loss = loss_of(wrapped(*inputs(step)), wanted(step))
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


@job_kind()
def plain_perceptron(job):
    train(job, perceptron(), lambda step: (job.normal(6, WIDTH),), lambda step: job.normal(6, CLASSES))


@job_kind()
def ranks_begin_with_other_weights(job):
    torch.manual_seed(50 + job.rank)
    train(job, Picture(), lambda step: (job.normal(6, 3, 8, 8),), lambda step: job.integers(CLASSES, 6), sgd, F.cross_entropy)


@job_kind()
def pictures_with_batch_norm(job):
    """Running statistics: DDP repeats rank 0's at each forward."""
    train(job, Picture(), lambda step: (job.normal(6, 3, 8, 8),), lambda step: job.integers(CLASSES, 6), sgd, F.cross_entropy)


@job_kind()
def batch_norm_without_broadcast(job):
    """What buffers of rank 1 become is not compared with rank 0's: statistics are used in training by nobody."""
    model = Picture()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    train(job, model, lambda step: (job.normal(6, 3, 8, 8),), lambda step: job.integers(CLASSES, 6), sgd, F.cross_entropy)


@job_kind()
def frozen_batch_norm(job):
    model = Picture()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    train(job, model, lambda step: (job.normal(6, 3, 8, 8),), lambda step: job.integers(CLASSES, 6), sgd, F.cross_entropy)


@job_kind()
def group_and_instance_norm(job):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.InstanceNorm2d(4, affine=True),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten())
    train(job, model, lambda step: (job.normal(4, 3, 8, 8),), lambda step: job.normal(4, 4))


@job_kind()
def channels_last(job):
    model = Picture().to(memory_format=torch.channels_last)
    train(job, model, lambda step: (job.normal(6, 3, 8, 8).contiguous(memory_format=torch.channels_last),),
          lambda step: job.integers(CLASSES, 6), sgd, F.cross_entropy)


@job_kind()
def language_with_tied_weights(job):
    def loss_of(scores, tokens):
        return F.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    kept = {}

    def inputs(step):
        kept["tokens"] = job.integers(24, 3, 9)
        return (kept["tokens"],)
    train(job, Language(), inputs, lambda step: kept["tokens"], lambda model: torch.optim.AdamW(model.parameters(), lr=0.01), loss_of)


@job_kind()
def transformer_encoder(job):
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, CLASSES))
    train(job, model, lambda step: (job.normal(4, 5, WIDTH),), lambda step: job.normal(4, 5, CLASSES), sgd)


@job_kind()
def transformer_with_decoder(job):
    model = nn.Transformer(16, 2, 1, 1, 24, dropout=0.0, batch_first=True)
    train(job, model, lambda step: (job.normal(3, 5, 16), job.normal(3, 4, 16)), lambda step: job.normal(3, 4, 16))


class Sequences(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.net, self.head = kind(WIDTH, 10, num_layers=2, batch_first=True), nn.Linear(10, CLASSES)

    def forward(self, x, lengths=None):
        if lengths is not None:
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            found, _ = nn.utils.rnn.pad_packed_sequence(self.net(x)[0], batch_first=True)
            return self.head(found.sum(1))
        return self.head(self.net(x)[0][:, -1])


@job_kind()
def lstm_with_packed_lengths(job):
    train(job, Sequences(nn.LSTM), lambda step: (job.normal(4, 6, WIDTH), torch.tensor([6, 2 + step % 3, 3, 1 + job.rank], device="cpu")),
          lambda step: job.normal(4, CLASSES))


@job_kind()
def gru_of_varying_lengths(job):
    train(job, Sequences(nn.GRU), lambda step: (job.normal(4, 3 + (step + job.rank) % 4, WIDTH),), lambda step: job.normal(4, CLASSES), sgd)


@job_kind()
def recurrent_cell_in_a_loop(job):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(WIDTH, 8), nn.Linear(8, CLASSES)

        def forward(self, x):
            state = None
            for part in x:
                state = self.cell(part, state)
            return self.head(state[0])

    train(job, Net(), lambda step: (job.normal(4, 5, WIDTH),), lambda step: job.normal(5, CLASSES))


@job_kind()
def embedding_with_padding(job):
    model = nn.Sequential(nn.Embedding(20, WIDTH, padding_idx=0), nn.Flatten(), nn.Linear(3 * WIDTH, CLASSES))
    train(job, model, lambda step: (job.integers(20, 6, 3),), lambda step: job.normal(6, CLASSES))


@job_kind(modes=UNSHARDED, why="each rank changes the rows that it looks up, so with DDP the ranks' weights differ; shards have one value")
def embedding_bag_with_max_norm(job):
    """Forward itself writes the weight."""
    model = nn.Sequential(nn.Embedding(20, WIDTH, max_norm=0.7), nn.Flatten(), nn.Linear(3 * WIDTH, CLASSES))
    train(job, model, lambda step: (job.integers(20, 6, 3),), lambda step: job.normal(6, CLASSES), sgd)


@job_kind()
def autoencoder_with_transposed_weights(job):
    """The decoder uses the encoder's weights, turned, by F.linear."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(WIDTH, 6)
            self.bias = nn.Parameter(torch.zeros(WIDTH))

        def forward(self, x):
            return F.linear(torch.tanh(self.encoder(x)), self.encoder.weight.t(), self.bias)

    train(job, Net(), lambda step: (job.normal(6, WIDTH),), lambda step: job.normal(6, WIDTH))


@job_kind()
def variational_autoencoder(job):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = perceptron(2, classes=8), perceptron(2, 4, classes=WIDTH)

        def forward(self, x):
            mean, spread = self.encoder(x).chunk(2, 1)
            return self.decoder(mean + torch.randn_like(mean) * (0.5 * spread).exp()), mean, spread

    def loss_of(found, wanted):
        rebuilt, mean, spread = found
        return F.mse_loss(rebuilt, wanted) - 0.05 * (1 + spread - mean.square() - spread.exp()).mean()
    train(job, Net(), lambda step: (job.normal(6, WIDTH),), lambda step: job.normal(6, WIDTH), loss_of=loss_of)


@job_kind()
def u_net_with_skips(job):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.inner = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 6, 3, padding=1)
            self.up, self.last = nn.ConvTranspose2d(12, 3, 2, 2), nn.Conv2d(6, 3, 1)

        def forward(self, x):
            low = F.relu(self.down(x))
            return self.last(torch.cat([x, self.up(torch.cat([low, F.relu(self.inner(low))], 1))], 1))

    train(job, Net(), lambda step: (job.normal(2, 3, 8, 8),), lambda step: job.normal(2, 3, 8, 8))


@job_kind()
def siamese_with_triplets(job):
    """One model runs three times in one forward."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = perceptron()

        def forward(self, one, two, three):
            return self.body(one), self.body(two), self.body(three)

    train(job, Net(), lambda step: tuple(job.normal(6, WIDTH) for _ in range(3)), lambda step: None, sgd,
          lambda found, _: F.triplet_margin_loss(*found))


@job_kind()
def graph_network(job):
    """Messages by a sparse matrix of neighbours, with parameters that no module owns but the net."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(0.3 * torch.randn(WIDTH, 10)), nn.Parameter(0.3 * torch.randn(10, CLASSES))])

        def forward(self, x, neighbours):
            for weight in self.weights:
                x = torch.tanh(neighbours @ (x @ weight))
            return x

    def inputs(step):
        neighbours = (job.normal(6, 6) > 0).float() + torch.eye(6)
        return job.normal(6, WIDTH), neighbours / neighbours.sum(1, keepdim=True)
    train(job, Net(), inputs, lambda step: job.normal(6, CLASSES), sgd)


@job_kind()
def inputs_by_name_and_in_dicts(job):
    """Keyword arguments in, a dict out."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = perceptron()

        def forward(self, batch=None, *, scale=1.0):
            return {"scores": self.body(batch["x"]) * scale, "size": len(batch["x"])}

    model = Net()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(batch={"x": x}, scale=0.5)["scores"], y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def parameters_of_no_dimension(job):
    """Scalars, a temperature, and an empty parameter."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.temperature = perceptron(), nn.Parameter(torch.tensor(1.0))
            self.shift = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return self.body(x) * self.temperature.exp() + self.shift

    train(job, Net(), lambda step: (job.normal(6, WIDTH),), lambda step: job.normal(6, CLASSES), sgd)


@job_kind()
def many_small_layers(job):
    model = nn.Sequential(*[module for _ in range(12) for module in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU())],
                          nn.Linear(WIDTH, CLASSES))
    train(job, model, lambda step: (job.normal(6, WIDTH),), lambda step: job.normal(6, CLASSES))


@job_kind()
def layer_used_many_times(job):
    """Weights are shared over depth, as in ALBERT and deep equilibrium models."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.layer, self.head = nn.Linear(WIDTH, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

        def forward(self, x):
            x = self.first(x)
            for _ in range(4):
                x = torch.tanh(self.layer(x))
            return self.head(x)

    train(job, Net(), lambda step: (job.normal(6, WIDTH),), lambda step: job.normal(6, CLASSES))


@job_kind()
def hypernetwork(job):
    """One net makes the weights of another, which has none."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.maker = nn.Linear(3, WIDTH * CLASSES)
            self.code = nn.Parameter(torch.randn(3))

        def forward(self, x):
            return F.linear(x, self.maker(self.code).view(CLASSES, WIDTH))

    train(job, Net(), lambda step: (job.normal(6, WIDTH),), lambda step: job.normal(6, CLASSES), sgd)


@job_kind()
def lazy_modules(job):
    """Shapes are known after a first forward, before wrapping."""
    model = nn.Sequential(nn.LazyLinear(16), nn.Tanh(), nn.LazyLinear(CLASSES))
    model(torch.ones(1, WIDTH))
    train(job, model, lambda step: (job.normal(6, WIDTH),), lambda step: job.normal(6, CLASSES))


@job_kind()
def data_loader_with_workers(job):
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    torch.manual_seed(11)
    data = TensorDataset(torch.randn(48, WIDTH), torch.randn(48, CLASSES))
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    sampler = DistributedSampler(data, job.ranks, job.rank, shuffle=True)
    loader = DataLoader(data, batch_size=5, sampler=sampler, num_workers=0 if job.device == "cuda" else 1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.mse_loss(wrapped(x), y).backward()
            optimizer.step()
            job.steps_done += 1
    job.finish(wrapped)
