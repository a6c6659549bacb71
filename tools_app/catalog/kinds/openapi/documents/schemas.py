"""Schemas of an OpenAPI document as JSON Schema 2020-12, for the input and output of tools.

Each named schema is converted once, and refers to others as `#/$defs/NAME`. An operation gets the definitions that it
reaches, so a cycle stays a reference. The conversion is lenient: what a keyword cannot mean is left out, because the
service checks the request anyway.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import orjson

from tools_app.catalog.kinds.openapi.documents.document import (
    Document,
    InvalidDocument,
    escaped,
    joined,
    listing,
    mapping,
    text_of,
)
from tools_app.catalog.kinds.openapi.documents.repairs import TYPE_HINTS, TYPES, is_number, repair
from tools_app.catalog.validation.sizes import has_exact_numbers
from tools_app.core.sanitize import for_column

MAX_SCHEMA_DEPTH: Final = 48
MAX_TEXT: Final = 2000
# The definitions of one tool. Those that do not fit are replaced by a schema that accepts anything.
MAX_DEFINITIONS_BYTES: Final = 160 * 1024
ANY_SCHEMA: Final = "Any value; see the documentation of the API."


KEPT_KEYWORDS: Final[dict[str, Callable[[Any], bool]]] = {
    "enum": lambda value: isinstance(value, list) and bool(value) and has_exact_numbers(value),
    "const": has_exact_numbers,
    "default": has_exact_numbers,
    "format": lambda value: isinstance(value, str),
    "description": lambda value: isinstance(value, str),
    "deprecated": lambda value: value is True,
    "contentEncoding": lambda value: isinstance(value, str),
    "contentMediaType": lambda value: isinstance(value, str),
    "minimum": is_number,
    "maximum": is_number,
    "exclusiveMinimum": is_number,
    "exclusiveMaximum": is_number,
    "multipleOf": lambda value: is_number(value) and value > 0,
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53,
    ),
    "uniqueItems": lambda value: isinstance(value, bool),
    "required": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
}
SUBSCHEMA_KEYWORDS: Final = frozenset(
    {"items", "additionalProperties", "not", "propertyNames", "contains", "if", "then", "else"}
)
# One of `oneOf` too many is the commonest error of documents, so at least one has to fit.
SUBSCHEMA_LISTS: Final = {"allOf": "allOf", "anyOf": "anyOf", "oneOf": "anyOf", "prefixItems": "prefixItems"}
SUBSCHEMA_MAPS: Final = frozenset({"properties"})
# Keywords whose schemas describe the same value as the one that has them.
COMBINING: Final = frozenset({"allOf", "anyOf", "oneOf"})
CONDITIONAL: Final = frozenset({"if", "then", "else", "not"})
MAX_COMBINED: Final = 8
# A base type with more subtypes accepts any properties besides its own.
MAX_SUBTYPES: Final = 16
# What a conversion adds to: the names of definitions, and notes.
_Found = tuple[set[str], list[str]]


@dataclass(frozen=True)
class Converted:
    """A converted schema, the names of the definitions that it refers to, and what was repaired in it."""

    schema: Any
    uses: frozenset[str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Place:
    """Where a schema stands: it describes the same value as the schemas around it if it is a part of them.

    `hidden` are the properties of that value which are only in messages of the other direction.
    """

    depth: int = 0
    is_part: bool = False
    hidden: frozenset[str] = frozenset()
    # The reference of the definition that is converted.
    reference: str = ""


@dataclass
class _Combined:
    """What a schema and those that it combines say of one value.

    `hidden` are the properties which are only in messages of the other direction; `is_closed` says whether a schema
    refuses what the others describe.
    """

    hidden: set[str] = field(default_factory=set)
    is_closed: bool = False

    def add(self, other: "_Combined") -> None:
        """Add what another schema of the same value says."""
        self.hidden |= other.hidden
        self.is_closed |= other.is_closed


def strongly_connected(edges: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return for each name the one that stands for its strongly connected component (Kosaraju).

    A name comes after those that it leads to, but for those of its own component.
    """
    order: list[str] = []
    seen: set[str] = set()
    for root in edges:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(edges[root]))]
        while path:
            name, rest = path[-1]
            following = next((one for one in rest if one not in seen), None)
            if following is None:
                order.append(name)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(edges[following])))
    back: dict[str, list[str]] = {name: [] for name in edges}
    for name, targets in edges.items():
        for to in targets:
            back[to].append(name)
    groups = dict.fromkeys(order, "")
    for root in reversed(order):
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if not groups[name]:
                groups[name] = root
                waiting += back[name]
    return groups


