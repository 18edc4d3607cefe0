"""Random training programs: a model, an optimizer, a loop, and actions at random places of some steps. A program is a dict that can be
printed, read again, and made smaller."""

import contextlib
import random

import torch
from torch.nn import functional as F

from . import own_optimizers as own
from .kit import Kind
from .random_actions import ACTIONS, BY_NAME, Place
from .random_models import Either, build, kinds_in, random_model

MODES = ("plain",) * 12 + ("within", "aside", "zero1", "zero1", "zero2")
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.03, momentum=0.9, weight_decay=1e-3),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "AdamW with foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.003),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.03),
}
OWN = {
    "Adapted": own.Adapted, "Counting": own.Counting, "GloballyNormed": own.GloballyNormed, "Noisy": own.Noisy, "Lamb": own.Lamb,
    "Lion": own.Lion, "Muon": own.Muon, "ClippingAdam": lambda parameters: own.ClippingAdam(parameters, lr=0.01),
    "Centralized": lambda parameters: own.Centralized(parameters, lr=0.05, momentum=0.5),
    "Lookahead": lambda parameters: own.Lookahead(torch.optim.Adam(parameters, lr=0.01)),
}
# What DDP itself does not do, or does with other sums.
NOT_WITH_BRANCHES = ("penalty", "penalty_on_all", "functional_use", "second_forward")
NOT_WITH_FREEZING = ("penalty", "penalty_on_all", "functional_use", "second_forward")
LOOSE = 2e-3  # with several passes that DDP averages one by one


def random_program(seed: int, modes=MODES) -> dict:
    draw = random.Random(seed)
    program = {"seed": seed, "mode": draw.choice(modes), "steps": draw.randint(7, 14), "model": random_model(draw),
               "optimizer": draw.choice(list(OPTIMIZERS) if draw.random() < 0.7 else list(OWN)), "groups": draw.choice((1, 1, 2, 3)),
               "zeros": draw.choice(("None before", "zeros before", "None after", "zeros after")),
               "passes": draw.choice((1, 1, 1, 1, 2, 3)), "more passes from": draw.choice((0, 0, 5)), "no_sync": draw.random() < 0.8,
               "skipped": sorted(draw.sample(range(3, 14), draw.choice((0, 0, 0, 1, 2)))),
               "clean": sorted(draw.sample(range(3, 14), draw.choice((0, 0, 0, 1)))), "actions": []}
    for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4, 6))):
        where = draw.choice(("gradients", "gradients", "weights", "weights", "weights", "begin", "before forward", "after forward"))
        program["actions"].append({"where": where, "what": draw.choice(ACTIONS[where]).__name__, "number": draw.randrange(1000),
                                   "first": draw.choice((0, 0, 1, 3, 5)), "every": draw.choice((1, 1, 2, 3, 100))})
    branches, names = "either" in kinds_in(program["model"]), {action["what"] for action in program["actions"]}
    for forbidden, yes in ((NOT_WITH_BRANCHES, branches), (NOT_WITH_FREEZING, "freeze" in names)):
        if yes:
            program["actions"] = [action for action in program["actions"] if action["what"] not in forbidden]
    return program


def tolerance_of(program: dict) -> float:
    return 2e-6 if program["passes"] == 1 or program["no_sync"] else LOOSE


def play(program: dict, job) -> None:
    """Runs the program on this rank."""
    model = build(program["model"])
    parameters = list(model.parameters())
    count = min(program["groups"], len(parameters))
    groups = [{"params": parameters[number::count]} for number in range(count)]
    optimizer = {**OPTIMIZERS, **OWN}[program["optimizer"]](groups)
    kinds = kinds_in(program["model"])
    unused = "either" in kinds or any(action["what"] == "freeze" for action in program["actions"])
    wrapped, optimizer = job.wrap(model, optimizer, find_unused_parameters=unused)
    place = Place(job, model, wrapped, optimizer)
    for step, _ in job.batches(program["steps"], width=8):
        play_step(program, place, step)
    job.finish(wrapped, {"averages": place.averages})


def play_step(program: dict, place: Place, step: int) -> None:
    def at(where):
        return [BY_NAME[action["what"]](place, action["number"], step) for action in program["actions"]
                if action["where"] == where and step >= action["first"] and (step - action["first"]) % action["every"] == 0]

    job, none = place.job, "None" in program["zeros"]
    for module in place.model.modules():
        if isinstance(module, Either):
            module.turn = step // 3
    at("begin")
    if "before" in program["zeros"]:
        place.optimizer.zero_grad(set_to_none=none)
    passes = program["passes"] if step >= program["more passes from"] else 1
    if step in program["clean"]:
        passes = 0  # a step without backward
    for number in range(passes):
        with place.wrapped.no_sync() if program["no_sync"] and number < passes - 1 else contextlib.nullcontext():
            more = at("before forward")
            loss = F.mse_loss(place.wrapped(job.normal(6, 8)), job.normal(6, 8)) / passes
            loss = loss + sum(more) + sum(at("after forward"))
            loss.backward()
        job.note("loss", loss)
    at("gradients")
    if step not in program["skipped"]:
        place.optimizer.step()
    at("weights")
    if "after" in program["zeros"]:
        place.optimizer.zero_grad(set_to_none=none)


def kind_of(program: dict) -> Kind:
    whole = program["optimizer"] in OWN
    return Kind(f"program {program['seed']}", "random", lambda job: play(program, job), tolerance=tolerance_of(program),
                refused={level: "NotSupported" for level in ("zero1", "zero2", "zero3")} if whole else {})


def smaller(program: dict):
    """Programs with something less, the largest pieces first."""
    def but(**changes):
        return {**program, **changes}

    actions, model = program["actions"], program["model"]
    if len(actions) > 1:
        half = len(actions) // 2
        yield but(actions=actions[:half])
        yield but(actions=actions[half:])
    for number in range(len(actions)):
        yield but(actions=actions[:number] + actions[number + 1:])
    if len(model) > 2:
        yield but(model=[["linear"], ["linear"]])
    for number in range(1, len(model) - 1):
        yield but(model=model[:number] + model[number + 1:])
    for name, plain in (("optimizer", "SGD"), ("groups", 1), ("passes", 1), ("skipped", []), ("clean", []), ("zeros", "None before"),
                        ("more passes from", 0)):
        if program[name] != plain:
            yield but(**{name: plain})
    for number, action in enumerate(actions):
        if action["every"] != 100:
            yield but(actions=[*actions[:number], {**action, "every": 100}, *actions[number + 1:]])
    if program["steps"] > 4:
        yield but(steps=program["steps"] - 2)


def lines_of(program: dict):
    """The program for people."""
    yield ", ".join(f"{name}: {value}" for name, value in program.items() if name not in ("actions", "model"))
    yield f"model: {program['model']}"
    for action in program["actions"]:
        every = "each step" if action["every"] == 1 else "once" if action["every"] == 100 else f"every {action['every']} steps"
        yield f"  {action['where']}: {action['what']} (number {action['number']}), {every} from step {action['first']}"
