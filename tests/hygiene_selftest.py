#!/usr/bin/env python3
"""Shows that the hygiene check can fail: each test builds a small repository with one fault and expects it named."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parent / "hygiene_test.py"

CLEAN = {
    # These look like paths of one machine and are none; put together, so that this file need not be told apart either.
    "README.md": "See https://example.org{0}home/page, ..{0}work/notes, $HOME{0}tmp/x, build{0}tmp/x.\n".format("/"),
    "src/base/CMakeLists.txt": "weft_library(base SOURCES error.cpp detail/deep.cpp)\n",
    "src/base/error.cpp": "// What.\n",
    "src/base/detail/deep.cpp": "// What.\n",
    "src/base/error.hpp": "// What.\n// Why.\n#pragma once\n",
    "build/generated.txt": "/" + "home/someone/x\n",
}


def check(changes):
    """Runs the check on the clean repository with `changes` applied; returns (exit status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**CLEAN, **changes}.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class Hygiene(unittest.TestCase):
    def expect_failure(self, changes, *facts):
        status, output = check(changes)
        self.assertEqual(status, 1, output)
        for fact in facts:
            self.assertIn(fact, output)

    def test_clean_repository_passes(self):
        status, output = check({})
        self.assertEqual(status, 0, output)

    def test_binary_files_are_skipped(self):
        status, output = check({"logo.bin": b"\0/" + b"home/someone/x"})
        self.assertEqual(status, 0, output)

    def test_machine_path_is_named_with_its_line(self):
        for folder in ("work", "root", "home", "tmp"):
            for before in ("see ", '"', "=", "(", "file://"):
                self.expect_failure({"docs/x.md": f"fine\n{before}/{folder}/someone/x\n"}, "docs/x.md:2:")

    def test_folder_named_build_below_src_is_checked_too(self):
        self.expect_failure({"src/base/build/orphan.cpp": "// What.\n"}, "src/base/build/orphan.cpp")

    def test_source_that_nothing_builds_is_named(self):
        self.expect_failure({"src/base/orphan.cpp": "// What.\n"}, "src/base/orphan.cpp")

    def test_source_listed_only_in_a_comment_is_an_orphan(self):
        self.expect_failure({"src/base/CMakeLists.txt": "f(detail/deep.cpp) # error.cpp\n"}, "src/base/error.cpp")

    def test_longer_name_does_not_list_a_source(self):
        self.expect_failure({"src/base/CMakeLists.txt": "f(my_error.cpp detail/deep.cpp)\n"}, "src/base/error.cpp")

    def test_file_of_601_lines_is_named_and_one_of_600_passes(self):
        self.expect_failure({"src/base/error.cpp": "// x\n" * 601}, "src/base/error.cpp", "601")
        self.assertEqual(check({"src/base/error.cpp": "// x\n" * 600})[0], 0)

    def test_header_without_comment_or_guard_is_named(self):
        for text in ("#pragma once\n", "// What.\n#include <vector>\n#pragma once\n", "// What.\n", ""):
            self.expect_failure({"src/base/error.hpp": text}, "src/base/error.hpp")

    def test_two_test_files_of_one_name_are_named_and_sources_may_share_one(self):
        lists = {f"src/{folder}/CMakeLists.txt": f"f({folder} error.cpp detail/deep.cpp deep_test.cpp)\n" for folder in ("base", "model")}
        tests = {f"src/{folder}/deep_test.cpp": "// What.\n" for folder in ("base", "model")}
        self.expect_failure({**lists, **tests}, "src/model/deep_test.cpp", "src/base/deep_test.cpp has the same name")
        helpers = {f"src/{folder}/test_deep.hpp": "// What.\n#pragma once\n" for folder in ("base", "model")}
        self.expect_failure(helpers, "src/model/test_deep.hpp", "has the same name")
        status, output = check({**lists, "src/model/error.cpp": "// What.\n"})
        self.assertEqual(status, 0, output)

    def test_page_that_names_a_lost_file_is_named_with_its_line(self):
        for words in ("`base/lost.hpp`", "`src/base/detail/lost`", "[page](lost.md)", "see docs/lost.md"):
            self.expect_failure({"docs/x.md": f"fine\n{words}\n"}, "docs/x.md:2:", "lost")
        kept = "`base/error.hpp`, `base/error`, `base/detail/`, `base/*.cpp`, [x](x.md#y), docs/x.md, `weft/lost`\n"
        status, output = check({"docs/x.md": kept})
        self.assertEqual(status, 0, output)

    def test_call_that_throws_for_bytes_that_are_no_utf8_is_named(self):
        self.expect_failure({"src/base/error.cpp": "// What.\nout << json.dump(2);\n"}, "src/base/error.cpp", "dump()")


if __name__ == "__main__":
    unittest.main()
