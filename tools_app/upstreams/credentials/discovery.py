"""Where to sign in for an upstream: its challenge, its metadata (RFC 9728) and that of its authorization server.

Each request goes through the guarded dialer with the networks that are allowed for the upstream, follows no redirect,
and is bounded in bytes and time. Addresses must use https, unless they are in an allowed network.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import orjson

from tools_app.catalog.http import documents
from tools_app.catalog.http.addresses import parse_networks
from tools_app.catalog.http.client import Outbound, Terms, exchange
from tools_app.catalog.http.documents import Unreadable
from tools_app.catalog.http.errors import RequestFailed
from tools_app.catalog.http.urls import BadUrl, Url, climbs, parse_url
from tools_app.catalog.kinds.upstream import Endpoint
from tools_app.core import hub_path
from tools_app.models import UpstreamTransport
from tools_app.models.upstream_credentials import MAX_ISSUER, MAX_SCOPES
from tools_app.protocol.versions import HANDSHAKE_VERSIONS

MAX_BYTES: Final = 64 * 1024
MAX_URL_LENGTH: Final = 2000
SECONDS: Final = 5.0
UNAUTHORIZED: Final = 401
RESOURCE: Final = "/.well-known/oauth-protected-resource"
SERVER: Final = "/.well-known/oauth-authorization-server"
OPENID: Final = "/.well-known/openid-configuration"
LOCALHOST: Final = ip_address("127.0.0.1")
SCOPES: Final = re.compile(r"[!#-\[\]-~]+(?: [!#-\[\]-~]+)*")


class SignInFailed(Exception):
    """The hub cannot sign in. The message says why, and what to do."""


@dataclass(frozen=True)
class Server:
    """What an authorization server says of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    auth_methods: tuple[str, ...]
    reads_documents: bool
    announces_issuer: bool
    offers_offline: bool


@dataclass(frozen=True)
class Found:
    """Where to sign in, and for what."""

    resource: str
    scopes: str
    server: Server


async def find(endpoint: Endpoint) -> Found:
    """Ask an upstream where to sign in. Raises SignInFailed."""
    challenge = await _challenge(endpoint)
    resource = await _resource(endpoint, parameter(challenge, "resource_metadata"))
    servers = resource.get("authorization_servers")
    if not isinstance(servers, list) or not servers or not isinstance(servers[0], str):
        raise SignInFailed("The upstream's metadata names no authorization server.")
    listed = resource.get("scopes_supported")
    scopes = parameter(challenge, "scope") or " ".join(map(str, listed if isinstance(listed, list) else ()))
    return Found(str(resource["resource"]), valid_scopes(scopes), await _server(endpoint, servers[0]))


def parameter(challenge: str, name: str) -> str:
    """Return a parameter of a WWW-Authenticate header; "" without it."""
    found = re.search(rf'(?:^|[\s,]){name}="([^"]*)"', challenge)
    return found[1][:MAX_URL_LENGTH] if found else ""


def valid_scopes(text: str) -> str:
    """Return scopes as they are sent; "" for what cannot be scopes."""
    scopes = " ".join(dict.fromkeys(text.split()))
    return scopes if len(scopes) <= MAX_SCOPES and SCOPES.fullmatch(scopes) else ""


def checked_url(text: object, endpoint: Endpoint, name: str) -> str:
    """Return a URL that may be opened: https, or http in a network that is allowed. Raises SignInFailed."""
    try:
        if not isinstance(text, str) or len(text) > MAX_URL_LENGTH:
            raise BadUrl("it is missing or too long")
        url = parse_url(text)
    except BadUrl as problem:
        raise SignInFailed(f"The {name} is invalid: {problem}.") from None
    if url.scheme != "https" and not _is_allowed(url, endpoint):
        raise SignInFailed(f"The {name} does not start with https://.")
    return text


async def _challenge(endpoint: Endpoint) -> str:
    """Return the challenge with which the upstream answers a request without a token; "" if it has none."""
    try:
        url = parse_url(endpoint.url)
    except BadUrl as problem:
        raise SignInFailed(f"The upstream's URL is invalid: {problem}.") from None
    headers = (
        *((name, value.strip()) for name, value in endpoint.headers if name.lower() != "authorization"),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        (hub_path.HEADER, hub_path.outgoing()),
    )
    params = {
        "protocolVersion": HANDSHAKE_VERSIONS[-1],
        "capabilities": {},
        "clientInfo": {"name": "mcphub", "version": "1"},
    }
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    is_sse = endpoint.transport == UpstreamTransport.SSE
    request = Outbound("GET" if is_sse else "POST", url, headers, None if is_sse else body)
    terms = Terms(parse_networks(endpoint.allowed_networks), SECONDS, MAX_BYTES)
    try:
        reply = await exchange(request, terms)
    except (RequestFailed, ValueError):
        # It may answer with a stream. The well-known addresses remain.
        return ""
    return reply.headers.get("www-authenticate", "")[:MAX_BYTES] if reply.status == UNAUTHORIZED else ""


