"""Schemas of forms that servers ask the user to fill in (elicitation, §Requested Schema), as every client shows them.

A form is an object of fields without a level below. The hub passes on those of upstreams, which write fields that may
be missing as fields that may be null.
"""

from decimal import Decimal
from typing import Any, Final

from tools_app.protocol.schema import InvalidSchema
from tools_app.protocol.tool_schemas import arguments_schema
from tools_app.protocol.unchecked_patterns import without_unchecked_patterns

FORMATS: Final = ("email", "uri", "date", "date-time")
_NUMBERS: Final = (int, float, Decimal)
_TYPES: Final = {"string": (str,), "number": _NUMBERS, "integer": _NUMBERS, "boolean": (bool,), "array": (list,)}


def form_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a form. Raises InvalidSchema for one that clients cannot show.

    It has no patterns that the hub cannot check, no formats that forms do not have, and no defaults of another type.
    """
    known = dict(without_unchecked_patterns(arguments_schema(schema)))
    properties = known.get("properties", {})
    if not isinstance(properties, dict):
        raise InvalidSchema("The properties of the form are not an object.")
    return {**known, "properties": {name: _field(name, inner) for name, inner in properties.items()}}


def _field(name: str, schema: Any) -> dict[str, Any]:
    field = _without_null(schema) if isinstance(schema, dict) else {}
    if (
        "type" not in field
        and isinstance(field.get("enum"), list)
        and all(isinstance(one, str) for one in field["enum"])
    ):
        field["type"] = "string"
    kind = field.get("type")
    if not isinstance(kind, str) or kind not in _TYPES or (kind == "array" and not _has_choices(field.get("items"))):
        raise InvalidSchema(
            f"Forms have texts, numbers, yes or no, and choices of texts. {name[:100]!r} is none of these."
        )
    default = field.get("default")
    is_flag_as_number = isinstance(default, bool) and kind != "boolean"
    if "default" in field and (is_flag_as_number or not isinstance(default, _TYPES[kind])):
        del field["default"]
    if field.get("format", FORMATS[0]) not in FORMATS:
        del field["format"]
    return field


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a field that is not null: one that is not required may be missing."""
    field = dict(schema)
    for keyword in ("anyOf", "oneOf"):
        parts = field.get(keyword)
        others = [part for part in parts if part != {"type": "null"}] if isinstance(parts, list) else []
        if isinstance(parts, list) and len(others) == 1 < len(parts) and isinstance(others[0], dict):
            del field[keyword]
            field = {**field, **others[0]}
    kinds = field.get("type")
    named = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else []
    return {**field, "type": named[0]} if len(named) == 1 else field


def _has_choices(items: Any) -> bool:
    if not isinstance(items, dict):
        return False
    choices = items.get("enum") if items.get("type") == "string" else items.get("anyOf")
    return isinstance(choices, list)
