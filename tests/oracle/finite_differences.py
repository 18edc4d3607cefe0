"""A second way to train a tiny model, to test the oracle by: numpy in float64, written position by position, gradients as
differences of the loss, optimizers from their papers' formulas. Slow and plain; it shares nothing with the oracle but
the names of tensors.
"""

import math

import numpy

from records import Record

STEP = 1e-5  # central differences: errors of STEP^2 and of rounding over STEP, both about 1e-10

GPT = dict(name="gpt", layers=1, hidden=6, heads=2, kv_heads=2, head_dim=3, ffn=7, vocab=5, max_seq=6,
           norm="layer_norm", activation="gelu", positions="learned", tied_embeddings=True, linear_bias=True,
           qkv_bias=False)
LLAMA = dict(name="llama", layers=2, hidden=4, heads=2, kv_heads=1, head_dim=4, ffn=5, vocab=5, max_seq=6,
             norm="rms_norm", activation="swiglu", positions="rotary", tied_embeddings=False, linear_bias=False,
             qkv_bias=True, qk_norm=True)


def initial_tensors(shape, random):
    hidden, size = shape["hidden"], shape["head_dim"]
    gates = 2 if shape["activation"] == "swiglu" else 1
    tensors = {}

    def add(name, *dims):
        tensors[name] = random.normal(0, 0.4, dims)

    def linear(name, outputs, inputs, bias):
        add(name + ".weight", outputs, inputs)
        if bias:
            add(name + ".bias", outputs)

    def gain(name):
        tensors[name + ".weight"] = random.normal(1, 0.2, hidden)
        if shape["norm"] == "layer_norm":
            add(name + ".bias", hidden)

    add("embedding.weight", shape["vocab"], hidden)
    if shape["positions"] == "learned":
        add("positions.weight", shape["max_seq"], hidden)
    for layer in range(shape["layers"]):
        at = f"layers.{layer}."
        gain(at + "attention_norm")
        linear(at + "qkv", (shape["heads"] + 2 * shape["kv_heads"]) * size, hidden,
               shape["linear_bias"] or shape["qkv_bias"])
        for norm in ("q_norm", "k_norm") if shape.get("qk_norm") else ():
            tensors[f"{at}{norm}.weight"] = random.normal(1, 0.2, size)
        linear(at + "attention_out", hidden, shape["heads"] * size, shape["linear_bias"])
        gain(at + "ffn_norm")
        linear(at + "ffn_in", gates * shape["ffn"], hidden, shape["linear_bias"])
        linear(at + "ffn_out", hidden, shape["ffn"], shape["linear_bias"])
    gain("final_norm")
    if not shape["tied_embeddings"]:
        add("head.weight", shape["vocab"], hidden)
    return {name: array.astype(numpy.float32).astype(numpy.float64) for name, array in tensors.items()}


def normed(w, name, x):
    if name + ".bias" in w:
        centred = x - x.mean(-1, keepdims=True)
        return centred / numpy.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]
    return x / numpy.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"]


def linear(w, name, x):
    return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)


def rotated(vector, position):
    """Every pair (j, j + half) turned by position * 10000^(-j / half)."""
    half = len(vector) // 2
    out = numpy.empty_like(vector)
    for j in range(half):
        angle = position * 10000.0 ** (-j / half)
        c, s = math.cos(angle), math.sin(angle)
        out[j] = vector[j] * c - vector[j + half] * s
        out[j + half] = vector[j] * s + vector[j + half] * c
    return out


def attention(w, at, shape, x):
    """One sequence: seq x hidden."""
    heads, kv_heads, size = shape["heads"], shape["kv_heads"], shape["head_dim"]
    packed = linear(w, at + "qkv", x).reshape(len(x), heads + 2 * kv_heads, size)
    if shape.get("qk_norm"):
        packed[:, :heads] = normed(w, at + "q_norm", packed[:, :heads])
        packed[:, heads:heads + kv_heads] = normed(w, at + "k_norm", packed[:, heads:heads + kv_heads])
    if shape["positions"] == "rotary":
        for position in range(len(x)):
            for head in range(heads + kv_heads):
                packed[position, head] = rotated(packed[position, head], position)
    context = numpy.zeros((len(x), heads * size))
    for head in range(heads):
        group = head // (heads // kv_heads)
        keys, values = packed[:, heads + group], packed[:, heads + kv_heads + group]
        for position in range(len(x)):
            scores = keys[:position + 1] @ packed[position, head] / math.sqrt(size)
            weights = numpy.exp(scores - scores.max())
            context[position, head * size:(head + 1) * size] = weights @ values[:position + 1] / weights.sum()
    return linear(w, at + "attention_out", context)


