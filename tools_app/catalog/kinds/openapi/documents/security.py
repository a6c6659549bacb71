"""Servers and security schemes of a document."""

from typing import Any, Final

from tools_app.catalog.kinds.http.config import is_header
from tools_app.catalog.kinds.openapi.documents import lowering
from tools_app.catalog.kinds.openapi.documents.document import (
    Document,
    InvalidDocument,
    joined,
    listing,
    mapping,
    text_of,
)

MAX_SERVERS: Final = 50
MAX_SCHEMES: Final = 50
MAX_VARIABLES: Final = 20


def schemes_of(document: Document) -> dict[str, dict[str, str]]:
    """Return the security schemes by name: where a credential is sent. Others, such as mutual TLS, are left out."""
    if document.is_old:
        found = lowering.schemes(document.root)
    else:
        found = mapping(mapping(document.root.get("components")).get("securitySchemes"))
    schemes: dict[str, dict[str, str]] = {}
    for name, scheme in list(found.items())[:MAX_SCHEMES]:
        try:
            whole, _ = document.object_at(scheme, joined("#/components/securitySchemes", name))
        except InvalidDocument:
            continue
        if sent := _sent(whole):
            schemes[name] = sent
    return schemes


def _sent(scheme: dict[str, Any]) -> dict[str, str] | None:
    match scheme.get("type"):
        case "apiKey" if text_of(scheme.get("in")) in {"header", "query", "cookie"}:
            kind, name = str(scheme["in"]), text_of(scheme.get("name"))[:200]
            return {"kind": kind, "name": name} if name and (kind != "header" or is_header(name)) else None
        case "http" if text_of(scheme.get("scheme")).lower() in {"basic", "bearer"}:
            return {"kind": text_of(scheme["scheme"]).lower(), "name": "Authorization"}
        case "oauth2" | "openIdConnect":
            return {"kind": "bearer", "name": "Authorization"}
    return None


def requirements_of(document: Document, operation: dict[str, Any], known: dict[str, Any]) -> list[list[str]]:
    """Return the alternatives of an operation's security, each a list of schemes; an empty one needs no credential."""
    wanted = operation.get("security", document.root.get("security"))
    alternatives = []
    for alternative in listing(wanted):
        names = list(mapping(alternative))
        if all(name in known for name in names):
            alternatives.append(names)
    return alternatives


def servers_of(document: Document) -> list[dict[str, Any]]:
    """Return the servers of a document, each with its variables."""
    found = lowering.servers(document.root) if document.is_old else listing(document.root.get("servers"))
    return [server for one in found[:MAX_SERVERS] if (server := server_of(one))]


def server_of(server: Any) -> dict[str, Any] | None:
    """Return a server with its variables: the default of each, and the values that it may have."""
    url = text_of(mapping(server).get("url"))
    if not url:
        return None
    variables = {}
    for name, variable in list(mapping(mapping(server).get("variables")).items())[:MAX_VARIABLES]:
        allowed = [text for text in map(text_of, listing(mapping(variable).get("enum"))) if text]
        default = text_of(mapping(variable).get("default")) or next(iter(allowed), "")
        variables[name] = {"default": default, **({"enum": allowed} if allowed else {})}
    return {"url": url, "variables": variables}
