"""Routed experts in plain torch operations: gates with limited slots, their drops, and the loss that balances them.

A gate sees the tokens that one rank has of one micro-batch, and no others: what it drops depends on the layout.
"""

import itertools
import math

import torch


def is_moe_layer(shape, layer):
    experts = shape.get("experts")
    if not experts or layer < experts["dense_first"]:
        return False
    return (layer - experts["dense_first"]) % experts["every"] == experts["every"] - 1


def context_positions(seq, ranks, rank):
    """The positions of a sequence that a context-parallel rank has: its stretch and the mirrored one, or one alone."""
    if ranks == 1:
        return list(range(seq))
    stretches = 2 * ranks if seq % (2 * ranks) == 0 else ranks
    length = seq // stretches
    own = [rank] if stretches == ranks else [rank, stretches - 1 - rank]
    return [stretch * length + i for stretch in own for i in range(length)]


def share(positions, shards, shard):
    """Those of one of several equal parts."""
    length = len(positions) // shards
    return positions[shard * length:(shard + 1) * length]


def gate_groups(run):
    """Rows of the global batch (sequence after sequence) by gate, each in the order of its rank. Slices of a sequence are
    shared out one by one."""
    seq, groups = run["seq"], []
    slices = run.get("slice_tokens", [seq])
    shards = run["tp"] if run["sequence_parallel"] else 1
    for first in range(0, run["global_batch"], run["micro_batch"]):
        for context in range(run["cp"]):
            for shard in range(shards):
                own = [begin + position for begin, length in zip(itertools.accumulate([0, *slices]), slices)
                       for position in share(context_positions(length, run["cp"], context), shards, shard)]
                groups.append([sequence * seq + position
                               for sequence in range(first, first + run["micro_batch"]) for position in own])
    return [torch.tensor(group) for group in groups]


def in_order(chosen, probabilities, order):
    """All (token, choice) in the order in which they get slots."""
    tokens, choices = chosen.shape
    if order == "position":
        return [(t, j) for t in range(tokens) for j in range(choices)]
    ranked = range(tokens)
    if order == "probs":
        ranked = sorted(ranked, key=lambda t: (-probabilities[t].max().item(), t))
    return [(t, j) for j in range(choices) for t in ranked]


def kept_choices(chosen, probabilities, experts):
    """Whether a choice found a slot, by token and choice."""
    tokens, choices = chosen.shape
    capacity = max(1, math.ceil(tokens * choices * experts["capacity_factor"] / experts["count"]))
    used, kept = [0] * experts["count"], torch.zeros(tokens, choices, dtype=torch.bool)
    for t, j in in_order(chosen, probabilities, experts["gate_order"]):
        expert = chosen[t, j].item()
        kept[t, j] = used[expert] < capacity
        used[expert] += 1
    return kept


def routed(experts, groups, x, scores, expert_of_rows):
    """The experts' output for rows x with the router's scores, and the balance loss (Switch, equation 4), each gate's
    by its share of the tokens."""
    out, balance = torch.zeros_like(x), 0.0
    count, top_k = experts["count"], experts["top_k"]
    for group in groups:
        probabilities = scores[group].softmax(-1)
        weights, chosen = probabilities.topk(top_k)
        kept = kept_choices(chosen, probabilities.detach(), experts)
        if top_k > 1 and experts["renormalise"]:
            weights = weights / weights.sum(-1, keepdim=True)
        for expert in range(count):
            token, choice = torch.nonzero((chosen == expert) & kept, as_tuple=True)
            if len(token) > 0:
                made = expert_of_rows(x[group[token]], expert)
                out = out.index_add(0, group[token], made * weights[token, choice, None])
        share = torch.bincount(chosen.flatten(), minlength=count).to(x.dtype) / chosen.numel()
        loss = count * (share * probabilities.mean(0)).sum()
        balance = balance + experts["aux_loss_coeff"] * loss * len(group) / len(x)
    return out, balance
