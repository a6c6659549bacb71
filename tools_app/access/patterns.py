"""Patterns of names, URIs and methods, in which `*` matches anything."""

from collections.abc import Sequence


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether `name` matches one of `patterns`, in which `*` matches anything."""
    return any(fits(name, pattern.split("*")) for pattern in patterns)


def fits(name: str, parts: Sequence[str]) -> bool:
    """Match one pattern, given as the parts between its `*`, in linear time.

    Not as a regular expression, because some patterns would run for hours.
    """
    first, *inner = parts
    if not inner:
        return name == first
    last = inner.pop()
    at, end = len(first), len(name) - len(last)
    if end < at or not name.startswith(first) or not name.endswith(last):
        return False
    for part in inner:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
