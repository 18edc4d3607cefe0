"""One rank of pytorch_test.py's jobs by the code for GPUs, on processors: pytorch_device_job.py PART, where PART is training, zero1,
zero2 or zero3. Transfers are torch.distributed's, over the backend "weft", which has all collectives; streams are not there. The cases of
pytorch_job.py and pytorch_shard_job.py against DistributedDataParallel on the same data."""

import collections
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

import pytorch_job as job
import pytorch_replan_job as replan
import pytorch_shard_job as shard
import torch
import torch.distributed as dist
import weft.torch as weft
from weft.torch.rehearsal import CHOICES
from weft.torch.agreed_plan import TRIED_CHOICES
from weft.torch.step_news import StepNews
from weft.torch.torch_wire import TorchWire

LANES = 2


class FakeStream:
    """A stream of a GPU that has always caught up, so that the code for streams runs here too. Counts what it is asked."""

    calls: collections.Counter = collections.Counter()

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, other):
        assert isinstance(other, FakeStream)
        self.calls["wait_stream"] += 1

    def wait_event(self, event):
        assert isinstance(event, FakeEvent)
        self.calls["wait_event"] += 1

    def record_event(self):
        return FakeEvent()


class FakeEvent:
    def __init__(self, **_):
        self.moment = time.perf_counter()

    def record(self):
        self.moment = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return 1e3 * (later.moment - self.moment)


def on_fake_streams():
    """From now on wires behave as on a GPU."""
    real_zeros, real_init = torch.zeros, TorchWire.__init__
    here = FakeStream()
    torch.cuda.Stream, torch.cuda.Event, torch.cuda.synchronize = FakeStream, FakeEvent, lambda *_: None
    torch.cuda.current_stream, torch.cuda.stream = lambda *_: here, lambda stream: contextlib.nullcontext()
    torch.Tensor.record_stream = lambda self, stream: FakeStream.calls.update(["record_stream"])
    torch.zeros = lambda *values, pin_memory=False, **named: real_zeros(*values, **named)  # only GPUs' hosts pin memory

    def init(self, rank, ranks, device, lanes=0):
        real_init(self, rank, ranks, device, lanes)
        self.on_gpu, self.update_stream, self.gather_stream = True, FakeStream(), FakeStream()
    TorchWire.__init__ = init


def streams(rank):
    """The code for streams trains DDP's losses where streams do nothing: it says nothing about their order."""
    on_fake_streams()
    job.compare(job.Case("a GPT, with streams", lambda: job.peer_gpt.Gpt(job.Sizes), job.gpt_loss, steps=12), rank)
    for level in weft.LEVELS:
        case = job.Case("layers, with streams", shard.Layers, shard.layers_loss, steps=12)
        job.compare(case, rank, level)
    assert min(FakeStream.calls[name] for name in ("wait_stream", "wait_event", "record_stream")) > 0, FakeStream.calls
    print(f"case: streams: {dict(FakeStream.calls)}", flush=True)


def overlap(model, optimizer, *, plan=None, shard=None, across_steps=True, per_parameter=False, lanes=LANES):
    """weft.overlap as it is on GPUs."""
    device = torch.device("cpu")
    wire = TorchWire(dist.get_rank(), dist.get_world_size(), device, lanes)
    weft.begin(model, optimizer, wire, device, plan, across_steps, shard or "", per_parameter)
    return model, optimizer


def rehearses(rank):
    """The ranks choose together, by a rehearsal and then by steps, and train on with what they chose."""
    case = job.Case("communicators by rehearsal", lambda: job.peer_gpt.Gpt(job.Sizes), job.gpt_loss, steps=20)
    model, optimizer = case.make(rank)
    overlap(model, optimizer, lanes=0)
    losses = job.train(case, model, model, optimizer, None, rank)
    report = optimizer.weft.report()
    assert len(report["rehearsed"]) == len(CHOICES), report
    tried = report["tried"]
    best = min(tried, key=tried.get)
    rehearsed = sorted(report["rehearsed"], key=lambda name: max(report["rehearsed"][name]))
    assert sorted(tried) == sorted(rehearsed[:TRIED_CHOICES]), report
    assert best.startswith(f"{report['communicators']} lanes"), (best, report)
    optimizer.weft.close()
    off = job.require_close(case, "losses", losses, job.with_ddp(case, rank)[0])
    print(f"case: {case.name}: {best} of {len(tried)} tried, losses {off:.1g} apart", flush=True)


def news(rank, ranks):
    """Every rank reads what any rank wished, of the same step, `LATER` steps later; and which parameters any rank has used, at once."""
    told = StepNews(TorchWire(rank, ranks, torch.device("cpu"), 1), 3)
    for step in range(12):
        wants = step % 3 == 0 and step % ranks == rank
        used = [True, step % ranks == rank, False]
        expected = step >= StepNews.LATER and (step - StepNews.LATER) % 3 == 0
        assert told.tell(wants, used) == expected, step
        assert told.used_by_any() == [True, True, False], step
    print("case: wishes and used parameters that all ranks read in the same step", flush=True)


def timelines(rank, streams):
    """Six steps are recorded; of all but the last every transfer has begun and ended, one after the other on each lane."""
    case = job.Case("timelines", lambda: job.peer_gpt.Gpt(job.Sizes), job.gpt_loss, steps=12)
    model, optimizer = case.make(rank)
    overlap(model, optimizer)
    optimizer.weft.record_timelines()
    job.train(case, model, model, optimizer, None, rank)
    with tempfile.TemporaryDirectory() as folder:
        optimizer.weft.save_timelines(folder)
        measured, predicted = (json.loads((Path(folder) / f"{kind}.json").read_text()) for kind in ("measured", "predicted"))
    transfers = len(optimizer.weft.plan.transfers)
    for shown in (measured, predicted):
        numbers = {i: operation["transfer"] for i, operation in enumerate(shown["operations"]) if "traffic" in operation}
        assert sorted(numbers.values()) == list(range(transfers)), numbers
    numbers = {i: operation["transfer"] for i, operation in enumerate(measured["operations"]) if "traffic" in operation}
    for step in range(5):
        ends = {}
        for operation, iteration, *_, begin, end in sorted(measured["spans"], key=lambda row: row[4]):
            if iteration == step and operation in numbers:
                lane = numbers[operation] % LANES
                assert ends.get(lane, begin) <= begin <= end, (step, numbers[operation])
                ends[lane] = end
        assert ends, step
    optimizer.weft.close()
    print(f"case: timelines{', with streams' if streams else ''}: {transfers} transfers in each of 5 steps", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("weft")
    weft.overlap = overlap  # what the other files call
    part, rank, ranks = sys.argv[1], dist.get_rank(), dist.get_world_size()
    if part == "training":
        for case in job.CASES if ranks == 2 else job.CASES[3:4] + job.CASES[7:8]:
            job.compare(case, rank)
        news(rank, ranks)
        if ranks == 2:
            timelines(rank, streams=False)
            rehearses(rank)
            replan.replans(rank)
            replan.stands_aside(rank)
            streams(rank)
            timelines(rank, streams=True)
    else:
        unused = [case for case in shard.CASES if case.find_unused]
        few = unused if ranks > 2 else shard.CASES[-3:] + unused  # all of them with ZeRO 3, which does the most
        for case in shard.CASES if part == "zero3" and ranks == 2 else few:
            job.compare(case, rank, part)
        if ranks == 2:
            shard.holdings(part, rank, ranks)
            shard.checkpoints(part, rank)
    dist.barrier()


if __name__ == "__main__":
    sys.exit(main())
