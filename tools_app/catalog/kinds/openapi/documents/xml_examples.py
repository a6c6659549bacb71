"""Examples of XML bodies, from their schemas and the `xml` of these (OpenAPI 3.2, §XML Object).

A tool takes XML as a text. The example shows the model which elements and attributes the service knows.
"""

from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from tools_app.catalog.kinds.openapi.documents.document import joined, listing, mapping, text_of
from tools_app.catalog.kinds.openapi.documents.schemas import Schemas, required_names

MAX_DEPTH: Final = 6
MAX_LENGTH: Final = 1500
OMITTED: Final = "…"


class XmlExample:
    """Writes the example of one schema, at most about MAX_LENGTH characters."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._left = MAX_LENGTH

    def of(self, schema: Any, pointer: str) -> str:
        """Return the example, or "" if the schema has no element. Raises InvalidDocument."""
        whole, _ = self._schemas.resolved(schema, pointer)
        name = text_of(mapping(schema).get("$ref")).rpartition("/")[2]
        properties = self._properties(whole, pointer, 0)
        if not name and "xml" not in whole and len(properties) == 1:
            # An object without a name stands for its only element.
            [(name, (schema, pointer))] = properties.items()
        has_elements = whole.get("type") == "array" or properties
        return self._element(schema, pointer, name or "root", 0) if has_elements else ""

    def _element(self, schema: Any, pointer: str, name: str, depth: int) -> str:
        whole, place = self._schemas.resolved(schema, pointer)
        # What stands beside a reference counts, as in 3.1.
        about = {**mapping(whole.get("xml")), **mapping(mapping(schema).get("xml"))}
        for number, one in enumerate(listing(whole.get("allOf"))):
            inner, inner_place = self._schemas.resolved(one, joined(place, "allOf", number))
            if not {"type", "properties"} & whole.keys() and inner.get("type") not in (None, "object"):
                whole, place, about = inner, inner_place, {**mapping(inner.get("xml")), **about}
        if whole.get("type") == "array":
            items, at = whole.get("items", {}), joined(place, "items")
            inner, _ = self._schemas.resolved(items, at)
            outer = text_of(about.get("name")) or name
            is_wrapped = about.get("wrapped") is True or about.get("nodeType") == "element"
            # The items of a list without a wrapper have its name, unless they have one of their own.
            item_name = text_of(mapping(inner.get("xml")).get("name")) or (name if is_wrapped else outer)
            item = OMITTED if depth >= MAX_DEPTH else self._element(items, at, item_name, depth + 1)
            return self._tagged(about, name, "", item) if is_wrapped else item
        attributes: list[str] = []
        elements: list[str] = []
        for key, (one, at) in self._properties(whole, place, 0).items():
            inner, _ = self._schemas.resolved(one, at)
            hints = {**mapping(inner.get("xml")), **mapping(mapping(one).get("xml"))}
            if hints.get("attribute") is True or hints.get("nodeType") == "attribute":
                attributes.append(f" {text_of(hints.get('name')) or key}={quoteattr(_value(inner))}")
            elif self._left <= 0 or depth >= MAX_DEPTH:
                elements = [*elements, OMITTED] if OMITTED not in elements else elements
            else:
                elements.append(self._element(one, at, key, depth + 1))
        return self._tagged(about, name, "".join(attributes), "".join(elements) or escape(_value(whole)))

    def _tagged(self, about: dict[str, Any], name: str, attributes: str, content: str) -> str:
        prefix, namespace = text_of(about.get("prefix")), text_of(about.get("namespace"))
        tag = f"{prefix}:" * bool(prefix) + (text_of(about.get("name")) or name)
        if namespace:
            attributes += f" xmlns{f':{prefix}' if prefix else ''}={quoteattr(namespace)}"
        self._left -= 2 * len(tag) + len(attributes) + len("<></>")
        return f"<{tag}{attributes}>{content}</{tag}>"

    def _properties(self, whole: dict[str, Any], pointer: str, depth: int) -> dict[str, tuple[Any, str]]:
        """Return the properties of an object, with those of the schemas that it combines: required ones first."""
        found: dict[str, tuple[Any, str]] = {}
        for at, one in enumerate(listing(whole.get("allOf"))):
            if depth < MAX_DEPTH:
                inner, place = self._schemas.resolved(one, joined(pointer, "allOf", at))
                found |= self._properties(inner, place, depth + 1)
        own = mapping(whole.get("properties"))
        required = [name for name in required_names(whole) if name in own]
        for name in dict.fromkeys([*required, *own]):
            at_property = joined(pointer, "properties", name)
            if not self._schemas.is_hidden(own[name], at_property):
                found[name] = own[name], at_property
        return found


def _value(schema: dict[str, Any]) -> str:
    values = [str(one) for one in listing(schema.get("enum"))[:3] if one is not None]
    declared = schema.get("type")
    return "|".join(values) or (declared if isinstance(declared, str) else "string")
