"""The model of a record in plain torch operations, trained by autograd and torch.optim."""

import math
import typing

import torch
import torch.nn.functional as F

import reference_experts
from reference_dropout import Dropout
from reference_kfac import WITH_CURVATURE, Kfac

EPSILON = 1e-5
ROTARY_BASE = 10000.0


def at_least_float32(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Model:
    def __init__(self, shape, tensors, dtype, groups=None, device="cpu"):
        """`groups`: the tokens that a gate sees at a time (reference_experts.gate_groups); only experts ask for them."""
        self.shape, self.groups = shape, groups
        self.watch = lambda name, x, y: None  # of every linear layer; K-FAC wants to know
        self.weights = {name: torch.tensor(array, dtype=dtype, device=device, requires_grad=True)
                        for name, array in tensors.items()}
        if unknown := self.weights.keys() ^ self._names():
            raise KeyError(f"tensors that only the record or only the model has: {', '.join(sorted(unknown))}")
        for name in self.weights.keys() & {"embedding.weight", "head.weight"}:
            if (rows := self.weights[name].shape[0]) != shape["vocab"]:  # nothing else would notice padding
                raise KeyError(f"{name}: {rows} rows of a vocabulary of {shape['vocab']}")

    def _names(self):
        parts = [f"layers.{layer}.{part}" for layer in range(self.shape["layers"])
                 for part in ("attention_norm", *self._queries(), "attention_out", "ffn_norm",
                              *self._feed_forward(layer))]
        if self._has_qk_norm():
            parts += [f"layers.{layer}.{part}" for layer in range(self.shape["layers"]) for part in ("q_norm", "k_norm")]
        parts += ["embedding", "final_norm"]
        parts += ["positions"] if self.shape["positions"] == "learned" else []
        parts += [] if self.shape["tied_embeddings"] else ["head"]
        return {part + ".weight" for part in parts} | {part + ".bias" for part in parts if self._has_bias(part)}

    def _queries(self):
        if "latent" not in self.shape:
            return ["qkv"]
        low_rank = ["query_down", "query_norm"] if self.shape["latent"]["q_rank"] > 0 else []
        return [*low_rank, "query_up", "kv_down", "kv_norm", "kv_up"]

    def _feed_forward(self, layer):
        if not reference_experts.is_moe_layer(self.shape, layer):
            return ["ffn_in", "ffn_out"]
        experts = self.shape["experts"]
        parts = [f"experts.{expert}.{end}" for expert in range(experts["count"]) for end in ("in", "out")]
        return ["router", *parts] + (["shared_in", "shared_out"] if experts["shared_ffn"] > 0 else [])

    def _has_qk_norm(self):
        return self.shape.get("qk_norm", False)

    def _norm(self, x, name):
        gain = self.weights[name + ".weight"]
        if self._has_bias(name):
            return F.layer_norm(x, gain.shape, gain, self.weights[name + ".bias"], EPSILON)
        wide = at_least_float32(x)
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * gain

    def _linear(self, x, name):
        bias = self.weights[name + ".bias"] if self._has_bias(name) else None
        y = F.linear(x, self.weights[name + ".weight"], bias)
        self.watch(name, x, y)
        return y

    def _has_bias(self, name):
        if name.endswith((".q_norm", ".k_norm", ".query_norm", ".kv_norm")):
            return False  # RMSNorm whatever the others are
        if name.endswith("_norm"):
            return self.shape["norm"] == "layer_norm"
        if not name.startswith("layers.") or name.endswith(".router"):
            return False
        return self.shape["linear_bias"] or (name.endswith(".qkv") and self.shape["qkv_bias"])

    def _rotate(self, x):
        """x is batch x heads x seq x head_dim; the halves of a head are pairs."""
        half = x.shape[-1] // 2
        frequency = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
        angle = torch.arange(x.shape[-2], dtype=torch.float64, device=x.device)[:, None] * frequency
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def _latent_queries(self, x, layer):
        """Queries, keys and values of multi-head latent attention (DeepSeek-V2, section 2.1), batch x heads x seq x size."""
        latent, name = self.shape["latent"], f"layers.{layer}."
        nope, rope, value = latent["nope_head_dim"], latent["rope_head_dim"], latent["value_head_dim"]
        batch, seq, _ = x.shape
        low = self._norm(self._linear(x, name + "query_down"), name + "query_norm") if latent["q_rank"] > 0 else x
        q = self._linear(low, name + "query_up").view(batch, seq, -1, nope + rope).transpose(1, 2)
        low, shared = self._linear(x, name + "kv_down").split([latent["kv_rank"], rope], -1)
        pairs = self._linear(self._norm(low, name + "kv_norm"), name + "kv_up")
        k, v = pairs.view(batch, seq, -1, nope + value).transpose(1, 2).split([nope, value], -1)
        shared = self._rotate(shared[:, None]).expand(-1, k.shape[1], -1, -1)
        return torch.cat([q[..., :nope], self._rotate(q[..., nope:])], -1), torch.cat([k, shared], -1), v

    def _queries_keys_values(self, x, layer):
        heads, kv_heads, size = self.shape["heads"], self.shape["kv_heads"], self.shape["head_dim"]
        batch, seq, _ = x.shape
        if "latent" in self.shape:
            return self._latent_queries(x, layer)
        packed = self._linear(x, f"layers.{layer}.qkv")
        q, k, v = packed.split([heads * size, kv_heads * size, kv_heads * size], -1)
        q, k, v = (part.view(batch, seq, -1, size).transpose(1, 2) for part in (q, k, v))
        if self._has_qk_norm():
            q, k = self._norm(q, f"layers.{layer}.q_norm"), self._norm(k, f"layers.{layer}.k_norm")
        if self.shape["positions"] == "rotary":
            q, k = self._rotate(q), self._rotate(k)
        return (q, *(part.repeat_interleave(heads // kv_heads, 1) for part in (k, v)))

    def _attention(self, x, layer, dropout):
        batch, seq, _ = x.shape
        q, k, v = self._queries_keys_values(x, layer)
        scores = q @ k.transpose(-1, -2) / q.shape[-1]**0.5
        is_later = torch.ones(seq, seq, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(is_later, float("-inf"))
        context = (dropout.of_softmax(scores.softmax(-1), layer) @ v).transpose(1, 2).reshape(batch, seq, -1)
        return self._linear(context, f"layers.{layer}.attention_out")

    def _ffn(self, x, name_in, name_out):
        hidden = self._linear(x, name_in)
        if self.shape["activation"] == "swiglu":
            gate, value = hidden.chunk(2, -1)
            hidden = F.silu(gate) * value
        else:
            hidden = F.gelu(hidden)
        return self._linear(hidden, name_out)

    def _feed_forward_of(self, x, layer):
        """The layer's output, and what its gate adds to the loss."""
        name = f"layers.{layer}."
        if not reference_experts.is_moe_layer(self.shape, layer):
            return self._ffn(x, name + "ffn_in", name + "ffn_out"), 0.0
        flat = x.flatten(0, 1)
        routed, balance = reference_experts.routed(
            self.shape["experts"], self.groups, flat, self._linear(flat, name + "router"),
            lambda rows, e: self._ffn(rows, f"{name}experts.{e}.in", f"{name}experts.{e}.out"))
        if self.shape["experts"]["shared_ffn"] > 0:
            routed = routed + self._ffn(flat, name + "shared_in", name + "shared_out")
        return routed.view_as(x), balance

    def loss(self, sequences, dropout=Dropout(None, 0, 0)):
        """The cross entropy, which is what runs report, and what is trained: with the loss that balances experts."""
        tokens, targets = sequences[:, :-1], sequences[:, 1:]
        table = self.weights["embedding.weight"]
        x = table[tokens]
        if self.shape["positions"] == "learned":
            x = x + self.weights["positions.weight"][:tokens.shape[1]]
        x = dropout.of_tokens(x, -1, "embedding")
        balance = 0.0
        for layer in range(self.shape["layers"]):
            out = self._attention(self._norm(x, f"layers.{layer}.attention_norm"), layer, dropout)
            x = x + dropout.of_tokens(out, layer, "attention_residual")
            out, of_layer = self._feed_forward_of(self._norm(x, f"layers.{layer}.ffn_norm"), layer)
            x, balance = x + dropout.of_tokens(out, layer, "ffn_residual"), balance + of_layer
        x = self._norm(x, "final_norm")
        head = table if self.shape["tied_embeddings"] else self.weights["head.weight"]
        logits = at_least_float32(x @ head.T)
        entropy = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return entropy, entropy + balance


def make_optimizer(settings, model, masters, tp=1):
    if settings["name"] == "kfac":
        names = {name.removesuffix(".weight") for name in masters
                 if name.startswith("layers.") and name.endswith(".weight") and name.split(".")[2] in WITH_CURVATURE}
        optimizer = Kfac(settings, masters, sorted(names), model.shape, tp)
        model.watch = optimizer.watch
        return optimizer
    weights = list(masters.values())
    if settings["name"] == "adam":
        return torch.optim.AdamW(weights, lr=settings["lr"], betas=tuple(settings["betas"]), eps=settings["eps"],
                                 weight_decay=settings["weight_decay"])
    if settings["name"] == "sgd":
        return torch.optim.SGD(weights, lr=settings["lr"], momentum=settings["momentum"],
                               weight_decay=settings["weight_decay"])
    raise KeyError(f"optimizer {settings['name']}: is not adam, sgd or kfac")


def learning_rate(run, step):
    """Of a step, counted from 0, as Megatron-LM's OptimizerParamScheduler has it."""
    peak, schedule = run["optimizer"]["lr"], run.get("lr_schedule")
    if schedule is None:
        return peak
    if 0 < schedule["warmup"] >= step:
        return peak * step / schedule["warmup"]
    if schedule["style"] == "constant":
        return peak
    passed = min(1.0, (step - schedule["warmup"]) / (schedule["decay_steps"] - schedule["warmup"]))
    left = {"linear": 1 - passed, "cosine": 0.5 * (1 + math.cos(math.pi * passed))}[schedule["style"]]
    return schedule["min_lr"] + left * (peak - schedule["min_lr"])


def validate(model, record, device):
    """The mean loss of its batches, which have one size, without dropout."""
    with torch.no_grad():
        losses = [model.loss(batch, Dropout(None, 0, 0))[0].item()
                  for batch in torch.tensor(record.validation, device=device)]
    return sum(losses) / len(losses)


class Trained(typing.NamedTuple):
    """Losses of every step, first gradients and final weights by name, as float64 arrays; validation losses by steps."""
    losses: list
    gradients: dict
    final: dict
    validation: dict


class MasterWeights:
    """What the optimizer updates: the weights, or fp32 copies of 16-bit ones, as Megatron-LM has it."""

    def __init__(self, model, tensors):
        self.weights = model.weights
        is_short = any(torch.finfo(weight.dtype).bits < 32 for weight in model.weights.values())
        self.masters = {name: torch.tensor(tensors[name], device=weight.device, requires_grad=True) if is_short else weight
                        for name, weight in model.weights.items()}

    def take_gradients(self):
        for name, master in self.masters.items():
            if master is not self.weights[name]:
                master.grad, self.weights[name].grad = self.weights[name].grad.float(), None

    def round_weights(self):
        with torch.no_grad():
            for name, master in self.masters.items():
                if master is not self.weights[name]:
                    self.weights[name].copy_(master)


def train(record, dtype=torch.float32, device="cpu"):
    run = record.run
    groups = reference_experts.gate_groups(run) if "experts" in run["model"] else None
    model = Model(run["model"], record.initial, dtype, groups, device)
    update = MasterWeights(model, record.initial)
    weights = list(update.masters.values())
    optimizer = make_optimizer(run["optimizer"], model, update.masters, run.get("tp", 1))
    batches = torch.tensor(record.batches, device=device)
    losses, gradients, validation = [], {}, {}
    validated = {entry["step"] for entry in run.get("validation", [])}
    for step in range(run["steps"]):
        optimizer.zero_grad()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run, step)
        loss, trained = model.loss(batches[step], Dropout(run.get("dropout"), run["seed"], step))
        trained.backward()
        losses.append(loss.item())
        update.take_gradients()
        if step == 0:
            gradients = {name: weight.grad.double().cpu().numpy().copy() for name, weight in update.masters.items()}
        if run["clip_grad"] > 0:
            torch.nn.utils.clip_grad_norm_(weights, run["clip_grad"])
        optimizer.step()
        update.round_weights()
        if step + 1 in validated:
            validation[step + 1] = validate(model, record, device)
    final = {name: weight.detach().double().cpu().numpy() for name, weight in update.masters.items()}
    return Trained(losses, gradients, final, validation)
