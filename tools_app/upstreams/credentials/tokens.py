"""Requests to the token and registration endpoints of authorization servers, and what they answer."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

import orjson
from django.utils import timezone

from tools_app.catalog.kinds.upstream.runner import Endpoint, SignIn
from tools_app.core import encryption
from tools_app.core.database import run_in_db_thread
from tools_app.core.encryption import DecryptionError
from tools_app.core.http import documents
from tools_app.core.http.client import Outbound
from tools_app.core.http.documents import DocumentError
from tools_app.core.http.urls import parse_url
from tools_app.models import UpstreamRegistration
from tools_app.upstreams.credentials.discovery import ProtectedResource, SignInFailed, is_same_issuer, valid_scopes
from tools_app.upstreams.credentials.store import HEADER_VALUE, MAX_VALUE_LENGTH, Grant, Tokens

AUTH_NONE, AUTH_BASIC, AUTH_POST = "none", "client_secret_basic", "client_secret_post"
MAX_BYTES: Final = 64 * 1024
MAX_LIFETIME: Final = 10 * 366 * 24 * 3600
MAX_DIGITS: Final = 12
MAX_CLIENT_ID: Final = 2000
BAD_REQUEST, UNAUTHORIZED = 400, 401
REGISTERED: Final = frozenset({200, 201})
# Errors after which the same request cannot succeed (RFC 6749, section 5.2).
FINAL_ERRORS: Final = frozenset(
    {"invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}
)
REPORTED_ERRORS: Final = FINAL_ERRORS | {"invalid_request", "invalid_target", "temporarily_unavailable", "server_error"}


class GrantRevoked(SignInFailed):
    """The authorization server refuses the grant for good: somebody has to sign in again."""


@dataclass(frozen=True)
class Client:
    """The hub as a client of an authorization server."""

    id: str
    secret: str = ""
    auth_method: str = AUTH_NONE


async def client_for(endpoint: Endpoint, resource: ProtectedResource, redirect_uri: str, document_url: str) -> Client:
    """Return the client as which to sign in: one that an admin set, the hub's own document, or a registered one.

    Raises SignInFailed. `document_url` is "" if the hub has no public https address.
    """
    server, sign_in = resource.server, endpoint.sign_in
    if sign_in is not None and sign_in.client_id:
        _check_issuer(sign_in, server.issuer)
        if not sign_in.client_secret:
            return Client(sign_in.client_id)
        method = AUTH_POST if AUTH_BASIC not in server.auth_methods and AUTH_POST in server.auth_methods else AUTH_BASIC
        return Client(sign_in.client_id, sign_in.client_secret, method)
    if document_url and server.supports_client_documents:
        return Client(document_url)
    if not server.registration_endpoint:
        raise SignInFailed(
            f"Register the hub as a client at {server.issuer[:200]}, with the redirect URI {redirect_uri}, and enter"
            " its OAuth client ID in the upstream's settings."
        )
    registered = await run_in_db_thread(_find_registration, endpoint, server.issuer, redirect_uri)
    return registered or await _register(endpoint, resource, redirect_uri)


def _check_issuer(sign_in: SignIn, issuer: str) -> None:
    """Check that an upstream names the issuer of the client that an admin set (2026-07-28, authorization, §Client
    Registration). Raises SignInFailed: an upstream that names another one would get the client's secret.
    """
    if is_same_issuer(issuer, sign_in.issuer) or not (sign_in.issuer or sign_in.client_secret):
        return
    message = f"The upstream names the authorization server {issuer[:200]}."
    if not sign_in.issuer:
        raise SignInFailed(
            f"{message} Enter it as the OAuth issuer in the upstream's settings if the OAuth client is its."
        )
    raise SignInFailed(f"{message} The OAuth client in the upstream's settings is one of {sign_in.issuer[:200]}.")


def _find_registration(endpoint: Endpoint, issuer: str, redirect_uri: str) -> Client | None:
    row = UpstreamRegistration.objects.filter(upstream_id=endpoint.id, issuer=issuer, redirect_uri=redirect_uri).first()
    if row is None or (row.expires_at is not None and row.expires_at <= timezone.now()):
        return None
    try:
        client = orjson.loads(encryption.unseal(bytes(row.ciphertext), _purpose(endpoint, issuer)))
    except DecryptionError:
        return None
    return Client(**client)


async def _register(endpoint: Endpoint, resource: ProtectedResource, redirect_uri: str) -> Client:
    """Register the hub (RFC 7591), and keep the registration for later sign-ins."""
    server = resource.server
    method = next(
        (auth_method for auth_method in (AUTH_NONE, AUTH_BASIC, AUTH_POST) if auth_method in server.auth_methods),
        AUTH_NONE,
    )
    metadata = {
        "client_name": "mcphub",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    headers = (*documents.HEADERS, ("Content-Type", "application/json"))
    request = Outbound("POST", parse_url(server.registration_endpoint), headers, orjson.dumps(metadata))
    try:
        reply = await documents.fetch_response(request, MAX_BYTES, endpoint.allowed_networks, tenant=endpoint.tenant_id)
        body = documents.parsed_object(reply.body)
    except DocumentError as problem:
        raise SignInFailed(f"The hub could not register at the authorization server: {problem}") from None
    if reply.status not in REGISTERED:
        raise SignInFailed(f"The authorization server did not register the hub (HTTP {reply.status}).")
    id, secret = body.get("client_id"), body.get("client_secret") or ""
    if not _is_text(id, MAX_CLIENT_ID) or (secret and not _is_text(secret, MAX_VALUE_LENGTH)):
        raise SignInFailed("The authorization server registered the hub without a usable client ID.")
    registered_method = body.get("token_endpoint_auth_method", method)
    client = Client(
        str(id), str(secret), registered_method if registered_method in {AUTH_NONE, AUTH_BASIC, AUTH_POST} else method
    )
    expires_at = body.get("client_secret_expires_at")
    seconds = expires_at if isinstance(expires_at, int) and secret else 0
    await run_in_db_thread(_store_registration, endpoint, server.issuer, redirect_uri, client, seconds)
    return client


def _store_registration(endpoint: Endpoint, issuer: str, redirect_uri: str, client: Client, expires_at: int) -> None:
    seconds_left = min(MAX_LIFETIME, expires_at - int(timezone.now().timestamp())) if expires_at else 0
    UpstreamRegistration.objects.update_or_create(
        upstream_id=endpoint.id,
        issuer=issuer,
        redirect_uri=redirect_uri,
        defaults={
            "ciphertext": encryption.seal(orjson.dumps(vars(client)), _purpose(endpoint, issuer)),
            "expires_at": timezone.now() + timedelta(seconds=seconds_left) if expires_at else None,
        },
    )


async def exchange(tokens: Tokens, form: Mapping[str, str], allowed: tuple[str, ...]) -> tuple[Tokens, Grant]:
    """Send a request to the token endpoint; returns `tokens` with those that it issues.

    Raises SignInFailed, and GrantRevoked if the grant is refused for good. No message repeats what the server said.
    """
    fields, authorization = dict(form), ""
    if tokens.resource:
        fields["resource"] = tokens.resource
    if tokens.auth_method == AUTH_BASIC:
        credentials = f"{quote(tokens.client_id, safe='')}:{quote(tokens.client_secret, safe='')}"
        authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    else:
        fields["client_id"] = tokens.client_id
        if tokens.auth_method == AUTH_POST:
            fields["client_secret"] = tokens.client_secret
    try:
        reply = await documents.post(
            tokens.token_endpoint, fields, MAX_BYTES, allowed=allowed, authorization=authorization
        )
        body = documents.parsed_object(reply.body)
    except DocumentError as problem:
        raise SignInFailed(f"The token endpoint gave no usable answer: {problem}") from None
    if reply.status in {BAD_REQUEST, UNAUTHORIZED}:
        error_code = body.get("error")
        error = error_code if isinstance(error_code, str) and error_code in REPORTED_ERRORS else "an error"
        error_class = GrantRevoked if error in FINAL_ERRORS else SignInFailed
        raise error_class(f"The authorization server refused the sign-in: {error}.")
    if reply.status != documents.OK:
        raise SignInFailed(f"The token endpoint answered with HTTP {reply.status}.")
    return _parse_tokens(tokens, body)


def _parse_tokens(tokens: Tokens, body: Mapping[str, Any]) -> tuple[Tokens, Grant]:
    token, refresh = body.get("access_token"), body.get("refresh_token")
    if not _is_text(token, MAX_VALUE_LENGTH) or str(body.get("token_type", "")).lower() != "bearer":
        raise SignInFailed("The token endpoint issued no bearer token.")
    seconds, scopes = body.get("expires_in"), body.get("scope")
    grant = Grant(
        seconds=_lifetime(seconds),
        scopes=valid_scopes(scopes) if isinstance(scopes, str) else "",
    )
    # A server that does not rotate sends none with a refresh.
    refresh_token = str(refresh) if _is_text(refresh, MAX_VALUE_LENGTH) else tokens.refresh_token
    return replace(tokens, access_token=str(token), refresh_token=refresh_token), grant


def _lifetime(value: object) -> int | None:
    """Return a lifetime in seconds, which some servers send as a text; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_LIFETIME:
        return None
    return max(1, int(value))


def _is_text(value: object, max_length: int) -> bool:
    return isinstance(value, str) and len(value) <= max_length and HEADER_VALUE.fullmatch(value) is not None


def _purpose(endpoint: Endpoint, issuer: str) -> str:
    return f"upstream registration:{endpoint.id}:{issuer}"