async def _resource(endpoint: Endpoint, named: str) -> dict[str, Any]:
    """Return the metadata of the upstream as a protected resource. Raises SignInFailed."""
    upstream = parse_url(endpoint.url)
    own = str(Url(upstream.scheme, upstream.host, upstream.port, "/")).rstrip("/")
    path = upstream.path.rstrip("/")
    places = [named] if named else list(dict.fromkeys((f"{own}{RESOURCE}{path}", f"{own}{RESOURCE}")))
    told = ""
    for place in places:
        checked_url(place, endpoint, "address of the upstream's metadata")
        try:
            document = documents.parsed(await documents.fetch(place, MAX_BYTES, allowed=endpoint.allowed_networks))
        except Unreadable as problem:
            told = told or str(problem)
            continue
        if not _covers(document.get("resource"), upstream):
            raise SignInFailed("The upstream's metadata is of another resource.")
        return document
    raise SignInFailed(f"The upstream does not say where to sign in: {told}")


def _covers(resource: object, upstream: Url) -> bool:
    """Whether a resource is the upstream's URL, or one above it."""
    try:
        named = parse_url(resource) if isinstance(resource, str) and len(resource) <= MAX_URL_LENGTH else None
    except BadUrl:
        return False
    if named is None or named.origin != upstream.origin or named.query or climbs(named.path):
        return False
    return f"{upstream.path.rstrip('/')}/".startswith(f"{named.path.rstrip('/')}/")


async def _server(endpoint: Endpoint, issuer: str) -> Server:
    if len(issuer) > MAX_ISSUER:
        raise SignInFailed("The authorization server's issuer is too long.")
    checked_url(issuer, endpoint, "authorization server's issuer")
    told = ""
    for place in _places(parse_url(issuer)):
        try:
            document = documents.parsed(await documents.fetch(place, MAX_BYTES, allowed=endpoint.allowed_networks))
        except Unreadable as problem:
            told = told or str(problem)
            continue
        return _described(document, issuer, endpoint)
    raise SignInFailed(f"The authorization server's metadata could not be read: {told}")


def _places(issuer: Url) -> Iterator[str]:
    """Yield where the metadata of an issuer can be (2026-07-28, authorization, §Authorization Server Metadata)."""
    own = str(Url(issuer.scheme, issuer.host, issuer.port, "/")).rstrip("/")
    path = issuer.path.rstrip("/")
    yield f"{own}{SERVER}{path}"
    yield f"{own}{OPENID}{path}"
    if path:
        yield f"{own}{path}{OPENID}"


def _described(document: dict[str, Any], issuer: str, endpoint: Endpoint) -> Server:
    if document.get("issuer") != issuer:
        raise SignInFailed("The authorization server's metadata is of another issuer.")
    if "S256" not in _texts(document, "code_challenge_methods_supported"):
        raise SignInFailed("The authorization server does not support PKCE with S256, which is required.")
    registration = document.get("registration_endpoint")
    return Server(
        issuer=issuer,
        authorization_endpoint=checked_url(document.get("authorization_endpoint"), endpoint, "authorization endpoint"),
        token_endpoint=checked_url(document.get("token_endpoint"), endpoint, "token endpoint"),
        registration_endpoint=checked_url(registration, endpoint, "registration endpoint") if registration else "",
        auth_methods=_texts(document, "token_endpoint_auth_methods_supported") or ("client_secret_basic",),
        reads_documents=document.get("client_id_metadata_document_supported") is True,
        announces_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        offers_offline="offline_access" in _texts(document, "scopes_supported"),
    )


def _texts(document: dict[str, Any], name: str) -> tuple[str, ...]:
    value = document.get(name)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _is_allowed(url: Url, endpoint: Endpoint) -> bool:
    """Whether a host is an address in a network that is allowed for the upstream. Names are not resolved here."""
    try:
        address = LOCALHOST if url.host == "localhost" else ip_address(url.host)
    except ValueError:
        return False
    return any(address in network for network in parse_networks(endpoint.allowed_networks))
