"""Clients that authenticate with a signed assertion in place of a secret (`private_key_jwt`, RFC 7523, section 3).

Their public keys are in their metadata document or registration, or at the URL that it names.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, Protocol

from authlib.oauth2 import OAuth2Request
from authlib.oauth2.rfc6749 import InvalidClientError
from django.utils import timezone
from joserfc import jwt
from joserfc.errors import JoseError

from tools_app.core.http import documents
from tools_app.identity.issuers import tokens
from tools_app.identity.oauth import clients, key_sets
from tools_app.identity.oauth.key_sets import REGISTRY
from tools_app.models import OAuthClient

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_ASSERTION: Final = 8000
MAX_LIFETIME_SECONDS: Final = 600
# Keys are read again for an unknown key ID, at most so often.
KEYS_REFRESH_INTERVAL: Final = timedelta(minutes=1)
# They are read again after this time, so that a key that a client withdrew ends.
MAX_KEYS_AGE: Final = timedelta(hours=1)


class RegisteredClient(Protocol):
    """A client as the authorization server finds it."""

    row: OAuthClient


def authenticate(
    query_client: Callable[[str], RegisteredClient | None], request: OAuth2Request, audiences: tuple[str, ...]
) -> RegisteredClient | None:
    """Return the client that signed the request's assertion; None without one. Raises InvalidClientError."""
    assertion = request.form.get("client_assertion", "")
    if not assertion or request.form.get("client_assertion_type") != ASSERTION_TYPE:
        return None
    try:
        # The client that the assertion names, before anything is verified.
        _, claims = tokens.decode_unverified(assertion)
        client = query_client(str(claims.get("sub", "")))
        if client is None or clients.SIGNED not in clients.methods_of(client.row):
            raise tokens.InvalidToken("The assertion is of no client that signs.")
        claims = _verified_claims(client.row, assertion)
        if claims.get("iss") != client.row.client_id or claims.get("sub") != client.row.client_id:
            raise tokens.InvalidToken("The issuer and the subject of the assertion must be the client ID.")
        tokens.check_claims(claims, audiences, MAX_LIFETIME_SECONDS)
        tokens.check_first_use(client.row, claims)
    except tokens.InvalidToken as problem:
        raise InvalidClientError(description=str(problem), status_code=401) from None
    return client


def _verified_claims(client: OAuthClient, assertion: str) -> dict[str, Any]:
    """Return the claims of an assertion that a key of the client signed. Raises InvalidToken and DocumentError."""
    now = timezone.now()
    read_at = client.keys_fetched_at
    if client.jwks and client.jwks_uri and (read_at is None or read_at < now - MAX_KEYS_AGE):
        # While they cannot be read, those that are known count.
        with suppress(documents.DocumentError):
            clients.read_keys(client)
    for may_read in (True, False):
        try:
            keys = key_sets.imported(client.jwks or {})
            return dict(jwt.decode(assertion, keys, registry=REGISTRY).claims)
        except (JoseError, ValueError, KeyError, TypeError, AttributeError):
            read_at = client.keys_fetched_at
            is_due = client.jwks_uri and (read_at is None or read_at < now - KEYS_REFRESH_INTERVAL)
            if not may_read or not is_due:
                break
        clients.read_keys(client)
    raise tokens.InvalidToken("The signature of the assertion cannot be verified.")
