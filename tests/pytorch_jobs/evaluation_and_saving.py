"""Evaluation between steps, checkpoints, copies, and what else looks at a whole model."""

import copy
import io
import pickle

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from .kit import CLASSES, UNSHARDED, WIDTH, Picture, job_kind, perceptron


def one_step(wrapped, optimizer, x, y):
    optimizer.zero_grad()
    F.mse_loss(wrapped(x), y).backward()
    optimizer.step()


def picture_step(job, wrapped, optimizer):
    optimizer.zero_grad()
    loss = F.cross_entropy(wrapped(job.normal(6, 3, 8, 8)), job.integers(CLASSES, 6))
    loss.backward()
    optimizer.step()
    return loss


@job_kind()
def evaluation_between_steps(job):
    model = Picture()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    for step, _ in job.batches():
        job.note("loss", picture_step(job, wrapped, optimizer))
        if step % 3 == 2:
            wrapped.eval()
            with torch.no_grad():
                job.note("right", wrapped(job.normal(6, 3, 8, 8)).argmax(1))
            wrapped.train()
    job.finish(wrapped)


@job_kind()
def evaluation_of_the_bare_model(job):
    """DDP's wrapper gives every rank the statistics of rank 0 before an evaluation; what it wraps does not. Weft has one model, which does, so
    only rank 0 is compared."""
    model = Picture()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.01))
    for step, _ in job.batches():
        picture_step(job, wrapped, optimizer)
        model.eval()
        with torch.no_grad():
            scores, part = model(torch.ones(2, 3, 8, 8)), model.features(torch.ones(1, 3, 8, 8))
        if job.rank == 0:
            job.note("scores", scores)
            job.note("part", part)
        model.train()
    job.finish(dict(model.named_parameters()))


