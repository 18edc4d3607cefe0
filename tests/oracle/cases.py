"""The matrix: which runs of `weft run` are compared, the whole of it and a quick part; and what the program must refuse."""

from covering import allowed_pairs, covering_cases, pairs_of
from layouts import ALONE, DEFAULT_ORDER, GLOBAL_BATCH, LAYOUTS, layout_flags, micro_batch_size

STEPS, SEED = 20, 7
CLIP = 0.3  # below the first gradients' norm, so that it bites
SCHEDULE = {"style": "cosine", "warmup": 4, "min_lr": 1e-4, "decay_steps": 15}
VALIDATION = {"every": 8, "batches": 2}  # of those that have a schedule
UPDATES = {
    "adam": {"optimizer": "adam", "lr": 1e-3, "clip": 0, "schedule": SCHEDULE},
    "adam-clip": {"optimizer": "adam", "lr": 1e-3, "clip": CLIP},
    "sgd": {"optimizer": "sgd", "lr": 0.05, "clip": 0},
    # Adam forgives a wrong norm, which is a factor of all gradients; this one does not.
    "sgd-clip": {"optimizer": "sgd", "lr": 0.05, "clip": CLIP},
}
FACTORS = {
    "model": ["gpt", "llama", "qwen3", "qwen2", "dropout", "latent"],
    "layout": [name for name in LAYOUTS if name not in ALONE.values()],
    "zero": [0, 1, 2, 3],
    "micro_batches": [1, 2, 3, 6, 8],
    "update": list(UPDATES),
    "recompute": ["none", "selective", "full"],
    "attention": ["flash", "unfused"],
    "mesh_order": [DEFAULT_ORDER, "pp,dp,cp,tp", "dp,pp,tp,cp"],
    "policy": ["serial", "ddp", "megatron-dist", "megatron-grad", "megatron-param", "fsdp", "priority", "centauri",
               "weft"],
}
# Two trainings of a model suffice to see both optimizers and clipping; what may break with each model is met with each.
QUICK_FACTORS = {**FACTORS, "model": ["gpt", "llama"], "update": ["adam", "sgd-clip"]}
QUICK_PAIRS = [{"model", name} for name in FACTORS if name != "model"]
PLAIN = {"zero": 0, "micro_batches": 1, "recompute": "none", "attention": "flash", "mesh_order": DEFAULT_ORDER,
         "policy": "serial"}
# What norms on queries and keys add to a Llama: a parameter that tensor-parallel ranks share with their own gradients, and
# keys that are no longer as they were projected when context-parallel ranks gather them.
QUICK_NORMED = [
    {"layout": "tp2", "micro_batches": 2, "policy": "priority"},
    {"layout": "tp2sp", "zero": 1, "recompute": "full", "attention": "unfused", "policy": "ddp"},
    {"layout": "pp2", "micro_batches": 3, "recompute": "selective"},
    {"layout": "tp2sp-pp2-interleaved", "micro_batches": 2, "policy": "megatron-param"},
    {"layout": "tp2sp-cp2-dp2", "zero": 3, "micro_batches": 2, "recompute": "selective", "policy": "fsdp"},
]
# Copies of key/value heads, whose gradients ranks sum; dropout, which must be the same wherever a token is; latent
# attention, with keys of which all heads share a part.
QUICK_OTHERS = [
    {"model": "qwen3", "layout": "tp4", "zero": 1, "policy": "megatron-grad"},
    {"model": "qwen2", "layout": "tp2", "micro_batches": 2, "policy": "priority"},
    {"model": "qwen2", "layout": "tp2sp-cp2-dp2", "zero": 3, "recompute": "full", "policy": "fsdp"},
    {"model": "qwen2", "layout": "tp2-pp2-dp2", "zero": 2, "micro_batches": 3, "policy": "ddp"},
    {"model": "dropout", "layout": "tp2sp", "micro_batches": 2, "recompute": "full", "policy": "centauri"},
    {"model": "dropout", "layout": "tp2sp-cp2-dp2", "zero": 1, "attention": "unfused", "policy": "priority"},
    {"model": "dropout", "layout": "pp2-dp2-interleaved", "micro_batches": 2, "recompute": "selective"},
    {"model": "latent", "layout": "tp2sp-cp2-dp2", "zero": 3, "recompute": "selective", "policy": "fsdp"},
    {"model": "latent", "layout": "tp2-pp2", "micro_batches": 3, "attention": "unfused", "policy": "priority"},
]
# One rank has nothing to send, whatever it is told.
SINGLE = [{"zero": 1, "micro_batches": 3, "policy": "ddp"}, {"zero": 2, "micro_batches": 2, "policy": "priority"},
          {"zero": 3, "micro_batches": 2, "policy": "fsdp"}]


