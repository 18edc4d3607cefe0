#!/usr/bin/env python3
"""What a reviewer would otherwise look for by eye: machine paths in text, giant files, orphan sources, header starts,
two test files of one name, pages that name files which do not exist.

Usage: hygiene_test.py [REPOSITORY]; exits 1 and lists every finding.
"""

import re
import subprocess
import sys
from pathlib import Path

MAX_LINES = 600
# A path that exists only on the machine of whoever wrote it. A preceding word or dot makes it relative or a URL.
MACHINE_PATH = re.compile(r"(?<![\w.~}*-])/(?:work|root|home|tmp)/[\w.$-]")
INVENTED = re.compile(r"\bhalves\b")  # the example of docs/adding-a-policy.md
NOT_OURS = {".git", "build", "out", ".cache"}  # at the top; src/graph/build, say, is ours


def repository_files(root):
    """Tracked and about-to-be-tracked files; every file but build outputs where there is no git."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listed = ""
    paths = [root / name for name in listed.split("\0") if name]
    if not paths:
        paths = [path for path in root.rglob("*") if path.relative_to(root).parts[0] not in NOT_OURS]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def read_text(path):
    """The text of the file, or None for a binary one."""
    data = path.read_bytes()
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def machine_paths(path, text):
    return [f"{path}:{number}: path of one machine: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), 1) if MACHINE_PATH.search(line)]


def is_built(path, src):
    """Whether the CMakeLists.txt of the source's folder, or of one above it within src, lists the source."""
    for folder in path.parents:
        lists = folder / "CMakeLists.txt"
        if lists.is_file():
            code = re.sub(r"#.*", "", lists.read_text())
            if path.relative_to(folder).as_posix() in re.split(r'[\s()"]+', code):
                return True
        if folder == src:
            return False
    return False


def starts_well(text):
    """A header says what it is in // lines and then guards itself."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("// "):
        return False
    code = [line for line in lines if line.strip() and not line.startswith("//")]
    return bool(code) and code[0] == "#pragma once"


def source_problems(path, text, src):
    if path.suffix in {".cpp", ".cu"} and not is_built(path, src):
        yield f"{path}: no CMakeLists.txt of its folder lists it"
    if path.suffix == ".hpp" and not starts_well(text):
        yield f"{path}: a header starts with a // comment that says what it is, then #pragma once"
    if text.count("\n") > MAX_LINES:
        yield f"{path}: {text.count(chr(10))} lines; above {MAX_LINES} it is two files"
    if ".dump(" in text and not path.name.endswith("_test.cpp") and path.name != "json_text.hpp":
        yield f"{path}: dump() throws where a string is not UTF-8; base/json_text.hpp does not"


def is_test_file(path):
    return path.name.endswith("_test.cpp") or path.name.startswith("test_")


def double_names(paths):
    """Two test files of one name: whoever reads a failing test's name must know which file it is."""
    first = {}
    for path in paths:
        if is_test_file(path) and first.setdefault(path.name, path) != path:
            yield f"{path}: {first[path.name]} has the same name; name it for what it tests"


def exists_below(folder, name):
    """Whether the name, which may hold * and lack the ending of a source file, is a file or a folder."""
    return any(any(folder.glob(name.rstrip("/") + end)) for end in ("", ".hpp", ".cpp", ".py", "_test.cpp"))


def lost_paths(path, text, root):
    """Paths of the repository that a page names in `code`, as a link or as docs/..., and that do not exist."""
    roots = {folder: root for folder in ("bench", "docs", "src", "tests", "tools", "fuzz", "cmake")}
    roots |= {folder.name: root / "src" for folder in (root / "src").iterdir() if folder.is_dir()}
    for number, line in enumerate(text.splitlines(), 1):
        named = re.findall(r"`([\w./*-]+/[\w./*-]*)", line) + re.findall(r"\bdocs/[\w-]+\.md", line)
        lost = [name for name in named if name.split("/")[0] in roots and not INVENTED.search(name)
                and not exists_below(roots[name.split("/")[0]], name)]
        lost += [name for name in re.findall(r"\]\(([\w./-]+)[)#]", line) if not (path.parent / name).exists()]
        for name in dict.fromkeys(lost):
            yield f"{path}:{number}: names {name}, which does not exist"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    src = root / "src"
    files = repository_files(root)
    problems, count = list(double_names(path for path in files if src in path.parents)), 0
    for path in files:
        text = read_text(path)
        if text is None:
            continue
        count += 1
        problems += machine_paths(path, text)
        if path.suffix == ".md" and path.name not in {"CHANGELOG.md", "template.md"}:
            problems += lost_paths(path, text, root)
        if src in path.parents:
            problems += source_problems(path, text, src)
    if not count:
        problems.append(f"{root}: no text files found")
    print("\n".join(problems) or f"{count} text files are clean")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
