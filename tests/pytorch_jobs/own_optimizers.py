"""Optimizers that people bring along, written anew after their papers: they look at all parameters, count, draw, or call others."""

import math

import torch
from torch.optim import Optimizer


class Adapted(Optimizer):
    """Adam whose step number is in the group, as in fused and in third-party versions."""

    def __init__(self, parameters, lr=0.02, betas=(0.9, 0.99), eps=1e-8):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                state["mean"].mul_(first).add_(parameter.grad, alpha=1 - first)
                state["square"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
                mean = state["mean"] / (1 - first ** group["step"])
                square = state["square"] / (1 - second ** group["step"])
                parameter.sub_(group["lr"] * mean / (square.sqrt() + group["eps"]))
        return loss


class Counting(Optimizer):
    """Warms up by a counter of its own."""

    def __init__(self, parameters, lr=0.2):
        super().__init__(parameters, {"lr": lr})
        self.count = 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-group["lr"] * min(1.0, self.count / 8))


class GloballyNormed(Optimizer):
    """Divides by the norm of all gradients together."""

    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        gradients = [parameter.grad for group in self.param_groups for parameter in group["params"] if parameter.grad is not None]
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(group["lr"] * parameter.grad / (norm + 1e-6))


class Noisy(Optimizer):
    """Langevin dynamics: draws from PyTorch's own generator."""

    def __init__(self, parameters, lr=0.05, noise=0.01):
        super().__init__(parameters, {"lr": lr, "noise": noise})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-group["lr"]).add_(torch.randn_like(parameter), alpha=group["noise"])


class Lamb(Optimizer):
    """Layer-wise trust ratios on Adam; the gradients are divided by the norm of all if that is large, as timm's does."""

    def __init__(self, parameters, lr=0.02, betas=(0.9, 0.99), eps=1e-6, decay=0.01, largest=1.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "decay": decay, "largest": largest})

    @torch.no_grad()
    def step(self):
        gradients = [parameter.grad for group in self.param_groups for parameter in group["params"] if parameter.grad is not None]
        norm = torch.sqrt(sum(gradient.pow(2).sum() for gradient in gradients))
        for group in self.param_groups:
            shrink = torch.clamp(norm / group["largest"], min=1.0)
            group["step"] = group.get("step", 0) + 1
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, gradient = self.state[parameter], parameter.grad / shrink
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                state["mean"].lerp_(gradient, 1 - first)
                state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
                update = state["mean"] / (1 - first ** group["step"])
                update = update / ((state["square"] / (1 - second ** group["step"])).sqrt() + group["eps"]) + group["decay"] * parameter
                ratio = parameter.norm() / update.norm()
                parameter.sub_(group["lr"] * (ratio if ratio.isfinite() and ratio > 0 else 1.0) * update)


class LayerwiseScaled(Optimizer):
    """LARS: momentum with trust ratios."""

    def __init__(self, parameters, lr=0.5, momentum=0.9, trust=0.1):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "trust": trust})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad
                weight_norm, gradient_norm = parameter.norm(), gradient.norm()
                if parameter.dim() > 1 and weight_norm > 0 and gradient_norm > 0:
                    gradient = gradient * (group["trust"] * weight_norm / gradient_norm)
                moved = self.state[parameter].setdefault("moved", torch.zeros_like(parameter))
                moved.mul_(group["momentum"]).add_(gradient)
                parameter.add_(moved, alpha=-group["lr"])


