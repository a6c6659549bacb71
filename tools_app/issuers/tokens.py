"""Verification of tokens that issuers sign: ID tokens, identity assertions, and tokens of workloads (RFC 8725)."""

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tools_app.catalog.http import documents
from tools_app.catalog.http.documents import Unreadable
from tools_app.issuers import configuration
from tools_app.issuers.signatures import REGISTRY
from tools_app.models import Issuer

UNVERIFIED: Final = "The signature of the token cannot be verified with the keys of its issuer."
MAX_TOKEN: Final = 32 * 1024
MAX_LIFETIME_SECONDS: Final = 24 * 3600
LEEWAY_SECONDS: Final = 60
NUL: Final = b"\\u0000"


class InvalidToken(Exception):
    """A token is not valid; the message says why, without repeating it."""


class UnverifiedToken(InvalidToken):
    """The signature of a token is not verified. The message is for the tenant: strangers are told UNVERIFIED."""


class UnknownKey(UnverifiedToken):
    """None of the keys in memory signed a token."""


def unverified(token: str, max_length: int = MAX_TOKEN) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the claims of a token, neither of which is verified. Raises InvalidToken."""
    if len(token) > max_length:
        raise UnverifiedToken("The token is too long.")
    try:
        parts = jws.extract_compact(token.strip().encode())
        header, claims = dict(parts.headers()), documents.parsed_object(parts.payload)
    except (JoseError, ValueError, Unreadable):
        raise UnverifiedToken("This is not a signed JWT.") from None
    if not is_storable(parts.payload):
        raise UnverifiedToken("The token contains a character that cannot be stored.")
    return header, claims


def is_storable(json: bytes) -> bool:
    """Whether the texts of a JSON document can be stored: without NUL."""
    return NUL not in json.replace(b"\\\\", b"")


def verified(
    issuer: Issuer, token: str, audiences: Collection[str], *, kind: str = "", may_read: bool = True
) -> Mapping[str, Any]:
    """Return the claims of a token of this issuer, for one of these audiences, valid now.

    `kind`: the type that its header must have (RFC 8725, section 3.11). Raises InvalidToken; UnverifiedToken before its
    signature is verified; and UnknownKey if keys would have to be read and `may_read` is off.
    """
    header, claims = unverified(token)
    if kind and str(header.get("typ", "")).lower() != kind:
        raise UnverifiedToken(f"The type of the token is not {kind}.")
    if may_read:
        _check_signature(issuer, token.strip())
    elif not _is_signed(token.strip(), configuration.known_keys(issuer.issuer, issuer.tenant.allowed_networks)):
        raise UnknownKey(UNVERIFIED)
    if claims.get("iss") != issuer.issuer:
        raise InvalidToken("The token is of another issuer.")
    audience = claims.get("aud")
    if not set(map(str, audience if isinstance(audience, list) else [audience])) & set(audiences):
        raise InvalidToken("The token is for another audience.")
    now, ends, begins = time.time(), claims.get("exp"), claims.get("nbf", 0)
    if not isinstance(ends, int | float) or ends <= now - LEEWAY_SECONDS:
        raise InvalidToken("The token has expired.")
    if ends > now + MAX_LIFETIME_SECONDS:
        raise InvalidToken("The token is valid for more than a day.")
    if not isinstance(begins, int | float) or begins > now + LEEWAY_SECONDS:
        raise InvalidToken("The token is not valid yet.")
    return claims


def _check_signature(issuer: Issuer, token: str) -> None:
    """Raise InvalidToken unless a published key of the issuer signed a token. A new key is looked for once."""
    allowed = issuer.tenant.allowed_networks
    if not _is_signed(token, configuration.known_keys(issuer.issuer, allowed)):
        read_keys(issuer)
        if not _is_signed(token, configuration.known_keys(issuer.issuer, allowed)):
            raise UnverifiedToken(UNVERIFIED)


def read_keys(issuer: Issuer) -> None:
    """Read the keys of an issuer for a token that none of those in memory signed, if it is time to. Blocks.

    Raises UnverifiedToken if they cannot be read, or could not a moment ago.
    """
    allowed = issuer.tenant.allowed_networks
    is_known = configuration.known_keys(issuer.issuer, allowed) is not None
    if is_known and not configuration.may_look_again(issuer.issuer, allowed):
        return
    reason = configuration.reason_not_to_read(issuer.issuer, allowed)
    try:
        if not reason:
            configuration.keys(issuer.issuer, allowed, again=is_known)
    except Unreadable as problem:
        reason = str(problem)
    if reason:
        raise UnverifiedToken(f"The keys of {issuer.issuer} could not be read: {reason}")


def _is_signed(token: str, keys: Any) -> bool:
    if keys is None:
        return False
    try:
        jws.deserialize_compact(token, KeySet.import_key_set(keys), registry=REGISTRY)
    except (JoseError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True
