"""Output schemas of tools, from the responses that a document describes.

A tool gets one if all successful responses of its operation are JSON of one schema which says whether it is an object.
Any other value is the property `result`, as in results. A response that cannot be used gives none.
"""

from typing import Any, Final

from tools_app.catalog.kinds.openapi.documents.document import (
    Document,
    InvalidDocument,
    joined,
    listing,
    mapping,
    text_of,
)
from tools_app.catalog.kinds.openapi.documents.media_types import mode_of
from tools_app.catalog.kinds.openapi.documents.schemas import Schemas

OBJECT: Final = "object"
MAX_NESTED: Final = 16


class OutputReader:
    """Reads the responses of the operations of a document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._schemas = Schemas(document, is_output=True)

    def read(self, operation: dict[str, Any], pointer: str) -> dict[str, Any] | None:
        """Return the output schema of an operation; None without a usable one."""
        try:
            found = self._successful(operation, joined(pointer, "responses"))
            return self._output(*found) if found is not None else None
        except InvalidDocument:
            return None

    def _successful(self, operation: dict[str, Any], pointer: str) -> tuple[Any, str] | None:
        """Return the only schema of the successful responses, with its pointer. Raises InvalidDocument."""
        found: list[tuple[Any, str]] = []
        for status, one in mapping(operation.get("responses")).items():
            if not str(status).startswith("2"):
                continue
            response, place = self._document.object_at(one, joined(pointer, status))
            schema = self._old(operation, response, place) if self._document.is_old else self._json(response, place)
            if schema is None:
                return None
            found.append(schema)
        return found[0] if found and all(schema == found[0][0] for schema, _ in found) else None

    def _old(self, operation: dict[str, Any], response: dict[str, Any], pointer: str) -> tuple[Any, str] | None:
        produced = listing(operation.get("produces") or self._document.root.get("produces")) or ["application/json"]
        is_json = all(mode_of(text_of(one)) == "json" for one in produced)
        return (response["schema"], joined(pointer, "schema")) if is_json and "schema" in response else None

    def _json(self, response: dict[str, Any], pointer: str) -> tuple[Any, str] | None:
        content = mapping(response.get("content"))
        if not content or not all(mode_of(kind) == "json" for kind in content):
            return None
        kind, value = next(iter(content.items()))
        media, place = self._document.object_at(value, joined(pointer, "content", kind))
        return (media["schema"], joined(place, "schema")) if "schema" in media else None

    def _output(self, schema: Any, pointer: str) -> dict[str, Any] | None:
        """Return the schema of the structured content. Raises InvalidDocument."""
        is_object = self._is_object(schema, pointer, 0)
        if is_object is None:
            return None
        # What the root refers to is put in its place, because revisions up to 2025-11-25 want an object there.
        whole, place = self._schemas.resolved(schema, pointer)
        converted = self._schemas.convert(whole, place)
        if is_object:
            output_schema = {**converted.schema, "type": OBJECT}
        else:
            output_schema = {"type": OBJECT, "properties": {"result": converted.schema}, "required": ["result"]}
        if converted.uses:
            output_schema["$defs"] = self._schemas.definitions(sorted(converted.uses))
        return output_schema

    def _is_object(self, schema: Any, pointer: str, depth: int) -> bool | None:
        """Whether all values of a schema are objects, or none is; None if it does not say. Raises InvalidDocument."""
        whole, place = self._schemas.resolved(schema, pointer)
        self._document.spend()
        if depth > MAX_NESTED or whole.get("nullable") is True or whole.get("x-nullable") is True:
            return None
        declared = whole.get("type")
        if isinstance(declared, str):
            return declared == OBJECT if declared != "file" else None
        if isinstance(declared, list):
            return (True if len(declared) == 1 else None) if OBJECT in declared else False if declared else None
        parts = {
            name: [self._is_object(one, joined(place, name, at), depth + 1) for at, one in enumerate(whole[name])]
            for name in ("allOf", "anyOf", "oneOf")
            if isinstance(whole.get(name), list)
        }
        known = {is_object for is_object in parts.pop("allOf", []) if is_object is not None}
        for answers in parts.values():
            known |= {answers[0]} if answers and answers[0] is not None and len(set(answers)) == 1 else set()
        if not known and "properties" in whole:
            return True
        return known.pop() if len(known) == 1 else None
