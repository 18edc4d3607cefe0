"""What wraps or hooks modules: weight norm, spectral norm, parametrizations, pruning, checkpointing, adapters."""

import functools

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .kit import CLASSES, WIDTH, Language, job_kind, perceptron


def train(job, model, make=lambda model: torch.optim.SGD(model.parameters(), lr=0.1), each=None, steps=12, **ddp_options):
    wrapped, optimizer = job.wrap(model, make(model), **ddp_options)
    for step, (x, y) in job.batches(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        if each:
            each(step)
        job.note("loss", loss)
    job.finish(wrapped)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.02)


@job_kind()
def weight_norm(job):
    model = perceptron()
    for layer in (0, 2, 4):
        nn.utils.weight_norm(model[layer])
    train(job, model, adam)


@job_kind()
def weight_norm_removed_for_evaluation(job):
    """A copy without it is evaluated between steps."""
    import copy
    model = perceptron()
    for layer in (0, 2):
        nn.utils.weight_norm(model[layer])

    def evaluate(step):
        if step % 4 == 3:
            model[0](torch.ones(1, WIDTH))
            plain = perceptron()
            plain.load_state_dict({name: getattr(model[int(name[0])], name[2:]).detach() for name in plain.state_dict()})
            with torch.no_grad():
                job.note("scores", copy.deepcopy(plain)(torch.ones(2, WIDTH)))
    train(job, model, each=evaluate)


@job_kind()
def spectral_norm(job):
    """Its power iteration keeps vectors in buffers."""
    model = perceptron()
    for layer in (0, 2, 4):
        nn.utils.spectral_norm(model[layer])
    train(job, model)


@job_kind()
def spectral_norm_by_parametrization(job):
    model = perceptron()
    for layer in (0, 2):
        parametrizations.spectral_norm(model[layer])
    train(job, model, adam)


@job_kind(tolerance=1e-5, why="a matrix exponential or solution")
def orthogonal_by_parametrization(job):
    model = perceptron()
    parametrizations.orthogonal(model[2])
    train(job, model)


class Symmetric(nn.Module):
    def forward(self, matrix):
        return matrix.triu() + matrix.triu(1).t()


@job_kind()
def parametrization_of_ones_own(job):
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    parametrize.register_parametrization(model[2], "weight", Symmetric())
    train(job, model, adam, each=lambda step: job.note("weight", model[2].weight.detach().sum()))


@job_kind()
def parametrization_cached(job):
    """The parametrized weight is computed once for two forwards, before the first module runs."""
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    parametrize.register_parametrization(model[2], "weight", Symmetric())
    wrapped, optimizer = job.wrap(model, adam(model))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        with parametrize.cached():
            loss = model[2].weight.square().mean() + F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def pruned_from_the_start(job):
    model = perceptron()
    for layer in (0, 2):
        prune.l1_unstructured(model[layer], "weight", 0.3)
    train(job, model)


@job_kind()
def pruned_more_and_more(job):
    """By magnitude of what the weights are now, after steps; the parametrization is there from the start."""
    model = perceptron()
    for layer in (0, 2):
        prune.identity(model[layer], "weight")

    def prune_more(step):
        if step in (4, 8):
            for layer in (0, 2):
                prune.l1_unstructured(model[layer], "weight", 0.2)
    train(job, model, each=prune_more)


@job_kind()
def lottery_ticket_masks(job):
    """Masks by hand: gradients in a hook, weights after each step."""
    model = perceptron()
    masks = {name: (parameter.detach().abs() > 0.1).float() for name, parameter in model.named_parameters() if parameter.dim() > 1}

    def mask_weights(step):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in masks:
                    parameter.mul_(masks[name])
    train(job, model, lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), each=mask_weights)


class Quantized(nn.Linear):
    """Weights are rounded in forward and gradients go straight through."""

    def forward(self, x):
        scale = self.weight.detach().abs().max() / 7
        rounded = (self.weight / scale).round() * scale
        return F.linear(x, self.weight + (rounded - self.weight).detach(), self.bias)


@job_kind()
def quantization_aware(job):
    model = nn.Sequential(Quantized(WIDTH, 16), nn.ReLU(), Quantized(16, CLASSES))
    train(job, model, adam)


class LowRank(nn.Module):
    """LoRA: a frozen layer with two small ones beside it; merge() writes the sum into the frozen weight and back."""

    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(0.1 * torch.randn(rank, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        return self.layer(x) + x @ self.down.t() @ self.up.t()

    @torch.no_grad()
    def merged(self, x):
        self.layer.weight += self.up @ self.down
        found = self.layer(x)
        self.layer.weight -= self.up @ self.down
        return found


@job_kind()
def low_rank_adapters(job):
    model = perceptron()
    for layer in (0, 2):
        model[layer] = LowRank(model[layer])
    train(job, model, lambda model: torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02),
          each=lambda step: job.note("merged", model[0].merged(torch.ones(1, WIDTH))))


@job_kind()
def forward_pre_hook_of_the_user(job):
    """A weight is computed from parameters in a pre-hook that was there before overlap: weight standardization."""
    class Standardized(nn.Module):
        def __init__(self):
            super().__init__()
            self.raw = nn.Parameter(torch.randn(16, WIDTH))
            self.weight = None

        def forward(self, x):
            return F.linear(x, self.weight)

    def standardize(module, inputs):
        module.weight = (module.raw - module.raw.mean(1, keepdim=True)) / module.raw.std(1, keepdim=True)

    model = nn.Sequential(Standardized(), nn.Tanh(), nn.Linear(16, CLASSES))
    model[0].register_forward_pre_hook(standardize)
    train(job, model)


@job_kind()
def weight_of_another_in_a_pre_hook(job):
    """The first layer's hook reads the last layer."""
    model = perceptron()
    model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * (1 + model[4].weight.mean().detach()),))
    train(job, model)


