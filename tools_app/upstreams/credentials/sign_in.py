"""Signing in at the authorization server of an upstream (OAuth 2.1, PKCE): the hub as its client, and its tokens.

What the hub needs on the way back is kept in the browser's session, sealed, under the state. It is used once.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import orjson
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from django.utils import timezone

from tools_app.catalog import authoring
from tools_app.catalog.kinds.upstream import runner as kind
from tools_app.catalog.kinds.upstream.runner import Endpoint, SignIn
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core import encryption
from tools_app.core.database import run_in_db_thread
from tools_app.core.encryption import DecryptionError
from tools_app.core.http import documents
from tools_app.core.http.client import Outbound
from tools_app.core.http.documents import DocumentError
from tools_app.core.http.urls import parse_url
from tools_app.core.process.thread_loops import thread_loops
from tools_app.models import CredentialKind, Upstream, UpstreamCredential, UpstreamRegistration
from tools_app.upstreams.credentials import discovery, store
from tools_app.upstreams.credentials.discovery import ProtectedResource, SignInFailed, is_same_issuer, valid_scopes
from tools_app.upstreams.credentials.store import HEADER_VALUE, MAX_VALUE_LENGTH, Grant, Owner, Tokens

CALLBACK_PATH: Final = "/connections/upstreams/callback"
CLIENT_DOCUMENT_PATH: Final = "/oauth/upstream-client"
PENDING_KEY: Final = "upstream_sign_ins"
MAX_PENDING: Final = 5
PENDING_SECONDS: Final = 600.0
MAX_CODE_LENGTH: Final = 4096
PURPOSE: Final = "upstream sign-in"
Session = MutableMapping[str, Any]

AUTH_NONE, AUTH_BASIC, AUTH_POST = AUTH_METHODS = "none", "client_secret_basic", "client_secret_post"
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
# Errors that are repeated to the person.
REPORTED_ERRORS: Final = FINAL_ERRORS.union(
    ("access_denied", "invalid_request", "invalid_target", "server_error", "temporarily_unavailable"),
    ("unsupported_response_type",),
)


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
    method = next((each for each in AUTH_METHODS if each in server.auth_methods), AUTH_NONE)
    metadata = _metadata(redirect_uri, method)
    headers = (*documents.HEADERS, ("Content-Type", "application/json"))
    request = Outbound("POST", parse_url(server.registration_endpoint), headers, orjson.dumps(metadata))
    try:
        reply = await documents.fetch_response(request, MAX_BYTES, endpoint.allowed_networks, tenant=endpoint.tenant_id)
        body = documents.parsed_object(reply.body)
    except DocumentError as error:
        raise SignInFailed(f"The hub could not register at the authorization server: {error}") from None
    if reply.status not in REGISTERED:
        raise SignInFailed(f"The authorization server did not register the hub (HTTP {reply.status}).")
    id, secret = body.get("client_id"), body.get("client_secret") or ""
    if not _is_text(id, MAX_CLIENT_ID) or (secret and not _is_text(secret, MAX_VALUE_LENGTH)):
        raise SignInFailed("The authorization server registered the hub without a usable client ID.")
    registered_method = body.get("token_endpoint_auth_method")
    client = Client(str(id), str(secret), registered_method if registered_method in AUTH_METHODS else method)
    expires_at = body.get("client_secret_expires_at")
    expiry = None
    if isinstance(expires_at, int) and expires_at and secret:
        now = timezone.now()
        expiry = now + timedelta(seconds=max(0, min(MAX_LIFETIME, expires_at - int(now.timestamp()))))
    sealed = encryption.seal(orjson.dumps(vars(client)), _purpose(endpoint, server.issuer))
    store_registration = partial(
        UpstreamRegistration.objects.update_or_create,
        upstream_id=endpoint.id,
        issuer=server.issuer,
        redirect_uri=redirect_uri,
        defaults={"ciphertext": sealed, "expires_at": expiry},
    )
    await run_in_db_thread(store_registration)
    return client


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
    except DocumentError as error:
        raise SignInFailed(f"The token endpoint gave no usable answer: {error}") from None
    if reply.status in {BAD_REQUEST, UNAUTHORIZED}:
        code = body.get("error")
        shown = code if isinstance(code, str) and code in REPORTED_ERRORS else "an error"
        error_class = GrantRevoked if shown in FINAL_ERRORS else SignInFailed
        raise error_class(f"The authorization server refused the sign-in: {shown}.")
    if reply.status != documents.OK:
        raise SignInFailed(f"The token endpoint answered with HTTP {reply.status}.")
    token, refresh, scopes = body.get("access_token"), body.get("refresh_token"), body.get("scope")
    if not _is_text(token, MAX_VALUE_LENGTH) or str(body.get("token_type", "")).lower() != "bearer":
        raise SignInFailed("The token endpoint issued no bearer token.")
    grant = Grant(_lifetime(body.get("expires_in")), valid_scopes(scopes) if isinstance(scopes, str) else "")
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


def endpoint_of(upstream: Upstream) -> Endpoint:
    """Return the endpoint of an upstream. Raises SignInFailed if a secret of it is not set."""
    try:
        return kind.endpoint_of(upstream, upstream.tenant, authoring.decrypted_secrets(upstream.tenant))
    except ToolError as error:
        raise SignInFailed(str(error)) from None


def asks_for_sign_in(upstream: Upstream) -> bool:
    """Whether an upstream says where to sign in."""
    try:
        thread_loops().run(discovery.discover(endpoint_of(upstream)))
    except SignInFailed:
        return False
    return True


def begin(upstream: Upstream, owner: Owner, session: Session, origin: str) -> str:
    """Return the address at which the person signs in. `origin` is the hub's origin. Raises SignInFailed."""
    endpoint = endpoint_of(upstream)
    if endpoint.sign_in is None or endpoint.sign_in.kind != CredentialKind.OAUTH:
        raise SignInFailed("Calls of this upstream need no sign-in.")
    origin = origin.rstrip("/")
    redirect_uri = origin + CALLBACK_PATH
    # Authorization servers can read the hub's metadata at a public https address only.
    parts = urlsplit(origin)
    host = parts.hostname or ""
    is_public = parts.scheme == "https" and "." in host and not host.replace(".", "").isdigit()
    document_url = origin + CLIENT_DOCUMENT_PATH if is_public else ""
    resource = thread_loops().run(discovery.discover(endpoint))
    client = thread_loops().run(client_for(endpoint, resource, redirect_uri, document_url))
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    scopes = _scopes(endpoint, resource, store.of_owner(upstream.pk, owner).first())
    pending = {
        "upstream": str(upstream.pk),
        "url": endpoint.url,
        "owner": [str(owner.key_id) if owner.key_id else None, owner.person_id],
        "verifier": verifier,
        "redirect_uri": redirect_uri,
        "until": time.time() + PENDING_SECONDS,
        "announces_issuer": resource.server.sends_issuer,
        "scopes": scopes,
        "tokens": {
            "token_endpoint": resource.server.token_endpoint,
            "client_id": client.id,
            "client_secret": client.secret,
            "auth_method": client.auth_method,
            "issuer": resource.server.issuer,
            "resource": resource.resource,
        },
    }
    sealed = base64.b64encode(encryption.seal(orjson.dumps(pending), PURPOSE)).decode()
    # The newest remain.
    newest = list((session.get(PENDING_KEY) or {}).items())[-(MAX_PENDING - 1) :]
    session[PENDING_KEY] = {**dict(newest), _digest(state): sealed}
    parameters = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": create_s256_code_challenge(verifier),
        "code_challenge_method": "S256",
        "resource": resource.resource,
        **({"scope": scopes} if scopes else {}),
    }
    url = resource.server.authorization_endpoint.partition("#")[0]
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(parameters)}"


