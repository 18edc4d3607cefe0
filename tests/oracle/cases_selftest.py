#!/usr/bin/env python3
"""The matrix holds what docs/oracle.md promises. Needs no torch."""

import itertools
import unittest

from cases import ALONE, FACTORS, LAYOUTS, QUICK_FACTORS, all_cases, allowed, alone, name_of, twice
from covering import allowed_pairs, covering_cases


def several_ranks(cases):
    return [case for case in cases if case["layout"] not in ALONE.values()]


def met(cases, *names):
    return {tuple(case[name] for name in names) for case in cases}


class Covering(unittest.TestCase):
    def test_covers_all_pairs_but_the_forbidden(self):
        factors = {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2]}
        rule = lambda case: case.get("a") != 3 or case.get("b", 1) == 1  # noqa: E731
        cases = covering_cases(factors, rule, allowed_pairs(factors, rule))
        self.assertEqual(met(cases, "a", "b"), {(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1)})
        self.assertEqual(met(cases, "a", "c"), set(itertools.product([1, 2, 3], [1, 2])))
        self.assertEqual(met(cases, "b", "c"), set(itertools.product([1, 2, 3], [1, 2])))
        self.assertLess(len(cases), 14)  # of 18 - 4 that there are

    def test_a_rule_that_leaves_nothing_is_noticed(self):
        factors = {"a": [1], "b": [1], "c": [1]}
        rule = lambda case: not ({"a", "c"} <= case.keys())  # noqa: E731
        with self.assertRaises(AssertionError):
            covering_cases(factors, rule, allowed_pairs(factors, rule))


class Matrix(unittest.TestCase):
    whole, quick = all_cases(quick=False), all_cases(quick=True)

    def test_the_whole_has_every_layout_with_everything(self):
        cases = several_ranks(self.whole)
        for name in ("policy", "model", "zero", "update", "recompute", "attention"):
            self.assertEqual(met(cases, "layout", name), set(itertools.product(FACTORS["layout"], FACTORS[name])), name)
        for a, b in itertools.combinations(sorted(set(FACTORS) - {"layout"}), 2):
            self.assertEqual(met(cases, a, b), set(itertools.product(FACTORS[a], FACTORS[b])), (a, b))

    def test_only_three_kinds_of_pairs_are_left_out(self):
        """Derived by hand: 24 sequences over dp and micro-batches; interleaving in rounds of two; orders of one axis."""
        counts = {layout: {m for at, m in met(several_ranks(self.whole), "layout", "micro_batches") if at == layout}
                  for layout in FACTORS["layout"]}
        for name, found in counts.items():
            expected = {1, 2, 3, 6, 8}
            if "dp" in name:
                expected -= {8}
            if "interleaved" in name:
                expected -= {1, 3}
            self.assertEqual(found, {8} if name == "tp2-pp2-odd" else expected, name)
        for name, order in itertools.product(FACTORS["layout"], FACTORS["mesh_order"]):
            one_axis = len([part for part in name.split("-") if part[-1].isdigit() or part.endswith("sp")]) == 1
            there = (name, order) in met(several_ranks(self.whole), "layout", "mesh_order")
            self.assertEqual(there, not one_axis or order == FACTORS["mesh_order"][0], (name, order))

    def test_the_quick_part_has_everything_with_both_models(self):
        cases = [case for case in several_ranks(self.quick) if case["model"] in QUICK_FACTORS["model"]]
        for name in set(FACTORS) - {"model"}:
            self.assertEqual(met(cases, "model", name),
                             set(itertools.product(QUICK_FACTORS["model"], QUICK_FACTORS[name])), name)

    def test_the_quick_part_has_every_way_to_cut_a_model_with_norms_on_queries_and_keys(self):
        layouts = [LAYOUTS[case["layout"]] for case in several_ranks(self.quick) if case["model"] == "qwen3"]
        self.assertEqual({(at.tp, at.sequence_parallel) for at in layouts}, {(1, False), (2, False), (2, True), (4, False)})
        for axis in ("cp", "dp", "pp"):
            self.assertIn(2, {getattr(at, axis) for at in layouts}, axis)

    def test_every_schedule_and_every_sharing_of_sequences_occurs(self):
        layouts = list(LAYOUTS.values())
        self.assertEqual({at.schedule for at in layouts if at.pp > 1}, {"gpipe", "1f1b", "interleaved"})
        self.assertEqual({at.seq % (2 * at.cp) == 0 for at in layouts if at.cp > 1}, {True, False})

    def test_every_run_can_be_run_and_has_its_baseline(self):
        for cases in (self.whole, self.quick):
            names = set(map(name_of, cases))
            self.assertEqual(len(names), len(cases))
            for case in cases:
                self.assertTrue(allowed(case), case)
                self.assertIn(name_of(alone(case)), names)

    def test_repeated_are_some_of_every_kind(self):
        self.assertEqual(met(twice(self.whole, quick=False), "layout"), {(name,) for name in FACTORS["layout"]})
        for cases, quick in ((self.whole, False), (self.quick, True)):
            for name in ("zero", "policy"):
                self.assertEqual(met(twice(cases, quick), name), {(value,) for value in FACTORS[name]})


if __name__ == "__main__":
    unittest.main()
