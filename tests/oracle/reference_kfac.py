"""K-FAC for the linear layers of a transformer in plain torch operations, AdamW for all other weights.

Written from docs/kfac.md, not from the program: inverses are torch.linalg.inv's of double-precision factors.
"""

import torch

WITH_CURVATURE = ("qkv", "attention_out", "ffn_in", "ffn_out", "kv", "query_down", "query_up", "kv_down", "kv_up")


def turn_of(name, interval):
    """In which of every `interval` steps the factors of "layers.N.role" are computed."""
    _, layer, role = name.split(".")
    return (int(layer) + WITH_CURVATURE.index(role)) % interval


def damped_inverse(factor, damping):
    return torch.linalg.inv(factor + damping * factor.diagonal().mean() * torch.eye(len(factor), dtype=factor.dtype))


class Kfac:
    def __init__(self, settings, weights, names):
        """`weights`: by tensor name; `names`: of the linear layers that have curvature."""
        self.settings, self.weights, self.names = settings, weights, names
        self.adam_rate, self.kfac = settings["lr"], settings["kfac"]
        own = {f"{name}.{end}" for name in names for end in ("weight", "bias")}
        self.of_adam = torch.optim.AdamW([w for name, w in weights.items() if name not in own], lr=settings["lr"],
                                         betas=tuple(settings["betas"]), eps=settings["eps"],
                                         weight_decay=settings["weight_decay"])
        self.of_kfac = torch.optim.SGD([w for name, w in weights.items() if name in own], lr=self.kfac["lr"],
                                       momentum=self.kfac["momentum"], weight_decay=settings["weight_decay"])
        self.param_groups = self.of_adam.param_groups
        self.seen, self.averages, self.inverses, self.at = {}, {}, {}, 0

    def watch(self, name, x, y):
        """Keeps a layer's input, and the gradient of its output when backward finds it."""
        if name in self.names and y.requires_grad:
            self.seen[name] = [x.detach().flatten(0, -2).double(), None]
            y.register_hook(lambda grad, name=name: self.seen[name].__setitem__(1, grad.flatten(0, -2).double()))

    def zero_grad(self):
        self.of_adam.zero_grad()
        self.of_kfac.zero_grad()

    def step(self):
        for name in self.names:
            self.follow(name)
        for group in self.of_kfac.param_groups:
            group["lr"] = self.kfac["lr"] * self.of_adam.param_groups[0]["lr"] / self.adam_rate
        self.of_adam.step()
        self.of_kfac.step()
        for name in self.names:
            if self.at % self.kfac["interval"] == turn_of(name, self.kfac["interval"]):
                self.refresh(name)
        self.at += 1

    def follow(self, name):
        """Replaces the gradient by the natural one, scaled to elements with a root mean square of 1."""
        weight, bias = self.weights[name + ".weight"], self.weights.get(name + ".bias")
        inputs, outputs = self.inverses.get(name, (None, None))
        natural = weight.grad.double() if inputs is None else outputs @ weight.grad.double() @ inputs
        parts = [natural.flatten()]
        if bias is not None:
            of_bias = bias.grad.double() if inputs is None else outputs @ bias.grad.double()
            parts.append(of_bias)
        size = torch.cat(parts).square().mean().sqrt()
        weight.grad.copy_(natural / size)
        if bias is not None:
            bias.grad.copy_(of_bias / size)

    def refresh(self, name):
        x, dy = self.seen[name]
        tokens = len(x)  # of the whole batch, whose mean loss is what dy is of
        found = x.T @ x / tokens, (tokens * dy).T @ (tokens * dy) / tokens
        keep = self.kfac["decay"]
        before = self.averages.get(name)
        self.averages[name] = found if before is None else tuple(
            keep * old + (1 - keep) * new for old, new in zip(before, found))
        self.inverses[name] = tuple(damped_inverse(factor, self.kfac["damping"]) for factor in self.averages[name])
