"""One rank of the backend's tests: every operation of torch.distributed on the backends gloo and weft, with equal results.

pytorch_backend_job.py [fault FAULT]. The cases are those of PyTorch's own tests of gloo (test_c10d_gloo.py) and of
distributed_test.py that apply to tensors of processors; where gloo 1.13 lacks an operation, what it means is written out.
Prints a line for each case that holds. Floats hold small whole numbers, so sums are exact in any order.
"""

import datetime
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
import weft.torch  # noqa: E402, F401  (registers the backend)

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OPS = {name: getattr(dist.ReduceOp, name) for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")}
BITS = ("BAND", "BOR", "BXOR")
FLOATS = (torch.float32, torch.float64, torch.float16)  # that gloo reduces
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)


def values(dtype, shape, rank=RANK, seed=0):
    """Whole numbers from 1 to 4, other ones on each rank."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randint(1, 5, shape, generator=generator).to(dtype)


def of_all(dtype, shape, seed=0):
    return [values(dtype, shape, rank, seed) for rank in range(RANKS)]


# --- each returns tensors that depend on the group's results ---

def all_reduce(group, dtype, op, shape):
    tensor = values(dtype, shape)
    dist.all_reduce(tensor, OPS[op], group=group)
    return [tensor]


def all_reduce_strided(group):
    tensor = values(torch.float32, (6, 4)).t()
    dist.all_reduce(tensor, group=group)
    return [tensor]


def all_reduce_async(group):
    """Several at once; futures and waits in another order."""
    tensors = [values(torch.float32, (size,), seed=size) for size in (3, 70000, 1, 70000)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
    return tensors


def futures(group):
    tensor = values(torch.float32, (5,))
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
    return [future.then(lambda done: 2 * done.value()[0]).wait()]


def all_reduce_coalesced(group, dtype):
    tensors = [values(dtype, (size,), seed=size) for size in (1, 5, 300)]
    dist.all_reduce_coalesced(tensors, group=group)
    return tensors


def broadcast(group, dtype, root):
    tensor = values(dtype, (5, 3))
    dist.broadcast(tensor, root, group=group)
    return [tensor]


def reduce(group, dtype, op, root):
    tensor = values(dtype, (7,))
    dist.reduce(tensor, root, OPS[op], group=group)
    return [tensor] if RANK == root else []


def all_gather(group, dtype, shape):
    tensors = [torch.zeros(shape, dtype=dtype) for _ in range(RANKS)]
    dist.all_gather(tensors, values(dtype, shape), group=group)
    return tensors


def all_gather_coalesced(group):
    inputs = [values(torch.float32, (size,), seed=size) for size in (2, 9)]
    outputs = [[torch.zeros(2), torch.zeros(9)] for _ in range(RANKS)]
    dist.all_gather_coalesced(outputs, inputs, group=group)
    return [tensor for of_rank in outputs for tensor in of_rank]


def gather(group, dtype, root):
    tensors = [torch.zeros(4, dtype=dtype) for _ in range(RANKS)] if RANK == root else None
    dist.gather(values(dtype, (4,)), tensors, root, group=group)
    return tensors or []


def scatter(group, dtype, root):
    tensor = torch.zeros(4, dtype=dtype)
    dist.scatter(tensor, of_all(dtype, (4,)) if RANK == root else None, root, group=group)
    return [tensor]


def barrier(group):
    for _ in range(3):
        dist.barrier(group=group)
    return []


def send_in_turn(group):
    """A token goes around, and grows."""
    tensor = torch.zeros(3)
    if RANK == 0:
        dist.send(tensor + 1, 1 % RANKS, group=group)
        dist.recv(tensor, RANKS - 1, group=group)
    else:
        dist.recv(tensor, RANK - 1, group=group)
        dist.send(tensor + RANK, (RANK + 1) % RANKS, group=group)
    return [tensor]


def send_both_ways(group):
    """All receive before anybody sends."""
    others = [rank for rank in range(RANKS) if rank != RANK]
    arrived = {rank: torch.zeros(40000) for rank in others}
    works = [dist.irecv(arrived[rank], rank, group=group) for rank in others]
    sent = values(torch.float32, (40000,))
    works += [dist.isend(sent, rank, group=group) for rank in others]
    for work in works:
        work.wait()
    return [arrived[rank] for rank in others]


def tags(group):
    """Received in another order than sent."""
    if RANK > 1:
        return []
    tensors = [torch.zeros(2) for _ in range(3)]
    if RANK == 0:
        works = [dist.isend(torch.full((2,), float(tag)), 1, group=group, tag=tag) for tag in range(3)]
    else:
        works = [dist.irecv(tensors[tag], 0, group=group, tag=tag) for tag in (2, 0, 1)]
    for work in works:
        work.wait()
    return tensors if RANK == 1 else []


def many_messages(group):
    """Of one pair, in order."""
    if RANK > 1:
        return []
    tensors = [torch.zeros(2) for _ in range(50)]
    works = [dist.isend(torch.full((2,), float(i)), 1, group=group) if RANK == 0 else dist.irecv(tensors[i], 0, group=group)
             for i in range(50)]
    for work in works:
        work.wait()
    return tensors if RANK == 1 else []


def batch_isend_irecv(group):
    arrived = torch.zeros(4)
    ops = [dist.P2POp(dist.isend, values(torch.float32, (4,)), (RANK + 1) % RANKS, group),
           dist.P2POp(dist.irecv, arrived, (RANK - 1) % RANKS, group)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return [arrived]


def objects(group):
    """Pickled ones, of several sizes."""
    gathered, told = [None] * RANKS, [{"rank": RANK}, "x" * 100 * RANK]
    dist.all_gather_object(gathered, list(range(RANK + 1)), group=group)
    dist.broadcast_object_list(told, 0, group=group)
    return [torch.tensor([sum(map(len, gathered)), told[0]["rank"], len(told[1])])]


def empty(group):
    tensor = torch.zeros(0)
    dist.all_reduce(tensor, group=group)
    dist.broadcast(tensor, 0, group=group)
    return [tensor]


def stress(group):
    """Many of many sizes, so that calls are kept, used again and given back."""
    tensors = [values(torch.float32, (1 + 7 * (i % 300),), seed=i) for i in range(400)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    return tensors


def cases():
    """(name, body, further arguments)"""
    for dtype in FLOATS + INTEGERS:
        for op in OPS:
            if op not in BITS or not dtype.is_floating_point:
                yield all_reduce, dtype, op, (5, 3)
                yield reduce, dtype, op, RANKS - 1
    for dtype in FLOATS + INTEGERS:
        yield broadcast, dtype, RANKS - 1
        yield all_gather, dtype, (3, 2)
        yield gather, dtype, RANKS - 1
        yield scatter, dtype, 0
    for shape in ((), (1,), (1000,), (300000,)):
        yield all_reduce, torch.float32, "SUM", shape
    messages = (send_in_turn, send_both_ways, tags, many_messages, batch_isend_irecv) if RANKS > 1 else ()
    for body in (all_reduce_strided, all_reduce_async, futures, all_gather_coalesced, barrier, *messages, objects, empty, stress):
        yield (body,)
    for dtype in (torch.float32, torch.float64, torch.int64):
        yield all_reduce_coalesced, dtype


# --- what gloo 1.13 lacks, or gets wrong (every other row of a tensor): (name, found, expected) ---

def without_gloo(group):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        blocks = [of_all(dtype, (4,), seed=rank) for rank in range(RANKS)]  # blocks[to][from]
        mine = [blocks[to][RANK] for to in range(RANKS)]
        expected = torch.stack(blocks[RANK]).sum(0).to(dtype)
        output = torch.zeros(4, dtype=dtype)
        dist.reduce_scatter(output, mine, group=group)
        yield f"reduce_scatter {dtype}", output, expected
        output = torch.zeros(4, dtype=dtype)
        dist._reduce_scatter_base(output, torch.cat(mine), group=group)
        yield f"_reduce_scatter_base {dtype}", output, expected
        output = torch.zeros(4 * RANKS, dtype=dtype)
        dist._all_gather_base(output, values(dtype, (4,)), group=group)
        yield f"_all_gather_base {dtype}", output, torch.cat(of_all(dtype, (4,)))
        output = torch.zeros(2 * RANKS, dtype=dtype)
        dist.all_to_all_single(output, values(dtype, (2 * RANKS,)), group=group)
        yield f"all_to_all_single {dtype}", output, torch.cat([sent[2 * RANK:2 * RANK + 2] for sent in of_all(dtype, (2 * RANKS,))])
    for dtype in (torch.float32, torch.bfloat16):
        tensor = values(dtype, (9,)) * RANKS
        dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group)
        yield f"all_reduce AVG {dtype}", tensor, torch.stack(of_all(dtype, (9,))).sum(0).to(dtype)
    tensor = values(torch.float32, (6, 4))[::2]
    dist.broadcast(tensor, RANKS - 1, group=group)
    yield "broadcast of every other row", tensor, values(torch.float32, (6, 4), RANKS - 1)[::2]
    tensors = [torch.zeros(4, 6).t() for _ in range(RANKS)]
    dist.all_gather(tensors, values(torch.float32, (4, 6)).t(), group=group)
    yield "all_gather of transposed tensors", torch.stack(tensors), torch.stack(of_all(torch.float32, (4, 6))).transpose(1, 2)
    # Rank s sends s + d rows to rank d.
    rows = [values(torch.float32, (RANK + to, 2), seed=to) for to in range(RANKS)]
    expected = [values(torch.float32, (source + RANK, 2), source, RANK) for source in range(RANKS)]
    output = torch.zeros(sum(map(len, expected)), 2)
    dist.all_to_all_single(output, torch.cat(rows), [len(part) for part in expected], [len(part) for part in rows], group=group)
    yield "all_to_all_single with splits", output, torch.cat(expected)
    outputs = [torch.zeros_like(part) for part in expected]
    dist.all_to_all(outputs, rows, group=group)
    yield "all_to_all", torch.cat(outputs), torch.cat(expected)
    output = torch.zeros(2, sum(map(len, expected))).t()
    dist.all_to_all_single(output, torch.cat(rows), [len(part) for part in expected], [len(part) for part in rows], group=group)
    yield "all_to_all_single with splits into a transposed tensor", output, torch.cat(expected)
    # As FSDP2 gathers: the input is this rank's part of the output.
    output = torch.zeros(5 * RANKS)
    output[5 * RANK:5 * RANK + 5] = values(torch.float32, (5,))
    dist._all_gather_base(output, output[5 * RANK:5 * RANK + 5], group=group)
    yield "_all_gather_base in place", output, torch.cat(of_all(torch.float32, (5,)))
    output = torch.zeros(70000 * RANKS)
    output[:70000] = values(torch.float32, (70000,))  # where rank 0's goes
    dist._all_gather_base(output, output[:70000], group=group)
    yield "_all_gather_base from the place of another rank", output, torch.cat(of_all(torch.float32, (70000,)))
    blocks = [of_all(torch.float32, (70000,), seed=rank) for rank in range(RANKS)]
    whole = torch.cat([blocks[to][RANK] for to in range(RANKS)])
    dist._reduce_scatter_base(whole[:70000], whole, group=group)
    yield "_reduce_scatter_base into its input", whole[:70000], torch.stack(blocks[RANK]).sum(0)


def subgroups():
    """Two groups at a time, one of them without this process."""
    for members in ([0], list(range(max(1, RANKS - 1))), list(range(RANKS))[::-1]):
        group = dist.new_group(sorted(members), backend="weft")
        if RANK in members:
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=group)
            assert tensor.tolist() == [len(members)] * 3
            dist.barrier(group=group)
            dist.destroy_process_group(group)
    print("case: groups of some ranks, which are destroyed", flush=True)


def refusals(group):
    """ValueError or RuntimeError with words, before anything travels."""
    for words, call in (("sparse", lambda: dist.all_reduce(torch.eye(2).to_sparse(), group=group)),
                        ("elements", lambda: group._allgather_base(torch.zeros(3 * RANKS), torch.zeros(2)).wait()),
                        ("in one call", lambda: group.allreduce_coalesced([torch.zeros(1), torch.zeros(1).long()]).wait())):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            assert words in str(error), error
            continue
        raise AssertionError(f"not refused: {words}")
    print("case: what cannot travel is refused", flush=True)


def ddp(gloo, group):
    """DistributedDataParallel as it is, over both backends."""
    import pytorch_job
    for case in (pytorch_job.CASES[1], pytorch_job.CASES[4], pytorch_job.CASES[7]):
        found = []
        for backend in (gloo, group):
            model, optimizer = case.make(RANK)
            wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=case.find_unused, bucket_cap_mb=0.05,
                                                          process_group=backend)
            losses = pytorch_job.train(case, wrapped, model, optimizer, None, RANK)
            found.append((losses, model.state_dict()))
        off = pytorch_job.require_close(case, "losses", found[1][0], found[0][0])
        for name, tensor in found[0][1].items():
            pytorch_job.require_close(case, name, found[1][1][name], tensor)
        print(f"case: DDP, {case.name}: {case.steps} steps, losses {off:.1g} apart", flush=True)


def compare_all():
    dist.init_process_group("weft", timeout=datetime.timedelta(seconds=60))
    group, gloo = dist.distributed_c10d._get_default_group(), dist.new_group(backend="gloo")
    assert dist.get_backend() == "weft"
    passed = 0
    for body, *arguments in cases():
        found, expected = body(group, *arguments), body(gloo, *arguments)
        name = " ".join(map(str, (body.__name__, *arguments)))
        assert len(found) == len(expected) and all(map(torch.equal, found, expected)), f"{name}: {found} instead of {expected}"
        passed += 1
    for name, found, expected in without_gloo(group):
        assert torch.equal(found, expected), f"{name}: {found} instead of {expected}"
        passed += 1
    print(f"case: {passed} operations are gloo's, or what they mean where gloo lacks them", flush=True)
    subgroups()
    refusals(group)
    ddp(gloo, group)
    dist.barrier()


def fault(kind):
    """Rank 1 goes wrong; rank 0 must be told, and soon."""
    dist.init_process_group("weft", timeout=datetime.timedelta(seconds=10))
    dist.barrier()
    try:
        if RANK == 1 and kind == "dies":
            os.kill(os.getpid(), 9)
        tensor = torch.zeros(7 if kind == "other size" and RANK == 1 else 5)
        if not (kind == "stays away" and RANK == 1):
            dist.all_reduce(tensor)
        else:
            dist.recv(tensor, 0)
    except RuntimeError as error:
        print(f"raised {type(error).__name__}: {error}", flush=True)
        sys.exit(3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    fault(sys.argv[2]) if sys.argv[1:2] == ["fault"] else compare_all()
