#!/usr/bin/env python3
"""The page of results: what bench/results_page.py makes of runs, and that docs/results.md is that page."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent / "bench"
sys.path.insert(0, str(BENCH))
import record  # noqa: E402
import results_page  # noqa: E402


def run(claim="speed", case="all", figures=None, commit="abc"):
    return {"claim": claim, "case": case, "figures": figures or {"seconds": 2.5}, "command": "weft plan", "machine": "A",
            "commit": commit, "date": "2026-01-01"}


class Pages(unittest.TestCase):
    def read(self, *runs, name="speed"):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in runs))
            return results_page.read_runs(Path(folder))

    def test_the_newest_run_of_a_case_counts(self):
        runs = self.read(run(figures={"seconds": 3}), run(case="other"), run(figures={"seconds": 1234}, commit="def"))
        page = results_page.page("# T\n\n{{speed.all.seconds:,}} s\n\n{{evidence speed}}", runs)
        self.assertEqual(page, "# T\n\n1,234 s\n\n- `weft plan` (A, def, 2026-01-01)\n- `weft plan` (A, abc, 2026-01-01)\n")

    def test_cases_of_one_run_are_one_item(self):
        runs = self.read(run(case="a"), run(case="b"))
        self.assertEqual(results_page.page("{{evidence speed}}", runs), "- `weft plan` (A, abc, 2026-01-01)\n")

    def test_what_no_run_says_is_refused(self):
        runs = self.read(run())
        for template in ("{{speed.all.memory}}", "{{speed.none.seconds}}", "{{other.all.seconds}}", "{{evidence other}}",
                         "no evidence"):
            with self.assertRaises(results_page.Wrong, msg=template):
                results_page.page(template, runs)

    def test_runs_are_whole_and_in_their_file(self):
        with self.assertRaises(results_page.Wrong):
            self.read({key: value for key, value in run().items() if key != "commit"})
        with self.assertRaises(results_page.Wrong):
            self.read(run(), name="other")

    def test_a_page_has_at_most_20_claims(self):
        claims = "".join(f"### {i}\n\n" for i in range(21)) + "{{evidence speed}}"
        with self.assertRaises(results_page.Wrong):
            results_page.page(claims, self.read(run()))

    def test_lines_of_json_become_runs(self):
        output = 'text\n{"bench": "b", "case": "GPT, 8 A100", "seconds": 2, "right": "yes"}\n{"seconds": 3.5}\n'
        self.assertEqual(list(record.runs_of(output, "A")), [("A_gpt_8_a100", {"seconds": 2}), ("A", {"seconds": 3.5})])
        self.assertEqual(next(record.runs_of('{"seconds": 1}', ""))[0], "all")

    def test_the_page_is_what_the_runs_say(self):
        check = subprocess.run([sys.executable, BENCH / "results_page.py", "--check"], capture_output=True, text=True)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)


if __name__ == "__main__":
    unittest.main()
