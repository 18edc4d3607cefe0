#!/usr/bin/env python3
"""Runs what `weft export` wrote in PyTorch itself, two ranks on this machine's processors: the pipeline schedules, the
FSDP2 file, the DDP arguments, Inductor's settings. Losses and gradients must be those of the same model on one rank, and
DDP must have the
buckets of the plan. The files are those of tests/data/export, which tests keep as weft writes them.

    python3 bench/export_check.py [FOLDER]
"""

import importlib.util
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

RANKS = 2
WIDTH = 64
MICRO_BATCHES = 4
TOLERANCE = 1e-5


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def block(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def batch(seed, rows):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, WIDTH, generator=generator), torch.randn(rows, WIDTH, generator=generator)


def expect_close(what, found, wanted):
    if not torch.allclose(found, wanted, atol=TOLERANCE, rtol=TOLERANCE):
        raise AssertionError(f"{what}: differs by {(found - wanted).abs().max().item()}")


def check_pipeline(rank, path, form):
    """Four stages on two ranks, as the schedule has them; gradients against the same four blocks one after the other."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    stages = 4
    x, target = batch(1, 2 * MICRO_BATCHES)
    blocks = [block(i) for i in range(stages)]
    reference = nn.Sequential(*[block(i) for i in range(stages)])
    example = torch.zeros(2, WIDTH)
    mine = [
        PipelineStage(blocks[i], i, stages, torch.device("cpu"), input_args=(example,), output_args=(example,))
        for i in range(rank, stages, RANKS)
    ]
    schedule = _PipelineScheduleRuntime(mine, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    schedule._load_csv(str(path), format=form)
    losses = []
    # Rank 0 has the first stage, the last rank the last one.
    schedule.step(*((x,) if rank == 0 else ()), **({"target": target, "losses": losses} if rank == RANKS - 1 else {}))
    loss = nn.functional.mse_loss(reference(x), target)
    loss.backward()
    if losses:
        expect_close("loss", torch.stack([part.detach() for part in losses]).mean(), loss.detach())
    for i in range(rank, stages, RANKS):
        for found, wanted in zip(blocks[i].parameters(), reference[i].parameters()):
            expect_close(f"gradient of stage {i}", found.grad, wanted.grad)


class Layered(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList([block(i) for i in range(layers)])
        torch.manual_seed(99)
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train(model, rank, micro_batches, before=lambda i: None):
    total = 0.0
    for i in range(micro_batches):
        x, target = batch(10 + rank * micro_batches + i, 2)
        loss = nn.functional.mse_loss(model(x), target) / micro_batches
        before(i)
        loss.backward()
        total += loss.item()
    return total


def check_fsdp2(rank, path):
    """Sharded gradients against the mean of both ranks' gradients of the whole model."""
    plan = load(path)
    layers = sum(len(group) for group in plan.GROUPS[0])
    model, reference = Layered(layers), Layered(layers)
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    plan.apply(model, mesh=mesh, own_groups=[[model.head]])
    train(model, rank, plan.MICRO_BATCHES, lambda i: plan.before_backward(model, i))
    for other in range(RANKS):
        train(reference, other, plan.MICRO_BATCHES)
    for (name, found), wanted in zip(model.named_parameters(), reference.parameters()):
        expect_close(name, found.grad.full_tensor(), wanted.grad / RANKS)


class Gradients(nn.Module):
    """Parameters of the sizes of a plan's gradients. Backward reaches them in the order of the list."""

    def __init__(self, sizes):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(size // 4)) for size in reversed(sizes)])

    def forward(self, x):
        for weight in self.weights:
            x = x * weight.mean()
        return x.sum()


def check_ddp(path):
    """DDP's own account of its buckets, once it has seen gradients arrive, against the plan's."""
    plan = load(path)
    model = plan.wrap(Gradients([size for bucket in plan.BUCKETS for size in bucket]))
    for _ in range(3):
        for i in range(plan.MICRO_BATCHES):
            with plan.micro_batch(model, i):
                model(torch.ones(3)).backward()
        model.zero_grad()
    logged = model._get_ddp_logging_data()
    sizes = logged.get("rebuilt_bucket_sizes") or logged["bucket_sizes"]
    found = [int(size) for size in str(sizes).replace(" ", "").split(",")]
    wanted = [sum(bucket) for bucket in plan.BUCKETS]
    if found != wanted:
        raise AssertionError(f"{path.name}: DDP has buckets of {found} bytes, the plan of {wanted}")


def check_inductor(path):
    """This PyTorch has every setting that is written, and takes its value."""
    import torch._inductor.config

    plan = load(path)
    settings = plan.settings()
    missing = {"reorder_for_compute_comm_overlap", "bucket_all_gathers_fx", "bucket_reduce_scatters_fx"} - set(settings)
    if missing:
        raise AssertionError(f"this PyTorch has no {missing}")
    with torch._inductor.config.patch(settings):
        determinator = torch._inductor.config.bucket_all_gathers_fx_bucket_size_determinator
        if [determinator(i) for i in range(len(plan.GATHERS))] != plan.GATHERS:
            raise AssertionError("Inductor asks for other buckets")


def checks(rank, folder):
    yield "torch-pipeline", lambda: check_pipeline(rank, folder / "schedule.csv", "compute_only")
    yield "torch-pipeline-comms", lambda: check_pipeline(rank, folder / "schedule_comms.csv", "compute_comms")
    yield "fsdp2 (ZeRO 3)", lambda: check_fsdp2(rank, folder / "fsdp2.py")
    yield "fsdp2 (ZeRO 2)", lambda: check_fsdp2(rank, folder / "fsdp2_zero2.py")
    yield "ddp", lambda: check_ddp(folder / "ddp.py")
    yield "ddp (default buckets)", lambda: check_ddp(folder / "ddp_default.py")
    yield "inductor", lambda: check_inductor(folder / "inductor.py")


def run_rank(rank, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    failed = False
    for name, check in checks(rank, folder):
        try:
            check()
            words = "ok"
        except Exception as error:  # the other checks still say something
            failed, words = True, f"FAILED: {type(error).__name__}: {error}"
        print(f"rank {rank}: {name}: {words}", flush=True)
        dist.barrier()
    dist.destroy_process_group()
    if failed:
        sys.exit(1)


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tests/data/export"
    print(f"torch {torch.__version__}")
    port = 29500 + os.getpid() % 1000
    torch.multiprocessing.spawn(run_rank, args=(folder, port), nprocs=RANKS)
    print("all exported files run in PyTorch as planned")


if __name__ == "__main__":
    main()
