#!/usr/bin/env python3
"""The architecture as a test: src/layers.txt says which folder may include which, and nothing else is allowed.

Casts between pointers stay in few folders, the only ones that the sanitizer build watches for misaligned pointers
(cmake/weft_targets.cmake). Layers rot unless a check enforces them. Usage: layers_test.py [SRC_FOLDER]; exits 1 and lists every violation.
"""

import re
import sys
from pathlib import Path

SOURCE_SUFFIXES = {".cpp", ".hpp", ".cc", ".h", ".cu", ".cuh", ".inl"}
FOLDERS_WITH_CASTS = {"kernels", "comm", "exec"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def read_layers(path):
    """Returns ({folder: allowed folders}, problems)."""
    layers, problems = {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, colon, allowed = line.partition(":")
        if not colon or not re.fullmatch(r"\w+( tests)?", folder):
            problems.append(f"{path}:{number}: expected 'folder: folder folder ...', got '{line}'")
            continue
        if folder in layers:
            problems.append(f"{path}:{number}: {folder} is listed twice")
        layers[folder] = allowed.split()
    for folder, allowed in layers.items():
        if folder.removesuffix(" tests") not in layers:
            problems.append(f"{path}: {folder}: there is no such folder")
        for other in allowed:
            if other not in layers:
                problems.append(f"{path}: {folder} may include {other}, which has no line of its own")
    return layers, problems


def find_cycle(layers):
    """Returns one cycle of allowed includes as [a, b, ..., a], or None."""
    done = set()

    def visit(folder, trail):
        if folder in trail:
            return trail[trail.index(folder):] + [folder]
        if folder in done:
            return None
        for other in layers.get(folder, []):
            cycle = visit(other, trail + [folder])
            if cycle:
                return cycle
        done.add(folder)
        return None

    for folder in layers:
        cycle = visit(folder, [])
        if cycle:
            return cycle
    return None


def is_test(path):
    return path.stem.endswith("_test") or path.name.startswith("test_")


def check_include(src, folder, allowed, quote, target):
    """Returns what is wrong with one include of a file in `folder`, or None."""
    if not (src / target).is_file():
        # <vector> and the like: not ours. In quotes it must be ours.
        return None if quote == "<" else f'"{target}" is not a file below the src root'
    other = target.split("/")[0]
    if quote == "<":
        return f'<{target}> is our own header: write "{target}"'
    if other != folder and other not in allowed:
        return f'{folder} -> {other} ("{target}") is not allowed; {folder} may include: {" ".join(allowed) or "nothing"}'
    return None


def sibling_folders(source, target):
    """The two sub-folders of one folder that an include joins, as their paths; None where there are none: a folder's own
    headers serve its sub-folders, and the other way round. Both arguments are the parts of a file's path below src."""
    common = 0
    while common < min(len(source), len(target)) and source[common] == target[common]:
        common += 1
    if common == 0 or common >= len(source) - 1 or common >= len(target) - 1:
        return None
    return "/".join(source[:common + 1]), "/".join(target[:common + 1])


def check_sub_folders(includes):
    """`includes`: {(sub-folder, its sibling): where the first include of that kind stands}, of all code but tests."""
    graph = {}
    for source, target in sorted(includes):
        graph.setdefault(source, []).append(target)
    cycle = find_cycle(graph)
    if not cycle:
        return []
    places = ", ".join(includes[arrow] for arrow in zip(cycle, cycle[1:]))
    return [f"sub-folders include each other: {' -> '.join(cycle)} ({places})"]


def check_sources(src, layers):
    problems, sub_folder_includes = [], {}
    for folder in sorted(path.name for path in src.iterdir() if path.is_dir()):
        if folder not in layers:
            problems.append(f"{src / folder}: layers.txt does not name this folder")
    for path in sorted(src.rglob("*")):
        if path.suffix not in SOURCE_SUFFIXES or not path.is_file():
            continue
        parts = path.relative_to(src).parts
        if len(parts) == 1:
            problems.append(f"{path}: a source must live in a folder of src")
            continue
        allowed = layers.get(parts[0], []) + (layers.get(f"{parts[0]} tests", []) if is_test(path) else [])
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "reinterpret_cast" in line and parts[0] not in FOLDERS_WITH_CASTS:
                problems.append(f"{path}:{number}: {parts[0]} has no casts of pointers: {' '.join(sorted(FOLDERS_WITH_CASTS))} do")
            match = INCLUDE.match(line)
            problem = match and check_include(src, parts[0], allowed, *match.groups())
            if problem:
                problems.append(f"{path}:{number}: {problem}")
            target = tuple(match.group(2).split("/")) if match else parts
            siblings = None if target == parts or is_test(path) else sibling_folders(parts, target)
            if siblings:
                sub_folder_includes.setdefault(siblings, f"{path}:{number}")
    return problems + check_sub_folders(sub_folder_includes)


def main():
    src = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "src"
    layers, problems = read_layers(src / "layers.txt")
    cycle = find_cycle(layers)
    if cycle:
        problems.append(f"{src / 'layers.txt'}: cycle: {' -> '.join(cycle)}")
    problems += check_sources(src, layers)
    print("\n".join(problems) or f"{sum(' ' not in name for name in layers)} layers, no forbidden include")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