ERF = numpy.vectorize(math.erf)


def feed_forward(w, at, shape, x):
    inner = linear(w, at + "ffn_in", x)
    if shape["activation"] == "swiglu":
        gate, value = inner[:, :shape["ffn"]], inner[:, shape["ffn"]:]
        inner = gate / (1 + numpy.exp(-gate)) * value
    else:
        inner = inner * 0.5 * (1 + ERF(inner / math.sqrt(2)))
    return linear(w, at + "ffn_out", inner)


def loss_of(w, shape, sequences):
    total = 0.0
    head = w["embedding.weight" if shape["tied_embeddings"] else "head.weight"]
    for tokens in sequences:
        x = w["embedding.weight"][tokens[:-1]]
        if shape["positions"] == "learned":
            x = x + w["positions.weight"][:len(x)]
        for layer in range(shape["layers"]):
            at = f"layers.{layer}."
            x = x + attention(w, at, shape, normed(w, at + "attention_norm", x))
            x = x + feed_forward(w, at, shape, normed(w, at + "ffn_norm", x))
        logits = normed(w, "final_norm", x) @ head.T
        total += sum(math.log(numpy.exp(row - row[target]).sum()) for row, target in zip(logits, tokens[1:]))
    return total / (len(sequences) * (len(sequences[0]) - 1))


def gradients_of(w, shape, sequences):
    """By differences, of the elements that the loss depends on: unused positions have none."""
    gradients = {}
    for name, array in w.items():
        rows = len(sequences[0]) - 1 if name == "positions.weight" else len(array)
        gradient = numpy.zeros_like(array)
        for index in numpy.ndindex(rows, *array.shape[1:]):
            kept = array[index]
            array[index] = kept + STEP
            above = loss_of(w, shape, sequences)
            array[index] = kept - STEP
            gradient[index] = (above - loss_of(w, shape, sequences)) / (2 * STEP)
            array[index] = kept
        gradients[name] = gradient
    return gradients


def adam_update(w, gradients, state, settings, step):
    """Loshchilov and Hutter 2019, algorithm 2, with the decay scaled by the learning rate."""
    beta1, beta2 = settings["betas"]
    for name, g in gradients.items():
        m, v = state.get(name, (0.0, 0.0))
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        state[name] = m, v
        unbiased = m / (1 - beta1**step), v / (1 - beta2**step)
        w[name] -= settings["lr"] * (unbiased[0] / (numpy.sqrt(unbiased[1]) + settings["eps"])
                                     + settings["weight_decay"] * w[name])


def sgd_update(w, gradients, state, settings, step):
    for name, g in gradients.items():
        g = g + settings["weight_decay"] * w[name]
        state[name] = settings["momentum"] * state.get(name, 0.0) + g
        w[name] -= settings["lr"] * state[name]


def clipped(gradients, limit):
    length = math.sqrt(sum((g**2).sum() for g in gradients.values()))
    scale = min(1.0, limit / (length + 1e-6))
    return {name: scale * g for name, g in gradients.items()}


def make_record(shape, optimizer, clip_grad, steps=2, batch=2, seq=4, seed=5):
    random = numpy.random.default_rng(seed)
    w = initial_tensors(shape, random)
    initial = {name: array.copy() for name, array in w.items()}
    batches = random.integers(0, shape["vocab"], (steps, batch, seq + 1))
    losses, first, state = [], None, {}
    update = adam_update if optimizer["name"] == "adam" else sgd_update
    for step in range(steps):
        losses.append(loss_of(w, shape, batches[step]))
        gradients = gradients_of(w, shape, batches[step])
        first = first or gradients
        update(w, clipped(gradients, clip_grad) if clip_grad > 0 else gradients, state, optimizer, step + 1)
    run = dict(model=shape, global_batch=batch, micro_batch=1, seq=seq, data_ranks=1, zero=0, policy="none",
               optimizer=optimizer, clip_grad=clip_grad, seed=seed, steps=steps, losses=losses)
    return Record(run, initial, first, w, batches)
