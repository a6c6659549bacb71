"""Schemas without the regular expressions that somebody cannot run. They accept never less than with these.

The hub runs no look-around and no back-references: clients get such schemas of upstreams as they are, the upstream
validates what it is sent, and the hub validates the rest. Clients compile the schemas of results as JavaScript.
"""

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from tools_app.protocol.schema_bounds import MAX_PATTERNS, backtracking_in, needs_backtracking, patterns
from tools_app.protocol.schema_keywords import DATA, SCHEMA_MAPS, Path

# Each takes about a millisecond to compile.
MAX_UNCHECKED: Final = 50

_ESCAPE: Final = (
    r"\\(?:[\^$\\.*+?()\[\]{}|/dDwWsSbBfnrtv0-9]|c[A-Za-z]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}"
    r"|u\{[0-9A-Fa-f]{1,6}\}|[pP]\{[A-Za-z0-9_=]+\}|k<)"
)
_CLASS: Final = rf"\[(?:[^\\\]]|\\-|{_ESCAPE})*+\]"
_REPEATED: Final = rf"(?:[^\\\[\](){{}}*+?^$|]|{_ESCAPE}|{_CLASS}|\))(?:(?:[*+?]|\{{[0-9]+(?:,[0-9]*)?\}})\??)?+"
_NOT_REPEATED: Final = r"[\^$|]|\((?!\?)|\(\?(?:[:=!]|<[=!A-Za-z_$])"
# Each piece begins in another way than the others: nothing is read twice.
_JAVASCRIPT: Final = re.compile(rf"(?:{_REPEATED}|{_NOT_REPEATED})*+", re.ASCII | re.DOTALL)
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
    """Return a schema without these patterns; itself if it has none, or more than are looked at."""
    suspected = {pattern for _, pattern in islice(patterns(schema), MAX_PATTERNS) if backtracking_in(pattern)}
    return _without_those(schema, needs_backtracking) if len(suspected) <= MAX_UNCHECKED else schema


def without_foreign_patterns(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without the patterns that are no JavaScript with the flag u (ECMA-262); itself if it has none.

    The official TypeScript client refuses a whole list for one of them in the schema of a tool's results.
    """
    return _without_those(schema, lambda pattern: not _JAVASCRIPT.fullmatch(pattern))


def _without_those(schema: Mapping[str, Any], is_left_out: Callable[[str], object]) -> Mapping[str, Any]:
    left_out = {pattern for _, pattern in islice(patterns(schema), MAX_PATTERNS) if is_left_out(pattern)}
    return _without(schema, left_out) if left_out else schema


def _without(node: Any, left_out: set[str]) -> Any:
    if isinstance(node, list):
        return [_without(entry, left_out) for entry in node]
    if not isinstance(node, dict):
        return node
    names = node.get("patternProperties")
    is_opened = isinstance(names, dict) and not left_out.isdisjoint(names)
    result: dict[str, Any] = {}
    for keyword, value in node.items():
        if keyword in _NOT_MONOTONIC or (is_opened and keyword == "additionalProperties"):
            continue
        if keyword == "pattern" and isinstance(value, str) and value in left_out:
            continue
        if keyword in DATA:
            result[keyword] = value
        elif keyword in SCHEMA_MAPS and isinstance(value, dict):
            kept = value.keys() - left_out if keyword == "patternProperties" else value.keys()
            result[keyword] = {name: _without(inner, left_out) for name, inner in value.items() if name in kept}
        elif keyword != "oneOf":
            result[keyword] = _without(value, left_out)
        elif "anyOf" not in node:
            # More than one of the alternatives may accept a value now.
            result["anyOf"] = _without(value, left_out)
    return result
