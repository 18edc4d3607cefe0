#!/usr/bin/env python3
"""tools/compare_builds.py must notice every changed digit, and its cases must meet every policy and every flag of a layout.

    compare_builds_selftest.py [WEFT]

The first half compares two scripts that stand for two builds. The second asks WEFT which flags and policies there are.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import build_cases  # noqa: E402
import compare_builds  # noqa: E402

WEFT = sys.argv.pop(1) if len(sys.argv) > 1 else None
ANSWER = {"version": "0.1.0", "bound_s": 0.29250000000000004, "policies": {"ddp": {"step_s": 1.5, "fits": True}},
          "sweep": {"seconds": 0.7, "rows": [1, 2]}}
TRAINING = {"policies": {"ddp": {"step_s": 0.1, "loss": 5.451375626027584, "losses": [5.5, 5.451375626027584]}}}
PLAN = build_cases.Case("plan", [["plan"]])
REFUSED = build_cases.Case("refused", [["plan"]], is_refused=True)
TRAIN = build_cases.Case("train", [["run"]], is_training=True)


class Builds:
    """Two programs, each with what it prints, writes and returns."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def program(self, name, out, files, code):
        text = out if isinstance(out, str) else json.dumps(out)
        lines = ["#!/usr/bin/env python3", "import sys", f"sys.stdout.write({text!r})"]
        lines += [f"open({file!r}, 'wb').write({content!r})" for file, content in files.items()]
        path = self.folder / name
        path.write_text("\n".join([*lines, f"sys.exit({code})", ""]))
        path.chmod(0o755)
        return str(path)

    def differences(self, old, new, files=({}, {}), codes=(0, 0), case=PLAN, allowed=()):
        programs = [self.program("old.py", old, files[0], codes[0]), self.program("new.py", new, files[1], codes[1])]
        with tempfile.TemporaryDirectory(dir=self.folder) as root:
            return compare_builds.compare_case(case, programs, Path(root), [re.compile(text) for text in allowed])[1]


