#!/usr/bin/env python3
"""The plans of weft.torch: steps played by hand, every order tried by brute force, and cuts that lose nothing.

Exit code 77 where this Python has no PyTorch.
"""

import copy
import importlib.util
import itertools
import json
import random
import sys
import unittest
from pathlib import Path

if not importlib.util.find_spec("torch"):
    print(f"skipped: {sys.executable} has no PyTorch (Debian: python3-torch)")
    sys.exit(77)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import torch  # noqa: E402
import weft.torch as weft  # noqa: E402
from weft.torch.errors import PlanMismatch  # noqa: E402
from weft.torch.plan import (Parameter, Part, Profile, make_plan, plan_aside, play, read_plan,  # noqa: E402
                             require_whole_parameters, transfers_of)
from weft.torch.shard_plan import make_sharded_plan  # noqa: E402
from weft.torch.shards import even_borders, whole_borders  # noqa: E402
from weft.torch.timeline import StepRecord, predicted_steps, timeline_json  # noqa: E402

MIB = 1 << 20


def chain(layers, elements, wire_per_byte, latency=0.0):
    """Layers whose forward and backward take a second each."""
    parameters = [Parameter(f"{i}.weight", elements, 4, "float32", float(i), float(2 * layers - i)) for i in range(layers)]
    return Profile(parameters, 2.0 * layers, 0.0, latency, wire_per_byte)


def whole(profile):
    return [(Part(i, 0, parameter.elements),) for i, parameter in enumerate(profile.parameters)]


