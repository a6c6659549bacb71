"""Where to sign in for an upstream: its challenge, its metadata (RFC 9728) and that of its authorization server.

Each request goes through the guarded dialer with the networks that are allowed for the upstream, follows no redirect,
and is bounded in bytes and time. Addresses must use https, unless they are in an allowed network.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import orjson

from tools_app.catalog.kinds.upstream.runner import Endpoint
from tools_app.core import hub_path
from tools_app.core.http import documents
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.client import Outbound, Reply
from tools_app.core.http.documents import DocumentError
from tools_app.core.http.urls import InvalidUrl, Url, has_parent_segments, parse_url
from tools_app.models import UpstreamTransport
from tools_app.protocol.versions import HANDSHAKE_VERSIONS
from tools_app.upstreams.models import MAX_ISSUER, MAX_SCOPES

MAX_BYTES: Final = 64 * 1024
MAX_URL_LENGTH: Final = 2000
UNAUTHORIZED: Final = 401
NOT_FOUND: Final = 404
RESOURCE_METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
SERVER_METADATA_PATH: Final = "/.well-known/oauth-authorization-server"
OPENID_CONFIGURATION_PATH: Final = "/.well-known/openid-configuration"
SCOPES: Final = re.compile(r"[!#-\[\]-~]+(?: [!#-\[\]-~]+)*")


class SignInFailed(Exception):
    """The hub cannot sign in. The message says why, and what to do."""


@dataclass(frozen=True)
class AuthorizationServer:
    """What an authorization server says of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    auth_methods: tuple[str, ...]
    supports_client_documents: bool
    sends_issuer: bool
    supports_offline_access: bool


@dataclass(frozen=True)
class ProtectedResource:
    """Where to sign in, and for what."""

    resource: str
    scopes: str
    server: AuthorizationServer


async def discover(endpoint: Endpoint) -> ProtectedResource:
    """Ask an upstream where to sign in. Raises SignInFailed."""
    challenge = await _challenge(endpoint)
    metadata = await _fetch_resource_metadata(endpoint, challenge_parameter(challenge or "", "resource_metadata"))
    if metadata is None:
        return await _without_metadata(endpoint, challenge)
    servers = metadata.get("authorization_servers")
    if not isinstance(servers, list) or not servers or not isinstance(servers[0], str):
        raise SignInFailed("The upstream's metadata names no authorization server.")
    listed = metadata.get("scopes_supported")
    scopes = challenge_parameter(challenge or "", "scope") or " ".join(
        map(str, listed if isinstance(listed, list) else ())
    )
    return ProtectedResource(str(metadata["resource"]), valid_scopes(scopes), await _fetch_server(endpoint, servers[0]))


def challenge_parameter(challenge: str, name: str) -> str:
    """Return a parameter of a WWW-Authenticate header; "" without it."""
    match = re.search(rf'(?:^|[\s,]){name}="([^"]*)"', challenge)
    return match[1][:MAX_URL_LENGTH] if match else ""


def valid_scopes(text: str) -> str:
    """Return scopes as they are sent; "" for what cannot be scopes."""
    scopes = " ".join(dict.fromkeys(text.split()))
    return scopes if len(scopes) <= MAX_SCOPES and SCOPES.fullmatch(scopes) else ""


def check_url(text: object, endpoint: Endpoint, name: str) -> str:
    """Return a URL that may be opened: https, or http in a network that is allowed. Raises SignInFailed."""
    try:
        if not isinstance(text, str) or len(text) > MAX_URL_LENGTH:
            raise InvalidUrl("it is missing or too long")
        url = parse_url(text)
    except InvalidUrl as error:
        raise SignInFailed(f"The {name} is invalid: {error}.") from None
    if url.scheme != "https":
        try:
            address = ip_address("127.0.0.1" if url.host == "localhost" else url.host)
            is_allowed = any(address in network for network in parse_networks(endpoint.allowed_networks))
        except ValueError:
            is_allowed = False  # names are not resolved here
        if not is_allowed:
            raise SignInFailed(f"The {name} does not start with https://.")
    return text


