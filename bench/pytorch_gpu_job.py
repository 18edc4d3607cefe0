#!/usr/bin/env python3
"""One rank of bench/pytorch_gpu_check.py: weft.torch on a GPU trains what DistributedDataParallel trains, unsharded and with ZeRO 1 to 3.

    tools/gpu_ranks.sh 2 python3 -B bench/pytorch_gpu_job.py
    … --device cpu       # the same code over the backend "weft", without a GPU (needs build/release/libweft_embed.so)

A small GPT in fp32; the losses of all steps must agree to 1e-4, and the weights at the end to 1e-3. Also a job whose inputs change their
shapes, which must make a second plan; one whose ranks use different parameters in some steps; and timelines of six steps, which must have
every transfer of each (--timelines FOLDER keeps them for `weft report`). Rank 0 prints a line for each, and raises where one fails.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]
import peer_gpt  # noqa: E402
import weft.torch as weft  # noqa: E402
from weft.torch.torch_wire import TorchWire  # noqa: E402

RANK, RANKS = int(os.environ["WEFT_RANK"]), int(os.environ["WEFT_RANKS"])
STEPS = 24
JOBS = {"unsharded": {}, "unsharded, two communicators": {"communicators": 2}, "zero1": {"shard": "zero1"},
        "zero2": {"shard": "zero2"}, "zero3": {"shard": "zero3"}, "zero3, two communicators": {"shard": "zero3", "communicators": 2}}


class Sizes:
    layers, width, heads, seq, vocab, batch = 4, 256, 4, 128, 512, 4


class Branches(torch.nn.Module):
    """Each call uses one of two branches; a third is never used."""

    def __init__(self):
        super().__init__()
        self.branches = torch.nn.ModuleList(torch.nn.Linear(Sizes.width, Sizes.width) for _ in range(3))
        self.head = torch.nn.Linear(Sizes.width, 1)

    def forward(self, x, which):
        return self.head(torch.tanh(self.branches[which](x)))


def make(device, kind=lambda: peer_gpt.Gpt(Sizes)):
    torch.manual_seed(0)
    model = kind().to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def overlap(model, optimizer, device, communicators=0, shard=None):
    if device.type == "cuda":
        return weft.overlap(model, optimizer, shard=shard, communicators=communicators)
    weft.begin(model, optimizer, TorchWire(RANK, RANKS, device, communicators), device, shard=shard or "")
    return model, optimizer


def train(forward, optimizer, device, lengths=lambda step: Sizes.seq):
    chance, losses = torch.Generator().manual_seed(1 + RANK), []
    for step in range(STEPS):
        tokens, targets = torch.randint(0, Sizes.vocab, (2, Sizes.batch, lengths(step)), generator=chance).to(device)
        optimizer.zero_grad()
        loss = peer_gpt.loss_of(forward, tokens, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).double().cpu()  # the host waits for nothing before


def with_ddp(device, **named):
    model, optimizer = make(device)
    return train(DistributedDataParallel(model), optimizer, device, **named), model.state_dict()


def train_branches(forward, optimizer, device):
    """The ranks agree on the branch in some steps and not in others."""
    chance, losses = torch.Generator().manual_seed(1 + RANK), []
    for step in range(STEPS):
        inputs = torch.randn(Sizes.batch, Sizes.width, generator=chance).to(device)
        optimizer.zero_grad()
        loss = forward(inputs, (step // 2 + RANK * (step % 2)) % 2).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).double().cpu()


def unused_parameters(device):
    model, optimizer = make(device, Branches)
    expected = train_branches(DistributedDataParallel(model, find_unused_parameters=True), optimizer, device)
    for shard in (None, "zero1", "zero3"):
        what = f"unused parameters, {shard or 'unsharded'}"
        ours, optimizer = overlap(*make(device, Branches), device, shard=shard)
        losses = train_branches(ours, optimizer, device)
        off = require_close(f"{what}: losses", losses, expected, 1e-4)
        state = ours.state_dict()
        far = max(require_close(f"{what}: {name}", state[name].double().cpu(), value.double().cpu(), 1e-3)
                  for name, value in model.state_dict().items())
        across = optimizer.weft.plan.across_steps
        optimizer.weft.close()
        say(f"{what}: losses {off:.1g} and weights {far:.1g} from DDP's, across steps: {across}")


def timelines(device, folder):
    model, optimizer = overlap(*make(device), device)
    optimizer.weft.record_timelines()
    train(model, optimizer, device)
    plan = optimizer.weft.plan
    optimizer.weft.save_timelines(folder)
    shown = json.loads((Path(folder) / "measured.json").read_text())
    numbers = {i for i, operation in enumerate(shown["operations"]) if "traffic" in operation}
    spans = [row for row in shown["spans"] if row[0] in numbers]
    assert len(numbers) == len(plan.transfers) and len(spans) == 5 * len(plan.transfers), (len(numbers), len(spans))
    assert all(0 <= begin < end for *_, begin, end in spans)
    optimizer.weft.close()
    seconds = sum(end - begin for *_, begin, end in spans) / 5e9
    say(f"timelines: {len(plan.transfers)} transfers in each of 5 steps of {shown['steady']['period'] / 1e6:.2f} ms (predicted "
        f"{1e3 * plan.predicted_step:.2f}), {1e3 * seconds:.2f} ms on the wire")


def require_close(what, found, expected, tolerance):
    off = ((found - expected).abs() / (expected.abs() + 1e-2)).max().item()
    if not off <= tolerance:
        raise AssertionError(f"{what} differ by {off:.2g}; {tolerance:g} is allowed")
    return off


def say(words):
    if RANK == 0:
        print(words, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--timelines", metavar="FOLDER", help="keeps predicted.json and measured.json of rank 0")
    parsed = parser.parse_args()
    device = torch.device(parsed.device)
    options = {"device_id": torch.device("cuda", 0)} if device.type == "cuda" else {}
    if device.type == "cuda":
        torch.cuda.set_device(0)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if options else "weft", init_method="tcp://" + os.environ["WEFT_ROOT_ADDRESS"], rank=RANK, world_size=RANKS,
                            timeout=datetime.timedelta(minutes=2), **options)
    expected, weights = with_ddp(device)
    say(f"DDP: loss {expected[0]:.4f} to {expected[-1]:.4f}")
    for name, named in JOBS.items():
        begin = time.perf_counter()
        model, optimizer = overlap(*make(device), device, **named)
        losses = train(model, optimizer, device)
        report, plan = optimizer.weft.report(), optimizer.weft.plan
        assert plan.across_steps and plan.shard == named.get("shard", ""), (plan.across_steps, plan.shard)
        off = require_close(f"{name}: losses", losses, expected, 1e-4)
        state = model.state_dict()
        far = max(require_close(f"{name}: {key}", state[key].double().cpu(), weights[key].double().cpu(), 1e-3) for key in weights)
        optimizer.weft.close()
        say(f"{name}: losses {off:.1g} and weights {far:.1g} from DDP's, {len(plan.transfers)} transfers, "
            f"{report['communicators']} communicators, {time.perf_counter() - begin:.1f} s; rehearsed: {report['rehearsed']}, "
            f"tried: {report['tried']}")

    def lengths(step):
        return Sizes.seq // (2 if step >= 6 else 1)

    model, optimizer = overlap(*make(device), device)
    losses = train(model, optimizer, device, lengths)
    plans = optimizer.weft.report()["plans"]
    off = require_close("other shapes: losses", losses, with_ddp(device, lengths=lengths)[0], 1e-4)
    assert plans == 2, f"{plans} plans"
    optimizer.weft.close()
    say(f"other shapes: 2 plans, losses {off:.1g} from DDP's")
    unused_parameters(device)
    with tempfile.TemporaryDirectory() as folder:
        timelines(device, parsed.timelines if parsed.timelines and RANK == 0 else folder)
    dist.barrier()
    dist.destroy_process_group()
    say("all agree")


if __name__ == "__main__":
    main()
