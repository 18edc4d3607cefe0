#!/usr/bin/env python3
"""weft.FsdpHooks with modules that only look like FSDP2's: what they are told, in which order, and that data arrives.

FSDP2 itself needs PyTorch 2.6 or newer: bench/fsdp2_hooks_check.py. Exit code 77 where this Python has no PyTorch.
"""

import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

if not importlib.util.find_spec("torch"):
    print(f"skipped: {sys.executable} has no PyTorch (Debian: python3-torch)")
    sys.exit(77)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import weft.torch as weft  # noqa: E402
from torch import nn  # noqa: E402
from weft.torch.plan import Parameter, Profile  # noqa: E402
from weft.torch.shard_plan import buckets_of, gather_waits, unit_order  # noqa: E402


class Fake(nn.Module):
    """The methods of FSDPModule that the hooks call; its forward gathers as FSDP2 does."""

    def __init__(self, children=()):
        super().__init__()
        self.layers = nn.ModuleList(children)
        self.weight = nn.Parameter(torch.ones(4))
        self.forward_list, self.backward_list = None, None

    def set_modules_to_forward_prefetch(self, modules):
        self.forward_list = modules

    def set_modules_to_backward_prefetch(self, modules):
        self.backward_list = modules

    def set_custom_all_gather(self, comm):
        self.gather = comm

    def set_custom_reduce_scatter(self, comm):
        self.reduce = comm

    def set_post_optim_event(self, event):
        raise AssertionError("only on GPUs")

    def forward(self, x):
        whole = self.gather.allocate((4,), dtype=torch.float32, device=torch.device("cpu"))
        self.gather(whole, self.weight.data, None, async_op=True).wait()
        x = x * whole
        for layer in self.layers:
            x = layer(x)
        return x


class Optimizer(torch.optim.SGD):
    """With the hook that newer versions have."""

    def register_step_post_hook(self, hook):
        self.hook = hook
        return self

    def remove(self):
        self.hook = None

    def step(self, closure=None):
        super().step(closure)
        if self.hook:
            self.hook(self, (), {})


class Hooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        dist.init_process_group("gloo", init_method=f"file://{cls.folder.name}/store", rank=0, world_size=1)

    def run_steps(self, model, optimizer, count):
        for _ in range(count):
            found = model(torch.full((4,), 2.0))
            self.assertEqual(found.tolist(), [2.0] * 4)  # all weights are one
            for layer in reversed([model, *model.layers]):
                whole = torch.ones(4)
                layer.reduce(torch.zeros(4), whole, None, dist.ReduceOp.SUM)
            optimizer.step()

    def test_lists_follow_the_order_of_forward(self):
        gathered = []
        real_gather, real_reduce = dist.all_gather_into_tensor, dist.reduce_scatter_tensor

        class Done:
            def wait(self):
                return True

        def all_gather(output, source, group=None, async_op=False):
            gathered.append(group)
            output.copy_(source)
            return Done()

        dist.all_gather_into_tensor, dist.reduce_scatter_tensor = all_gather, lambda *_, **__: Done()
        try:
            model = Fake([Fake() for _ in range(4)])
            optimizer = Optimizer([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
            hooks = weft.FsdpHooks(model, optimizer, make_group=lambda group, kind: f"weft {kind}")
            self.run_steps(model, optimizer, 1)
            self.assertIsNone(hooks.ahead)
            self.run_steps(model, optimizer, 2)
        finally:
            dist.all_gather_into_tensor, dist.reduce_scatter_tensor = real_gather, real_reduce
        self.assertIn(hooks.ahead, (1, 2, 3, 4))
        layers = [model, *model.layers]
        for place, layer in enumerate(layers):
            self.assertEqual(layer.forward_list, layers[place + 1:place + 1 + hooks.ahead])
            self.assertEqual(layer.backward_list, [other for other in reversed(layers[max(0, place - hooks.ahead):place])
                                                   if other is not model])
        self.assertEqual(set(gathered), {"weft gather"})
        self.assertFalse(model._forward_pre_hooks)  # nothing is measured any more

    def test_reductions_in_parts_are_whole_and_gathers_take_turns(self):
        # This rank is the first of two: of what is reduced it gets the first row. The second row must not leak into it.
        groups, real_gather, real_reduce = [], dist.all_gather_into_tensor, dist.reduce_scatter_tensor

        class Done:
            def wait(self):
                return True

        def reduce_scatter(output, whole, op=None, group=None, async_op=False):
            groups.append(group)
            output.copy_(whole.view(2, -1)[0])
            return Done()

        def all_gather(output, own, group=None, async_op=False):
            groups.append((group, async_op))
            return Done() if async_op else None

        dist.all_gather_into_tensor, dist.reduce_scatter_tensor = all_gather, reduce_scatter
        try:
            model = Fake([Fake() for _ in range(3)])
            made = []
            hooks = weft.FsdpHooks(model, Optimizer([torch.nn.Parameter(torch.zeros(1))], lr=0.1), ahead=2, communicators=2,
                                   make_group=lambda group, kind: made.append(kind) or f"{kind} {len(made)}")
            whole = torch.arange(14.0)
            output = torch.zeros(7)
            model.reduce(output, whole, None, dist.ReduceOp.SUM)
            self.assertEqual(output.tolist(), whole[:7].tolist())
            self.assertEqual(groups, ["reduce 1", "reduce 2"])
            groups.clear()
            for layer in (model, *model.layers):
                self.assertIsNotNone(layer.gather(torch.zeros(4), torch.zeros(2), None))  # FSDP2 must wait for it
            self.assertEqual(groups, [("gather 3", True), ("gather 4", True)] * 2)
            self.assertEqual(hooks.communicators, 2)
        finally:
            dist.all_gather_into_tensor, dist.reduce_scatter_tensor = real_gather, real_reduce

    def test_models_without_fsdp_are_refused(self):
        with self.assertRaisesRegex(weft.NotSupported, "fully_shard"):
            weft.FsdpHooks(nn.Linear(2, 2), Optimizer([torch.nn.Parameter(torch.zeros(1))], lr=0.1))


class Gathers(unittest.TestCase):
    def profile(self, wire_per_byte):
        """Three layers of 100 bytes; forward takes 1 s each, then backward 1 s each from the last to the first."""
        return Profile([Parameter(f"{i}.weight", 100, 1, "bytes", float(i), 6.0 - i) for i in range(3)], 6.0, 0.0, 0.0, wire_per_byte)

    def test_waits_by_hand(self):
        # A gather takes 0.5 s (half of an all-reduce). Forward: the first is waited for, 0.5 s; with one ahead the second is asked
        # for at 0 too, behind the first, and is there at 1.0, before it is needed. Backward: the last layer is still there; the
        # second is asked for when the last one's gradients are ready, and is there 0.5 s later; the first is hidden.
        units = {i: str(i) for i in range(3)}
        self.assertAlmostEqual(gather_waits(self.profile(0.01), units, 1), 0.5 + 0.5)
        # Without latency to hide, nothing waits.
        self.assertAlmostEqual(gather_waits(self.profile(0.0), units, 1), 0.0)

    def test_buckets_hold_whole_parameters_of_one_unit(self):
        profile = Profile([Parameter(str(i), 10, 4, "float32", float(i), 20.0 - i) for i in range(6)], 20.0, 0.0, 0.0, 0.0)
        units = {2: "a", 3: "a", 4: "b"}
        buckets = buckets_of(profile, 80, units)
        self.assertEqual([[part.parameter for part in bucket] for bucket in buckets], [[5], [4], [3, 2], [1, 0]])
        self.assertEqual(unit_order(profile, units), ["a", "b"])


class Plans(unittest.TestCase):
    def test_a_job_of_one_rank_is_left_alone(self):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = optimizer.step
        self.assertEqual(weft.overlap(model, optimizer), (model, optimizer))
        self.assertEqual((optimizer.step, len(model._forward_pre_hooks), optimizer.weft.plan), (step, 0, None))
        self.assertTrue(optimizer.weft.report()["aside"])

    def test_levels_that_do_not_exist_are_refused(self):
        model = nn.Linear(2, 2)
        with self.assertRaisesRegex(weft.NotSupported, "zero1, zero2, zero3"):
            weft.overlap(model, torch.optim.SGD(model.parameters(), lr=0.1), shard="zero4")


if __name__ == "__main__":
    unittest.main(verbosity=1)
