"""Patterns of names, URIs and methods, in which `*` matches anything."""

from collections.abc import Sequence


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether `name` matches one of `patterns`, in which `*` matches anything."""
    return any(_fits(name, pattern) for pattern in patterns)


def _fits(name: str, pattern: str) -> bool:
    """Match one pattern in linear time: not as a regular expression, because some patterns would run for hours."""
    first, *inner = pattern.split("*")
    if not inner:
        return name == pattern
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