@job_kind()
def evaluation_in_inference_mode(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if step in (2, 7, 8):
            with torch.inference_mode():
                job.note("loss", F.mse_loss(model(x), y))
    job.finish(wrapped)


@job_kind()
def evaluation_in_inference_mode_before_training(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    with torch.inference_mode():
        job.note("before", model(torch.ones(2, WIDTH)))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
    with torch.inference_mode():
        job.note("after", model(torch.ones(2, WIDTH)))
    job.finish(wrapped)


@job_kind(modes=("plain", "within", "aside", "zero1", "zero2"), why="ZeRO 3 has no weights to evaluate on one rank alone")
def evaluation_on_rank_0(job):
    """The bare model, while the other rank goes on to the next step."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if job.rank == 0 and step % 3 == 1:
            model.eval()
            with torch.no_grad():
                job.note("loss", F.mse_loss(model(torch.ones(4, WIDTH)), torch.ones(4, CLASSES)))
            model.train()
    job.finish(wrapped)


@job_kind(modes=("plain", "within", "aside", "zero1", "zero2"), why="ZeRO 3 has no weights to evaluate on one rank alone")
def evaluation_on_rank_0_with_a_barrier(job):
    import time
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if step % 4 == 3:
            if job.rank == 0:
                time.sleep(0.02)
                with torch.no_grad():
                    job.note("loss", F.mse_loss(model(x), y))
            dist.barrier()
    job.finish(wrapped)


@job_kind(modes=UNSHARDED, why="states of shards are read by all ranks together")
def saving_on_rank_0(job):
    """if rank == 0: torch.save(...), of model, optimizer and scheduler."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        scheduler.step()
        if step % 4 == 3 and job.rank == 0:
            file = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)
            file.seek(0)
            job.finish(torch.load(file)["model"], torch.load(io.BytesIO(file.getvalue()))["optimizer"]["state"])
    job.finish(wrapped)


@job_kind()
def saving_on_all_ranks(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if step % 5 == 4:
            file = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.seek(0)
            job.finish(torch.load(file))
    job.finish(wrapped)


@job_kind()
def rollback(job):
    """Model and optimizer go back to a checkpoint in memory after a bad step."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    kept = None
    for step, (x, y) in job.batches(16):
        one_step(wrapped, optimizer, x, y)
        if step in (1, 6, 11):
            kept = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        if step in (8, 14):
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
    job.finish(wrapped, optimizer)


@job_kind()
def resumed_before_wrapping(job):
    """A checkpoint of the same job with one process is loaded before, another after wrapping.
    PyTorch 2.x trains on in the tensors that it is given to load, so each is a copy."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    x, y = torch.ones(3, WIDTH), torch.zeros(3, CLASSES)
    for _ in range(2):
        one_step(model, optimizer, x, y)
    saved = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    torch.manual_seed(99)
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(copy.deepcopy(saved[1]))
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches(6):
        one_step(wrapped, optimizer, x, y)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(copy.deepcopy(saved[1]))
    for step, (x, y) in job.batches(6):
        one_step(wrapped, optimizer, x, y)
    job.finish(wrapped, optimizer)


@job_kind()
def deep_copies(job):
    """The best model so far is kept by copy.deepcopy(model), which is used alone."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if step in (0, 5, 9):
            best = copy.deepcopy(model)
            with torch.no_grad():
                job.note("scores", best(x))
    best.zero_grad(set_to_none=True)
    F.mse_loss(best(torch.ones(2, WIDTH)), torch.ones(2, CLASSES)).backward()
    torch.optim.SGD(best.parameters(), lr=0.1).step()
    job.finish(wrapped, best)


@job_kind()
def whole_model_saved(job):
    """torch.save(model), not its state_dict."""
    model = Picture()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
    for step, _ in job.batches():
        picture_step(job, wrapped, optimizer)
        if step in (1, 6):
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            loaded = torch.load(file, **({"weights_only": False} if torch.__version__ >= "2" else {}))
            loaded.eval()
            with torch.no_grad():
                job.note("scores", loaded(torch.ones(2, 3, 8, 8)))
    job.finish(wrapped, loaded)


@job_kind()
def model_pickled(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
    loaded = pickle.loads(pickle.dumps(model))
    job.note("scores", loaded(torch.ones(1, WIDTH)))
    one_step(wrapped, optimizer, torch.ones(2, WIDTH), torch.ones(2, CLASSES))
    job.finish(wrapped, loaded)


@job_kind()
def optimizer_copied(job):
    """copy.deepcopy of the optimizer's state and of a scheduler's."""
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    wrapped, optimizer = job.wrap(model, optimizer)
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if step == 6:
            job.finish(pickle.loads(pickle.dumps(optimizer.state_dict())))
    job.finish(wrapped)


@job_kind()
def scripted_after(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if step in (3, 11):
            model.eval()
            scripted = torch.jit.script(model)
            job.note("scores", scripted(torch.ones(1, WIDTH)))
            model.train()
    job.finish(wrapped)


@job_kind()
def traced_after(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if step in (3, 11):
            traced = torch.jit.trace(model, torch.ones(1, WIDTH))
            job.note("scores", traced(torch.ones(3, WIDTH)))
    job.finish(wrapped)


@job_kind()
def scripted_before(job):
    model = torch.jit.script(perceptron())
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
    job.finish(wrapped)


@job_kind()
def traced_before(job):
    model = torch.jit.trace(perceptron(), torch.ones(1, WIDTH))
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
    job.finish(wrapped)


@job_kind()
def scripted_part(job):
    """A layer inside is scripted; its weights are read by code that is no Python."""
    model = nn.Sequential(nn.Linear(WIDTH, 16), torch.jit.script(nn.Sequential(nn.Linear(16, 16), nn.ReLU())), nn.Linear(16, CLASSES))
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
    job.finish(wrapped)


@job_kind()
def symbolically_traced(job):
    """fx before and after."""
    import torch.fx
    model = torch.fx.symbolic_trace(perceptron())
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if step == 8:
            again = torch.fx.symbolic_trace(model)
            with torch.no_grad():
                job.note("scores", again(x))
    job.finish(wrapped)


@job_kind()
def undone_in_the_middle(job):
    """The job goes on alone after the ranks have parted."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches(8):
        one_step(wrapped, optimizer, x, y)
    model = job.unwrap(wrapped, optimizer)
    for step, (x, y) in job.batches(4):
        one_step(model, optimizer, x, y)
    job.finish(model, optimizer)


@job_kind()
def undone_at_once(job):
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches(1):
        one_step(wrapped, optimizer, x, y)
    model = job.unwrap(wrapped, optimizer)
    for step, (x, y) in job.batches(4):
        one_step(model, optimizer, x, y)
    job.finish(copy.deepcopy(model))


@job_kind()
def metrics_over_all_ranks(job):
    """Losses are averaged and gathered by torch.distributed in between."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (x, y) in job.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(wrapped(x), y)
        loss.backward()
        optimizer.step()
        parts = [torch.zeros(()) for _ in range(job.ranks)]
        dist.all_gather(parts, loss.detach())
        job.note("losses", [part.item() for part in parts])
    checksum = sum(parameter.double().sum() for parameter in model.parameters()).detach()
    dist.all_reduce(checksum)
    job.note("checksum", checksum)
    job.finish(wrapped)


@job_kind(modes=UNSHARDED, why="ranks that end at different steps cannot read shards together")
def weights_compared_between_ranks(job):
    """A consistency check that many loops have: rank 0's weights are broadcast and compared."""
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
        if step % 4 == 2:
            vector = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
            mine = vector.clone()
            dist.broadcast(vector, 0)
            job.note("same", bool((vector == mine).all()))
    job.finish(wrapped)


@job_kind(has_group=False, devices=("cpu",))
def group_made_after_wrapping(job):
    """init_process_group after overlap, at the address that the launcher said. DDP needs it before."""
    if job.with_ddp:
        dist.init_process_group("gloo")
    model = perceptron()
    wrapped, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    if not job.with_ddp:
        dist.init_process_group("gloo")
    for step, (x, y) in job.batches():
        one_step(wrapped, optimizer, x, y)
    sums = torch.ones(1)
    dist.all_reduce(sums)
    job.note("ranks", sums)
    job.finish(wrapped)
