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


def blocks_of(role, rows, columns, shape, tp):
    """The parts of a weight that tensor-parallel ranks hold, as row and column numbers: a share of every section of the rows
    (queries, keys and values; gate and value of SwiGLU), or of the columns."""
    everything = torch.arange(rows), torch.arange(columns)
    if tp == 1:
        return [everything]
    if role in ("attention_out", "ffn_out"):
        return [(everything[0], part) for part in everything[1].chunk(tp)]
    sections = [rows]
    if role == "qkv":
        sections = [heads * shape["head_dim"] for heads in (shape["heads"], shape["kv_heads"], shape["kv_heads"])]
    elif role == "ffn_in" and shape["activation"] == "swiglu":
        sections = [rows // 2] * 2
    shares = [section.chunk(tp) for section in everything[0].split(sections)]
    return [(torch.cat([share[rank] for share in shares]), everything[1]) for rank in range(tp)]


class Kfac:
    def __init__(self, settings, weights, names, shape=None, tp=1):
        """`weights`: by tensor name; `names`: of the linear layers that have curvature; `shape`: the model's, for tp > 1."""
        self.blocks = {name: blocks_of(name.split(".")[2], *weights[name + ".weight"].shape, shape, tp) for name in names}
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
        """Replaces the gradient by the natural one, scaled to elements with a root mean square of 1: by itself the part of
        each rank, and the bias that all ranks hold."""
        weight, bias = self.weights[name + ".weight"], self.weights.get(name + ".bias")
        columns_are_shared = len(self.blocks[name]) > 1 and name.split(".")[2] in ("attention_out", "ffn_out")
        gradient, of_bias = weight.grad.double().clone(), bias.grad.double().clone() if bias is not None else None
        for number, (rows, columns) in enumerate(self.blocks[name]):
            inputs, outputs = self.inverses.get((name, number), (None, None))
            own = gradient[rows][:, columns]
            natural = own if inputs is None else outputs @ own @ inputs
            parts = [natural.flatten()]
            if bias is not None:
                natural_bias = of_bias[rows] if inputs is None else outputs @ of_bias[rows]
                if columns_are_shared:
                    if number == 0:
                        bias.grad.copy_(natural_bias / natural_bias.square().mean().sqrt())
                else:
                    parts.append(natural_bias)
            size = torch.cat(parts).square().mean().sqrt()
            weight.grad[rows[:, None], columns] = (natural / size).to(weight.grad.dtype)
            if bias is not None and not columns_are_shared:
                bias.grad[rows] = (natural_bias / size).to(bias.grad.dtype)

    def refresh(self, name):
        whole_x, whole_dy = self.seen[name]
        tokens = len(whole_x)  # of the whole batch, whose mean loss is what dy is of
        keep = self.kfac["decay"]
        for number, (rows, columns) in enumerate(self.blocks[name]):
            x, dy = whole_x[:, columns], whole_dy[:, rows]
            found = x.T @ x / tokens, (tokens * dy).T @ (tokens * dy) / tokens
            before = self.averages.get((name, number))
            self.averages[name, number] = found if before is None else tuple(
                keep * old + (1 - keep) * new for old, new in zip(before, found))
            self.inverses[name, number] = tuple(damped_inverse(factor, self.kfac["damping"])
                                                for factor in self.averages[name, number])
