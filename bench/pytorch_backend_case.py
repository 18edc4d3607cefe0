#!/usr/bin/env python3
"""One rank of bench/pytorch_backend_check.py: pytorch_backend_case.py CASE BACKEND, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.

Trains a small model by what PyTorch itself has for several ranks, or calls torch.distributed and compares with what the call means.
Every rank prints one JSON object: its losses, and on rank 0 those of one process that trains with all data, without torch.distributed.
Exit code 77 where this PyTorch, or this machine, lacks what the case is about.
"""

import datetime
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import weft.torch  # noqa: E402, F401  (registers the backend)

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, BATCH, WIDTH, KINDS = 12, 4, 32, 10


class Missing(Exception):
    """What the case needs is not here."""


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.Sequential(*(Block() for _ in range(3))), nn.Linear(WIDTH, KINDS)

    def forward(self, x):
        return self.head(self.blocks(x))


def made(device="cpu"):
    torch.manual_seed(0)
    return Net().to(device)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=False)


def batch(step, share, shares, device):
    """`share` of so many, or all of them with share None."""
    chance = torch.Generator().manual_seed(100 + step)
    inputs, kinds = torch.randn(shares * BATCH, WIDTH, generator=chance), torch.randint(0, KINDS, (shares * BATCH,), generator=chance)
    rows = slice(None) if share is None else slice(share * BATCH, (share + 1) * BATCH)
    return inputs[rows].to(device), kinds[rows].to(device)


def trained(model, optimizer, share, shares, device="cpu"):
    losses = []
    for step in range(STEPS):
        inputs, kinds = batch(step, share, shares, device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs).float(), kinds)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def alone(shares, device="cpu"):
    model = made(device)
    return trained(model, sgd(model), None, shares, device)


def needs(path, *names):
    """Things of a module of PyTorch's that older versions lack."""
    import importlib
    try:
        module = importlib.import_module(path)
        return [getattr(module, name) for name in names]
    except (ImportError, AttributeError, ValueError) as error:  # Debian's 1.13 cannot import its own FSDP under Python 3.11
        raise Missing(f"no {path}.{'/'.join(names)} in PyTorch {torch.__version__}: {error}") from error


def needs_gpu():
    if not torch.cuda.is_available():
        raise Missing("no GPU")
    torch.cuda.set_device(0)
    return torch.device("cuda", 0)


# --- trainings: (losses of this rank, those of one process) ---

def ddp(device="cpu"):
    model = nn.parallel.DistributedDataParallel(made(device), bucket_cap_mb=0.01)
    return trained(model, sgd(model), RANK, RANKS, device), alone(RANKS, device)


def fsdp1():
    FSDP, = needs("torch.distributed.fsdp", "FullyShardedDataParallel")
    Policy, = needs("torch.distributed.fsdp.wrap", "ModuleWrapPolicy")
    if torch.__version__.startswith("1."):
        raise Missing("FSDP of PyTorch 1.13 needs a GPU")
    model = FSDP(made(), device_id=torch.device("cpu"), use_orig_params=True, auto_wrap_policy=Policy({Block}))
    return trained(model, sgd(model), RANK, RANKS), alone(RANKS)


def sharded(model, mesh=None, **options):
    fully_shard, = needs("torch.distributed.fsdp", "fully_shard")
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    if dist.get_backend() == "gloo" and hasattr(model, "set_force_sum_reduction_for_comms"):  # it has no averages in some versions
        for module in (model, *model.blocks):
            module.set_force_sum_reduction_for_comms(True)
    return model


def mesh_of(device, shape, names):
    init_device_mesh, = needs("torch.distributed.device_mesh", "init_device_mesh")
    return init_device_mesh(device, shape, mesh_dim_names=names)


def fsdp2(device="cpu"):
    needs("torch.distributed.fsdp", "fully_shard")
    model = sharded(made(device), mesh_of(torch.device(device).type, (RANKS,), ("dp",)))
    return trained(model, sgd(model), RANK, RANKS, device), alone(RANKS, device)


def fsdp2_bf16():
    """Gathered and reduced in bf16: gathers of bytes, and averages that round. Far from fp32, so gloo is the judge."""
    Policy, _ = needs("torch.distributed.fsdp", "MixedPrecisionPolicy", "fully_shard")
    model = sharded(made(), mesh_of("cpu", (RANKS,), ("dp",)), mp_policy=Policy(torch.bfloat16, torch.float32))
    return trained(model, sgd(model), RANK, RANKS), None


