"""Schemas of tools of any origin, in the form that every client accepts.

The specification's own schemas require the type "object", and objects as the schemas of properties (tools, §Tool). The
official TypeScript clients refuse a whole list for one tool that says the same in another way, so it is rewritten.
"""

from collections.abc import Mapping
from typing import Any, Final

from tools_app.protocol.schema import InvalidSchema
from tools_app.protocol.schema_bounds import TOO_DEEP, References
from tools_app.protocol.schema_keywords import SCHEMA_MAPS

# Keywords whose value is a schema or a list of schemas.
_APPLICATORS: Final = frozenset(
    {"items", "prefixItems", "additionalItems", "contains", "additionalProperties", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"}
)
# Keywords for which null is a value.
_NULLABLE: Final = frozenset({"const", "default"})
_OF_OBJECTS: Final = frozenset({"properties", "required", "patternProperties"})


def arguments_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments, which are an object. Raises InvalidSchema if it describes none."""
    if schema is None:
        raise InvalidSchema("the tool has no inputSchema")
    known = _known(schema)
    if not _permits(known.get("type", "object")):
        raise InvalidSchema("the inputSchema describes no object, which arguments are")
    return {"type": "object", **known, **_OBJECT}


def result_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool's structured content, with the type "object" if it describes nothing else.

    The hub takes null for no structured content. Raises InvalidSchema.
    """
    known = _known(schema)
    try:
        describes_objects = _describes_objects(known, References(known), {})
    except RecursionError:
        raise InvalidSchema(TOO_DEEP) from None
    return {"type": "object", **known, **_OBJECT} if describes_objects else known


_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}


def _known(schema: Any) -> dict[str, Any]:
    """Return a schema without nulls, and with objects as the schemas of its properties."""
    if schema is None or schema is True:
        return {}
    if not isinstance(schema, dict):
        raise InvalidSchema("a schema is not an object")
    try:
        known: dict[str, Any] = _without_nulls(schema)
    except RecursionError:
        raise InvalidSchema(TOO_DEEP) from None
    properties = known.get("properties")
    if isinstance(properties, dict):
        as_objects: dict[Any, dict[str, Any]] = {True: {}, False: {"not": {}}}
        known["properties"] = {
            name: as_objects[inner] if isinstance(inner, bool) else inner for name, inner in properties.items()
        }
    return known


def _without_nulls(schema: Any) -> Any:
    """Leave out keywords that are null, as some servers write those without a value. Null as a schema permits all."""
    if isinstance(schema, list):
        return [_without_nulls(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if value is None and keyword not in _NULLABLE:
            continue
        if keyword == "nullable" and "type" not in schema:
            # OpenAPI's, which clients refuse there. In JSON Schema it says nothing.
            continue
        if keyword in SCHEMA_MAPS and isinstance(value, dict):
            result[keyword] = {name: {} if inner is None else _without_nulls(inner) for name, inner in value.items()}
        else:
            result[keyword] = _without_nulls(value) if keyword in _APPLICATORS else value
    return result


def _permits(types: Any) -> bool:
    """Whether a value of `type` permits objects."""
    return types == "object" or (isinstance(types, list) and "object" in types)


def _describes_objects(schema: Any, references: References, known: dict[int, bool]) -> bool:
    """Whether a schema describes objects, and nothing else but null. `known` are the answers for its parts."""
    if not isinstance(schema, dict):
        return False
    if id(schema) not in known:
        known[id(schema)] = False  # while it is asked for, for one that refers to itself
        known[id(schema)] = _has_type_or_parts_of_objects(schema, references, known)
    return known[id(schema)]


def _has_type_or_parts_of_objects(schema: dict[str, Any], references: References, known: dict[int, bool]) -> bool:
    if "type" in schema:
        types = schema["type"]
        return _permits(types) and (types == "object" or all(each in ("object", "null") for each in types))
    if not _OF_OBJECTS.isdisjoint(schema):
        return True
    if isinstance(target := schema.get("$ref"), str):
        return _describes_objects(references.target(target), references, known)
    for keyword, decides in (("allOf", any), ("anyOf", all), ("oneOf", all)):
        parts = schema.get(keyword)
        if isinstance(parts, list):
            others = [part for part in parts if not (isinstance(part, dict) and part.get("type") == "null")]
            if others and decides(_describes_objects(part, references, known) for part in others):
                return True
    return False
