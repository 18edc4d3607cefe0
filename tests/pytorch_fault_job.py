"""One rank of a job in which something goes wrong, for pytorch_test.py: pytorch_fault_job.py FAULT FOLDER.

Prints `raised NAME: WORDS` for what overlap or training raises. Rank 1 is to blame.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import weft.torch as weft  # noqa: E402

RANK = int(os.environ["WEFT_RANK"])
STEPS, FAULTY_STEP = 12, 6


def make_model(fault):
    torch.manual_seed(3)
    if fault.startswith("sharded"):
        return nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
    wide = fault == "other model" and RANK == 1
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 9 if wide else 8))


def misbehave(fault, model):
    if RANK != 1:
        return
    if fault in ("dies", "sharded dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "module changes":
        model[2] = nn.Linear(16, 8)
    if fault == "freezes":
        model[0].weight.requires_grad_(False)
    if fault == "raises":
        raise ValueError("bad data")
    if fault == "leaves":
        sys.exit(0)


def train(fault, folder):
    model = make_model(fault)
    if fault == "sharded lbfgs":
        weft.overlap(model, torch.optim.LBFGS(model.parameters()), shard="zero1")
    if fault == "swapped":
        weft.overlap(torch.optim.SGD(model.parameters(), lr=0.1), model)
    plan = None
    if fault in ("plan of another model", "broken plan"):
        plan = Path(folder) / f"plan{RANK}.json"
        plan.write_text('{"format": "weft-pytorch-plan", "version": 1, "ranks": 2, "across_steps": true, "passes": 1, '
                        '"predicted_step_s": 0, "profile": {}, "parameters": [], "transfers": []}'
                        if fault == "plan of another model" else "{")
    model, optimizer = weft.overlap(model, torch.optim.SGD(model.parameters(), lr=0.1), plan=plan, timeout=5,
                                    shard="zero3" if fault.startswith("sharded") else None)
    for step in range(STEPS):
        passes = 2 if fault == "more passes" and step == FAULTY_STEP else 1
        if step == FAULTY_STEP:
            misbehave(fault, model)
        optimizer.zero_grad()
        forward = model
        if fault == "sharded in another order" and step == FAULTY_STEP and RANK == 1:
            def forward(x):
                return model[0](model[1](model[2](x)))
        for _ in range(passes):
            forward(torch.randn(4, 8)).square().mean().backward()
        if fault in ("clips late", "sharded clips late") and step == FAULTY_STEP:
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        if not (fault == "forgets a step" and step == FAULTY_STEP and RANK == 1):
            optimizer.step()
    optimizer.weft.synchronize()


def main():
    torch.set_num_threads(1)
    try:
        train(sys.argv[1], sys.argv[2])
    except Exception as error:
        print(f"raised {type(error).__name__}: {error}", flush=True)
        sys.exit(3)


if __name__ == "__main__":
    main()