def covers(resource: object, url: str) -> bool:
    """Whether a protected resource is the URL of an upstream, or one above it: a token for it may be sent there."""
    try:
        upstream = parse_url(url)
        parsed_resource = parse_url(resource) if isinstance(resource, str) and len(resource) <= MAX_URL_LENGTH else None
    except InvalidUrl:
        return False
    if (
        parsed_resource is None
        or parsed_resource.origin != upstream.origin
        or parsed_resource.query
        or has_parent_segments(parsed_resource.path)
    ):
        return False
    return f"{upstream.path.rstrip('/')}/".startswith(f"{parsed_resource.path.rstrip('/')}/")


def is_same_issuer(issuer: str, expected: str) -> bool:
    """Whether two identifiers are those of one authorization server: the same, but for a slash at the end.

    RFC 8414, section 3.3, and RFC 9207, section 2.4, compare them exactly. Many servers write one of theirs with the
    slash, and both spellings have the same metadata, at one address of one server: no other can use the difference.
    """
    return issuer.removesuffix("/") == expected.removesuffix("/")


async def _challenge(endpoint: Endpoint) -> str | None:
    """Return the challenge with which the upstream refuses a request without a token; None if it does not."""
    try:
        url = parse_url(endpoint.url)
    except InvalidUrl as error:
        raise SignInFailed(f"The upstream's URL is invalid: {error}.") from None
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
    try:
        reply = await documents.fetch_response(request, MAX_BYTES, endpoint.allowed_networks, tenant=endpoint.tenant_id)
    except (DocumentError, ValueError):
        # It may answer with a stream. The well-known addresses remain.
        return None
    return reply.headers.get("www-authenticate", "")[:MAX_BYTES] if reply.status == UNAUTHORIZED else None


async def _fetch_resource_metadata(endpoint: Endpoint, metadata_url: str) -> dict[str, Any] | None:
    """Return the metadata of the upstream as a protected resource; None if it has none. Raises SignInFailed."""
    upstream = parse_url(endpoint.url)
    origin, path = _origin(upstream), upstream.path.rstrip("/")
    urls = (
        [metadata_url]
        if metadata_url
        else list(dict.fromkeys((f"{origin}{RESOURCE_METADATA_PATH}{path}", f"{origin}{RESOURCE_METADATA_PATH}")))
    )
    first_error, not_found_count = "", 0
    for url in urls:
        check_url(url, endpoint, "address of the upstream's metadata")
        try:
            reply = await _fetch(url, endpoint)
            not_found_count += reply.status == NOT_FOUND
            document = documents.parsed(reply)
        except DocumentError as error:
            first_error = first_error or str(error)
            continue
        if not covers(document.get("resource"), endpoint.url):
            raise SignInFailed("The upstream's metadata is of another resource.")
        return document
    if not_found_count == len(urls) and not metadata_url:
        return None
    raise SignInFailed(f"The upstream does not say where to sign in: {first_error}")


async def _without_metadata(endpoint: Endpoint, challenge: str | None) -> ProtectedResource:
    """Return where to sign in for an upstream that has no metadata: its own origin (2025-03-26, authorization).

    Without RFC 8414 metadata either, the endpoints have default paths, if there is an authorization endpoint.
    """
    if challenge is None:
        raise SignInFailed("The upstream does not say where to sign in: it has no metadata, and refuses no request.")
    upstream = parse_url(endpoint.url)
    origin = check_url(_origin(upstream), endpoint, "upstream's URL")
    try:
        reply = await _fetch(f"{origin}{SERVER_METADATA_PATH}", endpoint)
        if reply.status != NOT_FOUND:
            server = _parse_server(documents.parsed(reply), origin, endpoint)
        elif (await _fetch(f"{origin}/authorize", endpoint)).status == NOT_FOUND:
            raise SignInFailed("The upstream does not say where to sign in: it has no metadata and no /authorize.")
        else:
            # The default endpoints (2025-03-26, authorization, §Fallbacks).
            server = AuthorizationServer(
                issuer=origin,
                authorization_endpoint=f"{origin}/authorize",
                token_endpoint=f"{origin}/token",
                registration_endpoint=f"{origin}/register",
                auth_methods=("none", "client_secret_post", "client_secret_basic"),
                supports_client_documents=False,
                sends_issuer=False,
                supports_offline_access=False,
            )
    except DocumentError as error:
        raise SignInFailed(f"The upstream does not say where to sign in: {error}") from error
    # The URL itself: a token for it goes nowhere else.
    resource = f"{origin}{upstream.path}"
    return ProtectedResource(resource, valid_scopes(challenge_parameter(challenge, "scope")), server)


