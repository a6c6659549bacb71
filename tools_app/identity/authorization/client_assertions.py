"""Clients that authenticate with a signed assertion in place of a secret (`private_key_jwt`, RFC 7523, section 3).

Their public keys are in their metadata document or registration, or at the URL that it names.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from authlib.oauth2 import OAuth2Request
from authlib.oauth2.rfc6749 import InvalidClientError
from django.utils import timezone
from joserfc import jws, jwt
from joserfc.errors import JoseError

from tools_app.core.http import documents
from tools_app.identity import single_use
from tools_app.identity.authorization import client_documents
from tools_app.identity.issuers import tokens
from tools_app.identity.issuers.signatures import REGISTRY
from tools_app.identity.oauth import clients, key_sets
from tools_app.models import OAuthClient

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_ASSERTION: Final = 8000
MAX_LIFETIME_SECONDS: Final = 600
MAX_JTI: Final = 200
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
    client = query_client(_claimed_client_id(assertion))
    if client is None or clients.SIGNED not in clients.methods_of(client.row):
        raise _invalid_client("The assertion is of no client that signs.")
    _check_claims(client.row, _verified_claims(client.row, assertion), audiences)
    return client


def _claimed_client_id(assertion: str) -> str:
    """Return the client that an assertion names, before anything is verified."""
    try:
        subject = jws.extract_compact(assertion.encode()).payload
        claims = documents.parsed_object(subject)
    except (JoseError, ValueError, documents.DocumentError):
        raise _invalid_client("The assertion is not a signed JWT.") from None
    return str(claims.get("sub", ""))


def _verified_claims(client: OAuthClient, assertion: str) -> Mapping[str, Any]:
    if client.jwks and client.jwks_uri and _keys_are_older(client, MAX_KEYS_AGE):
        # While they cannot be read, those that are known count.
        with suppress(documents.DocumentError):
            client_documents.read_keys(client)
    try:
        return _decode(client, assertion)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError):
        if not client.jwks_uri or not _keys_are_older(client, KEYS_REFRESH_INTERVAL):
            raise _invalid_client("The signature of the assertion cannot be verified.") from None
    client_documents.read_keys(client)
    try:
        return _decode(client, assertion)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError):
        raise _invalid_client("The signature of the assertion cannot be verified.") from None


def _decode(client: OAuthClient, assertion: str) -> Mapping[str, Any]:
    keys = key_sets.imported(client.jwks or {})
    claims: Mapping[str, Any] = jwt.decode(assertion, keys, registry=REGISTRY).claims
    return claims


def _keys_are_older(client: OAuthClient, age: timedelta) -> bool:
    return client.keys_fetched_at is None or client.keys_fetched_at < timezone.now() - age


def _check_claims(client: OAuthClient, claims: Mapping[str, Any], audiences: tuple[str, ...]) -> None:
    """Raise InvalidClientError unless the claims are of this client, for this hub, now, and for the first time."""
    if claims.get("iss") != client.client_id or claims.get("sub") != client.client_id:
        raise _invalid_client("The issuer and the subject of the assertion must be the client ID.")
    try:
        tokens.check_claims(claims, audiences, MAX_LIFETIME_SECONDS)
    except tokens.InvalidToken as problem:
        raise _invalid_client(str(problem)) from None
    jti = claims.get("jti")
    if not isinstance(jti, str) or not 0 < len(jti) <= MAX_JTI:
        raise _invalid_client("The assertion has no ID (jti).")
    try:
        is_first = single_use.use(client, [jti], datetime.fromtimestamp(claims["exp"] + tokens.LEEWAY_SECONDS, UTC))
    except single_use.TooMany:
        raise _invalid_client("Too many assertions of this client are valid now. Try again in some minutes.") from None
    if not is_first:
        raise _invalid_client("The assertion was used before.")


def _invalid_client(reason: str) -> InvalidClientError:
    return InvalidClientError(description=reason, status_code=401)
