"""Repairs of schemas that no value, or none that was meant, would match: each is noted for the admin.

Documents are written in YAML, by hand, and by generators of other languages: `enum: [1, 2]` beside `type: string`, an
enumeration of the items beside `type: array`, or `/^[a-z]+$/` as JavaScript writes a regular expression.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from tools_app.catalog.kinds.openapi.documents.document import listing
from tools_app.catalog.validation.sizes import has_exact_numbers
from tools_app.protocol.schema_bounds import pattern_problem

TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
# Types that documents use although no version knows them.
TYPE_HINTS: Final = {"int": "integer", "long": "integer", "float": "number", "double": "number", "bool": "boolean",
                "str": "string", "date": "string", "datetime": "string", "file": "string"}  # fmt: skip
_FLAGS: Final = frozenset("dgmsuvy")
_BOUNDS: Final = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_MAX_DIGITS: Final = 40
_NAMES: Final = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null"}


def is_number(value: Any) -> bool:
    """Whether a value is a number that can be stored exactly."""
    return isinstance(value, int | float) and not isinstance(value, bool) and has_exact_numbers(value)


def repair(schema: dict[str, Any], converted: dict[str, Any]) -> Iterator[str]:
    """Repair a converted schema, and yield what was done. `schema` is that of the document."""
    yield from _pattern(schema.get("pattern"), converted)
    for least, most in _BOUNDS:
        if least in converted and most in converted and converted[least] > converted[most]:
            del converted[least], converted[most]
            yield f"{least} is larger than {most}; both were left out."
    declared = converted.get("type")
    types = {declared} if isinstance(declared, str) else set(declared or ())
    if not types:
        return
    values = listing(converted.get("enum"))
    if "array" in types and values and not any(isinstance(one, list) or one is None for one in values):
        yield "The values of an array were taken as those of its items."
        items = converted.get("items")
        enum = converted.pop("enum")
        if isinstance(items, dict) and "$ref" not in items and "enum" not in items:
            converted["items"] = {**items, "enum": enum}
            yield from repair({}, converted["items"])
        elif not items:
            converted["items"] = {"enum": enum}
    yield from _values(converted, types)


def _pattern(pattern: Any, converted: dict[str, Any]) -> Iterator[str]:
    """Add the pattern of a schema, unless it cannot be used."""
    if not isinstance(pattern, str):
        return
    # PostgreSQL stores no NUL; regular expressions can name it.
    text = pattern.strip("\r\n").replace("\x00", r"\x00")
    if text != pattern:
        yield f"The pattern {text[:200]} was read without the line break or NUL character in it."
    inner, _, flags = text[1:].rpartition("/")
    if text.startswith("/") and set(flags) <= _FLAGS | {"i"} and (inner.startswith("^") or inner.endswith("$")):
        yield f"The pattern {pattern[:200]} was read without its slashes."
        text = inner if set(flags) <= _FLAGS else ""
    if text and not (problem := pattern_problem(text)):
        converted["pattern"] = text
    elif text:
        yield f"The pattern was left out: {problem}."


def _values(converted: dict[str, Any], types: set[str]) -> Iterator[str]:
    """Give the values of a schema its type, or the schema the type of its values."""
    enum = converted.get("enum")
    if enum and not all(one is None or _is_one_of(one, types) for one in enum):
        values = [one if one is None else _as_one_of(one, types) for one in enum]
        if None in [value for value, one in zip(values, enum, strict=True) if one is not None]:
            converted.pop("type")
            yield f"The values are of another type than {_listed(types)}, which was left out."
        else:
            converted["enum"] = [value for at, value in enumerate(values) if not _is_in(value, values[:at])]
            yield f"The values were given the type {_listed(types)}."
    for name in ("const", "default"):
        value = converted.get(name)
        if value is not None and not _is_one_of(value, types):
            converted[name] = _as_one_of(value, types)
            if converted[name] is None:
                del converted[name]
            done = f"given the type {_listed(types)}" if name in converted else "left out"
            yield f"The {name} is not of the type {_listed(types)}, and was {done}."
    enum = converted.get("enum")
    if enum and "default" in converted and not _is_in(converted["default"], enum):
        del converted["default"]


def _listed(types: set[str]) -> str:
    return " or ".join(sorted(types))


def _is_in(value: Any, values: list[Any]) -> bool:
    """Whether a value is among others; unlike in Python, true is not 1."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def _is_one_of(value: Any, types: set[str]) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number" in types or ("integer" in types and float(value).is_integer())
    return _NAMES[type(value)] in types


def _as_one_of(value: Any, types: set[str]) -> Any:
    """Return a scalar as one of these types; None if it cannot be one."""
    if _is_one_of(value, types):
        return value
    if "string" in types and isinstance(value, bool | int | float):
        return str(value).lower()
    if not isinstance(value, str) or len(value) > _MAX_DIGITS:
        return None
    if "boolean" in types and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    for wanted, form, read in (
        ("integer", r"[+-]?[0-9]+", int),
        ("number", r"[+-]?[0-9]+(?:\.[0-9]+)?", float),
    ):
        if wanted in types and re.fullmatch(form, value) and is_number(number := read(value)):
            return number
    return None
