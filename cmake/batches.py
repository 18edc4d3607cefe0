#!/usr/bin/env python3
"""Chooses which sources are compiled together: a source by itself takes most of its time for headers that others read too.

    batches.py SRC_FOLDER SIZE FOLDER SOURCE...

Prints batches of at most SIZE sources, separated by ';', the sources of a batch separated by ','. Sources lie in FOLDER,
which is below SRC_FOLDER. The unnamed namespaces of a batch are one, and each of its sources sees the headers of all. So two
sources share a batch only where what one declares in its unnamed namespace is mentioned neither by the other nor by
a header of the other (a function: called). Nor may one call a function with {...} of which the other's headers know
another overload. The same holds for a name that `using` brings in, unless both bring it in. A source that defines a
macro or includes a header of the kernel, which repeats what the C library declares, is compiled by itself.
"""

import functools
import re
import sys
from pathlib import Path
from typing import NamedTuple

COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"', re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
ALONE = re.compile(r"^\s*#\s*(define\b|include <linux/)", re.M)
# Of `using a::b`, `using b = a` and `namespace b = a`: all of it, and b.
USING = re.compile(r"^(?:using (?!namespace|enum)|namespace (?=\w+ =))((?:\w+::)*(\w+)[^;]*);", re.M)
# A name that stands alone, as opposed to a member's or one that is qualified.
ALONE_BEFORE = r"(?:(?<![\w.>:])|(?<=[^-]>)|(?<=[^:]:))"
WORD = re.compile(ALONE_BEFORE + r"[A-Za-z_]\w*")
CALLED = re.compile(ALONE_BEFORE + r"([A-Za-z_]\w*)\s*[(<]")
CALLED_WITH_BRACES = re.compile(ALONE_BEFORE + r"([A-Za-z_]\w*)\(\{")
UNNAMED = re.compile(r"^namespace \{\n(.*?)(?:^\}  // namespace$|\Z)", re.S | re.M)
# The formatter begins a declaration in the first column and continues it further right.
DECLARATION = re.compile(r"^(?!using |namespace )[A-Za-z_][^\n;{}]*(?:\n {2,}[^\n;{}]*)*", re.M)
TYPE = re.compile(r"^(?:struct|class|union|enum class|enum)\s+(\w+)")
FUNCTION = re.compile(r"(\w+)\s*\(")
VARIABLE = re.compile(r"(?<![\w:])(\w+)\s*(?:\[[^\]]*\]\s*)?(?:[=,]|$)")
TEMPLATE_ARGUMENTS = re.compile(r"<[^<>]*>")
# Words that begin a declaration and declare nothing, and macros such as TEST.
NO_NAME = re.compile(r"template|[A-Z_0-9]+")


def without_comments(text):
    return COMMENT_OR_TEXT.sub('""', text)


class Names(NamedTuple):
    functions: frozenset
    others: frozenset  # types and variables

    def meet(self, words, called):
        return bool(self.functions & called or self.others & words)


def declared_names(code):
    """What is declared in the first column."""
    functions, others = set(), set()
    for declaration in DECLARATION.findall(code):
        while TEMPLATE_ARGUMENTS.search(declaration):
            declaration = TEMPLATE_ARGUMENTS.sub("", declaration)
        if types := TYPE.findall(declaration):
            others |= set(types)
        elif found := FUNCTION.findall(declaration.split("=")[0]):
            functions.add(found[0])
        else:
            others |= set(VARIABLE.findall(declaration))
    return Names(*(frozenset(name for name in names if not NO_NAME.fullmatch(name)) for names in (functions, others)))


def all_names(parts):
    """The names of several pieces of code together."""
    names = [declared_names(part) for part in parts]
    return Names(frozenset().union(*(n.functions for n in names)), frozenset().union(*(n.others for n in names)))


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
        return frozenset(WORD.findall(self.code(path)))

    @functools.cache
    def called(self, path):
        return frozenset(CALLED.findall(self.code(path)))

    @functools.cache
    def of_header(self, header):
        return frozenset().union(*declared_names(self.code(header)))

    @functools.cache
    def of_headers(self, path):
        return frozenset().union(*map(self.of_header, self.headers(path)))

    @functools.cache
    def called_with_braces(self, path):
        return frozenset(CALLED_WITH_BRACES.findall(self.code(path)))

    def has_more_overloads(self, a, b):
        """Whether headers that only b has declare what a calls with {...}."""
        called = self.called_with_braces(a)
        return bool(called) and any(called & self.of_header(header) for header in self.headers(b) - self.headers(a))

    @functools.cache
    def unnamed(self, path):
        return all_names(without_comments(part) for part in UNNAMED.findall(self.text(path)))

    @functools.cache
    def using(self, path):
        """What `using` brings in: {(what, name), ...}."""
        return frozenset(USING.findall(self.code(path)))

    @functools.cache
    def stands_alone(self, path):
        return ALONE.search(self.code(path)) is not None

    def disturbs(self, a, b):
        """Whether what source a declares has another meaning in b, or none that is unique."""
        if self.has_more_overloads(b, a):
            return True
        brought = {name for _, name in self.using(a) - self.using(b)}
        names, headers = self.unnamed(a), self.of_headers(b)
        return names.meet(self.words(b), self.called(b)) or bool((names.functions | names.others) & headers
                                                                  or brought & (self.words(b) | headers))

    @functools.cache
    def go_together(self, a, b):
        return not (self.stands_alone(a) or self.stands_alone(b) or self.disturbs(a, b) or self.disturbs(b, a))


def choose(sources, paths, size):
    """Those that fit with few others are placed first, each into the first batch that it fits into."""
    def opponents(path):
        return sum(not sources.go_together(path, other) for other in paths)

    batches = []
    for path in sorted(paths, key=opponents, reverse=True):
        fitting = (batch for batch in batches
                   if len(batch) < size and all(sources.go_together(path, other) for other in batch))
        batch = next(fitting, None)
        if batch is None:
            batches.append(batch := [])
        batch.append(path)
    return sorted(sorted(batch, key=paths.index) for batch in batches)


def main(src, size, folder, *names):
    src = Path(src).resolve()
    below = Path(folder).resolve().relative_to(src)
    paths = {(below / name).as_posix(): name for name in names}
    batches = choose(Sources(src), list(paths), int(size))
    print(";".join(",".join(paths[path] for path in batch) for batch in batches), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