class Lion(Optimizer):
    def __init__(self, parameters, lr=0.003, betas=(0.9, 0.99), decay=0.01):
        super().__init__(parameters, {"lr": lr, "betas": betas, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                mean = self.state[parameter].setdefault("mean", torch.zeros_like(parameter))
                parameter.mul_(1 - group["lr"] * group["decay"])
                parameter.add_(torch.sign(mean * first + parameter.grad * (1 - first)), alpha=-group["lr"])
                mean.mul_(second).add_(parameter.grad, alpha=1 - second)


class Adafactor(Optimizer):
    """Second moments by rows and columns, and updates clipped by their root mean square."""

    def __init__(self, parameters, lr=0.02):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, square = self.state[parameter], parameter.grad.square() + 1e-30
                state["step"] = state.get("step", 0) + 1
                decay = 1 - state["step"] ** -0.8
                if parameter.dim() == 2:
                    rows = state.setdefault("rows", torch.zeros_like(square[:, 0])).mul_(decay).add_(square.mean(1), alpha=1 - decay)
                    columns = state.setdefault("columns", torch.zeros_like(square[0])).mul_(decay).add_(square.mean(0), alpha=1 - decay)
                    update = parameter.grad * torch.outer((rows / rows.mean()).rsqrt(), columns.rsqrt())
                else:
                    update = parameter.grad * state.setdefault("square", torch.zeros_like(square)).mul_(decay).add_(
                        square, alpha=1 - decay).rsqrt()
                update = update / max(1.0, update.pow(2).mean().sqrt().item())
                parameter.sub_(group["lr"] * max(1e-3, parameter.pow(2).mean().sqrt().item()) * update)


class Muon(Optimizer):
    """Momentum whose matrices are made orthogonal by products of matrices (Newton and Schulz)."""

    def __init__(self, parameters, lr=0.02, momentum=0.9):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                moved = self.state[parameter].setdefault("moved", torch.zeros_like(parameter))
                moved.mul_(group["momentum"]).add_(parameter.grad)
                update = moved
                if parameter.dim() == 2:
                    update = moved / (moved.norm() + 1e-7)
                    for _ in range(3):
                        gram = update @ update.t()
                        update = 3.4445 * update + (-4.775 * gram + 2.0315 * gram @ gram) @ update
                parameter.add_(update, alpha=-group["lr"])


class Shampoo(Optimizer):
    """Preconditioners from both sides of a matrix, by eigenvalues every few steps."""

    def __init__(self, parameters, lr=0.05, every=3):
        super().__init__(parameters, {"lr": lr, "every": every})

    @staticmethod
    def root(matrix):
        values, vectors = torch.linalg.eigh(matrix)
        return vectors @ torch.diag(values.clamp(min=1e-4).pow(-0.25)) @ vectors.t()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, gradient = self.state[parameter], parameter.grad
                if parameter.dim() == 2:
                    if not state:
                        state["step"] = 0
                        state["left"], state["right"] = (1e-2 * torch.eye(size) for size in parameter.shape)
                    state["left"].add_(gradient @ gradient.t())
                    state["right"].add_(gradient.t() @ gradient)
                    if state["step"] % group["every"] == 0:
                        state["left_root"], state["right_root"] = self.root(state["left"]), self.root(state["right"])
                    state["step"] += 1
                    gradient = state["left_root"] @ gradient @ state["right_root"]
                parameter.add_(gradient, alpha=-group["lr"])


class ScheduleFree(Optimizer):
    """SGD on z, gradients at a mixture of z and its average x, which evaluation takes: eval() and train() swap the weights."""

    def __init__(self, parameters, lr=0.1, mixture=0.9):
        super().__init__(parameters, {"lr": lr, "mixture": mixture, "count": 0, "training": True})

    @torch.no_grad()
    def _swap(self, training):
        for group in self.param_groups:
            if group["training"] != training:
                for parameter in group["params"]:
                    if "z" in self.state[parameter]:
                        share = 1 - 1 / group["mixture"] if not training else 1 - group["mixture"]
                        parameter.lerp_(self.state[parameter]["z"], share)
                group["training"] = training

    def eval(self):
        self._swap(False)

    def train(self):
        self._swap(True)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            share = 1 / (group["count"] + 1)
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                z = self.state[parameter].setdefault("z", parameter.clone())
                parameter.lerp_(z, share)
                parameter.add_(parameter.grad, alpha=group["lr"] * (group["mixture"] * (1 - share) - 1))
                z.sub_(parameter.grad, alpha=group["lr"])
            group["count"] += 1


class Lookahead(Optimizer):
    """Around another optimizer: every few of its steps weights go half the way back to slow ones."""

    def __init__(self, inner, every=3, share=0.5):
        self.inner, self.every, self.share, self.count = inner, every, share, 0
        super().__init__(inner.param_groups, {})
        self.param_groups = inner.param_groups
        self.slow = [[parameter.detach().clone() for parameter in group["params"]] for group in self.param_groups]

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.inner.step(closure)
        self.count += 1
        if self.count % self.every == 0:
            for group, kept in zip(self.param_groups, self.slow):
                for parameter, slow in zip(group["params"], kept):
                    slow.add_(parameter - slow, alpha=self.share)
                    parameter.copy_(slow)
        return loss


class SharpnessAware(Optimizer):
    """SAM in its usual form: first_step climbs, second_step comes back and lets another optimizer step."""

    def __init__(self, parameters, kind, radius=0.05, **settings):
        super().__init__(parameters, {"radius": radius, **settings})
        self.inner = kind(self.param_groups, **settings)
        self.param_groups = self.inner.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.norm(torch.stack([parameter.grad.norm() for group in self.param_groups for parameter in group["params"]
                                       if parameter.grad is not None]))
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.state[parameter]["old"] = parameter.data.clone()
                    parameter.add_(parameter.grad * (group["radius"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data = self.state[parameter]["old"]
        self.inner.step()
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        self.first_step()
        closure()
        self.second_step()


class Together(Optimizer):
    """Two optimizers behind one step, as recipes with Muon for matrices and AdamW for the rest have it."""

    def __init__(self, *members):
        self.members = members
        super().__init__([group for member in members for group in member.param_groups], {})
        self.param_groups = [group for member in members for group in member.param_groups]

    def step(self, closure=None):
        for member in self.members:
            member.step()


class Centralized(torch.optim.SGD):
    """A subclass of a known one that changes gradients first."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.dim() > 1:
                    parameter.grad.sub_(parameter.grad.mean(1, keepdim=True))
        return super().step(closure)


class ClippingAdam(torch.optim.Adam):
    """A subclass that clips by the norm of all gradients within its step."""

    def step(self, closure=None):
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, 0.3)
        return super().step(closure)


class Cosine(Counting):
    """Changes its groups' rates in its step, by its own count."""

    def step(self):
        for group in self.param_groups:
            group["lr"] = 0.2 * (1 + math.cos(math.pi * self.count / 20)) / 2
        super().step()
