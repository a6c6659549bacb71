"""Arguments of an operation's tool: its parameters and its body as one input schema, and how each is sent.

Properties of a body that is a plain object become arguments of their own. Where a path, a query and a body use the same
name, the later one gets its place as a suffix.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tools_app.catalog.kinds.http.config import RESERVED_HEADERS
from tools_app.catalog.kinds.openapi.config import VARIABLE
from tools_app.catalog.kinds.openapi.documents import lowering, media_types, naming
from tools_app.catalog.kinds.openapi.documents.document import (
    Document,
    InvalidDocument,
    joined,
    listing,
    mapping,
    text_of,
)
from tools_app.catalog.kinds.openapi.documents.media_types import JSON, mode_of
from tools_app.catalog.kinds.openapi.documents.schemas import Schemas, required_names, shortened
from tools_app.catalog.kinds.openapi.documents.xml_examples import XmlExample

PLACES: Final = ("path", "query", "querystring", "header", "cookie")
# The specification: parameters with these names are ignored.
IGNORED_HEADERS: Final = frozenset({"accept", "content-type", "authorization"})
DEFAULT_STYLES: Final = {"path": "simple", "query": "form", "header": "simple", "cookie": "form", "querystring": "form"}
STYLES: Final = {
    "path": {"simple", "label", "matrix"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject"},
    "header": {"simple"},
    "cookie": {"form", "cookie"},
    "querystring": {"form"},
}
MAX_PARTS: Final = 500
MAX_MERGED: Final = 16
# Parts of one body, with each reference counted as what it stands for.
MAX_MERGED_PARTS: Final = 1000
RESOURCE: Final = {"type": "string", "description": "URI of a resource of this server, in place of the bytes."}
FILE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "data": {"type": "string", "contentEncoding": "base64"},
        "resource": RESOURCE,
        "filename": {"type": "string"},
        "media_type": {"type": "string"},
    },
    "oneOf": [{"required": ["data"]}, {"required": ["resource"]}],
    "additionalProperties": False,
}
# A body that is not text: its bytes, or a resource.
BINARY: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "string", "contentEncoding": "base64"},
        {
            "type": "object",
            "properties": {"resource": RESOURCE},
            "required": ["resource"],
            "additionalProperties": False,
        },
    ]
}


@dataclass
class Arguments:
    """The arguments of one operation while they are collected."""

    properties: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    parameters: list[dict[str, Any]] = field(default_factory=list)
    body: dict[str, Any] | None = None

    def add(self, name: str, place: str, schema: Any, *, required: bool) -> str:
        """Add an argument, and return the name that it got."""
        wanted = naming.argument_name(name)
        if wanted in self.properties:
            wanted = naming.unique_name(f"{wanted}_{place}", self.properties, naming.MAX_ARGUMENT)
        self.properties[wanted] = schema
        if required:
            self.required.append(wanted)
        return wanted

    def schema(self, schemas: Schemas) -> dict[str, Any]:
        """Return the input schema with all definitions that it needs. Raises InvalidDocument."""
        input_schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            input_schema["required"] = self.required
        input_schema["additionalProperties"] = False
        if self.uses:
            input_schema["$defs"] = schemas.definitions(sorted(self.uses))
            self.notes += schemas.notes(input_schema["$defs"])
        return input_schema


class ArgumentReader:
    """Reads the arguments of the operations of a document."""

    def __init__(self, document: Document, schemas: Schemas) -> None:
        self._document = document
        self._schemas = schemas

    def read(self, operation: dict[str, Any], shared: Any, path: str, pointers: tuple[str, str]) -> Arguments:
        """Return the arguments of an operation. `shared` are the parameters of its path. Raises InvalidDocument."""
        found = Arguments()
        parameters = self._parameters(shared, operation.get("parameters"), pointers)
        is_body = ("body", "formData") if self._document.is_old else ()
        for parameter, pointer in parameters:
            if parameter.get("in") not in is_body:
                self._add_parameter(
                    found, lowering.parameter(parameter) if self._document.is_old else parameter, pointer
                )
        self._add_missing(found, path)
        body_parameters = [parameter for parameter, _ in parameters if parameter.get("in") in is_body]
        self._add_body(found, operation, body_parameters, pointers[1])
        return found

    # --- Parameters -----------------------------------------------------------------------------------------------

    def _parameters(
        self, shared: Any, operation_parameters: Any, pointers: tuple[str, str]
    ) -> list[tuple[dict[str, Any], str]]:
        """Return the parameters of a path and an operation; those of the operation take precedence."""
        found: dict[tuple[str, str], tuple[dict[str, Any], str]] = {}
        for listed, base in ((shared, pointers[0]), (operation_parameters, pointers[1])):
            for at, one in enumerate(listing(listed)):
                parameter, pointer = self._document.object_at(one, joined(base, "parameters", at))
                name, place = parameter.get("name"), parameter.get("in")
                if not isinstance(name, str) or not name or not isinstance(place, str):
                    raise InvalidDocument(pointer, "A parameter needs a name and a place.")
                found[name.lower() if place == "header" else name, place] = parameter, pointer
        if len(found) > MAX_PARTS:
            raise InvalidDocument(pointers[1], f"It has more than {MAX_PARTS} parameters.")
        order = {place: at for at, place in enumerate(PLACES)}
        return sorted(found.values(), key=lambda one: order.get(one[0]["in"], len(order)))

    def _add_parameter(self, found: Arguments, parameter: dict[str, Any], pointer: str) -> None:
        name, place = str(parameter["name"]), str(parameter["in"])
        if place not in PLACES:
            raise InvalidDocument(joined(pointer, "in"), f"{place[:40]!r} is no place of a parameter.")
        if place == "header" and (name.lower() in RESERVED_HEADERS | IGNORED_HEADERS or name.lower()[:6] == "proxy-"):
            return
        style = parameter.get("style", DEFAULT_STYLES[place])
        if not isinstance(style, str) or style not in STYLES[place]:
            raise InvalidDocument(joined(pointer, "style"), f"{str(style)[:40]!r} cannot be used in {place}.")
        content_type, media = next(iter(mapping(parameter.get("content")).items()), ("", {}))
        at = joined(pointer, "content", content_type) if content_type else pointer
        shape = mapping(media).get("schema", {}) if content_type else parameter.get("schema", {})
        schema = self._described(found, shape, joined(at, "schema"), parameter)
        argument = found.add(name, place, schema, required=place == "path" or parameter.get("required") is True)
        sent: dict[str, Any] = {"argument": argument, "name": name, "place": place, "style": style}
        explode = parameter.get("explode")
        sent["explode"] = explode if isinstance(explode, bool) else style in {"form", "deepObject", "cookie"}
        if parameter.get("allowReserved") is True:
            sent["allow_reserved"] = True
        if content_type:
            sent["content_type"] = content_type
        found.parameters.append(sent)

    def _described(self, found: Arguments, schema: Any, pointer: str, about: dict[str, Any]) -> Any:
        converted = self._schemas.convert(schema, pointer)
        found.uses |= converted.uses
        found.notes += converted.notes
        argument_schema = converted.schema if isinstance(converted.schema, dict) else {}
        if text := shortened(text_of(about.get("description"))):
            argument_schema = {**argument_schema, "description": text}
        return {**argument_schema, "deprecated": True} if about.get("deprecated") is True else argument_schema

    def _add_missing(self, found: Arguments, path: str) -> None:
        """Add the variables of the path that the document does not declare, as strings."""
        declared = {one["name"] for one in found.parameters if one["place"] == "path"}
        used = set(VARIABLE.findall(path))
        for one in [one for one in found.parameters if one["place"] == "path" and one["name"] not in used]:
            found.parameters.remove(one)
            del found.properties[one["argument"]]
            found.required.remove(one["argument"])
        for name in VARIABLE.findall(path):
            if name not in declared:
                declared.add(name)
                argument = found.add(name, "path", {"type": "string"}, required=True)
                sent = {"argument": argument, "name": name, "place": "path", "style": "simple", "explode": False}
                found.parameters.append(sent)

    # --- Body -----------------------------------------------------------------------------------------------------

    def _add_body(
        self, found: Arguments, operation: dict[str, Any], body_parameters: list[dict[str, Any]], pointer: str
    ) -> None:
        place = joined(pointer, "requestBody")
        if self._document.is_old:
            body = lowering.request_body(body_parameters, lowering.consumed(self._document.root, operation))
            place = joined(pointer, "parameters")
        else:
            body = operation.get("requestBody")
        if body is None:
            return
        body, place = self._document.object_at(body, place)
        chosen = media_types.chosen(mapping(body.get("content")))
        if chosen is None:
            return
        media_type, media = chosen
        content, place = self._document.object_at(media, joined(place, "content", media_type))
        self._add_content(found, body, media_type, content, place)

    def _add_content(
        self, found: Arguments, body: dict[str, Any], media_type: str, content: dict[str, Any], pointer: str
    ) -> None:
        schema, place = content.get("schema", {}), joined(pointer, "schema")
        whole, at = self._schemas.resolved(schema, place)
        mode, required, is_file = mode_of(media_type), body.get("required") is True, _is_binary(whole)
        has_no_text = media_types.is_bytes(media_type) or not (whole or media_types.is_text(media_type))
        if (mode == "raw" and (is_file or has_no_text)) or ("*" in media_type and is_file):
            mode = "base64"
        elif mode == "form" and whole.get("type") == "string":
            mode = "raw"
        found.body = {"media_type": media_types.sent_as(media_type, mode), "mode": mode}
        if required:
            found.body["required"] = True
        if mode in {"json", "form", "multipart"}:
            plain = self._plain_object(schema, place, mode == "multipart")
            if plain is not None and 0 < len(plain.properties) <= MAX_PARTS and (required or not plain.required):
                self._add_fields(found, plain, mapping(content.get("encoding")), mode)
                return
        if mode == "multipart" and whole.get("type") in ("string", "file", "array"):
            file = self._file({"format": "binary", **whole}, at, {})
            if file is not None:
                # The document names no field.
                about = f"{shortened(text_of(body.get('description')))} Sent as the field 'file'.".strip()
                argument = found.add("file", "body", {**file, "description": about}, required=required)
                found.body["fields"] = [{"argument": argument, "name": "file", "is_file": True}]
                return
        shape = self._shape(found, mode, content, media_type, place)
        texts = [shortened(text_of(body.get("description"))), shape.get("description", "")]
        if mode in {"raw", "base64", "lines"}:
            texts.append(f"Sent as {found.body['media_type']}.")
        if text := "\n".join(dict.fromkeys(filter(None, texts))):
            shape["description"] = text
        found.body["argument"] = found.add("body", "body", shape, required=required)

    def _shape(self, found: Arguments, mode: str, content: dict[str, Any], media_type: str, pointer: str) -> Any:
        """Return the schema of a body that is one argument, which says how the body is given if that is not JSON."""
        schema = content.get("schema", {})
        whole, _ = self._schemas.resolved(schema, pointer)
        if mode == "lines":
            return self._lines(found, content, pointer)
        if mode in {"raw", "base64"}:
            return self._text_or_bytes(found, mode, schema, media_type, pointer)
        shape = dict(self._described(found, schema, pointer, {}))
        if mode == "json":
            return shape
        if whole.get("type", "object") not in ("object", ["object"]):
            shape = {}
        if not isinstance(shape.get("type"), str) and "$ref" not in shape:
            shape["type"] = "object"
        if mode == "multipart":
            shape["description"] = "The fields. A file is an object with data (base64), filename and media_type."
        return shape

    def _text_or_bytes(self, found: Arguments, mode: str, schema: Any, media_type: str, pointer: str) -> Any:
        """Return the schema of a body that is a text or bytes; formats such as YAML also contain JSON."""
        whole, place = self._schemas.resolved(schema, pointer)
        has_parts = bool({"properties", "items", "additionalProperties"} & whole.keys() or _combines(whole))
        if mode == "raw" and media_types.is_xml(media_type):
            example = XmlExample(self._schemas).of(schema, pointer)
            return {"type": "string", "description": f"XML, such as {example}" if example else "XML."}
        if not has_parts or _is_binary(whole):
            text = self._described(found, whole, place, {}) if mode == "raw" else {}
            return dict(BINARY) if mode == "base64" else {**text, "type": "string"}
        if media_type.startswith("message/"):
            return {"type": "string"}
        values = BINARY["anyOf"] if mode == "base64" else [{"type": "string"}]
        about = "Bytes" if mode == "base64" else "A text"
        shapes = [*values, self._described(found, schema, pointer, {})]
        return {"anyOf": shapes, "description": f"{about}, or a value that is sent as JSON."}

    def _lines(self, found: Arguments, content: dict[str, Any], pointer: str) -> Any:
        """Return the schema of a body of JSON values one after another."""
        whole, place = self._schemas.resolved(content.get("schema", {}), pointer)
        if "itemSchema" in content:
            items, at = content["itemSchema"], joined(pointer.rpartition("/")[0], "itemSchema")
        elif whole.get("type") == "array":
            items, at = whole.get("items", {}), joined(place, "items")
        else:
            items, at = ({} if whole.get("type") == "string" else whole), place
        values = {"type": "array", "items": self._described(found, items, at, {})}
        return {
            "anyOf": [values, {"type": "string"}],
            "description": "A list of values, of which each becomes a line of JSON, or the lines as a text.",
        }

    def _add_fields(self, found: Arguments, plain: "PlainObject", encoding: dict[str, Any], mode: str) -> None:
        fields = []
        for name, (schema, pointer) in plain.properties.items():
            if self._schemas.is_hidden(schema, pointer):
                continue
            whole, _ = self._schemas.resolved(schema, pointer)
            coded = mapping(encoding.get(name))
            sent: dict[str, Any] = {"name": name}
            if mode == "multipart" and (shape := self._file(whole, pointer, coded)):
                about = shortened(text_of(whole.get("description")))
                argument_schema: Any = {**shape, "description": about} if about else shape
                sent["is_file"] = True
            else:
                argument_schema = self._described(found, schema, pointer, {})
            sent["argument"] = found.add(name, "body", argument_schema, required=name in plain.required)
            if mode != "json":
                sent |= _encoded_as(coded)
            fields.append(sent)
        assert found.body is not None
        found.body["fields"] = fields

    def _file(self, schema: dict[str, Any], pointer: str, coded: dict[str, Any]) -> dict[str, Any] | None:
        """Return the shape of the argument for a file, or for a list of files; None for other fields."""
        self._document.spend()
        if schema.get("type") == "array":
            item, place = self._schemas.resolved(schema.get("items", {}), joined(pointer, "items"))
            one = self._file(item, place, coded) if item.get("type") != "array" else None
            return {"type": "array", "items": one} if one else None
        is_plain = schema.get("type") in (None, "string") and "contentEncoding" not in schema
        named = text_of(coded.get("contentType")) or text_of(schema.get("contentMediaType"))
        is_other = bool(named) and not named.startswith(("text/plain", JSON))
        is_file = _is_binary(schema) or (is_plain and is_other)
        return dict(FILE) if is_file and not _combines(schema) else None

    def _plain_object(self, schema: Any, pointer: str, is_multipart: bool) -> "PlainObject | None":
        """Return the properties of a body that is an object and nothing else; None for any other body.

        In multipart bodies only a field can be a file, so there the properties of alternatives are fields too.
        """
        plain = self._merged(schema, pointer, 0, itertools.count(), is_multipart, is_alone=True)
        if plain is not None:
            plain.required &= plain.properties.keys()
            plain.required -= {name for name, one in plain.properties.items() if self._schemas.is_hidden(*one)}
        return plain

    def _merged(
        self, schema: Any, pointer: str, depth: int, parts: Iterator[int], is_multipart: bool, *, is_alone: bool
    ) -> "PlainObject | None":
        if next(parts) >= MAX_MERGED_PARTS:
            return None
        self._document.spend()
        whole, place = self._schemas.resolved(schema, pointer)
        extra = whole.get("additionalProperties")
        is_open = extra is True or (isinstance(extra, dict) and bool(extra))
        combining = _combines(whole) - ({"allOf", "anyOf", "oneOf"} if is_multipart else {"allOf"})
        if depth > MAX_MERGED or (is_open and not is_multipart) or whole.get("nullable") is True or combining:
            return None
        if whole.get("type", "object") not in ("object", ["object"]):
            return None
        # A base type in `allOf` is a part of its subtype, unless nothing is added to it.
        if is_alone and self._schemas.is_polymorphic(whole, place):
            return None
        stays_alone = is_alone and len(listing(whole.get("allOf"))) == 1 and "properties" not in whole
        stays_alone = stays_alone and not self._schemas.subtypes.is_subtype(place)
        merged = PlainObject(place)
        for keyword in ("allOf", "anyOf", "oneOf"):
            for at, one in enumerate(listing(whole.get(keyword))):
                at_part = joined(place, keyword, at)
                part = self._merged(one, at_part, depth + 1, parts, is_multipart, is_alone=stays_alone)
                if part is None:
                    return None
                self._document.spend(len(part.properties))
                merged.properties |= part.properties
                merged.required |= part.required if keyword == "allOf" else set()
        for name, one in mapping(whole.get("properties")).items():
            self._document.spend()
            merged.properties[name] = one, joined(place, "properties", name)
        merged.required.update(required_names(whole))
        return merged


@dataclass
class PlainObject:
    """The properties of a body: the schema and the pointer of each."""

    pointer: str
    properties: dict[str, tuple[Any, str]] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)


def _is_binary(schema: dict[str, Any]) -> bool:
    """Whether a schema says that its value is a file."""
    return schema.get("format") in ("binary", "file") or schema.get("type") == "file" or "contentMediaType" in schema


def _combines(schema: dict[str, Any]) -> set[str]:
    return {"allOf", "anyOf", "oneOf", "not", "if", "patternProperties"} & schema.keys()


def _encoded_as(coded: dict[str, Any]) -> dict[str, Any]:
    """Return how a field of a form is written."""
    encoding: dict[str, Any] = {}
    style = text_of(coded.get("style"))
    if style in STYLES["query"]:
        explode = coded.get("explode")
        encoding = {
            "style": style,
            "explode": explode if isinstance(explode, bool) else style in {"form", "deepObject"},
        }
    kinds = text_of(coded.get("contentType")).partition(",")[0].strip()
    if kinds and "*" not in kinds:
        encoding["content_type"] = kinds
    return encoding
