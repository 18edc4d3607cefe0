#!/usr/bin/env python3
"""Records runs of programs that are not Python: the figures of docs/results.md (results_page.py).

Runs the command. Every line of its output that is a JSON object becomes a run of the claim, with the numbers in it as
figures; its "case" or "set" names the case, behind the name given by --case. A program that prints no JSON is run by
hand, and --figures says what it printed; the command is then recorded and not run.

    bench/record.py simulator --case A -- build/release/bench/simulator_bench
    bench/record.py oracle --case dense --figures '{"checks": 309, "passed": 309}' -- tests/run_oracle_test.py build/release/weft
"""

import argparse
import json
import re
import shlex
import subprocess
import sys

import bench_kit as kit


def case_of(line, prefix):
    name = re.sub(r"[^a-z0-9]+", "_", str(line.get("case", line.get("set", ""))).lower()).strip("_")
    return "_".join(filter(None, [prefix, name])) or "all"


def runs_of(output, prefix):
    """Pairs of case and figures."""
    for text in output.splitlines():
        if text.startswith("{"):
            line = json.loads(text)
            numbers = {key: value for key, value in line.items() if isinstance(value, (int, float))}
            yield case_of(line, prefix), numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claim")
    parser.add_argument("--case", default="", help="of the claim")
    parser.add_argument("--figures", metavar="JSON", help="what the command printed when it was run by hand")
    parser.add_argument("--on", metavar="MACHINE", default=kit.machine_name(), help="the machine's name on the page")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.figures:
        runs = [(options.case or "all", json.loads(options.figures))]
    else:
        ran = subprocess.run(options.command, stdout=subprocess.PIPE, text=True, check=False)
        print(ran.stdout, end="")
        if ran.returncode != 0:
            sys.exit(f"exit code {ran.returncode}: nothing is recorded")
        runs = list(runs_of(ran.stdout, options.case))
    if not runs:
        sys.exit("no line of the output is a JSON object: nothing is recorded")
    for case, figures in runs:
        kit.record(options.claim, case, figures, shlex.join(options.command), options.on)


if __name__ == "__main__":
    main()