def pop_pending(session: Session, state: str) -> dict[str, Any]:
    """Return what was kept under a state, and forget it: a second answer is refused. Raises SignInFailed."""
    pending = dict(session.get(PENDING_KEY) or {})
    sealed = next(
        (pending.pop(digest) for digest in list(pending) if hmac.compare_digest(digest, _digest(state))), None
    )
    session[PENDING_KEY] = pending
    try:
        sign_in: dict[str, Any] = orjson.loads(encryption.unseal(base64.b64decode(sealed or ""), PURPOSE))
    except (DecryptionError, ValueError):
        raise SignInFailed("This sign-in was not started in this browser, or was completed before.") from None
    if sign_in["until"] < time.time():
        raise SignInFailed("This sign-in took too long. Start again.")
    return sign_in


def finish(
    upstream: Upstream, owner: Owner, pending: Mapping[str, Any], answer: Mapping[str, str]
) -> UpstreamCredential:
    """Exchange the code of an answer, and store the tokens. Raises SignInFailed."""
    client_tokens = Tokens.read(pending["tokens"])
    # Before anything else: another server's answer says nothing (RFC 9207).
    issuer = answer.get("iss")
    is_other = issuer is not None and not is_same_issuer(issuer, client_tokens.issuer)
    if is_other or (issuer is None and pending["announces_issuer"]):
        raise SignInFailed("The answer is of another authorization server.")
    if "error" in answer:
        error = answer["error"] if answer["error"] in REPORTED_ERRORS else "an error"
        raise SignInFailed(f"The authorization server refused the sign-in: {error}.")
    endpoint = endpoint_of(upstream)
    if endpoint.url != pending["url"] or upstream.credential != CredentialKind.OAUTH:
        raise SignInFailed("The upstream was changed meanwhile. Start again.")
    code = answer.get("code", "")
    if not 0 < len(code) <= MAX_CODE_LENGTH:
        raise SignInFailed("The answer has no usable code.")
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": pending["redirect_uri"],
        "code_verifier": pending["verifier"],
    }
    issued, granted = thread_loops().run(exchange(client_tokens, form, endpoint.allowed_networks))
    if not granted.scopes:
        granted = store.Grant(granted.seconds, pending["scopes"])
    return store.save_tokens(upstream, owner, issued, granted)


def client_document(origin: str) -> dict[str, Any]:
    """Return the hub's own metadata as a client (draft-ietf-oauth-client-id-metadata-document)."""
    origin = origin.rstrip("/")
    names = {"client_id": origin + CLIENT_DOCUMENT_PATH, "client_uri": origin}
    return {**names, **_metadata(origin + CALLBACK_PATH, AUTH_NONE)}


def _metadata(redirect_uri: str, auth_method: str) -> dict[str, Any]:
    """Return what the hub says of itself to authorization servers (RFC 7591)."""
    return {
        "client_name": "mcphub",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": auth_method,
    }


def _scopes(endpoint: Endpoint, resource: ProtectedResource, existing: UpstreamCredential | None) -> str:
    """Return the scopes to ask for: those that were granted and those that a call lacked too."""
    configured = endpoint.sign_in.scopes if endpoint.sign_in is not None else ""
    scopes = [configured or resource.scopes]
    if existing is not None and existing.wanted_scopes:
        scopes += [existing.scopes, existing.wanted_scopes]
    if resource.server.supports_offline_access:
        scopes.append("offline_access")
    return valid_scopes(" ".join(scopes))


def _digest(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()
