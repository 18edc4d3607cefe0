#!/usr/bin/env python3
"""The oracle must accept a training that was computed another way, and refuse it once any number is changed.

Exit code 77 where there is no torch (see oracle.py).
"""

import copy
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import oracle  # first: it says where there is no torch
import finite_differences as other
import reference_model
from records import BadRecord, read_record

ADAM = dict(name="adam", lr=1e-2, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1)
SGD = dict(name="sgd", lr=0.05, momentum=0.9, weight_decay=0.01)


def as_floats(record):
    """What a file keeps of it."""
    with tempfile.TemporaryDirectory() as folder:
        record.write(folder)
        return read_record(folder)


RECORDS = {
    "gpt": as_floats(other.make_record(other.GPT, ADAM, clip_grad=0.5)),
    "llama": as_floats(other.make_record(other.LLAMA, SGD, clip_grad=0)),
}

REFERENCES = {name: reference_model.train(record) for name, record in RECORDS.items()}


def changed(record, part, *path, by=None, to=None):
    """A copy in which one number, run[...] or a tensor's element, is another."""
    result = copy.deepcopy(record)
    holder = getattr(result, part)
    for key in path[:-1]:
        if hasattr(holder[key], "flags"):
            holder[key] = holder[key].copy()  # arrays from files are read-only
        holder = holder[key]
    holder[path[-1]] = to if by is None else holder[path[-1]] + by
    return result


class Oracle(unittest.TestCase):
    def assert_accepts(self, record):
        findings = oracle.check(record)
        self.assertTrue(oracle.agree(findings), "\n".join(oracle.summary(findings)))

    def assert_refuses(self, record, kind):
        failed = {f.kind for f in oracle.check(record) if f.failed}
        self.assertIn(kind, failed)

    def assert_refuses_result(self, label, record, kind):
        """The same, where only results are changed and the reference stays as it is."""
        failed = {f.kind for f in oracle.check_against(record, REFERENCES[label]) if f.failed}
        self.assertEqual(failed - {"moved"}, {kind})

    def test_accepts_what_finite_differences_give(self):
        for name, record in RECORDS.items():
            with self.subTest(name):
                self.assert_accepts(record)

    def test_accepts_in_double_precision_too(self):
        self.assertTrue(oracle.agree(oracle.check(RECORDS["gpt"], oracle.torch.float64)))

    def test_every_loss_counts(self):
        for step in range(2):
            loss = RECORDS["gpt"].run["losses"][step]
            self.assert_accepts(changed(RECORDS["gpt"], "run", "losses", step, by=2e-5 * loss))
            self.assert_refuses(changed(RECORDS["gpt"], "run", "losses", step, by=2e-4 * loss), "loss")
        self.assert_refuses(changed(RECORDS["gpt"], "run", "losses", 0, to=float("nan")), "loss")

    def test_every_gradient_counts(self):
        for label, record in RECORDS.items():
            for name, array in record.gradients.items():
                with self.subTest(f"{label} {name}"):
                    place = (0,) * array.ndim
                    by = 3e-5 * oracle.norm(array)
                    self.assert_refuses_result(label, changed(record, "gradients", name, place, by=by), "gradient")

    def test_every_weight_counts(self):
        for label, record in RECORDS.items():
            for name, array in record.final.items():
                with self.subTest(f"{label} {name}"):
                    place = (0,) * array.ndim
                    by = 3e-3 * oracle.norm(array)
                    self.assert_refuses_result(label, changed(record, "final", name, place, by=by), "weights")

    def test_a_tensor_that_never_moved_is_seen(self):
        for label, record in RECORDS.items():
            for name in record.final:
                with self.subTest(f"{label} {name}"):
                    stuck = copy.deepcopy(record)
                    stuck.final[name] = record.initial[name]
                    failed = {f.kind for f in oracle.check_against(stuck, REFERENCES[label]) if f.failed}
                    self.assertIn("moved", failed)

    def test_settings_count(self):
        gpt, llama = RECORDS["gpt"], RECORDS["llama"]
        for record, key, value in [(gpt, "lr", 1.1e-2), (gpt, "eps", 1e-3), (gpt, "weight_decay", 0.2),
                                   (gpt, "betas", [0.8, 0.95]), (llama, "momentum", 0.8), (llama, "lr", 0.06),
                                   (llama, "weight_decay", 0.02)]:
            with self.subTest(key):
                self.assert_refuses(changed(record, "run", "optimizer", key, to=value), "moved")
        self.assert_refuses(changed(llama, "run", "clip_grad", to=0.1), "moved")

    def test_the_schedule_counts(self):
        halved = {"style": "constant", "warmup": 2}
        self.assert_refuses(changed(RECORDS["gpt"], "run", "lr_schedule", to=halved), "moved")
        wrong = changed(RECORDS["gpt"], "run", "learning_rates", to=[1.1e-2] * len(RECORDS["gpt"].run["losses"]))
        self.assert_refuses(wrong, "rate")

    def test_validation_is_the_next_training_loss_on_its_batch(self):
        record = copy.deepcopy(RECORDS["gpt"])
        record.validation = record.batches[1:2]
        record.run["validation"] = [{"step": 1, "loss": record.run["losses"][1]}]
        self.assert_accepts(as_floats(record))
        self.assert_refuses(changed(record, "run", "validation", 0, "loss", by=1e-2), "validation")

    def test_the_model_counts(self):
        for key, value in [("activation", "gelu"), ("norm", "layer_norm"), ("positions", "learned"),
                           ("tied_embeddings", True), ("qkv_bias", False), ("vocab", 7)]:
            with self.subTest(key):
                try:
                    self.assert_refuses(changed(RECORDS["llama"], "run", "model", key, to=value), "loss")
                except (KeyError, RuntimeError):  # no such model can be built from these tensors
                    pass

    def test_every_token_counts(self):
        record = RECORDS["gpt"]
        wrong = copy.deepcopy(record)
        wrong.batches = record.batches.copy()
        wrong.batches[0, 0, 0] = (wrong.batches[0, 0, 0] + 1) % record.run["model"]["vocab"]
        self.assert_refuses(wrong, "loss")

    def test_a_missing_tensor_is_seen(self):
        for part, kind in (("gradients", "gradient"), ("final", "weights")):
            less = copy.deepcopy(RECORDS["gpt"])
            del getattr(less, part)["final_norm.bias"]
            self.assert_refuses(less, kind)