async def _fetch(url: str, endpoint: Endpoint) -> Reply:
    """Read a document from an address that is allowed for the upstream. Raises DocumentError."""
    return await documents.fetch(url, MAX_BYTES, allowed=endpoint.allowed_networks, tenant=endpoint.tenant_id)


def _origin(url: Url) -> str:
    return str(Url(url.scheme, url.host, url.port, "/")).rstrip("/")


async def _fetch_server(endpoint: Endpoint, issuer: str) -> AuthorizationServer:
    if len(issuer) > MAX_ISSUER:
        raise SignInFailed("The authorization server's issuer is too long.")
    check_url(issuer, endpoint, "authorization server's issuer")
    first_error = ""
    # 2026-07-28, authorization, §Authorization Server Metadata.
    origin, path = _origin(parse_url(issuer)), parse_url(issuer).path.rstrip("/")
    urls = [f"{origin}{SERVER_METADATA_PATH}{path}", f"{origin}{OPENID_CONFIGURATION_PATH}{path}"]
    for url in (*urls, *([f"{origin}{path}{OPENID_CONFIGURATION_PATH}"] if path else [])):
        try:
            document = documents.parsed(await _fetch(url, endpoint))
        except DocumentError as error:
            first_error = first_error or str(error)
            continue
        return _parse_server(document, issuer, endpoint)
    raise SignInFailed(f"The authorization server's metadata could not be read: {first_error}")


def _parse_server(document: dict[str, Any], issuer: str, endpoint: Endpoint) -> AuthorizationServer:
    own_issuer = str(document.get("issuer"))
    if not is_same_issuer(own_issuer, issuer) or len(own_issuer) > MAX_ISSUER:
        raise SignInFailed("The authorization server's metadata is of another issuer.")
    if "S256" not in _strings(document, "code_challenge_methods_supported"):
        raise SignInFailed("The authorization server does not support PKCE with S256, which is required.")
    registration = document.get("registration_endpoint")
    authorization = check_url(document.get("authorization_endpoint"), endpoint, "authorization endpoint")
    token = check_url(document.get("token_endpoint"), endpoint, "token endpoint")
    # A person who trusts the first must not give the code to a stranger (RFC 9700, section 4.4, mix-up).
    if parse_url(authorization).origin not in {parse_url(issuer).origin, parse_url(token).origin}:
        raise SignInFailed("The authorization endpoint is of another server than the issuer and the token endpoint.")
    return AuthorizationServer(
        # As it names itself in its answers (RFC 9207).
        issuer=own_issuer,
        authorization_endpoint=authorization,
        token_endpoint=token,
        registration_endpoint=check_url(registration, endpoint, "registration endpoint") if registration else "",
        auth_methods=_strings(document, "token_endpoint_auth_methods_supported") or ("client_secret_basic",),
        supports_client_documents=document.get("client_id_metadata_document_supported") is True,
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        supports_offline_access="offline_access" in _strings(document, "scopes_supported"),
    )


def _strings(document: dict[str, Any], name: str) -> tuple[str, ...]:
    value = document.get(name)
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()
