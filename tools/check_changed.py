#!/usr/bin/env python3
"""clang-format and clang-tidy over the sources that changed; a finding is an error.

    tools/check_changed.py [--base COMMIT] [--most N] [--jobs N]

What changed: since COMMIT; without it since the branch left origin/main, or, on main itself, in the last commit, and what is
not committed yet. clang-tidy reads at most N sources (default: 8, which take half a minute on two cores), those with
the most changed lines first, and reports findings in changed lines only; `make tidy` reads all. Where there is no clang-tidy,
nothing is checked.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def git(*arguments):
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def base_commit():
    head, fork = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
    return fork if fork and fork != head else git("rev-parse", "HEAD^1") or head


def changed_lines(diff):
    """{path: [[first, last], ...]} of what `git diff -U0` adds or replaces."""
    lines, path = {}, None
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[6:] if line.startswith("+++ b/") else None
            if path:
                lines[path] = []
        elif path and (match := HUNK.match(line)):
            first, count = int(match[1]), int(match[2] or 1)
            if count:
                lines[path].append([first, first + count - 1])
    return lines


def format_findings(paths):
    if not paths:
        return ""
    done = subprocess.run(["clang-format-19", "--dry-run", "-Werror", *paths], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    return done.stderr


def sources_for(lines, compiled):
    """Compiled sources that show the changed lines, most of them first: changed ones, and those beside changed headers."""
    count = {}
    for path, ranges in lines.items():
        source = re.sub(r"\.hpp$", ".cpp", path)
        if source in compiled:
            count[source] = count.get(source, 0) + sum(last - first + 1 for first, last in ranges)
    return sorted(count, key=lambda source: (-count[source], source))


def tidy_findings(source, lines):
    wanted = json.dumps([{"name": path, "lines": ranges} for path, ranges in sorted(lines.items()) if ranges])
    done = subprocess.run(["clang-tidy-19", "-p", "build/tidy", "--quiet", "--warnings-as-errors=*", f"--line-filter={wanted}",
                           source], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode else ""


def compiled_sources():
    """Of a build for clang, which is configured and not built."""
    subprocess.run(["tools/configure.sh", "tidy"], cwd=ROOT, check=True)
    commands = json.loads((ROOT / "build/tidy/compile_commands.json").read_text())
    return {os.path.relpath(os.path.join(entry["directory"], entry["file"]), ROOT) for entry in commands}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", help="a commit (default: where the branch began)")
    parser.add_argument("--most", type=int, default=8, help="sources that clang-tidy reads")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    base = options.base or base_commit()
    if not base or not shutil.which("clang-tidy-19"):
        print(f"skipped: format and clang-tidy of what changed, for want of {'clang-tidy-19' if base else 'a git history'}")
        return 0
    lines = changed_lines(git("diff", "-U0", "--no-color", base, "--", "*.cpp", "*.hpp"))
    findings = [format_findings(sorted(lines))]
    sources = sources_for(lines, compiled_sources()) if lines else []
    with ThreadPoolExecutor(options.jobs) as pool:
        findings += pool.map(lambda source: tidy_findings(source, lines), sources[:options.most])
    print("".join(findings), end="")
    left = max(0, len(sources) - options.most)
    print(f"{len(lines)} files changed since {base[:10]}: format of all, clang-tidy of {len(sources) - left}"
          + (f"; {left} more are left to `make tidy`" if left else ""))
    return 1 if any(findings) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
