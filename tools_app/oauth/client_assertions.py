"""Clients that authenticate with a signed assertion in place of a secret (`private_key_jwt`, RFC 7523, section 3).

Their public keys are in their metadata document, or at the URL that it names.
"""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, Protocol

from authlib.oauth2 import OAuth2Request
from authlib.oauth2.rfc6749 import InvalidClientError
from django.utils import timezone
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.access.oauth import clients
from tools_app.catalog.http import documents
from tools_app.issuers.signatures import REGISTRY
from tools_app.models import OAuthClient
from tools_app.models.ids import new_id
from tools_app.oauth import client_documents

TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_ASSERTION: Final = 8000
MAX_LIFETIME_SECONDS: Final = 600
LEEWAY_SECONDS: Final = 60
MAX_JTI: Final = 200
# Keys are read again for an unknown key ID, at most so often.
KEYS_FRESH: Final = timedelta(minutes=1)


class FoundClient(Protocol):
    """A client as the authorization server finds it."""

    row: OAuthClient


def authenticate(
    query_client: Callable[[str], FoundClient | None], request: OAuth2Request, audiences: tuple[str, ...]
) -> FoundClient | None:
    """Return the client that signed the request's assertion; None without one. Raises InvalidClientError."""
    assertion = request.form.get("client_assertion", "")
    if not assertion or request.form.get("client_assertion_type") != TYPE:
        return None
    client = query_client(_claimed_by(assertion))
    if client is None or client.row.auth_method != clients.SIGNED:
        raise _refused("The assertion is of no client that signs.")
    _check(client.row, _verified(client.row, assertion), audiences)
    return client


def _claimed_by(assertion: str) -> str:
    """Return the client that an assertion names, before anything is verified."""
    try:
        subject = jws.extract_compact(assertion.encode()).payload
        claims = documents.parsed_object(subject)
    except (JoseError, ValueError, documents.Unreadable):
        raise _refused("The assertion is not a signed JWT.") from None
    return str(claims.get("sub", ""))


def _verified(client: OAuthClient, assertion: str) -> Mapping[str, Any]:
    try:
        return _decoded(client, assertion)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError):
        if not client.jwks_uri or not _keys_are_old(client):
            raise _refused("The signature of the assertion cannot be verified.") from None
    client_documents.read_keys(client)
    try:
        return _decoded(client, assertion)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError):
        raise _refused("The signature of the assertion cannot be verified.") from None


def _decoded(client: OAuthClient, assertion: str) -> Mapping[str, Any]:
    stored: Any = client.jwks or {"keys": []}
    keys = KeySet.import_key_set(stored)
    claims: Mapping[str, Any] = jwt.decode(assertion, keys, registry=REGISTRY).claims
    return claims


def _keys_are_old(client: OAuthClient) -> bool:
    return client.keys_fetched_at is None or client.keys_fetched_at < timezone.now() - KEYS_FRESH


def _check(client: OAuthClient, claims: Mapping[str, Any], audiences: tuple[str, ...]) -> None:
    """Raise InvalidClientError unless the claims are of this client, for this hub, now, and for the first time."""
    if claims.get("iss") != client.client_id or claims.get("sub") != client.client_id:
        raise _refused("The issuer and the subject of the assertion must be the client ID.")
    audience = claims.get("aud")
    if not set(audience if isinstance(audience, list) else [audience]) & set(audiences):
        raise _refused("The assertion is for another audience.")
    now, ends, begins = time.time(), claims.get("exp"), claims.get("nbf", 0)
    if not isinstance(ends, int | float) or not now - LEEWAY_SECONDS < ends <= now + MAX_LIFETIME_SECONDS:
        raise _refused(f"The assertion has expired, or is valid for more than {MAX_LIFETIME_SECONDS} seconds.")
    if not isinstance(begins, int | float) or begins > now + LEEWAY_SECONDS:
        raise _refused("The assertion is not valid yet.")
    jti = claims.get("jti")
    if not isinstance(jti, str) or not 0 < len(jti) <= MAX_JTI:
        raise _refused("The assertion has no ID (jti).")
    used = sha256(f"{client.client_id}\n{jti}".encode()).hexdigest()
    limit = ConcurrencyLimit("client", "assertions", 1, f"oauth:assertion:{used}")
    if limits.hold_here([limit], str(new_id()), ends - now + LEEWAY_SECONDS) is not None:
        raise _refused("The assertion was used before.")


def _refused(reason: str) -> InvalidClientError:
    return InvalidClientError(description=reason, status_code=401)