def hsdp():
    """Sharded over two ranks, copied over as many pairs."""
    needs("torch.distributed.fsdp", "fully_shard")
    model = sharded(made(), mesh_of("cpu", (2, RANKS // 2), ("copies", "shards")))
    return trained(model, sgd(model), RANK, RANKS), alone(RANKS)


def split_by_columns_and_rows(model, mesh):
    parallelize, columns, rows = needs("torch.distributed.tensor.parallel", "parallelize_module", "ColwiseParallel", "RowwiseParallel")
    for block in model.blocks:
        parallelize(block, mesh, {"up": columns(), "down": rows()})
    return model


def tensor_parallel():
    """All ranks have all data; DTensor adds partial products up by functional collectives."""
    needs("torch.distributed.tensor", "DTensor")
    model = split_by_columns_and_rows(made(), mesh_of("cpu", (RANKS,), ("tp",)))
    return trained(model, sgd(model), None, 1), alone(1)


def fsdp2_and_tensor_parallel():
    needs("torch.distributed.tensor", "DTensor")
    mesh = mesh_of("cpu", (2, RANKS // 2), ("dp", "tp"))
    model = sharded(split_by_columns_and_rows(made(), mesh["tp"]), mesh["dp"])
    return trained(model, sgd(model), mesh["dp"].get_local_rank(), 2), alone(2)


def ddp_on_gpu():
    return ddp(needs_gpu())


def fsdp2_on_gpu():
    return fsdp2(needs_gpu())


# --- calls: what they must give is written out; returns how many agree ---

def require(name, found, expected):
    if not torch.equal(found.cpu(), expected.cpu()):
        raise AssertionError(f"{name}: {found} instead of {expected}")
    return 1


def of_rank(rank, *shape):
    return torch.arange(float(torch.Size(shape).numel())).view(shape) + 100 * rank


def functional():
    """What torch.compile and DTensor call."""
    needs("torch.distributed._functional_collectives", "all_reduce")
    import torch.distributed._functional_collectives as funcol
    group = dist.group.WORLD
    mine, every = of_rank(RANK, 2 * RANKS, 3), [of_rank(rank, 2 * RANKS, 3) for rank in range(RANKS)]
    total, rows = sum(every), slice(2 * RANK, 2 * RANK + 2)
    count = require("all_reduce", funcol.all_reduce(mine, "sum", group) + 0, total)
    count += require("all_reduce avg", funcol.all_reduce(mine * RANKS, "avg", group) + 0, total)
    count += require("all_gather_tensor", funcol.all_gather_tensor(mine, 0, group) + 0, torch.cat(every))
    count += require("reduce_scatter_tensor", funcol.reduce_scatter_tensor(mine, "sum", 0, group) + 0, total[rows])
    count += require("broadcast", funcol.broadcast(mine, 0, group) + 0, every[0])
    count += require("all_to_all_single", funcol.all_to_all_single(mine, None, None, group) + 0, torch.cat([one[rows] for one in every]))
    several = funcol.all_reduce_coalesced([mine, 2 * mine], "sum", group)
    count += require("all_reduce_coalesced", several[1] + 0, 2 * total)
    several = funcol.all_gather_into_tensor_coalesced([mine, 2 * mine], group)
    count += require("all_gather_into_tensor_coalesced", several[1] + 0, 2 * torch.cat(every))
    several = funcol.reduce_scatter_tensor_coalesced([mine, 2 * mine], "sum", [0, 0], group)
    count += require("reduce_scatter_tensor_coalesced", several[1] + 0, 2 * total[rows])
    return count


def dtensor():
    """From every placement to every other, and back to the whole."""
    distribute, Shard, Replicate, DTensor, Partial = needs("torch.distributed.tensor", "distribute_tensor", "Shard", "Replicate", "DTensor",
                                                           "Partial")
    mesh, count = mesh_of("cpu", (RANKS,), ("all",)), 0
    for shape in ((8, 6), (5, 7)):  # the latter is cut unevenly
        whole = of_rank(0, *shape)
        for first in (Shard(0), Shard(1), Replicate()):
            for second in (Shard(0), Shard(1), Replicate()):
                moved = distribute(whole, mesh, [first]).redistribute(mesh, [second])
                count += require(f"{first} to {second}", moved.full_tensor(), whole)
    partial = DTensor.from_local(of_rank(RANK, 8, 6), mesh, [Partial()])
    total = sum(of_rank(rank, 8, 6) for rank in range(RANKS))
    for second in (Replicate(), Shard(0), Shard(1)):
        count += require(f"a sum to {second}", partial.redistribute(mesh, [second]).full_tensor(), total)
    return count


def coalesced():
    """As dist's manager of several calls at once does it."""
    manager, = needs("torch.distributed.distributed_c10d", "_coalescing_manager")
    if torch.__version__.startswith("1."):
        raise Missing("the manager of PyTorch 1.13 is NCCL's")
    tensors = [of_rank(RANK, 3), of_rank(RANK, 4)]
    with manager(device=torch.device("cpu")):
        for tensor in tensors:
            dist.all_reduce(tensor)
    outputs = [torch.zeros(3 * RANKS), torch.zeros(4 * RANKS)]
    with manager(device=torch.device("cpu"), async_ops=True) as several:
        for output, size in zip(outputs, (3, 4)):
            dist.all_gather_into_tensor(output, of_rank(RANK, size))
    several.wait()
    return sum(require(f"all_reduce {size}", tensor, sum(of_rank(rank, size) for rank in range(RANKS)))
               + require(f"all_gather {size}", output, torch.cat([of_rank(rank, size) for rank in range(RANKS)]))
               for size, tensor, output in zip((3, 4), tensors, outputs))


def checkpoint():
    """Saved by ranks that hold shards, read by a plain model."""
    save, load = needs("torch.distributed.checkpoint", "save", "load")
    needs("torch.distributed.fsdp", "fully_shard")
    model = sharded(made(), mesh_of("cpu", (RANKS,), ("dp",)))
    trained(model, sgd(model), RANK, RANKS)
    box = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(box, 0)
    save(model.state_dict(), checkpoint_id=box[0])
    plain = Net()
    state = plain.state_dict()
    load(state, checkpoint_id=box[0])
    plain.load_state_dict(state)
    dist.barrier()
    shutil.rmtree(box[0], ignore_errors=True)
    return sum(require(name, value.full_tensor(), plain.state_dict()[name]) for name, value in model.state_dict().items())


def beside_nccl():
    """Started with "cpu:weft,cuda:nccl": each kind of tensor on its own backend."""
    device, count = needs_gpu(), 0
    for place in (torch.device("cpu"), device):
        tensor = of_rank(RANK, 5).to(place)
        dist.all_reduce(tensor)
        count += require(f"all_reduce on {place}", tensor, sum(of_rank(rank, 5) for rank in range(RANKS)))
    mesh = mesh_of("cuda", (RANKS,), ("dp",))
    model = sharded(made(device), mesh)
    losses, expected = trained(model, sgd(model), RANK, RANKS, device), alone(RANKS, device)
    gathered = [None] * RANKS
    dist.all_gather_object(gathered, losses)
    mean = torch.tensor(gathered).mean(0)
    if not torch.allclose(mean, torch.tensor(expected), rtol=1e-4):
        raise AssertionError(f"FSDP2 over NCCL beside weft: {mean} instead of {expected}")
    return count + 1


def calls_on_gpu():
    """Tensors of a GPU over weft: they pass through the processor's memory."""
    device = needs_gpu()
    every = [of_rank(rank, 2 * RANKS, 3) for rank in range(RANKS)]
    mine, total, rows = every[RANK].to(device), sum(every), slice(2 * RANK, 2 * RANK + 2)
    reduced = mine.clone()
    dist.all_reduce(reduced)
    doubles = mine.double()
    dist.all_reduce(doubles)
    gathered = torch.zeros(2 * RANKS * RANKS, 3, device=device)
    dist.all_gather_into_tensor(gathered, mine)
    scattered = torch.zeros(2, 3, device=device)
    dist.reduce_scatter_tensor(scattered, mine)
    exchanged = torch.zeros_like(mine)
    dist.all_to_all_single(exchanged, mine)
    strided = mine.t().contiguous().t()
    dist.broadcast(strided, RANKS - 1)
    arrived = torch.zeros_like(mine)
    works = [dist.isend(mine, (RANK + 1) % RANKS), dist.irecv(arrived, (RANK - 1) % RANKS)]
    for work in works:
        work.wait()
    dist.barrier()
    return sum(require(name, found, expected) for name, found, expected in (
        ("all_reduce", reduced, total), ("all_reduce of doubles", doubles, total.double()), ("all_gather", gathered, torch.cat(every)),
        ("reduce_scatter", scattered, total[rows]), ("all_to_all", exchanged, torch.cat([one[rows] for one in every])),
        ("broadcast", strided, every[-1]), ("messages", arrived, every[RANK - 1])))


def main():
    case, backend = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=40))
    try:
        found = globals()[case]()
    except Missing as missing:
        print(missing, flush=True)
        os._exit(77)
    if isinstance(found, int):
        print(json.dumps({"agree": found}), flush=True)
    else:
        losses, expected = found
        print(json.dumps({"losses": losses, **({"alone": expected} if RANK == 0 and expected else {})}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
