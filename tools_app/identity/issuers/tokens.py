"""Verification of tokens that issuers sign: ID tokens, identity assertions, and tokens of workloads (RFC 8725)."""

import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError

from tools_app.core.http import documents
from tools_app.core.http.documents import DocumentError
from tools_app.identity import single_use
from tools_app.identity.issuers import configuration
from tools_app.identity.oauth import key_sets
from tools_app.identity.oauth.key_sets import REGISTRY
from tools_app.models import Issuer, OAuthClient

UNVERIFIED_SIGNATURE: Final = "The signature of the token cannot be verified with the keys of its issuer."
MAX_TOKEN: Final = 32 * 1024
MAX_LIFETIME_SECONDS: Final = 24 * 3600
LEEWAY_SECONDS: Final = 60
MAX_JTI: Final = 200
ESCAPED_NUL: Final = b"\\u0000"


class InvalidToken(Exception):
    """A token is not valid; the message says why, without repeating it."""


class UnverifiedToken(InvalidToken):
    """The signature of a token is not verified. The message is for the tenant: strangers are told UNVERIFIED."""


class UnknownKey(UnverifiedToken):
    """None of the keys in memory signed a token."""


def decode_unverified(token: str, max_length: int = MAX_TOKEN) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the claims of a token, neither of which is verified. Raises InvalidToken."""
    if len(token) > max_length:
        raise UnverifiedToken("The token is too long.")
    try:
        parts = jws.extract_compact(token.strip().encode())
        header, claims = dict(parts.headers()), documents.parsed_object(parts.payload)
    except (JoseError, ValueError, DocumentError):
        raise UnverifiedToken("This is not a signed JWT.") from None
    if not is_storable(parts.payload):
        raise UnverifiedToken("The token contains a character that cannot be stored.")
    return header, claims


def is_storable(json: bytes) -> bool:
    """Whether the texts of a JSON document can be stored: without NUL."""
    return ESCAPED_NUL not in json.replace(b"\\\\", b"")


def verify(
    issuer: Issuer,
    token: str,
    audiences: Collection[str],
    *,
    token_type: str = "",
    authorized_party: str = "",
    max_lifetime: int = MAX_LIFETIME_SECONDS,
    may_fetch_keys: bool = True,
) -> Mapping[str, Any]:
    """Return the claims of a token of this issuer, for one of these audiences, valid now and not for too long.

    `token_type`: the type that its header must have (RFC 8725, section 3.11). `authorized_party`: which client an ID
    token was issued to, if it says so (azp, OpenID Connect Core 1.0, section 3.1.3.7). Raises InvalidToken;
    UnverifiedToken before its signature is verified; and UnknownKey if keys would have to be read and `may_fetch_keys`
    is off.
    """
    header, claims = decode_unverified(token)
    if token_type and str(header.get("typ", "")).lower() != token_type:
        raise UnverifiedToken(f"The type of the token is not {token_type}.")
    allowed = issuer.tenant.allowed_networks
    if not _is_signed_by(token.strip(), configuration.cached_keys(issuer.issuer, allowed)):
        if not may_fetch_keys:
            raise UnknownKey(UNVERIFIED_SIGNATURE)
        # A new key is looked for once.
        fetch_keys(issuer)
        if not _is_signed_by(token.strip(), configuration.cached_keys(issuer.issuer, allowed)):
            raise UnverifiedToken(UNVERIFIED_SIGNATURE)
    if claims.get("iss") != issuer.issuer:
        raise InvalidToken("The token is of another issuer.")
    if authorized_party and claims.get("azp", authorized_party) != authorized_party:
        raise InvalidToken("The token was issued to another client (azp).")
    check_claims(claims, audiences, max_lifetime)
    return claims


def check_claims(claims: Mapping[str, Any], audiences: Collection[str], max_lifetime: int) -> None:
    """Raise InvalidToken unless claims are for one of these audiences, valid now, and not for more seconds."""
    audience = claims.get("aud")
    if not set(map(str, audience if isinstance(audience, list) else [audience])) & set(audiences):
        raise InvalidToken("The token is for another audience.")
    now, expires_at, not_before = time.time(), claims.get("exp"), claims.get("nbf", 0)
    if not isinstance(expires_at, int | float) or expires_at <= now - LEEWAY_SECONDS:
        raise InvalidToken("The token has expired.")
    if expires_at > now + max_lifetime:
        longest = "a day" if max_lifetime == MAX_LIFETIME_SECONDS else f"{max_lifetime // 60} minutes"
        raise InvalidToken(f"The token is valid for more than {longest}.")
    if not isinstance(not_before, int | float) or not_before > now + LEEWAY_SECONDS:
        raise InvalidToken("The token is not valid yet.")


def check_first_use(owner: Issuer | OAuthClient, claims: Mapping[str, Any], kind: str = "") -> None:
    """Raise InvalidToken unless verified claims with an ID (jti) are used for the first time.

    `kind` is how IDs of this kind of token begin, among those of the issuer or the client.
    """
    jti = claims.get("jti")
    if not isinstance(jti, str) or not 0 < len(jti) <= MAX_JTI:
        raise InvalidToken("The assertion has no ID (jti).")
    try:
        until = datetime.fromtimestamp(claims["exp"] + LEEWAY_SECONDS, UTC)
        if not single_use.use(owner, [f"{kind}{jti}"], until):
            raise InvalidToken("The assertion was used before.")
    except single_use.TooMany:
        raise InvalidToken("Too many assertions are valid now. Try again in some minutes.") from None


def fetch_keys(issuer: Issuer) -> None:
    """Read the keys of an issuer for a token that none of those in memory signed, if it is time to. Blocks.

    Raises UnverifiedToken if they cannot be read, or could not a moment ago.
    """
    allowed = issuer.tenant.allowed_networks
    is_cached = configuration.cached_keys(issuer.issuer, allowed) is not None
    if is_cached and not configuration.may_refresh_keys(issuer.issuer, allowed):
        return
    reason = configuration.recent_failure(issuer.issuer, allowed)
    try:
        if not reason:
            configuration.keys(issuer.issuer, allowed, refresh=is_cached)
    except DocumentError as problem:
        reason = str(problem)
    if reason:
        raise UnverifiedToken(f"The keys of {issuer.issuer} could not be read: {reason}")


def _is_signed_by(token: str, keys: Any) -> bool:
    if keys is None:
        return False
    try:
        jws.deserialize_compact(token, key_sets.imported(keys), registry=REGISTRY)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True