class Subtypes:
    """Finds the subtypes of the schemas of a document."""

    def __init__(self, document: Document) -> None:
        self._document = document

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        """The references of the named schemas that refer to another in `allOf`, by the reference of that."""
        children: dict[str, list[str]] = {}
        for reference, schema in self._named():
            for one in listing(mapping(schema).get("allOf")):
                base = mapping(one).get("$ref")
                if isinstance(base, str) and base != reference:
                    children.setdefault(base, []).append(reference)
        return children

    @cached_property
    def _all(self) -> frozenset[str]:
        return frozenset(reference for children in self._children.values() for reference in children)

    def _named(self) -> Iterator[tuple[str, Any]]:
        root = self._document.root
        prefix = "#/definitions/" if self._document.is_old else "#/components/schemas/"
        named = root.get("definitions") if self._document.is_old else mapping(root.get("components")).get("schemas")
        for name, schema in mapping(named).items():
            self._document.spend()
            yield prefix + escaped(name), schema

    def is_subtype(self, reference: str) -> bool:
        """Whether a named schema refers to another one in `allOf`."""
        return reference in self._all

    def below(self, reference: str) -> dict[str, None]:
        """Return the references of the schemas that refer to this one in `allOf`, directly or through others."""
        found: dict[str, None] = {}
        waiting = [reference]
        while waiting:
            for one in self._children.get(waiting.pop(0), ()):
                self._document.spend()
                if one not in found and one != reference:
                    found[one] = None
                    waiting.append(one)
        return found

    def of(self, schema: dict[str, Any], reference: str) -> dict[str, str]:
        """Return the references of the subtypes of a schema, by the values of its discriminator."""
        discriminator = schema.get("discriminator")
        named = {
            value: self._target(text_of(target), reference)
            for value, target in mapping(mapping(discriminator).get("mapping")).items()
        }
        found = {value: target for value, target in named.items() if target not in {"", reference}}
        mapped = set(named.values())
        for one in self.below(reference):
            if one not in mapped:
                value = one.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
                own = mapping(self._document.target(one, reference)).get("x-ms-discriminator-value")
                found.setdefault(text_of(own) or value, one)
        return found

    def _target(self, named: str, reference: str) -> str:
        """Return the reference that a value of the mapping stands for, which may be a name; "" if there is none."""
        prefix = "#/definitions/" if self._document.is_old else "#/components/schemas/"
        for candidate in (named, prefix + escaped(named)):
            if candidate.startswith("#"):
                try:
                    self._document.target(candidate, reference)
                except ValueError:
                    continue
                return candidate
        return ""


def discriminating_property(schema: dict[str, Any]) -> str:
    """Return the name of the property that tells the subtypes apart; "" if the document does not say."""
    discriminator = schema.get("discriminator")
    return (
        text_of(mapping(discriminator).get("propertyName"))
        if isinstance(discriminator, dict)
        else text_of(discriminator)
    )


