#!/usr/bin/env python3
"""Chooses which sources are compiled together: a source by itself takes most of its time for headers that others read too.

    batches.py SRC_FOLDER SIZE FOLDER SOURCE...

Prints batches of at most SIZE sources, separated by ';', the sources of a batch separated by ','. Sources lie in FOLDER,
which is below SRC_FOLDER. The unnamed namespaces of a batch are one, and each of its sources sees the headers of all. So two
sources share a batch only where what one declares in its unnamed namespace is mentioned neither by the other nor by
a header of the other. The same holds for a name that `using` brings in, unless both bring it in. A source that defines a
macro or includes a header of the kernel, which repeats what the C library declares, is compiled by itself.
"""

import functools
import re
import sys
from pathlib import Path

COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"', re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
ALONE = re.compile(r"^\s*#\s*(define\b|include <linux/)", re.M)
USING = re.compile(r"^using ((?:\w+::)*(\w+)[^;]*);", re.M)
# Not a member, nor a name that is qualified.
WORD = re.compile(r"(?<![\w.>:])[A-Za-z_]\w*|(?<=[^-]>)[A-Za-z_]\w*|(?<=[^:]:)[A-Za-z_]\w*")
UNNAMED = re.compile(r"^namespace \{\n(.*?)(?:^\}  // namespace$|\Z)", re.S | re.M)
# The formatter begins a declaration in the first column and continues it further right.
DECLARATION = re.compile(r"^[A-Za-z_][^\n;{}]*(?:\n {2,}[^\n;{}]*)*", re.M)
TYPE = re.compile(r"^(?:struct|class|union|enum class|enum|using)\s+(?:\w+::)*(\w+)")
FUNCTION = re.compile(r"(\w+)\s*\(")
VARIABLE = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)?(?:[=,]|$)")
TEMPLATE_ARGUMENTS = re.compile(r"<[^<>]*>")
# Words that begin a declaration and declare nothing, and macros such as TEST.
NO_NAME = re.compile(r"template|namespace|public|private|[A-Z_0-9]+")


def without_comments(text):
    return COMMENT_OR_TEXT.sub('""', text)


def declared_names(code):
    """Names of types, functions and variables that are declared in the first column."""
    names = set()
    for declaration in DECLARATION.findall(code):
        while TEMPLATE_ARGUMENTS.search(declaration):
            declaration = TEMPLATE_ARGUMENTS.sub("", declaration)
        before = declaration.split("=")[0]
        names |= set(TYPE.findall(declaration) or FUNCTION.findall(before)[:1] or VARIABLE.findall(declaration))
    return {name for name in names if not NO_NAME.fullmatch(name)}


class Sources:
    """The code of files, each read once."""

    def __init__(self, src):
        self.src = src

    @functools.cache
    def text(self, path):
        return (self.src / path).read_text()

    @functools.cache
    def code(self, path):
        return without_comments(self.text(path))

    @functools.cache
    def headers(self, path):
        """Our own headers that a file includes, and those that they include."""
        found = set()
        for name in INCLUDE.findall(self.text(path)):
            if (self.src / name).is_file():
                found |= {name} | self.headers(name)
        return found

    @functools.cache
    def words(self, path):
        return set(WORD.findall(self.code(path)))

    @functools.cache
    def of_headers(self, path):
        return set().union(*(declared_names(self.code(header)) for header in self.headers(path)))

    @functools.cache
    def unnamed(self, path):
        return set().union(*(declared_names(without_comments(part)) for part in UNNAMED.findall(self.text(path))))

    @functools.cache
    def using(self, path):
        """What `using` brings in: {(what, name), ...}."""
        return set(USING.findall(self.code(path)))

    @functools.cache
    def stands_alone(self, path):
        return ALONE.search(self.code(path)) is not None

    def disturbs(self, a, b):
        """Whether what source a declares has another meaning in b, or none that is unique."""
        names = self.unnamed(a) | {name for _, name in self.using(a) - self.using(b)}
        return bool(names & (self.words(b) | self.of_headers(b)))

    def go_together(self, a, b):
        return not self.disturbs(a, b) and not self.disturbs(b, a)


def choose(sources, paths, size):
    """Batches in the order of the paths, each path in the first batch that it fits into."""
    batches = []
    for path in paths:
        for batch in batches:
            if len(batch) < size and not sources.stands_alone(path) and not sources.stands_alone(batch[0]) \
                    and all(sources.go_together(path, other) for other in batch):
                batch.append(path)
                break
        else:
            batches.append([path])
    return batches


def main(src, size, folder, *names):
    src = Path(src).resolve()
    below = Path(folder).resolve().relative_to(src)
    paths = {(below / name).as_posix(): name for name in names}
    batches = choose(Sources(src), list(paths), int(size))
    print(";".join(",".join(paths[path] for path in batch) for batch in batches), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
