"""Types other than float32, autocast, and modes of autograd."""

import torch
from torch import nn
from torch.nn import functional as F

from . import own_optimizers as own
from .kit import CLASSES, WIDTH, job_kind, perceptron

HALF = {"tolerance": 2e-2, "why": "sums in half precision", "devices": ("cpu", "cuda")}


def autocast(job, enabled=True):
    return torch.autocast(job.device, dtype=torch.bfloat16, enabled=enabled)


def mkldnn_off():
    """Debian's has no bfloat16 on all processors."""
    return torch.backends.mkldnn.flags(enabled=False)


@job_kind()
def autocast_around_forward(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.02))
    with mkldnn_off():
        for step, (x, y) in job.batches():
            optimizer.zero_grad()
            with autocast(job):
                loss = F.mse_loss(wrapped(x).float(), y)
            loss.backward()
            optimizer.step()
            job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def autocast_around_the_whole_loop(job):
    """Also around the updates."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with mkldnn_off():
        for step, (x, y) in job.batches():
            with autocast(job):
                optimizer.zero_grad()
                loss = F.mse_loss(wrapped(x).float(), y)
                loss.backward()
                optimizer.step()
            job.note("loss", loss)
    job.finish(wrapped)


@job_kind(refused={level: "NotSupported" for level in ("zero1", "zero2", "zero3")})
def autocast_and_an_optimizer_with_products(job):
    """Deferred products of matrices must not run in the types of the forward around them."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, own.Muon(model.parameters()))
    with mkldnn_off():
        for step, (x, y) in job.batches():
            optimizer.zero_grad()
            with autocast(job):
                loss = F.mse_loss(wrapped(x).float(), y)
            loss.backward()
            optimizer.step()
    job.finish(wrapped)


class Shared(nn.Module):
    """One forward uses the weights twice, and autocast keeps them in their converted form."""

    def __init__(self):
        super().__init__()
        self.first, self.twice, self.last = nn.Linear(WIDTH, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return self.last(torch.tanh(self.twice(torch.tanh(self.twice(x)))))


@job_kind()
def autocast_with_its_cache(job):
    """Two forwards and an evaluation under one autocast: kept conversions must be of new weights."""
    model = Shared()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.2))
    with mkldnn_off():
        for step, (x, y) in job.batches():
            with autocast(job):
                job.note("linear", F.linear(x, model.first.weight).float())
                soft = model(x).detach()
                loss = F.mse_loss(wrapped(x).float(), y) + 0.1 * F.mse_loss(wrapped(x).float(), soft.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            job.note("loss", loss)
    job.finish(wrapped)


@job_kind(tolerance=1e-5, why="averages of bfloat16 are rounded once or twice", devices=("cuda",))
def model_in_bfloat16(job):
    model = perceptron().to(torch.bfloat16)
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with mkldnn_off():
        for step, (x, y) in job.batches():
            optimizer.zero_grad()
            # All ranks have equal data, so their average is exact.
            torch.manual_seed(step)
            x, y = torch.randn(6, WIDTH, dtype=torch.bfloat16), torch.randn(6, CLASSES, dtype=torch.bfloat16)
            F.mse_loss(wrapped(x), y).backward()
            optimizer.step()
    job.finish({name: entry.float() for name, entry in model.state_dict().items()})


@job_kind(devices=("cpu",))
def master_weights(job):
    """A half-precision copy computes, gradients go to float32 weights that the optimizer has, and back. The copy is what is wrapped."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    masters = [parameter.detach().double() for parameter in model.parameters()]
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters()):
                master.mul_(0.5).add_(0.5 * parameter.double())
                parameter.copy_(master)
    job.finish(wrapped, masters)


@job_kind(refused="NotSupported")
def model_in_float64(job):
    model = perceptron().double()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x.double()), y.double()).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(refused="NotSupported")
def one_parameter_in_float64(job):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = perceptron()
            self.scale = nn.Parameter(torch.ones(CLASSES, dtype=torch.float64))

        def forward(self, x):
            return self.body(x) * self.scale.float()

    model = Mixed()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(refused="NotSupported", devices=("cuda",))
def complex_parameter(job):
    class Fourier(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(WIDTH, CLASSES)
            self.filter = nn.Parameter(torch.ones(WIDTH // 2 + 1, dtype=torch.complex64))

        def forward(self, x):
            return self.body(torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=WIDTH))

    model = Fourier()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish({"filter": torch.view_as_real(model.filter.detach()), "body": model.body})


@job_kind()
def anomaly_mode(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    with torch.autograd.set_detect_anomaly(True):
        for step, (x, y) in job.batches():
            optimizer.zero_grad()
            F.mse_loss(wrapped(x), y).backward()
            optimizer.step()
    job.finish(wrapped)


@job_kind()
def profiled(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        for step, (x, y) in job.batches():
            with torch.profiler.record_function("step"):
                optimizer.zero_grad()
                F.mse_loss(wrapped(x), y).backward()
                optimizer.step()
    job.finish(wrapped)


@job_kind()
def dropout_and_random_state(job):
    """Random numbers of the job come in the same order; the generator's state is read now and then."""
    model = nn.Sequential(nn.Linear(WIDTH, 20), nn.Dropout(0.3), nn.ReLU(), nn.Linear(20, CLASSES))
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
        job.note("random", torch.rand(2))
    job.finish(wrapped)


@job_kind()
def deterministic_algorithms(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    torch.use_deterministic_algorithms(True, warn_only=True)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(wrapped(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(devices=("cuda",), **{key: HALF[key] for key in ("tolerance", "why")})
def gradient_scaler(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    scaler = torch.cuda.amp.GradScaler(init_scale=65536.0, growth_interval=3)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.mse_loss(wrapped(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        job.note("scale", scaler.get_scale())
    job.finish(wrapped)


@job_kind(least_version=(2, 3), devices=("cpu",))
def gradient_scaler_on_processors(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y) * (float("inf") if step == 7 and job.rank else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        job.note("scale", scaler.get_scale())
    job.finish(wrapped)
