#!/usr/bin/env python3
"""Shows that the layer check can fail: each test builds a small tree with one fault and expects it to be named."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parent / "layers_test.py"

CLEAN = {
    "layers.txt": "# comment\nbase:\nmodel: base\n",
    "base/error.hpp": "#include <vector>\n",
    "model/shape.hpp": '#include "base/error.hpp"\n',
    "model/shape.cpp": '#include "model/shape.hpp"\n',
}


def check(changes):
    """Runs the check on the clean tree with `changes` applied; returns (exit status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**CLEAN, **changes}.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class Layers(unittest.TestCase):
    def expect_failure(self, changes, *facts):
        status, output = check(changes)
        self.assertEqual(status, 1, output)
        for fact in facts:
            self.assertIn(fact, output)

    def test_clean_tree_passes(self):
        status, output = check({})
        self.assertEqual(status, 0, output)

    def test_forbidden_include_is_named_with_line_arrow_and_what_is_allowed(self):
        self.expect_failure({"base/error.cpp": '// why\n#include "model/shape.hpp"\n'},
                            "base/error.cpp:2:", "base -> model", "base may include: nothing")

    def test_indented_include_does_not_hide(self):
        self.expect_failure({"base/error.cpp": '#  include   "model/shape.hpp"\n'}, "base -> model")

    def test_forbidden_include_in_a_subfolder_counts_for_its_layer(self):
        self.expect_failure({"base/detail/x.hpp": '#include "model/shape.hpp"\n'}, "base -> model")

    def test_unknown_folder_is_named(self):
        self.expect_failure({"utils/x.hpp": "\n"}, "utils: layers.txt does not name this folder")

    def test_cycle_is_shown(self):
        self.expect_failure({"layers.txt": "base: model\nmodel: base\n"}, "cycle: base -> model -> base")

    def test_include_of_oneself_is_a_cycle(self):
        self.expect_failure({"layers.txt": "base: base\nmodel: base\n"}, "cycle: base -> base")

    def test_include_relative_to_its_own_folder_is_refused(self):
        self.expect_failure({"model/shape.cpp": '#include "shape.hpp"\n'}, "model/shape.cpp:1:", "src root")

    def test_parent_path_is_refused(self):
        self.expect_failure({"base/error.cpp": '#include "../model/shape.hpp"\n'}, "src root")

    def test_own_header_in_angle_brackets_is_refused(self):
        self.expect_failure({"base/error.cpp": "#include <model/shape.hpp>\n"}, "base/error.cpp:1:")

    def test_source_outside_any_folder_is_refused(self):
        self.expect_failure({"main.cpp": "\n"}, "must live in a folder")

    def test_tests_may_include_what_their_line_says_and_code_may_not(self):
        changes = {"layers.txt": "base:\nbase tests: model\nmodel: base\n", "base/error_test.cpp": '#include "model/shape.hpp"\n'}
        status, output = check(changes)
        self.assertEqual(status, 0, output)
        self.expect_failure({**changes, "base/error.cpp": '#include "model/shape.hpp"\n'}, "base -> model")

    def test_line_for_tests_of_no_folder_is_named(self):
        self.expect_failure({"layers.txt": "base:\nmodel: base\ntypo tests: base\n"}, "typo tests: there is no such folder")

    def test_cycle_between_sub_folders_is_shown(self):
        self.expect_failure({"base/a/x.hpp": '#include "base/b/y.hpp"\n', "base/b/y.hpp": "\n", "base/b/z.hpp": '#include "base/a/x.hpp"\n'},
                            "base/a -> base/b -> base/a", "base/a/x.hpp:1", "base/b/z.hpp:1")

    def test_cycle_between_deeper_sub_folders_is_shown(self):
        self.expect_failure({"base/a/b/x.hpp": '#include "base/a/c/d/y.hpp"\n', "base/a/c/d/y.hpp": "\n",
                             "base/a/c/z.hpp": '#include "base/a/b/x.hpp"\n'},
                            "base/a/b -> base/a/c -> base/a/b")

    def test_sub_folders_may_include_one_way_and_tests_both_ways(self):
        status, output = check({"base/a/x.hpp": '#include "base/b/y.hpp"\n', "base/b/y.hpp": "\n",
                                "base/b/y_test.cpp": '#include "base/a/x.hpp"\n'})
        self.assertEqual(status, 0, output)

    def test_folder_and_its_own_sub_folder_may_include_each_other(self):
        status, output = check({"base/a/x.hpp": '#include "base/error.hpp"\n', "base/error.cpp": '#include "base/a/x.hpp"\n',
                                "base/a/b/y.hpp": '#include "base/a/x.hpp"\n', "base/a/z.hpp": '#include "base/a/b/y.hpp"\n'})
        self.assertEqual(status, 0, output)

    def test_cast_of_a_pointer_is_named(self):
        self.expect_failure({"base/error.cpp": "// why\nreinterpret_cast<int*>(p);\n"}, "base/error.cpp:2:", "base has no casts")

    def test_layer_without_a_line_is_named(self):
        self.expect_failure({"layers.txt": "base:\nmodel: base typo\n"}, "typo")


if __name__ == "__main__":
    unittest.main()
