"""Serialization of parameters and form fields (OpenAPI 3, §Style Values). No I/O.

Values are percent-encoded for their place before delimiters are added, so that no value can add a segment, a parameter
or a header.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

from tools_app.catalog.kinds.templates import as_text
from tools_app.catalog.tool_api.results import ToolError

Pair = tuple[str, str]
Encode = Callable[[str], str]

DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
# RFC 3986: the reserved characters that a query, or a path, may contain and that do not split or end it. Servers refuse
# brackets outside of the host.
RESERVED: Final = ":/?@!$'()*,;"
RESERVED_IN_PATH: Final = ":/@!$&'()*+,;="
MAX_PAIRS: Final = 10_000
MAX_CHARACTERS: Final = 16 * 1024 * 1024
MAX_DEPTH: Final = 16


def encoded(text: str) -> str:
    """Return a text with everything percent-encoded that is not unreserved."""
    return quote(text, safe="")


def reserved_allowed(text: str) -> str:
    """Return a text with reserved characters as they are, except those that separate parameters."""
    return quote(text, safe=RESERVED)


def reserved_allowed_in_path(text: str) -> str:
    """Return a text with the reserved characters that a path may contain as they are."""
    return quote(text, safe=RESERVED_IN_PATH)


def scalar(value: Any, name: str) -> str:
    """Return a value as text: strings as they are, null as an empty text, anything else as JSON. Raises ToolError."""
    return "" if value is None else as_text(value, name)


def in_path(value: Any, name: str, style: str, explode: bool, encode: Encode = encoded) -> str:
    """Return a path parameter in the style simple, label or matrix."""
    key = encoded(name)
    prefix, separator = {"label": (".", "."), "matrix": (";", ";")}.get(style, ("", ","))
    match value:
        case dict():
            if explode:
                pairs = [f"{encode(one)}={encode(scalar(item, name))}" for one, item in value.items()]
                return prefix + separator.join(pairs)
            flat = ",".join(part for one, item in value.items() for part in (encode(one), encode(scalar(item, name))))
            return f";{key}={flat}" if style == "matrix" else prefix + flat
        case list():
            items = [encode(scalar(item, name)) for item in value]
            if style == "matrix":
                return "".join(f";{key}={item}" for item in items) if explode else f";{key}={','.join(items)}"
            return prefix + (separator if explode else ",").join(items)
    text = encode(scalar(value, name))
    return f";{key}={text}" if style == "matrix" else prefix + text


def in_header(value: Any, name: str, explode: bool) -> str:
    """Return a header parameter in the style simple, without percent-encoding."""
    match value:
        case dict():
            joiner = "=" if explode else ","
            return ",".join(f"{one}{joiner}{scalar(item, name)}" for one, item in value.items())
        case list():
            return ",".join(scalar(item, name) for item in value)
    return scalar(value, name)


def pairs(value: Any, name: str, style: str, explode: bool, encode: Encode = encoded) -> Iterator[Pair]:
    """Yield the encoded names and values of a parameter of a query, a cookie or a form."""
    key = encoded(name)
    if style == "deepObject":
        yield from _deep(value, key, encode, 0)
        return
    match value:
        case dict() if explode and style == "form":
            for one, item in value.items():
                yield encoded(one), encode(scalar(item, name))
        case dict():
            parts = (part for one, item in value.items() for part in (one, scalar(item, name)))
            yield key, DELIMITERS.get(style, ",").join(map(encode, parts))
        case list() if explode:
            for item in value:
                yield key, encode(scalar(item, name))
        case list():
            yield key, DELIMITERS.get(style, ",").join(encode(scalar(item, name)) for item in value)
        case _:
            yield key, encode(scalar(value, name))


def _deep(value: Any, key: str, encode: Encode, depth: int) -> Iterator[Pair]:
    """Yield `key[name]=value` for each property, with encoded brackets; deeper ones and lists get their own."""
    if depth > MAX_DEPTH:
        raise ToolError(f"The arguments are nested deeper than {MAX_DEPTH} levels.")
    match value:
        case dict():
            for name, item in value.items():
                yield from _deep(item, f"{key}%5B{encoded(name)}%5D", encode, depth + 1)
        case list():
            for at, item in enumerate(value):
                yield from _deep(item, f"{key}%5B{at}%5D", encode, depth + 1)
        case _:
            yield key, encode(scalar(value, key))


def query_text(found: Iterator[Pair]) -> str:
    """Return pairs as a query or a form. Raises ToolError for too many, and for names that are repeated too often."""
    texts: list[str] = []
    size = 0
    for name, value in found:
        texts.append(f"{name}={value}")
        size += len(texts[-1])
        if len(texts) > MAX_PAIRS or size > MAX_CHARACTERS:
            raise ToolError(f"The arguments make more than {MAX_PAIRS} parameters or {MAX_CHARACTERS} characters.")
    return "&".join(texts)
