"""Subtypes of the schemas of a document that have a `discriminator` (OpenAPI 3.2, §Discriminator Object).

A subtype is named by the mapping of its base, or refers to it in `allOf`, directly or through other subtypes.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from tools_app.catalog.kinds.openapi.documents.document import Document, escaped, listing, mapping, text_of


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
