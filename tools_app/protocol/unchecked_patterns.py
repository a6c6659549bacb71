"""Schemas of upstreams whose regular expressions the linear-time engine cannot run: what is validated without these.

Clients get such a schema as it is, and the upstream validates what it is sent. The hub validates the rest: what it
accepts is never less than what the schema accepts.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from tools_app.protocol.schema_bounds import MAX_PATTERNS, backtracking_in, needs_backtracking, patterns
from tools_app.protocol.schema_keywords import DATA, SCHEMA_MAPS, Path

# These accept less where their parts accept more, so they cannot stay where a part loses a pattern.
_NOT_MONOTONIC: Final = frozenset(
    {"not", "if", "then", "else", "contains", "minContains", "maxContains"}
    | {"unevaluatedProperties", "unevaluatedItems"}
)


def unchecked_patterns(schema: Any) -> list[Path]:
    """Return the paths of the patterns that only an engine with backtracking can run."""
    # A schema with more patterns is refused.
    return [path for path, pattern in islice(patterns(schema), MAX_PATTERNS) if backtracking_in(pattern)]


def without_unchecked_patterns(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema that accepts at least what `schema` accepts, without these patterns; itself if it has none."""
    unchecked = {pattern for _, pattern in islice(patterns(schema), MAX_PATTERNS) if needs_backtracking(pattern)}
    return _without(schema, unchecked) if unchecked else schema


def _without(node: Any, unchecked: set[str]) -> Any:
    if isinstance(node, list):
        return [_without(entry, unchecked) for entry in node]
    if not isinstance(node, dict):
        return node
    names = node.get("patternProperties")
    is_opened = isinstance(names, dict) and not unchecked.isdisjoint(names)
    result: dict[str, Any] = {}
    for keyword, value in node.items():
        if keyword in _NOT_MONOTONIC or (is_opened and keyword == "additionalProperties"):
            continue
        if keyword == "pattern" and isinstance(value, str) and value in unchecked:
            continue
        if keyword in DATA:
            result[keyword] = value
        elif keyword in SCHEMA_MAPS and isinstance(value, dict):
            kept = value.keys() - unchecked if keyword == "patternProperties" else value.keys()
            result[keyword] = {name: _without(inner, unchecked) for name, inner in value.items() if name in kept}
        elif keyword != "oneOf":
            result[keyword] = _without(value, unchecked)
        elif "anyOf" not in node:
            # More than one of the alternatives may accept a value now.
            result["anyOf"] = _without(value, unchecked)
    return result
