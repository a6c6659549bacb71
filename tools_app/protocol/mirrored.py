"""Parameters mirrored in headers (2026-07-28, Streamable HTTP, §Custom Headers from Tool Parameters)."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from tools_app.protocol.errors import RpcError
from tools_app.protocol.inbound import decoded, mismatch
from tools_app.protocol.schema_keywords import DATA, SCHEMA_MAPS

KEYWORD: Final = "x-mcp-header"
PREFIX: Final = "mcp-param-"
TYPES: Final = ("string", "integer", "boolean")
MAX_NUMBER: Final = 2**53 - 1
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Characters that a header may contain without encoding (§Value Encoding).
_SENDABLE = re.compile(r"[\t\x20-\x7e]*")
_WHOLE = re.compile(r"[+-]?[0-9]{1,32}(?:\.0+)?")


class Mirrored(NamedTuple):
    """A mirrored parameter: its path in the arguments, and its header in lower case."""

    path: tuple[str, ...]
    header: str


class InvalidMirror(ValueError):
    """A schema marks a parameter that cannot be mirrored in a header. `path` is the mark's path in the schema."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.path = path


def mirrored(schema: Mapping[str, Any]) -> tuple[Mirrored, ...]:
    """Return the parameters that `schema` marks. Raises InvalidMirror for a mark that the specification forbids."""
    found: list[Mirrored] = []
    allowed = set()
    for path, place, inner in _properties(schema, (), ()):
        allowed.add(place)
        if KEYWORD in inner:
            found.append(Mirrored(path, _header(inner, place)))
    for place in _marks(schema, ()):
        if place not in allowed:
            raise InvalidMirror(place, f"{KEYWORD} belongs to properties that are reached through properties alone.")
    names = [one.header for one in found]
    for one in found:
        if names.count(one.header) > 1:
            problem = f"{KEYWORD} names the same header twice. Header names are case-insensitive."
            raise InvalidMirror(("properties", *one.path), problem)
    return tuple(found)


def check(parameters: Sequence[Mirrored], headers: Mapping[str, str], arguments: Mapping[str, Any]) -> RpcError | None:
    """Return what is wrong with the headers of a call; None if they match the arguments (§Server Behavior)."""
    for parameter in parameters:
        value, sent = _value(arguments, parameter.path), headers.get(parameter.header)
        name = f"Mcp-Param-{parameter.header.removeprefix(PREFIX).title()}"
        if value is None:
            if sent is not None:
                return mismatch(name, sent, "nothing")
        elif sent is None or not _SENDABLE.fullmatch(sent) or not _agree(decoded(sent), value):
            return mismatch(name, sent, _as_text(value))
    return None


def texts(parameters: Sequence[Mirrored], arguments: Mapping[str, Any]) -> Iterator[tuple[Mirrored, str]]:
    """Yield the parameters that a call has, each with its value as text, for the headers of a call to a server."""
    for parameter in parameters:
        value = _value(arguments, parameter.path)
        if value is not None:
            yield parameter, _as_text(value)


def _header(schema: Mapping[str, Any], place: tuple[str, ...]) -> str:
    name = schema[KEYWORD]
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise InvalidMirror(place, f"{KEYWORD} is a header's name: letters, digits and !#$%&'*+-.^_`|~.")
    if schema.get("type") not in TYPES:
        raise InvalidMirror(place, f"{KEYWORD} belongs to parameters of the types {', '.join(TYPES)}.")
    return PREFIX + name.lower()


def _properties(
    schema: Mapping[str, Any], path: tuple[str, ...], place: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Mapping[str, Any]]]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, inner in properties.items():
        if isinstance(inner, dict):
            here = (*place, "properties", name)
            yield (*path, name), here, inner
            yield from _properties(inner, (*path, name), here)


def _marks(node: Any, place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the locations of the keyword. Under `properties` it is a parameter's name; in values it is data."""
    if isinstance(node, list):
        for position, inner in enumerate(node):
            yield from _marks(inner, (*place, str(position)))
    if not isinstance(node, dict):
        return
    names_parameters = bool(place) and place[-1] in SCHEMA_MAPS
    if KEYWORD in node and not names_parameters:
        yield place
    for name, inner in node.items():
        if names_parameters or name not in DATA:
            yield from _marks(inner, (*place, name))


def _value(arguments: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = arguments
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # A whole number may be written with a point or an exponent in JSON, but not in a header.
    is_whole = isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value)
    return str(int(value) if is_whole else value)


def _agree(sent: str | None, value: Any) -> bool:
    if sent is None:
        return False
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return bool(_WHOLE.fullmatch(sent)) and float(sent) == value and abs(float(value)) <= MAX_NUMBER
    return sent == _as_text(value)
