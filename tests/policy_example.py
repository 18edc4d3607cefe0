"""Carries out docs/adding-a-policy.md: writes its files, and policy.cpp with its changes, into a folder.

Usage: policy_example.py REPOSITORY OUT. CMake compiles what it writes into a program of its own (tests/CMakeLists.txt).
"""
import re
import sys
from pathlib import Path

FILE = re.compile(r"^`([^`\n]+)`:\n\n```cpp\n(.*?)```", re.S | re.M)
CHANGED = "src/planner/policy/policy.cpp"


def changed(text, page):
    """The text with every ```diff of the page: what begins with + goes behind the line before it."""
    changes = re.findall(r"```diff\n(.*?)```", page, re.S)
    assert changes, "the page changes nothing"
    for change in changes:
        lines = change.splitlines()
        assert lines[0].startswith(" ") and all(line.startswith("+") for line in lines[1:]), change
        place = lines[0][1:] + "\n"
        assert text.count(place) == 1, f"{CHANGED} has {text.count(place)} lines {place!r}"
        text = text.replace(place, place + "".join(line[1:] + "\n" for line in lines[1:]))
    return text


def main():
    repository, out = Path(sys.argv[1]), Path(sys.argv[2])
    page = (repository / "docs/adding-a-policy.md").read_text()
    files = dict(FILE.findall(page))
    assert len(files) == 2, sorted(files)
    files[CHANGED] = changed((repository / CHANGED).read_text(), page)
    # The page says where the source is listed.
    assert "policy/fsdp.cpp" in (repository / "src/planner/CMakeLists.txt").read_text()
    for name, text in files.items():
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


if __name__ == "__main__":
    main()