class Schemas:
    """The converted schemas of a document.

    Those of requests (`is_output=False`) lack what is `readOnly`, those of responses what is `writeOnly`.
    """

    def __init__(self, document: Document, *, is_output: bool = False) -> None:
        self._document = document
        self._hiding = "writeOnly" if is_output else "readOnly"
        self._names: dict[tuple[str, bool], str] = {}
        self._taken: set[str] = set()
        self._last_numbers: dict[str, int] = {}
        self._references: dict[str, tuple[str, bool]] = {}
        self._converted: dict[str, Converted | InvalidDocument] = {}
        self.subtypes = Subtypes(document)
        # By reference.
        self._combined_at: dict[str, _Combined] = {}

    def convert(self, schema: Any, pointer: str) -> Converted:
        """Convert a schema. Raises InvalidDocument."""
        return self._converted_at(schema, pointer, _Place())

    def _converted_at(self, schema: Any, pointer: str, place: _Place) -> Converted:
        uses: set[str] = set()
        notes: list[str] = []
        return Converted(self._convert(schema, pointer, (uses, notes), place), frozenset(uses), tuple(notes))

    def notes(self, names: Iterable[str]) -> list[str]:
        """Return what was repaired in these definitions."""
        found = (self._converted.get(name) for name in names)
        return [note for one in found if isinstance(one, Converted) for note in one.notes]

    def is_hidden(self, schema: Any, pointer: str, depth: int = 0) -> bool:
        """Whether a property is only in messages of the other direction: its schema says so, or one it is made of."""
        self._document.spend()
        if not isinstance(schema, dict) or depth > MAX_COMBINED:
            return False
        if schema.get(self._hiding) is True:
            return True
        parts = [schema] if "$ref" in schema else listing(schema.get("allOf"))
        found = (self._document.resolved(one, pointer) for one in parts)
        return any(self.is_hidden(one, place, depth + 1) for one, place in found)

    def is_polymorphic(self, schema: dict[str, Any], pointer: str) -> bool:
        """Whether a schema that was resolved to `pointer` stands for its subtypes too."""
        return "discriminator" in schema and bool(self.subtypes.of(schema, pointer))

    def definitions(self, uses: Iterable[str]) -> dict[str, Any]:
        """Return the definitions that `uses` reach, nearest first, as far as they fit. Raises InvalidDocument."""
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
        """Return a schema behind its references, as it is in the document. Raises InvalidDocument."""
        found, place = self._document.resolved(schema, pointer)
        return mapping(found), place

    def _definition(self, name: str) -> Converted:
        if name not in self._converted:
            reference, is_part = self._references[name]
            try:
                target = self._document.target(reference, reference)
                self._converted[name] = self._converted_at(target, reference, _Place(0, is_part, reference=reference))
            except InvalidDocument as problem:
                self._converted[name] = problem
        found = self._converted[name]
        if isinstance(found, InvalidDocument):
            raise found
        return found

    def _name(self, reference: str, is_part: bool) -> str:
        if (reference, is_part) not in self._names:
            last = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rpartition("/")[2])[:60] or "schema"
            last += ".part" if is_part else ""
            name = last
            while name in self._taken:
                self._last_numbers[last] = self._last_numbers.get(last, 1) + 1
                name = f"{last}_{self._last_numbers[last]}"
            self._taken.add(name)
            self._names[reference, is_part], self._references[name] = name, (reference, is_part)
        return self._names[reference, is_part]

    def _convert(self, schema: Any, pointer: str, found: _Found, place: _Place) -> Any:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            return {}
        self._document.spend()
        if place.depth > MAX_SCHEMA_DEPTH:
            raise InvalidDocument(pointer, f"The schema is nested deeper than {MAX_SCHEMA_DEPTH} levels.")
        if "$ref" in schema:
            return self._reference(schema, pointer, found, place)
        converted = {
            name: schema[name] for name, fits in KEPT_KEYWORDS.items() if name in schema and fits(schema[name])
        }
        hidden = place.hidden | self._combined(schema, pointer).hidden
        self._inner(schema, converted, pointer, found, replace(place, depth=place.depth + 1, hidden=hidden))
        if "required" in converted:
            converted["required"] = [name for name in converted["required"] if name not in hidden]
        _open(schema, converted, place)
        _tidy(schema, converted)
        found[1].extend(f"{pointer}: {note}" for note in repair(schema, converted))
        if not place.is_part and self.is_polymorphic(schema, pointer):
            converted = self._with_subtypes(schema, converted, pointer, found)
        return _nullable(schema, converted)

    def _combined(self, schema: Any, pointer: str) -> _Combined:
        """Return what a schema and those that it combines say of their value. Raises InvalidDocument.

        Schemas that combine each other in a circle say the same together.
        """
        target, place = self._document.resolved(schema, pointer)
        # A schema that no reference leads to has no name, and is not kept.
        root = "#" if target is schema else place
        if root in self._combined_at:
            return self._combined_at[root]
        alone: dict[str, _Combined] = {}
        edges: dict[str, list[str]] = {}
        waiting = {root: (target, place)}
        while waiting:
            name, (target, place) = waiting.popitem()
            alone[name] = _Combined()
            members = self._members(target, place, alone[name])
            edges[name] = [reference for reference in members if reference not in self._combined_at]
            for reference in members.keys() - edges[name]:
                alone[name].add(self._combined_at[reference])
            waiting |= {reference: members[reference] for reference in edges[name] if reference not in alone}
        together: dict[str, _Combined] = {}
        groups = strongly_connected(edges)
        for name, group in groups.items():
            combined = together.setdefault(group, _Combined())
            combined.add(alone[name])
            for reference in edges[name]:
                combined.add(together.setdefault(groups[reference], _Combined()))
            self._document.spend(1 + len(combined.hidden))
        self._combined_at |= {name: together[group] for name, group in groups.items() if name != "#"}
        return together[groups[root]]

    def _members(self, schema: Any, pointer: str, combined: _Combined) -> dict[str, tuple[Any, str]]:
        """Add what a schema says to `combined`; return those that it combines by reference, with their places."""
        self._document.spend()
        if not isinstance(schema, dict):
            return {}
        for name, one in mapping(schema.get("properties")).items():
            if self.is_hidden(one, joined(pointer, "properties", name)):
                combined.hidden.add(name)
        combined.is_closed |= schema.get("additionalProperties") is False or self.is_polymorphic(schema, pointer)
        members: dict[str, tuple[Any, str]] = {}
        for keyword in sorted(COMBINING & schema.keys()):
            for number, one in enumerate(listing(schema[keyword])):
                target, place = self._document.resolved(one, joined(pointer, keyword, number))
                members |= {place: (target, place)} if target is not one else self._members(one, place, combined)
        return members

    def _with_subtypes(
        self, schema: dict[str, Any], converted: dict[str, Any], pointer: str, found: _Found
    ) -> dict[str, Any]:
        """Return a schema that accepts a base type and its subtypes, which are named by its discriminator."""
        converted.pop("additionalProperties", None)
        subtypes = self.subtypes.of(schema, pointer)
        if COMBINING & converted.keys() - {"allOf"} or len(subtypes) > MAX_SUBTYPES:
            return converted
        alternatives: list[dict[str, Any]] = []
        for value, reference in subtypes.items():
            name = self._name(reference, self._combined({"$ref": reference}, reference).is_closed)
            found[0].add(name)
            one: dict[str, Any] = {"$ref": f"#/$defs/{escaped(name)}"}
            if property_name := discriminating_property(schema):
                one["properties"] = {property_name: {"const": value}}
            alternatives.append(one)
        about = {"description": converted.pop("description")} if "description" in converted else {}
        return {**about, "anyOf": [*alternatives, converted]}

    def _reference(self, schema: dict[str, Any], pointer: str, found: _Found, place: _Place) -> Any:
        reference = schema["$ref"]
        target = self._document.target(reference, joined(pointer, "$ref"))
        if place.hidden.intersection(required_names(target)) - self._combined(schema, pointer).hidden:
            # What is required there is hidden by a schema beside the reference.
            return self._convert(target, reference, found, replace(place, depth=place.depth + 1))
        name = self._name(reference, place.is_part and self._combined(schema, pointer).is_closed)
        found[0].add(name)
        converted = {"$ref": f"#/$defs/{escaped(name)}"}
        if isinstance(schema.get("description"), str):
            converted["description"] = shortened(schema["description"])
        return converted

    def _inner(
        self, schema: dict[str, Any], converted: dict[str, Any], pointer: str, found: _Found, place: _Place
    ) -> None:
        """Convert the schemas within a schema."""
        apart = _Place(place.depth)
        for name, value in schema.items():
            at = joined(pointer, name)
            if name == "items" and isinstance(value, list):
                converted["prefixItems"] = [self._convert(one, at, found, apart) for one in value]
            elif name in SUBSCHEMA_KEYWORDS and isinstance(value, dict | bool):
                inner = replace(place, is_part=True) if name in CONDITIONAL else apart
                converted[name] = self._convert(value, at, found, inner)
            elif name in SUBSCHEMA_MAPS and isinstance(value, dict):
                converted[name] = {
                    key: self._convert(one, joined(at, key), found, apart)
                    for key, one in value.items()
                    if key not in place.hidden or not self.is_hidden(one, joined(at, key))
                }
            elif name in SUBSCHEMA_LISTS and isinstance(value, list) and value:
                inner = self._member(schema, name, place) if name in COMBINING else apart
                members = [
                    self._convert(one, joined(at, number), found, inner)
                    for number, one in enumerate(value)
                    if not (place.is_part and self._is_subtype(one, place.reference))
                ]
                if members:
                    keyword = SUBSCHEMA_LISTS[name]
                    if keyword in converted:
                        converted.setdefault("allOf", []).append({keyword: members})
                    else:
                        converted[keyword] = members

    def _member(self, schema: dict[str, Any], keyword: str, place: _Place) -> _Place:
        """Return the place of the members of `allOf`, `anyOf` or `oneOf`: parts, unless they say everything alone."""
        others = {"properties", "required", *COMBINING} & schema.keys() - {keyword}
        is_alone = not others and (keyword != "allOf" or len(schema[keyword]) == 1)
        is_part = place.is_part or not is_alone or self.subtypes.is_subtype(place.reference)
        return replace(place, is_part=is_part, reference="")

    def _is_subtype(self, schema: Any, base: str) -> bool:
        """Whether a schema is a reference to a subtype of `base`: as a part of itself, a base leaves them out."""
        return bool(base) and isinstance(schema, dict) and schema.get("$ref") in self.subtypes.below(base)


def required_names(schema: Any) -> list[str]:
    """Return the names that a schema requires."""
    return [name for name in listing(mapping(schema).get("required")) if isinstance(name, str)]


def _open(schema: dict[str, Any], converted: dict[str, Any], place: _Place) -> None:
    """Remove `additionalProperties: false` where it would refuse what another schema of the same value describes."""
    if converted.get("additionalProperties") is not False:
        return
    undeclared = set(converted.get("required", ())) - mapping(schema.get("properties")).keys()
    if place.is_part or COMBINING & converted.keys() or undeclared:
        del converted["additionalProperties"]


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
    text = for_column(text.strip(), len(text))
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
