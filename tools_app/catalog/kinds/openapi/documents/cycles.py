"""Definitions without cycles, for clients that cannot follow references which lead back to themselves.

A definition that refers to itself, directly or through others, is repeated once for each level, as `NAME@2` and so on.
The references of the last level become a schema that accepts anything.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from tools_app.catalog.kinds.openapi.documents.document import mapping
from tools_app.catalog.kinds.openapi.documents.schemas import (
    ANY_SCHEMA,
    MAX_DEFINITIONS_BYTES,
    SUBSCHEMA_KEYWORDS,
    SUBSCHEMA_LISTS,
    SUBSCHEMA_MAPS,
    strongly_connected,
)
from tools_app.protocol import schema_bounds

PREFIX: Final = "#/$defs/"
Definitions = dict[str, Any]
# The name of the definition that a reference is to lead to; None to cut it.
Rename = Callable[[str], str | None]


def cut(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    """Return a schema whose `$defs` have no cycle: `depth` levels of each, or fewer if that would be too much."""
    definitions = schema.get("$defs") or {}
    groups = strongly_connected({name: list(_references(one)) for name, one in definitions.items()})
    if all(groups[name] != groups[to] for name, one in definitions.items() for to in _references(one)):
        return schema
    rest = {name: value for name, value in schema.items() if name != "$defs"}
    for levels in range(depth, 1, -1):
        unrolled = {**rest, "$defs": _levels(_references(rest), definitions, groups, levels)}
        try:
            schema_bounds.check(unrolled)
        except schema_bounds.SchemaTooComplex:
            continue
        return unrolled
    return {**rest, "$defs": _levels(_references(rest), definitions, groups, 1)}


def _levels(roots: Iterable[str], definitions: Definitions, groups: Mapping[str, str], depth: int) -> Definitions:
    """Return the definitions that `roots` reach, nearest first, as far as they fit."""
    unrolled: Definitions = {}
    waiting = deque((name, 1) for name in dict.fromkeys(roots))
    seen, size = set(waiting), 0
    while waiting:
        name, level = waiting.popleft()
        following: list[tuple[str, int]] = []

        def rename(to: str, name: str = name, level: int = level, found: Any = following) -> str | None:
            deeper = level + 1 if groups[to] == groups[name] else 1
            if deeper > depth:
                return None
            found.append((to, deeper))
            return _key(to, deeper)

        schema = _redirected(definitions[name], rename)
        size += len(orjson.dumps(schema))
        if size > MAX_DEFINITIONS_BYTES:
            unrolled[_key(name, level)] = {"description": ANY_SCHEMA}
            continue
        unrolled[_key(name, level)] = schema
        new = [one for one in dict.fromkeys(following) if one not in seen]
        seen.update(new)
        waiting.extend(new)
    return unrolled


def _key(name: str, level: int) -> str:
    # No name of a definition has an @.
    return name if level == 1 else f"{name}@{level}"


def _references(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a converted schema refers to."""
    found: list[str] = []

    def note(name: str) -> str:
        found.append(name)
        return name

    _redirected(schema, note)
    yield from dict.fromkeys(found)


def _redirected(schema: Any, rename: Rename) -> Any:
    """Return a converted schema with other targets of its references."""
    if not isinstance(schema, dict):
        return schema
    redirected: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "$ref":
            target = rename(value.removeprefix(PREFIX))
            if target is None:
                return {"description": schema.get("description", ANY_SCHEMA)}
            redirected[name] = PREFIX + target
        elif name in SUBSCHEMA_KEYWORDS:
            redirected[name] = _redirected(value, rename)
        elif name in SUBSCHEMA_MAPS:
            redirected[name] = {key: _redirected(one, rename) for key, one in mapping(value).items()}
        elif name in SUBSCHEMA_LISTS:
            redirected[name] = [_redirected(one, rename) for one in value]
        else:
            redirected[name] = value
    return redirected