class Groups(unittest.TestCase):
    def test_the_last_groups_are_small(self):
        # Four layers of a mebibyte, the last one ready first. With up to 8 MiB together the second joins the first, because 1 MiB is
        # less than half of the 3 that are still to come; then 2 MiB are not less than half of 2, nor 1 of 1: both begin anew.
        groups = [[part.parameter for part in transfer] for transfer in transfers_of(chain(4, MIB // 4, 0), 16 * MIB, 8 * MIB)]
        self.assertEqual(groups, [[3, 2], [1], [0]])
        # By default modules stay apart.
        self.assertEqual(len(transfers_of(chain(4, MIB // 4, 0), 16 * MIB)), 4)

    def test_small_modules_travel_together_where_the_wire_is_fast(self):
        # 64 layers of 66 KiB that travel in no time at all: what counts is the host's time for each transfer. In the slow case a
        # transfer takes as long as a layer computes, and fewer than one for each layer would wait for each other.
        self.assertLess(len(make_plan(chain(64, 66 * 256, 0.0), 2).transfers), 16)
        self.assertGreater(len(make_plan(chain(64, 66 * 256, 1.0 / (66 * 1024)), 2).transfers), 16)


class Playing(unittest.TestCase):
    def test_nothing_waits_on_a_wire_that_is_fast_enough(self):
        # Each transfer takes half a second. The first layer's is over half a second after backward, in the next forward.
        self.assertAlmostEqual(play(chain(4, 1000, 0.5 / 4000), whole(chain(4, 1000, 0))).step, 8.5)

    def test_whole_gradients_by_hand(self):
        # Two layers, 3 s on the wire each. Backward ends at 4 s; the second layer's gradient is there at 3 s and travels
        # until 6, the first one's until 9: the next forward begins 5 s late, and the step takes 4 + 5 s.
        profile = chain(2, 1000, 3 / 4000)
        played = play(profile, whole(profile))
        self.assertEqual(played.order, [1, 0])
        self.assertAlmostEqual(played.step, 9.0)

    def test_parts_let_the_urgent_gradient_pass(self):
        # The second layer in three parts: one travels from 3 to 4 s, then the first layer until 7, then the rest until 9.
        # The first forward begins 3 s late, the second waits until 9 s instead of 4 + 3 + 1 s: 4 s late in all.
        profile = chain(2, 3000, 3 / 12000)
        transfers = [(Part(1, i * 1000, (i + 1) * 1000),) for i in range(3)] + [(Part(0, 0, 3000),)]
        played = play(profile, transfers)
        self.assertEqual(played.order, [0, 3, 1, 2])
        self.assertAlmostEqual(played.step, 8.0)

    def test_no_step_is_shorter_than_its_compute_or_its_transfers(self):
        generator = random.Random(5)
        for _ in range(200):
            profile = chain(generator.randint(1, 6), generator.randint(1, 5000), generator.uniform(0, 1e-3), generator.uniform(0, 0.1))
            transfers = transfers_of(profile, generator.choice((256, 1024, MIB)))
            on_wire = sum(profile.seconds_on_wire(sum(part.end - part.begin for part in transfer) * 4) for transfer in transfers)
            step = play(profile, transfers, steps=12).step
            self.assertGreaterEqual(step, max(profile.compute, on_wire) - 1e-9)

    def test_orders_by_urgency_are_near_the_best_of_all_orders(self):
        # Transfers are not interrupted, so an urgent one may come while another travels: with these large ones, 12 % at most.
        generator = random.Random(6)
        for _ in range(12):
            profile = chain(generator.randint(2, 3), 1000, generator.uniform(0, 2e-3))
            transfers = [transfer for i in range(len(profile.parameters)) for transfer in ((Part(i, 0, 500),), (Part(i, 500, 1000),))]
            best = min(play(profile, transfers, order).step for order in itertools.permutations(range(len(transfers))))
            self.assertLessEqual(play(profile, transfers).step, 1.15 * best)

    def test_a_given_order_is_kept(self):
        profile = chain(3, 10, 1e-3)
        self.assertEqual(play(profile, whole(profile), [0, 2, 1]).order, [0, 2, 1])


class Plans(unittest.TestCase):
    def test_files_say_what_the_plan_says(self):
        plan = make_plan(chain(5, 700_001, 2e-8, 1e-4), 2)
        self.assertEqual(read_plan(plan.to_json()), plan)

    def test_plans_are_no_slower_than_ready_order(self):
        for wire in (1e-9, 1e-8, 1e-7, 1e-6):
            profile = chain(6, 300_000, wire, 1e-3)
            self.assertLessEqual(make_plan(profile, 2).predicted_step, make_plan(profile, 2, across_steps=False).predicted_step + 1e-9)

    def test_every_element_travels_once(self):
        generator = random.Random(7)
        for _ in range(100):
            count = generator.randint(1, 12)
            parameters = [Parameter(str(i), generator.choice((1, 3, 1000, 200_001)), 4, generator.choice(("float32", "float16")),
                                    generator.random(), 1 + generator.random()) for i in range(count)]
            profile = Profile(parameters, 3.0, 0.0, 1e-4, 1e-8)
            read_plan(make_plan(profile, 2).to_json())  # which checks it

    def test_lost_and_doubled_pieces_are_refused(self):
        text = make_plan(chain(2, 1000, 1e-6), 2).to_json()
        data = json.loads(text)
        for change in (lambda transfers: transfers.pop(), lambda transfers: transfers.append(transfers[0]), lambda transfers: transfers[0][0].__setitem__(2, 999),
                       lambda transfers: transfers[0][0].__setitem__(0, 9), lambda transfers: transfers.append([])):
            changed = copy.deepcopy(data)
            change(changed["transfers"])
            with self.assertRaises(PlanMismatch):
                read_plan(json.dumps(changed))


class Timelines(unittest.TestCase):
    def setUp(self):
        self.plan = make_plan(chain(4, 700_001, 3e-7, 1e-4), 2)
        self.timeline = json.loads(timeline_json("predicted", self.plan, predicted_steps(self.plan), 0))

    def spans_of(self, queue):
        rows = [row for row in self.timeline["spans"] if self.timeline["operations"][row[0]]["queue"] == queue]
        return sorted((row[4], row[5]) for row in rows)

    def test_a_queue_does_one_thing_at_a_time(self):
        for queue in (0, 1):
            spans = self.spans_of(queue)
            for (_, end), (begin, _) in zip(spans, spans[1:]):
                self.assertLessEqual(end, begin + 1)  # rounded to nanoseconds

    def test_steps_are_as_long_as_the_plan_predicts(self):
        self.assertAlmostEqual(self.timeline["steady"]["period"] / 1e9, self.plan.predicted_step, 6)

    def test_computation_is_all_there(self):
        # Five steps of four layers, each a second forward and one backward; there are no updates.
        self.assertAlmostEqual(sum(end - begin for begin, end in self.spans_of(0)) / 1e9, 5 * 8.0, 6)

    def test_every_byte_is_there_in_every_step(self):
        operations = [operation for operation in self.timeline["operations"] if operation["queue"] == 1]
        self.assertEqual(sum(operation["bytes"] for operation in operations), 4 * 700_001 * 4)
        self.assertEqual(len(self.spans_of(1)), 5 * len(operations))


class StandingAside(unittest.TestCase):
    def test_only_where_all_communication_is_below_a_percent(self):
        # Two layers of 4000 bytes travel in one transfer of 8000 bytes; compute takes 4 s, and 4 / 99 s of communication are 1 %.
        limit = 4.0 / 99
        self.assertTrue(plan_aside(chain(2, 1000, 0.99 * limit / 8000), 2).aside)
        self.assertIsNone(plan_aside(chain(2, 1000, 1.01 * limit / 8000), 2))
        # Latency counts once.
        self.assertTrue(plan_aside(chain(2, 1000, 0.0, latency=0.99 * limit), 2).aside)
        self.assertIsNone(plan_aside(chain(2, 1000, 0.0, latency=1.01 * limit), 2))

    def test_gradients_travel_in_as_few_transfers_as_there_may_be(self):
        # 40 layers of a mebibyte in transfers of at most 16 MiB.
        self.assertEqual(len(plan_aside(chain(40, MIB // 4, 0.0), 2).transfers), 3)

    def test_it_is_kept_in_files(self):
        plan = plan_aside(chain(2, 1000, 0.0), 2)
        self.assertEqual(read_plan(plan.to_json()), plan)
        self.assertNotIn("aside", make_plan(chain(2, 1000, 1.0), 2).to_json())


class Sharded(unittest.TestCase):
    def test_plans_are_kept_in_files_and_hold_whole_parameters(self):
        profile = chain(4, 1000, 1e-5)
        plan = make_sharded_plan(profile, 2, "zero3", {1: "a", 2: "b"}, 1)
        self.assertEqual((plan.shard, plan.units), ("zero3", ("a", "b")))
        read = read_plan(plan.to_json())
        self.assertEqual(read, plan)
        require_whole_parameters(read, "plan")
        with self.assertRaisesRegex(PlanMismatch, "a part of [01].weight in a sharded plan"):
            require_whole_parameters(make_plan(chain(2, 3 << 20, 1.0), 2), "plan")

    def test_owners_of_whole_parameters_are_balanced(self):
        # By hand: 8 to rank 0, 7 to rank 1, 3 to rank 1 (7 < 8), 2 to rank 0 (8 < 10).
        self.assertEqual(whole_borders([3, 8, 2, 7], 2), [[0, 0, 3], [0, 8, 8], [0, 2, 2], [0, 0, 7]])

    def test_slices_cover_every_element_once(self):
        for elements in (0, 1, 2, 7, 100):
            for ranks in (1, 2, 3, 8):
                borders = even_borders(elements, ranks)
                self.assertEqual((borders[0], borders[-1]), (0, elements))
                self.assertTrue(all(0 <= b - a <= -(-elements // ranks) for a, b in zip(borders, borders[1:])))


class Recording(unittest.TestCase):
    def test_transfers_of_one_lane_begin_when_the_one_before_has_ended(self):
        # Moments are half seconds here. Three transfers are started at 1, 2 and 3; the first takes until 4 and the second until 5. On two
        # lanes the third waits for the first alone, on one lane each waits for the one before.
        record = StepRecord(0, gates=[("head", 1, 6, [(1, 2), (3, 5)])], readies=[("weight", 8)], transfers=[(1, 4), (2, 5), (3, 7)])
        on_two, on_one = (record.in_seconds(lambda moment: moment / 2, lanes) for lanes in (2, 1))
        self.assertEqual(on_two.transfers, [(0.5, 2.0), (1.0, 2.5), (2.0, 3.5)])
        self.assertEqual(on_one.transfers, [(0.5, 2.0), (2.0, 2.5), (2.5, 3.5)])
        # The stream waited from 1 to 2 and from 3 to 5.
        self.assertEqual(on_two.gates, [("head", 0.5, 3.0, 1.5)])
        self.assertEqual(on_two.readies, [("weight", 4.0)])


class JobOfOneRank(unittest.TestCase):
    def make(self, **options):
        model = torch.nn.Linear(2, 1)
        return weft.overlap(model, torch.optim.SGD(model.parameters(), lr=0.5), **options)

    def test_scripts_for_several_ranks_run(self):
        # By hand: the gradient of w . (1, 2) is (1, 2), with two passes (2, 4), and half of it is taken off.
        model, optimizer = self.make()
        before = model.weight.detach().clone()
        with model.no_sync():
            model(torch.tensor([[1.0, 2.0]])).sum().backward()
        model(torch.tensor([[1.0, 2.0]])).sum().backward()
        optimizer.step()
        optimizer.weft.synchronize()
        self.assertTrue(torch.allclose(before - model.weight, torch.tensor([[1.0, 2.0]])))
        self.assertIsNone(optimizer.weft.plan)
        self.assertTrue(optimizer.weft.report()["aside"])
        optimizer.weft.close()
        self.assertFalse(hasattr(optimizer, "weft") or hasattr(model, "no_sync"))

    def test_plans_that_cannot_be_read_are_named(self):
        with self.assertRaisesRegex(PlanMismatch, "nowhere.json: cannot be read: No such file"):
            self.make(plan="nowhere.json")
        with self.assertRaisesRegex(weft.WeftError, "called before"):
            weft.overlap(*self.make())


if __name__ == "__main__":
    unittest.main()
