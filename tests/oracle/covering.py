"""Covering arrays: few cases in which every pair of values of two factors occurs, but for those that a rule forbids.

Factors are a dict, name -> values; a case is a dict, name -> value. `allowed` says whether a case, or the part of one that
is decided, can be run; it may look at any two factors together, not at three (a pair that is allowed can then be completed,
which is checked).
"""

import itertools


def pairs_of(case):
    return set(itertools.combinations(sorted(case.items()), 2))


def allowed_pairs(factors, allowed, names=None):
    """Every pair of values of two factors; with `names`, of pairs of these names (each of two names)."""
    pairs = set()
    for a, b in itertools.combinations(sorted(factors), 2):
        if names is None or {a, b} in names:
            pairs |= {((a, x), (b, y)) for x in factors[a] for y in factors[b] if allowed({a: x, b: y})}
    return pairs


def covering_cases(factors, allowed, wanted):
    """Cases that cover `wanted`. Greedy: each starts from a wanted pair and takes, factor by factor, the value that
    covers most of what is wanted, of equals most of all pairs, of equals the one used least."""
    left, others, cases = set(wanted), allowed_pairs(factors, allowed), []

    def gain(case, name, value):
        new = pairs_of({**case, name: value})
        return len(new & left), len(new & others), -sum(other[name] == value for other in cases)

    while left:
        case = dict(min(left, key=repr))
        for name in sorted(factors, key=lambda f: -len(factors[f])):
            if name in case:
                continue
            possible = [value for value in factors[name] if allowed({**case, name: value})]
            if not possible:
                raise AssertionError(f"no {name} goes with {case}")
            case[name] = max(possible, key=lambda value: gain(case, name, value))
        left -= pairs_of(case)
        others -= pairs_of(case)
        cases.append({name: case[name] for name in factors})
    return cases
