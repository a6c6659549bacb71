"""Schemas of an OpenAPI document as JSON Schema 2020-12, for the input and output of tools.

Each named schema is converted once, and refers to others as `#/$defs/NAME`. An operation gets the definitions that it
reaches, so a cycle stays a reference. The conversion is lenient: what a keyword cannot mean is left out, because the
service checks the request anyway.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tools_app.catalog.openapi.document import Document, InvalidDocument, escaped, joined, mapping
from tools_app.catalog.validation.sizes import has_exact_numbers
from tools_app.protocol.schema_bounds import pattern_problem

MAX_SCHEMA_DEPTH: Final = 48
MAX_TEXT: Final = 2000
# The definitions of one tool. Those that do not fit are replaced by a schema that accepts anything.
MAX_DEFINITIONS_BYTES: Final = 160 * 1024
ANY_SCHEMA: Final = "Any value; see the documentation of the API."

TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
# Types that documents use although no version knows them.
TYPE_HINTS: Final = {"int": "integer", "long": "integer", "float": "number", "double": "number", "bool": "boolean",
                "str": "string", "date": "string", "datetime": "string", "file": "string"}  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and has_exact_numbers(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


KEPT_KEYWORDS: Final[dict[str, Callable[[Any], bool]]] = {
    "enum": lambda value: isinstance(value, list) and bool(value) and has_exact_numbers(value),
    "const": has_exact_numbers,
    "default": has_exact_numbers,
    "format": lambda value: isinstance(value, str),
    "description": lambda value: isinstance(value, str),
    "deprecated": lambda value: value is True,
    "contentEncoding": lambda value: isinstance(value, str),
    "contentMediaType": lambda value: isinstance(value, str),
    "minimum": _is_number,
    "maximum": _is_number,
    "exclusiveMinimum": _is_number,
    "exclusiveMaximum": _is_number,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    "uniqueItems": lambda value: isinstance(value, bool),
    "pattern": lambda value: isinstance(value, str) and not pattern_problem(value),
    "required": _are_names,
}
SUBSCHEMA_KEYWORDS: Final = frozenset(
    {"items", "additionalProperties", "not", "propertyNames", "contains", "if", "then", "else"}
)
# One of `oneOf` too many is the commonest error of documents, so at least one has to fit.
SUBSCHEMA_LISTS: Final = {"allOf": "allOf", "anyOf": "anyOf", "oneOf": "anyOf", "prefixItems": "prefixItems"}
SUBSCHEMA_MAPS: Final = frozenset({"properties"})


@dataclass(frozen=True)
class Converted:
    """A converted schema, and the names of the definitions that it refers to."""

    schema: Any
    uses: frozenset[str]


class Schemas:
    """The converted schemas of a document. `is_output`: of responses, which lack what can only be written."""

    def __init__(self, document: Document, *, is_output: bool = False) -> None:
        self._document = document
        self._is_output = is_output
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._last_numbers: dict[str, int] = {}
        self._references: dict[str, str] = {}
        self._converted: dict[str, Converted | InvalidDocument] = {}

    def convert(self, schema: Any, pointer: str) -> Converted:
        """Convert a schema. Raises Broken."""
        uses: set[str] = set()
        return Converted(self._convert(schema, pointer, uses, 0), frozenset(uses))

    def definitions(self, uses: Iterable[str]) -> dict[str, Any]:
        """Return the definitions that `uses` reach, nearest first, as far as they fit. Raises Broken."""
        definitions: dict[str, Any] = {}
        size, waiting, seen = 0, list(dict.fromkeys(uses)), set(uses)
        while waiting:
            following: list[str] = []
            for name in waiting:
                found = self._definition(name)
                self._document.spend(1 + len(found.uses))
                size += len(orjson.dumps(found.schema))
                if size > MAX_DEFINITIONS_BYTES:
                    definitions[name] = {"description": ANY_SCHEMA}
                    continue
                definitions[name] = found.schema
                following += [one for one in sorted(found.uses) if one not in seen]
                seen |= found.uses
            waiting = list(dict.fromkeys(following))
        return definitions

    def resolved(self, schema: Any, pointer: str) -> tuple[dict[str, Any], str]:
        """Return a schema behind its references, as it is in the document. Raises Broken."""
        found, place = self._document.resolved(schema, pointer)
        return mapping(found), place

    def _definition(self, name: str) -> Converted:
        if name not in self._converted:
            reference = self._references[name]
            try:
                self._converted[name] = self.convert(self._document.target(reference, reference), reference)
            except InvalidDocument as problem:
                self._converted[name] = problem
        found = self._converted[name]
        if isinstance(found, InvalidDocument):
            raise found
        return found

    def _name(self, reference: str) -> str:
        if reference not in self._names:
            last = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rpartition("/")[2])[:60] or "schema"
            name = last
            while name in self._taken:
                self._last_numbers[last] = self._last_numbers.get(last, 1) + 1
                name = f"{last}_{self._last_numbers[last]}"
            self._taken.add(name)
            self._names[reference], self._references[name] = name, reference
        return self._names[reference]

    def _convert(self, schema: Any, pointer: str, uses: set[str], depth: int) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            return {}
        self._document.spend()
        if depth > MAX_SCHEMA_DEPTH:
            raise InvalidDocument(pointer, f"The schema is nested deeper than {MAX_SCHEMA_DEPTH} levels.")
        if "$ref" in schema:
            return self._reference(schema, pointer, uses)
        converted = {
            name: schema[name] for name, fits in KEPT_KEYWORDS.items() if name in schema and fits(schema[name])
        }
        self._inner(schema, converted, pointer, uses, depth + 1)
        if self._is_output and "required" in converted:
            fields = mapping(schema.get("properties"))
            written = {name for name, one in fields.items() if mapping(one).get("writeOnly") is True}
            converted["required"] = [name for name in converted["required"] if name not in written]
        _tidy(schema, converted)
        return _nullable(schema, converted)

    def _reference(self, schema: dict[str, Any], pointer: str, uses: set[str]) -> dict[str, Any]:
        reference = schema["$ref"]
        self._document.target(reference, joined(pointer, "$ref"))
        name = self._name(reference)
        uses.add(name)
        converted = {"$ref": f"#/$defs/{escaped(name)}"}
        if isinstance(schema.get("description"), str):
            converted["description"] = shortened(schema["description"])
        return converted

    def _inner(
        self, schema: dict[str, Any], converted: dict[str, Any], pointer: str, uses: set[str], depth: int
    ) -> None:
        """Convert the schemas within a schema."""
        for name, value in schema.items():
            place = joined(pointer, name)
            if name == "items" and isinstance(value, list):
                converted["prefixItems"] = [self._convert(one, place, uses, depth) for one in value]
            elif name in SUBSCHEMA_KEYWORDS and isinstance(value, dict | bool):
                converted[name] = self._convert(value, place, uses, depth)
            elif name in SUBSCHEMA_MAPS and isinstance(value, dict):
                converted[name] = {
                    key: self._convert(one, joined(place, key), uses, depth) for key, one in value.items()
                }
            elif name in SUBSCHEMA_LISTS and isinstance(value, list) and value:
                inner = [self._convert(one, joined(place, at), uses, depth) for at, one in enumerate(value)]
                _combine(converted, SUBSCHEMA_LISTS[name], inner)


def _combine(converted: dict[str, Any], keyword: str, inner: list[Any]) -> None:
    if keyword in converted:
        converted.setdefault("allOf", []).append({keyword: inner})
    else:
        converted[keyword] = inner


def _tidy(schema: dict[str, Any], converted: dict[str, Any]) -> None:
    """Bring keywords of older drafts into their form of 2020-12, and drop what has no effect."""
    if (types := _type(schema.get("type"))) is not None:
        converted["type"] = types
    if schema.get("type") == "file":
        converted["format"] = "binary"
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True and bound in converted:
            converted[exclusive] = converted.pop(bound)
    if "description" in converted:
        converted["description"] = shortened(converted["description"])
    if "required" in converted:
        converted["required"] = list(dict.fromkeys(converted["required"]))
        if not converted["required"]:
            del converted["required"]
    if not converted.get("properties", True):
        del converted["properties"]


def _type(declared: Any) -> str | list[str] | None:
    """Return the value of `type`; None if it says nothing that is known."""
    if isinstance(declared, str):
        return meant if (meant := TYPE_HINTS.get(declared, declared)) in TYPES else None
    if not isinstance(declared, list):
        return None
    known = dict.fromkeys(TYPE_HINTS.get(one, one) for one in declared if isinstance(one, str))
    return [one for one in known if one in TYPES] or None


def _nullable(schema: dict[str, Any], converted: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also accepts null, if the document says `nullable`."""
    if schema.get("nullable") is not True and schema.get("x-nullable") is not True:
        return converted
    if "enum" in converted and None not in converted["enum"]:
        converted["enum"] = [*converted["enum"], None]
    if isinstance(converted.get("type"), str):
        converted["type"] = [converted["type"], "null"]
    elif any(name in converted for name in ("allOf", "anyOf")):
        about = {"description": converted.pop("description")} if "description" in converted else {}
        return {**about, "anyOf": [converted, {"type": "null"}]}
    return converted


def shortened(text: str) -> str:
    """Return a description of at most MAX_TEXT characters."""
    text = text.strip()
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
