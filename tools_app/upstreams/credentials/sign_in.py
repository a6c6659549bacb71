"""Signing in at the authorization server of an upstream: the way there, and the way back (OAuth 2.1, PKCE).

What the hub needs on the way back is kept in the browser's session, sealed, under the state. It is used once.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import orjson
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from tools_app.catalog import authoring
from tools_app.catalog.kinds.upstream import runner as kind
from tools_app.catalog.kinds.upstream.runner import Endpoint
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core import encryption
from tools_app.core.encryption import DecryptionError
from tools_app.core.process.thread_loops import thread_loops
from tools_app.models import CredentialKind, Upstream, UpstreamCredential
from tools_app.upstreams.credentials import discovery, store, tokens
from tools_app.upstreams.credentials.discovery import ProtectedResource, SignInFailed, is_same_issuer, valid_scopes
from tools_app.upstreams.credentials.store import Owner, Tokens

CALLBACK_PATH: Final = "/connections/upstreams/callback"
CLIENT_DOCUMENT_PATH: Final = "/oauth/upstream-client"
PENDING_KEY: Final = "upstream_sign_ins"
MAX_PENDING: Final = 5
PENDING_SECONDS: Final = 600.0
MAX_CODE_LENGTH: Final = 4096
PURPOSE: Final = "upstream sign-in"
# Errors of the authorization endpoint that are repeated to the person.
REPORTED_ERRORS: Final = frozenset(
    {
        "access_denied",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_response_type",
    }
)

Session = MutableMapping[str, Any]


def endpoint_of(upstream: Upstream) -> Endpoint:
    """Return the endpoint of an upstream. Raises SignInFailed if a secret of it is not set."""
    try:
        return kind.endpoint_of(upstream, upstream.tenant, authoring.decrypted_secrets(upstream.tenant))
    except ToolError as problem:
        raise SignInFailed(str(problem)) from None


def asks_for_sign_in(upstream: Upstream) -> bool:
    """Whether an upstream says where to sign in."""
    try:
        thread_loops().run(discovery.discover(endpoint_of(upstream)))
    except SignInFailed:
        return False
    return True


def begin(upstream: Upstream, owner: Owner, session: Session, origin: str) -> str:
    """Return the address at which the person signs in. `base` is the hub's origin. Raises SignInFailed."""
    endpoint = endpoint_of(upstream)
    if endpoint.sign_in is None or endpoint.sign_in.kind != CredentialKind.OAUTH:
        raise SignInFailed("Calls of this upstream need no sign-in.")
    origin = origin.rstrip("/")
    redirect_uri = origin + CALLBACK_PATH
    resource, client = thread_loops().run(_prepare(endpoint, redirect_uri, _document_url(origin)))
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
    _store_pending(session, state, pending)
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
    issued, granted = thread_loops().run(tokens.exchange(client_tokens, form, endpoint.allowed_networks))
    if not granted.scopes:
        granted = store.Grant(granted.seconds, pending["scopes"])
    return store.save_tokens(upstream, owner, issued, granted)


def client_document(origin: str) -> dict[str, Any]:
    """Return the hub's own metadata as a client (draft-ietf-oauth-client-id-metadata-document)."""
    origin = origin.rstrip("/")
    return {
        "client_id": origin + CLIENT_DOCUMENT_PATH,
        "client_name": "mcphub",
        "client_uri": origin,
        "redirect_uris": [origin + CALLBACK_PATH],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


async def _prepare(endpoint: Endpoint, redirect_uri: str, document_url: str) -> tuple[ProtectedResource, tokens.Client]:
    resource = await discovery.discover(endpoint)
    return resource, await tokens.client_for(endpoint, resource, redirect_uri, document_url)


def _document_url(origin: str) -> str:
    """Return the address of the hub's metadata, if authorization servers can read it."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    is_name = "." in host and not host.replace(".", "").isdigit()
    return origin + CLIENT_DOCUMENT_PATH if parts.scheme == "https" and is_name else ""


def _scopes(endpoint: Endpoint, resource: ProtectedResource, existing: UpstreamCredential | None) -> str:
    """Return the scopes to ask for: those that were granted and those that a call lacked too."""
    configured = endpoint.sign_in.scopes if endpoint.sign_in is not None else ""
    scopes = [configured or resource.scopes]
    if existing is not None and existing.wanted_scopes:
        scopes += [existing.scopes, existing.wanted_scopes]
    if resource.server.supports_offline_access:
        scopes.append("offline_access")
    return valid_scopes(" ".join(scopes))


def _store_pending(session: Session, state: str, pending: Mapping[str, Any]) -> None:
    sealed = base64.b64encode(encryption.seal(orjson.dumps(dict(pending)), PURPOSE)).decode()
    # The newest remain.
    newest = list((session.get(PENDING_KEY) or {}).items())[-(MAX_PENDING - 1) :]
    session[PENDING_KEY] = {**dict(newest), _digest(state): sealed}


def _digest(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()
