"""Resource indicators: the MCP endpoints as OAuth resources (RFC 8707), and where their metadata is (RFC 9728)."""

import re
from typing import Final, NamedTuple

from tools_app.core.urls import split_url
from tools_app.tenants.models import MAX_SLUG_LENGTH

METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
MAX_RESOURCE: Final = 2000
# The paths of endpoints, all of which are resources. WebSockets have no metadata of their own.
ENDPOINT: Final = re.compile(rf"/(?:t/(?P<slug>[a-z0-9-]{{1,{MAX_SLUG_LENGTH}}})/)?(?:mcp|sse|message|ws)/?")


class UnknownResource(ValueError):
    """A resource is no endpoint of this hub."""


class Resource(NamedTuple):
    """A resource: the endpoint of one tenant, or, without a slug, of the tenant that the person chooses."""

    slug: str | None


def parse(resource: str, issuer: str) -> Resource:
    """Return the endpoint that a resource indicator names; "" is that of any tenant. Raises UnknownResource."""
    if not resource:
        return Resource(None)
    if len(resource) > MAX_RESOURCE or "#" in resource or "?" in resource:
        raise UnknownResource
    parts, own = split_url(resource), split_url(issuer)
    if parts is None or own is None or parts.has_user or parts.origin != own.origin:
        raise UnknownResource
    if parts.path in ("", "/"):
        return Resource(None)
    match = ENDPOINT.fullmatch(parts.path)
    if match is None:
        raise UnknownResource
    return Resource(match["slug"])


def path_of(slug: str) -> str:
    """Return the path of a tenant's endpoint."""
    return f"/t/{slug}/mcp"


def metadata_url(issuer: str, path: str) -> str:
    """Return the URL of the metadata of the endpoint at `path`, exactly as the client wrote the path.

    Clients compare the resource of the metadata with the URL that they were given, trailing slash included.
    """
    return f"{issuer}{METADATA_PATH}{path}"