@job_kind()
def pre_hook_registered_after(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, adam(model))
    handle = model[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] + module.bias.sum() + model[0].bias.sum(),))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
        if step == 8:
            handle.remove()
    job.finish(wrapped)


@job_kind()
def activations_by_hooks(job):
    """Features and gradients of a layer by hooks, and hooks on tensors."""
    model = perceptron()
    seen = {}
    model[1].register_forward_hook(lambda module, inputs, output: seen.update(feature=output))
    register = getattr(model[3], "register_full_backward_hook")
    register(lambda module, into, out: seen.update(slope=out[0].norm().item()))
    wrapped, optimizer = job.wrap(model, adam(model))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        seen["feature"].register_hook(lambda slope: seen.update(of_feature=slope.norm().item()) or 1.1 * slope)
        loss.backward()
        optimizer.step()
        job.note("slopes", [seen["slope"], seen["of_feature"], seen["feature"].norm().item()])
    job.finish(wrapped)


class Checkpointed(Language):
    reentrant = True

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(self.last(x))


class CheckpointedAnew(Checkpointed):
    reentrant = False


def train_language(job, model, each=None):
    wrapped, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    for step, _ in job.batches():
        tokens = job.integers(24, 3, 9)
        optimizer.zero_grad()
        loss = F.cross_entropy(wrapped(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if each:
            each(step)
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def checkpointing_reentrant(job):
    train_language(job, Checkpointed())


@job_kind()
def checkpointing_non_reentrant(job):
    train_language(job, CheckpointedAnew())


@job_kind()
def checkpointing_with_clipping(job):
    model = CheckpointedAnew()
    train_language(job, model, lambda step: nn.utils.clip_grad_norm_(model.parameters(), 0.3))


@job_kind()
def checkpointing_of_a_sequence(job):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(WIDTH, 16)
            self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1), nn.Tanh()) for _ in range(4)])
            self.head = nn.Linear(16, CLASSES)

        def forward(self, x):
            return self.head(checkpoint_sequential(self.layers, 2, self.first(x)))

    train(job, Net())


@job_kind()
def forward_patched_on_the_object(job):
    """A library has replaced forward of some modules, before and after."""
    model = perceptron()
    plain = model[0].forward
    model[0].forward = lambda x: 0.9 * plain(x)
    wrapped, optimizer = job.wrap(model, adam(model))
    other = model[2].forward
    model[2].forward = functools.wraps(other)(lambda x: other(x) + model[4].bias.sum())
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        job.note("loss", loss)
    job.finish(wrapped)


@job_kind()
def submodules_called_alone(job):
    """The loop calls parts of the model with forward(), which runs no hooks, between steps."""
    model = perceptron()

    def look(step):
        with torch.no_grad():
            job.note("first", model[0].forward(torch.ones(1, WIDTH)))
            job.note("last", F.linear(torch.ones(1, 20), *model[4].parameters()))
    train(job, model, adam, each=look)


@job_kind(least_version=(2, 0))
def functional_calls(job):
    """torch.func: gradients of each example by vmap, between steps."""
    from torch.func import functional_call, grad, vmap
    model = perceptron()

    def look(step):
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}

        def loss_of(weights, x, y):
            return F.mse_loss(functional_call(model, weights, (x[None],)), y[None])
        slopes = vmap(grad(loss_of), in_dims=(None, 0, 0))(weights, torch.ones(3, WIDTH), torch.zeros(3, CLASSES))
        job.note("norm", slopes["0.weight"].norm())
    train(job, model, adam, each=look)


@job_kind()
def stateless_calls(job):
    """The model runs with other weights for a moment."""
    try:
        from torch.func import functional_call
    except ImportError:
        from torch.nn.utils.stateless import functional_call
    model = perceptron()

    def look(step):
        half = {name: 0.5 * parameter.detach() for name, parameter in model.named_parameters()}
        with torch.no_grad():
            job.note("scores", functional_call(model, half, (torch.ones(2, WIDTH),)))
    train(job, model, adam, each=look)


@job_kind(least_version=(2, 0), refused="NotSupported", devices=("cuda",))
def compiled_model(job):
    """The wrapped model is compiled."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, adam(model))
    fast = torch.compile(wrapped, backend="aot_eager")
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        F.mse_loss(fast(x), y).backward()
        optimizer.step()
    job.finish(wrapped)


@job_kind(least_version=(2, 3), refused="NotSupported")
def compiled_layers(job):
    """Layers are compiled before; "eager" needs no compiler."""
    model = perceptron()
    for layer in (0, 2):
        model[layer].compile(backend="eager")
    train(job, model, adam)
