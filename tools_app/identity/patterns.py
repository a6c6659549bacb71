"""Patterns of names, URIs and methods, in which `*` matches anything, and lists of permitted names."""

from collections.abc import Iterable, Sequence
from typing import Final

from tools_app.core.validators import ITEM_KINDS, ItemKind

# An entry of a list, beside its characters: two objects and their places.
ENTRY_BYTES: Final = 200


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


class PermittedNames:
    """The tools, prompts and resources that a list of entries permits, compiled.

    `tool=NAME`, `prompt=NAME` and `resource=URI` permit exactly one item of that kind: no character of the name is a
    wildcard. Every other entry is a name, a URI or a pattern, of items of any kind.
    """

    __slots__ = ("_exact", "_hash", "_patterns", "entries")

    def __init__(self, entries: Iterable[str]) -> None:
        self.entries = tuple(entries)
        self._hash = hash(self.entries)
        exact: dict[ItemKind, set[str]] = {kind: set() for kind in ITEM_KINDS}
        patterns = []
        for entry in self.entries:
            start, is_exact, name = entry.partition("=")
            if is_exact and start in exact:
                exact[start].add(name)
            elif "*" in entry:
                patterns.append(entry.split("*"))
            else:
                for names in exact.values():
                    names.add(entry)
        self._exact = {kind: frozenset(names) for kind, names in exact.items()}
        self._patterns = tuple(patterns)

    def have(self, kind: ItemKind, name: str) -> bool:
        """Whether the item of this kind and name, or URI, is permitted."""
        return name in self._exact[kind] or any(fits(name, parts) for parts in self._patterns)

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        return sum(map(len, self.entries)) + ENTRY_BYTES * len(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PermittedNames) and self.entries == other.entries

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"PermittedNames({self.entries!r})"


def exactly(kind: ItemKind, name: str) -> str:
    """Return the entry of a list that permits this item and no other."""
    return f"{kind}={name}"
