"""Parts of Swagger 2.0 documents in the form of OpenAPI 3.

Only what operations need is converted, one operation at a time. References keep their pointers.
"""

from collections.abc import Iterable
from typing import Any, Final

from tools_app.catalog.kinds.openapi.documents.document import listing, mapping, text_of

# Keywords that describe the value of a 2.0 parameter, which 3.0 has in its `schema`.
NOT_SCHEMA: Final = frozenset({
    "name", "in", "description", "required", "collectionFormat", "allowEmptyValue", "schema", "deprecated", "$ref"
})  # fmt: skip
STYLES: Final = {
    "csv": ("form", False),
    "multi": ("form", True),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
}
FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"


def servers(root: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the servers of a 2.0 document. Without a host, they are relative to the document."""
    host, base = text_of(root.get("host")), text_of(root.get("basePath")) or "/"
    if not host:
        return [{"url": base}]
    named = [text for text in map(text_of, listing(root.get("schemes"))) if text in {"http", "https"}]
    schemes = sorted(named, key=lambda scheme: scheme != "https") or ["https"]
    return [{"url": f"{scheme}://{host}{base if base.startswith('/') else '/' + base}"} for scheme in schemes]


def security_scheme(scheme: dict[str, Any]) -> dict[str, Any]:
    """Return a 2.0 security definition as in OpenAPI 3."""
    return {"type": "http", "scheme": "basic"} if scheme.get("type") == "basic" else scheme


def parameter(old: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter of path, query or header as in OpenAPI 3."""
    place = old.get("in")
    lowered: dict[str, Any] = {
        name: old[name] for name in ("name", "in", "description", "required", "deprecated") if name in old
    }
    style, explode = STYLES.get(text_of(old.get("collectionFormat")), STYLES["csv"])
    if old.get("type") == "array":
        lowered |= {"style": style if place == "query" else "simple", "explode": explode}
    return {**lowered, "schema": schema_of(old)}


def schema_of(old: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that is no body."""
    return {name: value for name, value in old.items() if name not in NOT_SCHEMA}


def request_body(parameters: Iterable[dict[str, Any]], consumes: list[str]) -> dict[str, Any] | None:
    """Return the request body of an operation: of its parameter `body`, or of its form fields."""
    body_parameters = list(parameters)
    for one in body_parameters:
        if one.get("in") == "body":
            types = [kind for kind in consumes if kind not in {FORM, MULTIPART}] or ["application/json"]
            content = {kind: {"schema": one.get("schema", {})} for kind in types}
            about = {"description": one["description"]} if "description" in one else {}
            return {**about, "required": one.get("required") is True, "content": content}
    fields = [one for one in body_parameters if one.get("in") == "formData"]
    return _form(fields, consumes) if fields else None


def _form(fields: list[dict[str, Any]], consumes: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    encoding: dict[str, Any] = {}
    for one in fields:
        name = text_of(one.get("name"))
        about = {"description": one["description"]} if "description" in one else {}
        properties[name] = {**schema_of(one), **about}
        if one.get("type") == "array":
            style, explode = STYLES.get(text_of(one.get("collectionFormat")), STYLES["csv"])
            encoding[name] = {"style": style, "explode": explode}
    has_file = any(one.get("type") == "file" for one in fields)
    kind = MULTIPART if has_file or (MULTIPART in consumes and FORM not in consumes) else FORM
    required = [text_of(one.get("name")) for one in fields if one.get("required") is True]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"required": bool(required), "content": {kind: {"schema": schema, "encoding": encoding}}}


def consumed(root: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    """Return the media types that an operation accepts."""
    return [text for text in map(text_of, listing(operation.get("consumes") or root.get("consumes"))) if text]


def schemes(root: dict[str, Any]) -> dict[str, Any]:
    """Return the security schemes of a 2.0 document as in OpenAPI 3."""
    found = mapping(root.get("securityDefinitions"))
    return {name: security_scheme(mapping(scheme)) for name, scheme in found.items()}
