#!/usr/bin/env python3
"""Writes docs/results.md from bench/results/template.md and the newest run of each case in bench/results/*.jsonl.

A run is one line: {"claim", "case", "figures", "command", "machine", "commit", "date"}; bench_kit.py and record.py append
them. The template names figures as {{claim.case.figure}} or {{claim.case.figure:FORMAT}} (Python's formats), and
{{evidence CLAIM}} becomes the commands, machines and commits of a claim's cases.

    bench/results_page.py            # writes the page
    bench/results_page.py --check    # exits with 1 where the page is another
"""

import json
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "results.md"
KEYS = {"claim", "case", "figures", "command", "machine", "commit", "date"}
MOST_CLAIMS = 20
WIDTH = 118


class Wrong(Exception):
    """What the template or a run says cannot be."""


def read_runs(folder):
    """The newest run of every claim and case: {claim: {case: run}}."""
    runs = {}
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            run = json.loads(line)
            if set(run) != KEYS:
                raise Wrong(f"{path.name}:{number}: keys {sorted(run)}, must be {sorted(KEYS)}")
            if run["claim"] != path.stem:
                raise Wrong(f"{path.name}:{number}: claim '{run['claim']}' belongs into {run['claim']}.jsonl")
            runs.setdefault(run["claim"], {})[run["case"]] = run
    return runs


def evidence(cases):
    """A list of what was run; cases of one run are one item."""
    items = [f"- `{run['command']}` ({run['machine']}, {run['commit']}, {run['date']})" for run in cases.values()]
    return "\n".join(dict.fromkeys(items))


def filled_lines(text):
    """Paragraphs broken anew: figures are shorter than their names."""
    blocks = [block if block.startswith(("#", "- ")) else
              textwrap.fill(block, WIDTH, break_long_words=False, break_on_hyphens=False)
              for block in text.strip().split("\n\n")]
    return "\n\n".join(blocks) + "\n"


def page(template, runs):
    told = set()

    def filled(match):
        words = match[1].strip()
        if words.startswith("evidence "):
            claim = words.removeprefix("evidence ").strip()
            if claim not in runs:
                raise Wrong(f"the template asks for evidence of '{claim}', and no run has that claim")
            told.add(claim)
            return evidence(runs[claim])
        name, _, form = words.partition(":")
        try:
            claim, case, figure = name.split(".")
            return format(runs[claim][case]["figures"][figure], form)
        except (KeyError, ValueError) as error:
            raise Wrong(f"the template asks for '{words}': {error!r}") from error

    text = re.sub(r"\{\{(.*?)\}\}", filled, template)
    if untold := sorted(set(runs) - told):
        raise Wrong(f"the template does not show the evidence of {', '.join(untold)}")
    if len(re.findall(r"^### ", text, re.MULTILINE)) > MOST_CLAIMS:
        raise Wrong(f"the page has more than {MOST_CLAIMS} claims")
    return filled_lines(text)


def main():
    text = page((RESULTS / "template.md").read_text(), read_runs(RESULTS))
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return 0
    if PAGE.read_text() == text:
        return 0
    print("docs/results.md is not what bench/results_page.py writes: run it, and change bench/results/ instead of the page")
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Wrong as error:
        sys.exit(f"bench/results: {error}")
