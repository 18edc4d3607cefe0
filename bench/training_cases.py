"""What bench/planner_runs.py and bench/moe_runs.py train: two ranks, one for each core of the smallest machine.

`communication`: how long it takes, compute being 1; links are as fast as that makes them on this machine. Above 1 the links
are the limit, which paced links keep exactly; below it the processors are, and what else they do moves measured steps by
several per cent. Near 1 nothing hides everything: a chain of both is left over at the ends of every layer.
"""

DENSE = [
    {"name": "llama tp2+sp, slow links", "model": "llama-wide",
     "flags": ["--tp", 2, "--sequence-parallel", "--micro-batch", 2, "--global-batch", 8], "communication": 3},
    {"name": "gpt deep tp2, slow links", "model": "gpt-deep",
     "flags": ["--tp", 2, "--micro-batch", 2, "--global-batch", 8], "communication": 2.5},
    {"name": "gpt wide tp2, slow links", "model": "gpt-wide", "flags": ["--tp", 2, "--micro-batch", 4],
     "communication": 2.2},
    {"name": "llama tp2+sp", "model": "llama-wide", "flags": ["--tp", 2, "--sequence-parallel", "--micro-batch", 4],
     "communication": 1.3},
    {"name": "gpt deep tp2, 4 micro-batches", "model": "gpt-deep",
     "flags": ["--tp", 2, "--micro-batch", 1, "--global-batch", 4], "communication": 1.3},
    {"name": "gpt tp2, compute", "model": "gpt-wide", "flags": ["--tp", 2, "--micro-batch", 2], "communication": 0.5},
]

# Gradients are complete only in the last micro-batch, unless micro-batches go in layer order.
ACCUMULATED = [
    {"name": "gpt deep dp2, 4 micro-batches", "model": "gpt-deep",
     "flags": ["--dp", 2, "--zero", 1, "--micro-batch", 1, "--global-batch", 8], "communication": 0.8},
    {"name": "llama dp2, 8 micro-batches", "model": "llama-small",
     "flags": ["--dp", 2, "--zero", 1, "--layers", 6, "--micro-batch", 1, "--global-batch", 16], "communication": 0.7},
]

SWITCH = ["--experts", 4, "--top-k", 1, "--capacity-factor", 1.25, "--moe-every", 2, "--ep", 2]
TOP2 = ["--experts", 4, "--top-k", 2, "--capacity-factor", 1.25, "--ep", 2]
EXPERTS = [
    {"name": "switch", "model": "gpt-wide", "flags": ["--layers", 4, *SWITCH, "--micro-batch", 4], "communication": 0.6},
    {"name": "top-2", "model": "gpt-small", "flags": ["--layers", 4, *TOP2, "--micro-batch", 8], "communication": 0.6},
    {"name": "top-2, 4 micro-batches", "model": "gpt-small",
     "flags": ["--layers", 4, *TOP2, "--micro-batch", 4, "--global-batch", 32], "communication": 0.8},
]
