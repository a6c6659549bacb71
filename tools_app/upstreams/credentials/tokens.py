"""Requests to the token and registration endpoints of authorization servers, and what they answer."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

import orjson
from django.utils import timezone

from tools_app.catalog.http import documents
from tools_app.catalog.http.addresses import parse_networks
from tools_app.catalog.http.client import Outbound, Terms, exchange
from tools_app.catalog.http.documents import Unreadable
from tools_app.catalog.http.errors import RequestFailed
from tools_app.catalog.http.urls import parse_url
from tools_app.catalog.kinds.upstream import Endpoint
from tools_app.core import encryption
from tools_app.core.database import run_in_db_thread
from tools_app.core.encryption import DecryptionError
from tools_app.models import UpstreamRegistration
from tools_app.upstreams.credentials.discovery import Found, SignInFailed, valid_scopes
from tools_app.upstreams.credentials.store import MAX_VALUE_LENGTH, VALUE, Granted, Tokens

NONE, BASIC, POST = "none", "client_secret_basic", "client_secret_post"
MAX_BYTES: Final = 64 * 1024
MAX_LIFETIME: Final = 10 * 366 * 24 * 3600
MAX_CLIENT_ID: Final = 2000
SECONDS: Final = 5.0
BAD_REQUEST, UNAUTHORIZED = 400, 401
CREATED: Final = frozenset({200, 201})
# Errors after which the same request cannot succeed (RFC 6749, section 5.2).
FINAL_ERRORS: Final = frozenset(
    {"invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}
)
PROBLEMS: Final = FINAL_ERRORS | {"invalid_request", "invalid_target", "temporarily_unavailable", "server_error"}


class Withdrawn(SignInFailed):
    """The authorization server refuses the grant for good: somebody has to sign in again."""


@dataclass(frozen=True)
class Client:
    """The hub as a client of an authorization server."""

    id: str
    secret: str = ""
    auth_method: str = NONE


async def client_for(endpoint: Endpoint, found: Found, redirect_uri: str, document_url: str) -> Client:
    """Return the client as which to sign in: one that an admin set, the hub's own document, or a registered one.

    Raises SignInFailed. `document_url` is "" if the hub has no public https address.
    """
    server, own = found.server, endpoint.sign_in
    if own is not None and own.client_id:
        if not own.client_secret:
            return Client(own.client_id)
        method = POST if BASIC not in server.auth_methods and POST in server.auth_methods else BASIC
        return Client(own.client_id, own.client_secret, method)
    if document_url and server.reads_documents:
        return Client(document_url)
    if not server.registration_endpoint:
        raise SignInFailed(
            f"Register the hub as a client at {server.issuer[:200]}, with the redirect URI {redirect_uri}, and enter"
            " its OAuth client ID in the upstream's settings."
        )
    known = await run_in_db_thread(_registered, endpoint, server.issuer, redirect_uri)
    return known or await _register(endpoint, found, redirect_uri)


def _registered(endpoint: Endpoint, issuer: str, redirect_uri: str) -> Client | None:
    row = UpstreamRegistration.objects.filter(upstream_id=endpoint.id, issuer=issuer, redirect_uri=redirect_uri).first()
    if row is None or (row.expires_at is not None and row.expires_at <= timezone.now()):
        return None
    try:
        said = orjson.loads(encryption.unseal(bytes(row.ciphertext), _purpose(endpoint, issuer)))
    except DecryptionError:
        return None
    return Client(**said)


async def _register(endpoint: Endpoint, found: Found, redirect_uri: str) -> Client:
    """Register the hub (RFC 7591), and keep the registration for later sign-ins."""
    server = found.server
    method = next((one for one in (NONE, BASIC, POST) if one in server.auth_methods), NONE)
    wanted = {
        "client_name": "mcphub",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    headers = (*documents.HEADERS, ("Content-Type", "application/json"))
    request = Outbound("POST", parse_url(server.registration_endpoint), headers, orjson.dumps(wanted))
    try:
        reply = await exchange(request, Terms(parse_networks(endpoint.allowed_networks), SECONDS, MAX_BYTES))
        said = documents.parsed_object(reply.body)
    except (RequestFailed, Unreadable) as problem:
        raise SignInFailed(f"The hub could not register at the authorization server: {problem}") from None
    if reply.status not in CREATED:
        raise SignInFailed(f"The authorization server did not register the hub (HTTP {reply.status}).")
    id, secret = said.get("client_id"), said.get("client_secret") or ""
    if not _is_text(id, MAX_CLIENT_ID) or (secret and not _is_text(secret, MAX_VALUE_LENGTH)):
        raise SignInFailed("The authorization server registered the hub without a usable client ID.")
    given = said.get("token_endpoint_auth_method", method)
    client = Client(str(id), str(secret), given if given in {NONE, BASIC, POST} else method)
    ends = said.get("client_secret_expires_at")
    seconds = ends if isinstance(ends, int) and secret else 0
    await run_in_db_thread(_keep, endpoint, server.issuer, redirect_uri, client, seconds)
    return client


def _keep(endpoint: Endpoint, issuer: str, redirect_uri: str, client: Client, ends: int) -> None:
    left = min(MAX_LIFETIME, ends - int(timezone.now().timestamp())) if ends else 0
    UpstreamRegistration.objects.update_or_create(
        upstream_id=endpoint.id,
        issuer=issuer,
        redirect_uri=redirect_uri,
        defaults={
            "ciphertext": encryption.seal(orjson.dumps(vars(client)), _purpose(endpoint, issuer)),
            "expires_at": timezone.now() + timedelta(seconds=left) if ends else None,
        },
    )


async def exchanged(tokens: Tokens, form: Mapping[str, str], allowed: tuple[str, ...]) -> tuple[Tokens, Granted]:
    """Send a request to the token endpoint; returns `tokens` with those that it issues.

    Raises SignInFailed, and Withdrawn if the grant is refused for good. No message repeats what the server said.
    """
    fields, authorization = dict(form), ""
    if tokens.resource:
        fields["resource"] = tokens.resource
    if tokens.auth_method == BASIC:
        pair = f"{quote(tokens.client_id, safe='')}:{quote(tokens.client_secret, safe='')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        fields["client_id"] = tokens.client_id
        if tokens.auth_method == POST:
            fields["client_secret"] = tokens.client_secret
    try:
        reply = await documents.post(
            tokens.token_endpoint, fields, MAX_BYTES, allowed=allowed, authorization=authorization
        )
        said = documents.parsed_object(reply.body)
    except Unreadable as problem:
        raise SignInFailed(f"The token endpoint gave no usable answer: {problem}") from None
    if reply.status in {BAD_REQUEST, UNAUTHORIZED}:
        code = said.get("error")
        told = code if isinstance(code, str) and code in PROBLEMS else "an error"
        kind = Withdrawn if told in FINAL_ERRORS else SignInFailed
        raise kind(f"The authorization server refused the sign-in: {told}.")
    if reply.status != documents.OK:
        raise SignInFailed(f"The token endpoint answered with HTTP {reply.status}.")
    return _issued(tokens, said)


def _issued(tokens: Tokens, said: Mapping[str, Any]) -> tuple[Tokens, Granted]:
    token, refresh = said.get("access_token"), said.get("refresh_token")
    if not _is_text(token, MAX_VALUE_LENGTH) or str(said.get("token_type", "")).lower() != "bearer":
        raise SignInFailed("The token endpoint issued no bearer token.")
    seconds, scopes = said.get("expires_in"), said.get("scope")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    granted = Granted(
        seconds=max(1, min(MAX_LIFETIME, int(seconds))) if is_number and 0 <= seconds <= MAX_LIFETIME else None,  # type: ignore[arg-type, operator]
        scopes=valid_scopes(scopes) if isinstance(scopes, str) else "",
    )
    # A server that does not rotate sends none with a refresh.
    kept = str(refresh) if _is_text(refresh, MAX_VALUE_LENGTH) else tokens.refresh_token
    return replace(tokens, access_token=str(token), refresh_token=kept), granted


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and VALUE.fullmatch(value) is not None


def _purpose(endpoint: Endpoint, issuer: str) -> str:
    return f"upstream registration:{endpoint.id}:{issuer}"
