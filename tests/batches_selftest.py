#!/usr/bin/env python3
"""cmake/batches.py puts sources together that compile as one, and keeps apart those that would not."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cmake"))
import batches  # noqa: E402


def source(unnamed="", rest="", include=""):
    return f'#include "f/{include or "none"}.hpp"\nnamespace weft {{\nnamespace {{\n\n{unnamed}\n\n}}  // namespace\n{rest}\n}}\n'


class Batches(unittest.TestCase):
    def chosen(self, files, size=8):
        with tempfile.TemporaryDirectory() as folder:
            src = Path(folder)
            (src / "f").mkdir()
            for name, text in files.items():
                (src / "f" / name).write_text(text)
            paths = [f"f/{name}" for name in files if name.endswith(".cpp")]
            return [[path[2:-4] for path in batch] for batch in batches.choose(batches.Sources(src), paths, size)]

    def test_sources_without_a_common_name_go_together(self):
        files = {"a.cpp": source("int one() {\n  return 1;\n}"), "b.cpp": source("int two() {\n  return 2;\n}")}
        self.assertEqual(self.chosen(files), [["a", "b"]])

    def test_a_batch_has_no_more_than_its_size(self):
        files = {f"{letter}.cpp": source() for letter in "abcde"}
        self.assertEqual(self.chosen(files, 2), [["a", "b"], ["c", "d"], ["e"]])

    def test_whatever_two_declare_keeps_them_apart(self):
        for declared in ("int at(int x) {\n  return x;\n}", "constexpr int at = 1;", "struct at {\n  int x;\n};",
                         "enum class at { a };", "template <class T>\nT at(T x) {\n  return x;\n}",
                         "const std::map<int, std::string> at = {};", "constexpr int other = 1, at = 2;",
                         "std::vector<int> at(\n    int x) {\n  return {};\n}", "constexpr int at[] = {1};"):
            self.assertEqual(self.chosen({"a.cpp": source(declared), "b.cpp": source("int at(char) {\n  return 1;\n}")}),
                             [["a"], ["b"]], declared)

    def test_what_one_declares_the_other_must_not_mention(self):
        a = source("struct Reader {};")
        self.assertEqual(self.chosen({"a.cpp": a, "b.cpp": source("", "void f(Reader&) {}")}), [["a"], ["b"]])
        self.assertEqual(self.chosen({"a.cpp": a, "b.cpp": source("", "// Reader\nvoid f() {\n  x.Reader();\n}")}), [["a", "b"]])

    def test_names_after_the_first_function_count(self):
        a = source("int first() {\n  return 1;\n}\n\nint at() {\n  return 2;\n}")
        self.assertEqual(self.chosen({"a.cpp": a, "b.cpp": source("constexpr int at = 1;")}), [["a"], ["b"]])

    def test_names_of_the_others_headers_keep_apart(self):
        files = {"deep.hpp": "struct Verdict {};\n", "none.hpp": "", "h.hpp": '#include "f/deep.hpp"\n',
                 "a.cpp": source("struct Verdict {};"), "b.cpp": source(include="h"), "c.cpp": source()}
        self.assertEqual(self.chosen(files), [["a", "c"], ["b"]])

    def test_another_overload_keeps_apart_what_is_called_with_braces(self):
        headers = {"none.hpp": "int meet(A, A);\n", "h.hpp": "int meet(B, B);\n"}
        for call, together in (("meet({1, 2}, {})", False), ("meet(A{1, 2}, {})", True)):
            files = {**headers, "a.cpp": source("", f"int f() {{\n  return {call};\n}}"), "b.cpp": source(include="h")}
            self.assertEqual(self.chosen(files), [["a", "b"]] if together else [["a"], ["b"]], call)

    def test_using_the_same_keeps_nobody_apart(self):
        one, two = "using nlohmann::json;", "using json = nlohmann::ordered_json;"
        mentions = source("", "void f(int json) {}")
        for a, b, together in ((one, one, True), (one, two, False), (two, two, True)):
            found = self.chosen({"a.cpp": a + "\n" + source(), "b.cpp": source(b)})
            self.assertEqual(found, [["a", "b"]] if together else [["a"], ["b"]], (a, b))
            self.assertEqual(self.chosen({"a.cpp": a + "\n" + source(), "b.cpp": mentions}), [["a"], ["b"]])

    def test_a_local_variable_may_have_the_name_of_a_function(self):
        a = source("int plan() {\n  return 1;\n}")
        self.assertEqual(self.chosen({"a.cpp": a, "b.cpp": source("", "int f() {\n  int plan = 1;\n  return plan;\n}")}),
                         [["a", "b"]])
        self.assertEqual(self.chosen({"a.cpp": a, "b.cpp": source("", "int f() {\n  return plan();\n}")}), [["a"], ["b"]])

    def test_tests_are_no_names(self):
        test = "TEST(Ring, {}) {{\n  EXPECT_EQ(1, 1);\n}}"
        self.assertEqual(self.chosen({"a.cpp": source(test.format("One")), "b.cpp": source(test.format("Two"))}), [["a", "b"]])

    def test_a_macro_and_a_header_of_the_kernel_stand_alone(self):
        for line in ("#define X 1", "#include <linux/tcp.h>"):
            files = {"a.cpp": f"{line}\n" + source(), "b.cpp": source(), "c.cpp": source()}
            self.assertEqual(self.chosen(files), [["a"], ["b", "c"]], line)


if __name__ == "__main__":
    unittest.main()