class Comparison(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.builds = Builds(folder.name)

    def found(self, *arguments, **named):
        return self.builds.differences(*arguments, **named)

    def test_equal_answers_agree(self):
        self.assertEqual(self.found(ANSWER, ANSWER), [])

    def test_order_of_keys_does_not_matter(self):
        self.assertEqual(self.found(ANSWER, dict(reversed(ANSWER.items()))), [])

    def test_the_last_digit_matters(self):
        other = {**ANSWER, "bound_s": 0.2925}
        self.assertEqual(self.found(ANSWER, other), ["command 1, stdout: bound_s: 0.29250000000000004, 0.2925"])
        self.assertEqual(self.found(ANSWER, other, allowed=["stdout: bound_s"]), [])

    def test_digits_that_a_float_cannot_hold_matter(self):
        self.assertEqual(len(self.found('{"a": 9007199254740993}', '{"a": 9007199254740992}')), 1)
        self.assertEqual(len(self.found('{"a": 0.1}', '{"a": 0.10000000000000001}')), 1)

    def test_kinds_of_values_matter(self):
        for other in ("true", '"1"', "1.0", "null", "[1]"):
            self.assertEqual(len(self.found('{"a": 1}', f'{{"a": {other}}}')), 1, other)

    def test_missing_and_new_keys_are_named(self):
        self.assertEqual(self.found({"a": 1, "b": 2}, {"a": 1, "c": 2}),
                         ["command 1, stdout: b: only the old build has it",
                          "command 1, stdout: c: only the new build has it"])

    def test_lists_of_other_lengths_differ(self):
        self.assertEqual(len(self.found({"a": [1, 2]}, {"a": [1]})), 1)

    def test_renamed_keys_are_the_same(self):
        with mock.patch.dict(compare_builds.RENAMED_KEYS, {"a": "b"}):
            self.assertEqual(self.found({"a": 1}, {"b": 1}), [])
            self.assertEqual(self.found({"a": 1}, {"b": 2}), ["command 1, stdout: b: 1, 2"])

    def test_versions_and_durations_may_differ(self):
        other = {**ANSWER, "version": "0.2.0", "sweep": {"seconds": 0.9, "rows": [1, 2]}}
        self.assertEqual(self.found(ANSWER, other), [])
        self.assertEqual(self.found("8 combinations in 1.2 s\n", "8 combinations in 0.9 s\n"), [])

    def test_text_is_compared_by_lines(self):
        self.assertEqual(self.found("step 1.50 ms\nsame\n", "step 1.51 ms\nsame\n"),
                         ["command 1, stdout: new: step 1.51 ms", "command 1, stdout: old: step 1.50 ms"])

    def test_exit_codes_are_compared(self):
        self.assertEqual(self.found(ANSWER, ANSWER, codes=(0, 1)),
                         ["command 1, exit code: new: 1", "command 1, exit code: old: 0"])

    def test_a_refused_command_compares_nothing(self):
        self.assertEqual(len(self.found("", "", codes=(2, 2))), 1)
        self.assertEqual(self.found("", "", codes=(2, 2), case=REFUSED), [])
        self.assertEqual(len(self.found("", "", codes=(0, 0), case=REFUSED)), 1)

    def test_files_are_compared_but_those_of_plans(self):
        def files(text):
            return {"timeline.json": text}, {"timeline.json": b'{"a": 1}'}

        self.assertEqual(self.found(ANSWER, ANSWER, files=files(b'{"a": 1}')), [])
        self.assertEqual(self.found(ANSWER, ANSWER, files=files(b'{"a": 2}')), ["timeline.json: a: 2, 1"])
        self.assertEqual(len(self.found(ANSWER, ANSWER, files=({"w.bin": b"\xff1"}, {"w.bin": b"\xff2"}))), 1)
        self.assertEqual(len(self.found(ANSWER, ANSWER, files=({"rows.csv": b"1"}, {}))), 1)
        self.assertEqual(self.found(ANSWER, ANSWER, files=({"plan-ddp.json": b"1"}, {"plan-ddp.json": b"2"})), [])
        self.assertEqual(len(self.found(ANSWER, ANSWER, files=({"plan-ddp.json": b"1"}, {}))), 1)
        self.assertEqual(self.found(ANSWER, ANSWER, files=({}, {"step.svg": b"1"})), [])

    def test_only_expected_changes_may_be(self):
        old, less, more = ({"memory_peak_bytes": bytes} for bytes in (8, 7, 9))
        woven = build_cases.Case("plan-vpp", [["plan"]])
        self.assertEqual(self.found(old, less, case=woven), [])
        self.assertEqual(len(self.found(old, more, case=woven)), 1)
        self.assertEqual(len(self.found(old, less)), 1)
        self.assertEqual(len(self.found({"step_s": 8}, {"step_s": 7}, case=woven)), 1)

    def test_training_is_compared_by_losses_not_times(self):
        slower = json.loads(json.dumps(TRAINING))
        slower["policies"]["ddp"]["step_s"] = 0.2
        self.assertEqual(self.found(TRAINING, slower, case=TRAIN), [])
        self.assertEqual(len(self.found(TRAINING, slower)), 1)
        for loss in (5.451375626027583, 5.451375626027585):
            other = json.loads(json.dumps(TRAINING))
            other["policies"]["ddp"]["losses"][1] = loss
            self.assertEqual(len(self.found(TRAINING, other, case=TRAIN)), 1, loss)

    def test_a_missing_program_is_an_error(self):
        with open(os.devnull, "w") as quiet, mock.patch("sys.stderr", quiet):
            self.assertEqual(compare_builds.main(["/nowhere/weft", "/nowhere/weft"]), 2)


class Cases(unittest.TestCase):
    cases = build_cases.all_cases()
    commands = [command for case in cases for command in case.commands]

    def words(self, flag):
        """The values that some command, refused ones aside, gives to the flag."""
        commands = [command for case in self.cases if not case.is_refused for command in case.commands]
        return {word for command in commands for name, value in zip(command, command[1:]) if name == flag
                for word in value.split(",")}

    def test_names_are_unique_and_commands_many(self):
        self.assertEqual(len({case.name for case in self.cases}), len(self.cases))
        self.assertGreaterEqual(len(self.commands), 60)
        self.assertLessEqual({"plan", "simulate", "verify", "analyze", "collective", "run"},
                             {command[0] for command in self.commands if command})

    @unittest.skipUnless(WEFT, "no program given")
    def test_every_flag_of_layouts_and_policies_is_met_with_every_value(self):
        text = subprocess.run([WEFT, "plan", "--help"], capture_output=True, text=True, check=True).stdout
        met = {word for case in self.cases if not case.is_refused for command in case.commands for word in command}
        defaults = {"none", "flash", "padded", "1f1b", "interleaved", "bf16", "model"}
        for section in ("Layout", "Policy"):
            lines = text.split(f"\n{section}:\n")[1].split("\n\n")[0]
            flags = re.findall(r"^  (--[\w-]+)(?: +([\w-]+(?:\|[\w-]+)+))?", lines, re.M)
            self.assertGreater(len(flags), 5, section)
            for flag, values in flags:
                self.assertIn(flag, met)
                allowed = set(values.split("|")) - {"", "N", "X", "FILE"} - defaults
                self.assertLessEqual(allowed, self.words(flag), flag)

    @unittest.skipUnless(WEFT, "no program given")
    def test_every_policy_is_compared(self):
        """Layouts are planned without --policy: with all that apply to a dense model, and with those of experts too."""
        unknown = ["plan", "--layers", "2", "--hidden", "64", "--heads", "2", "--cluster", "dgx-a100:1", "--policy", "?"]
        refused = subprocess.run([WEFT, *unknown], capture_output=True, text=True, check=False)
        self.assertEqual(refused.returncode, 2)
        compared = set()
        for name in ("plan-dp", "plan-experts-ep"):
            case = next(case for case in self.cases if case.name == name)
            self.assertNotIn("--policy", case.commands[0])
            answer = subprocess.run([WEFT, *case.commands[0]], capture_output=True, text=True, check=True).stdout
            compared |= json.loads(answer)["policies"].keys()
        listed = set(re.split(r"[,\s]+", refused.stderr.split("allowed:")[-1].strip())) - {"megatron"}
        self.assertEqual(listed - compared, set())


if __name__ == "__main__":
    unittest.main()
