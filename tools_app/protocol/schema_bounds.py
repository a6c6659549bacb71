"""How much work a JSON Schema may make, told before it is compiled (2026-07-28, base protocol, §JSON Schema Usage).

A few lines whose references fan out can keep a validator busy for hours: it comes to one and the same part of a value
by ever more ways. Those ways are counted, with every reference followed. One that leads back to where it stands ends
there: how often it is followed is bounded by the depth of the value.
"""

from collections.abc import Iterator
from typing import Any, Final

from tools_app.protocol.schema_keywords import DATA, REFERENCES, SCHEMA_MAPS

MOST_PARTS: Final = 100_000
MOST_WAYS: Final = 10_000
DEEPEST: Final = 64
TOO_LARGE: Final = f"it has more than {MOST_PARTS} parts"
TOO_ENTANGLED: Final = f"it leads to one value by more than {MOST_WAYS} ways"
TOO_DEEP: Final = f"it nests deeper than {DEEPEST} levels"


class TooMuch(ValueError):
    """A schema that could keep the hub busy for too long."""


def check(schema: Any) -> None:
    """Raise TooMuch for a schema that is too large, too deep or too entangled."""
    try:
        _Measure(schema).ways(schema, 0)
    except RecursionError:
        raise TooMuch(TOO_DEEP) from None


class _Measure:
    """Follows the objects and lists of one schema, each once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._ways: dict[int, int] = {}
        self._named = dict(_named(root))

    def ways(self, node: Any, depth: int) -> int:
        """By how many ways a node leads to one value; by one, while that is being counted further up."""
        if not isinstance(node, dict | list):
            return 0
        if depth > DEEPEST:
            raise TooMuch(TOO_DEEP)
        if len(self._ways) > MOST_PARTS:
            raise TooMuch(TOO_LARGE)
        if id(node) not in self._ways:
            self._ways[id(node)] = 1
            self._ways[id(node)] = 1 + sum(self._inner(node, depth + 1))
        if self._ways[id(node)] > MOST_WAYS:
            raise TooMuch(TOO_ENTANGLED)
        return self._ways[id(node)]

    def _inner(self, node: Any, depth: int) -> Iterator[int]:
        if isinstance(node, list):
            yield from (self.ways(inner, depth) for inner in node)
            return
        for keyword, value in node.items():
            if keyword in REFERENCES and isinstance(value, str):
                yield self.ways(self._target(value), 0)
            elif keyword in SCHEMA_MAPS and isinstance(value, dict):
                below = [self.ways(inner, depth) for inner in value.values()]
                # One value has one name, and what is only defined there leads nowhere by itself.
                yield sum(below) if keyword in ("patternProperties", "dependentSchemas") else max(below, default=0)
            elif keyword not in DATA:
                yield self.ways(value, depth)

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#/"):
            return self._named.get(reference.rstrip("#"), self._root if reference == "#" else None)
        node = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            node = node.get(name) if isinstance(node, dict) else None
        return node


def _named(node: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a schema that references may call by a name of their own."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            for keyword, prefix in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", ""), ("id", "")):
                if isinstance(node.get(keyword), str):
                    yield prefix + node[keyword].rstrip("#"), node
            waiting += node.values()