def allowed(case):
    """What can be run at all; of a case that is not yet whole, whether what is there can."""
    if "layout" not in case:
        return True
    layout = LAYOUTS[case["layout"]]
    if "micro_batches" in case:
        count, size = case["micro_batches"], micro_batch_size(layout, case["micro_batches"])
        if size is None:
            return False  # --global-batch: is not divisible by --micro-batch * --dp
        if layout.schedule == "interleaved" and count % layout.pp != 0:
            return False  # --schedule interleaved: micro-batches are not divisible by --pp
        if layout.tp > 1 and layout.pp > 1 and layout.seq % 2 == 1 and size % 2 == 0:
            return False  # can be run, but is not what this layout is here for: an odd number of tokens
    # The order of one axis says nothing.
    return layout.axes > 1 or case.get("mesh_order", DEFAULT_ORDER) == DEFAULT_ORDER


def alone(case):
    """The same training on one rank."""
    return {**case, **PLAIN, "layout": ALONE[LAYOUTS[case["layout"]].seq]}


def name_of(case):
    order = "" if case["mesh_order"] == DEFAULT_ORDER else "-" + case["mesh_order"].replace(",", "")
    return (f"{case['model']}-{case['update']}-{case['layout']}{order}-zero{case['zero']}-micro{case['micro_batches']}"
            f"-{case['recompute']}-{case['attention']}-{case['policy']}")


def all_cases(quick):
    """One rank alone first: what the others are compared with."""
    factors = QUICK_FACTORS if quick else FACTORS
    wanted = allowed_pairs(factors, allowed, QUICK_PAIRS if quick else None)
    covering = covering_cases(factors, allowed, wanted)
    if missing := wanted - set().union(*map(pairs_of, covering)):
        raise AssertionError(f"pairs that no case covers: {missing}")
    if quick:
        covering += [{"model": "qwen3", "update": "sgd-clip", **PLAIN, **case} for case in QUICK_NORMED]
        covering += [{"update": "sgd-clip", **PLAIN, **case} for case in QUICK_OTHERS]
    baselines = list({name_of(alone(case)): alone(case) for case in covering}.values())
    return [*baselines, *({**base, **single} for base, single in zip(baselines, SINGLE)), *covering]


def twice(cases, quick):
    """Those to repeat, on as many ranks as possible: a case of every policy and ZeRO stage, and of every layout."""
    chosen = {}
    for case in sorted(cases, key=lambda c: -LAYOUTS[c["layout"]].ranks):
        if case["layout"] in ALONE.values():
            continue
        for name in ("zero", "policy") if quick else ("zero", "policy", "layout"):
            chosen.setdefault((name, case[name]), case)
    return list({name_of(case): case for case in chosen.values()}.values())


def schedule_flags(schedule):
    if schedule is None:
        return []
    return ["--lr-schedule", schedule["style"], "--lr-warmup", schedule["warmup"], "--lr-min", schedule["min_lr"],
            "--lr-decay-steps", schedule["decay_steps"], "--eval-every", VALIDATION["every"], "--eval-batches",
            VALIDATION["batches"]]


def flags_of(case):
    layout, update = LAYOUTS[case["layout"]], UPDATES[case["update"]]
    dropout = ["--dropout", "model"] if case["model"] == "dropout" else []
    return [*layout_flags(layout, case["model"], case["micro_batches"], case["mesh_order"]), *dropout, "--zero",
            case["zero"],
            "--recompute", case["recompute"], "--attention", case["attention"], "--policy", case["policy"],
            "--clip-grad", update["clip"], "--optimizer", update["optimizer"], "--lr", update["lr"],
            *schedule_flags(update.get("schedule")), "--steps", STEPS, "--seed", SEED]


def expected_in_record(case):
    """What run.json must say of the case: a run that ignored a flag would be checked for the wrong thing."""
    layout, update = LAYOUTS[case["layout"]], UPDATES[case["update"]]
    return {"tp": layout.tp, "cp": layout.cp, "data_ranks": layout.dp, "pp": layout.pp, "vpp": layout.vpp,
            "schedule": layout.schedule, "sequence_parallel": layout.sequence_parallel, "seq": layout.seq,
            "micro_batch": micro_batch_size(layout, case["micro_batches"]), "global_batch": GLOBAL_BATCH,
            "zero": case["zero"], "recompute": case["recompute"], "attention": case["attention"],
            "policy": case["policy"], "clip_grad": update["clip"], "steps": STEPS, "seed": SEED,
            "lr_schedule": update.get("schedule")}