class Comparison(unittest.TestCase):
    def test_a_record_equals_itself(self):
        for identical in (False, True):
            self.assertTrue(oracle.agree(oracle.compare(RECORDS["gpt"], RECORDS["gpt"], identical)))

    def test_one_bit_is_not_identical_but_near(self):
        record = RECORDS["llama"]
        bits = record.final["head.weight"].view("uint32")[0, 0] + 1
        near = changed(record, "final", "head.weight", (0, 0), to=oracle.numpy.uint32(bits).view("float32"))
        self.assertTrue(oracle.agree(oracle.compare(near, record)))
        self.assertFalse(oracle.agree(oracle.compare(near, record, identical=True)))

    def test_other_starts_are_not_compared(self):
        for wrong in (changed(RECORDS["gpt"], "initial", "embedding.weight", (0, 0), by=1e-6),
                      changed(RECORDS["gpt"], "run", "clip_grad", to=0.25)):
            self.assertFalse(oracle.agree(oracle.compare(wrong, RECORDS["gpt"])))

    def test_other_results_differ(self):
        record = RECORDS["gpt"]
        for wrong in (changed(record, "run", "losses", 1, by=1e-2),
                      changed(record, "gradients", "final_norm.weight", (0,), by=1e-3),
                      changed(record, "final", "final_norm.weight", (0,), by=1e-2)):
            self.assertFalse(oracle.agree(oracle.compare(wrong, record)))


class Reading(unittest.TestCase):
    def test_says_what_is_wrong_with_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(BadRecord, "run.json"):
                read_record(folder)
            RECORDS["gpt"].write(folder)
            tokens = Path(folder, "batches.bin")
            tokens.write_bytes(tokens.read_bytes()[:-8])
            with self.assertRaisesRegex(BadRecord, "batches.bin: 19 tokens"):
                read_record(folder)


class CommandLine(unittest.TestCase):
    def run_oracle(self, *arguments):
        script = Path(__file__).parent / "oracle.py"
        return subprocess.run([sys.executable, str(script), *map(str, arguments)], capture_output=True, text=True)

    def test_exit_codes(self):
        record = RECORDS["gpt"]
        with tempfile.TemporaryDirectory() as scratch:
            good, bad, cut = Path(scratch, "good"), Path(scratch, "bad"), Path(scratch, "cut")
            record.write(good)
            changed(record, "run", "losses", 0, by=0.1).write(bad)
            record.write(cut)
            weights = (cut / "final.safetensors").read_bytes()
            (cut / "final.safetensors").write_bytes(weights[:-4])
            refused = self.run_oracle(good, bad)
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stdout, r"good: agree(.|\n)*bad: DIFFER\n +FAIL  loss .*step 1")
            self.assertEqual(self.run_oracle("--compare", good, good, "--identical").returncode, 0)
            broken = self.run_oracle(cut)
            self.assertEqual(broken.returncode, 2)
            self.assertIn("final.safetensors", broken.stderr)


if __name__ == "__main__":
    oracle.torch.set_num_threads(1)
    unittest.main()
