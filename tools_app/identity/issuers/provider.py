"""Sign-in of people with an OpenID Connect provider: the request, the exchange of its code, and renewal.

See OpenID Connect Core 1.0, section 3.1, with PKCE (RFC 7636) and a nonce.
"""

import base64
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from tools_app.core import encryption
from tools_app.core.http import documents
from tools_app.core.http.documents import DocumentError
from tools_app.identity.issuers import configuration, tokens
from tools_app.identity.people import people, rules
from tools_app.models import Issuer

SCOPE: Final = "openid profile email offline_access"
MAX_RESPONSE_BYTES: Final = 256 * 1024
BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
# Among the claims of a person: which of them only UserInfo stated. No issuer can state it.
USER_INFO_CLAIMS: Final = "mcphub_from_user_info"
# What accounts are named by, beside what the rules look at.
PROFILE: Final = ("preferred_username", "email", "given_name", "family_name")
MAX_PROFILE: Final = 300


class SignInFailed(Exception):
    """The provider refused, could not be reached, or answered something wrong. The message says what."""


class AccessWithdrawn(SignInFailed):
    """The provider no longer confirms the person."""


class PendingSignIn(NamedTuple):
    """What a browser's session keeps of a sign-in until the person comes back."""

    url: str
    state: str
    nonce: str
    verifier: str


class SignInResult(NamedTuple):
    """The verified claims of a person, if the provider sent them, and the token to ask again with; "" without one."""

    claims: Mapping[str, Any] | None
    refresh_token: str


def begin(issuer: Issuer, redirect_uri: str) -> PendingSignIn:
    """Return where to send a person. Raises SignInFailed."""
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    parameters = {
        "response_type": "code",
        "client_id": issuer.client_id,
        "redirect_uri": redirect_uri,
        "scope": SCOPE,
        "state": state,
        "nonce": nonce,
        "code_challenge": create_s256_code_challenge(verifier),
        "code_challenge_method": "S256",
    }
    endpoint = _configuration(issuer).authorization_endpoint
    return PendingSignIn(add_params_to_uri(endpoint, parameters.items()), state, nonce, verifier)


def finish(issuer: Issuer, code: str, nonce: str, verifier: str, redirect_uri: str) -> SignInResult:
    """Return what the provider says of the person who came back with a code. Raises SignInFailed."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    token_response = _token_response(issuer, form)
    claims = _claims(issuer, token_response)
    if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise SignInFailed("The answer belongs to another sign-in. Try again.")
    claims = _with_user_info(issuer, token_response, claims)
    return SignInResult(claims, _refresh_token(token_response))


def refresh(issuer: Issuer, refresh_token: str, known: Mapping[str, Any]) -> SignInResult:
    """Ask the provider whether it still confirms a person with these claims.

    Raises AccessWithdrawn if it does not, else SignInFailed.

    It need not send a new ID token (section 12.2): then what was known holds, and the claims are None, unless some of
    them were those of UserInfo, which is asked again.
    """
    token_response = _token_response(issuer, {"grant_type": "refresh_token", "refresh_token": refresh_token})
    claims: Mapping[str, Any] | None = None
    if "id_token" in token_response:
        claims = _claims(issuer, token_response)
        if known.get("sub") not in (None, claims.get("sub")):
            raise SignInFailed(f"The answer of {issuer.name} is about somebody else.")
        claims = _with_user_info(issuer, token_response, claims)
    elif known.get(USER_INFO_CLAIMS):
        user_info_claims = set(known[USER_INFO_CLAIMS])
        signed = {
            name: value for name, value in known.items() if name not in user_info_claims and name != USER_INFO_CLAIMS
        }
        claims = _with_user_info(issuer, token_response, signed)
    return SignInResult(claims, _refresh_token(token_response) or refresh_token)


def seal_secret(issuer: Issuer, secret: str) -> None:
    """Set the client secret of an issuer that is saved next, for its URL; "" removes it."""
    issuer.ciphertext = encryption.seal(secret.encode(), people.sealed_for(issuer, issuer)) if secret else None


def _configuration(issuer: Issuer) -> configuration.Configuration:
    try:
        return configuration.read(issuer.issuer, issuer.tenant.allowed_networks)
    except DocumentError as problem:
        raise SignInFailed(f"{issuer.name} could not be reached: {problem}") from problem


def _token_response(issuer: Issuer, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer of the token endpoint. Raises SignInFailed, and AccessWithdrawn for invalid_grant."""
    config = _configuration(issuer)
    try:
        secret = people.unseal(issuer, issuer) if issuer.ciphertext else ""
    except encryption.DecryptionError:
        raise SignInFailed(f"The client secret of {issuer.name} cannot be read. Enter it again.") from None
    authorization, body = "", dict(form)
    if secret and "client_secret_basic" in config.auth_methods:
        credentials = f"{quote(issuer.client_id, safe='')}:{quote(secret, safe='')}"
        authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    else:
        body |= {"client_id": issuer.client_id, **({"client_secret": secret} if secret else {})}
    allowed = issuer.tenant.allowed_networks
    try:
        reply = configuration.run(
            documents.post(
                config.token_endpoint, body, MAX_RESPONSE_BYTES, allowed=allowed, authorization=authorization
            )
        )
        if reply.status in (BAD_REQUEST, UNAUTHORIZED):
            error = str(documents.parsed_object(reply.body).get("error", ""))[:100]
            error = "".join(filter(str.isprintable, error))
            kind = AccessWithdrawn if error == "invalid_grant" else SignInFailed
            raise kind(f"{issuer.name} refused: {error or 'no reason given'}.")
        return documents.parsed(reply)
    except DocumentError as problem:
        raise SignInFailed(f"{issuer.name} did not answer as expected: {problem}") from problem


def _claims(issuer: Issuer, token_response: Mapping[str, Any]) -> Mapping[str, Any]:
    id_token = str(token_response.get("id_token", ""))
    try:
        return tokens.verify(issuer, id_token, [issuer.client_id], authorized_party=issuer.client_id)
    except tokens.InvalidToken as problem:
        raise SignInFailed(f"The answer of {issuer.name} is not valid. {problem}") from problem


def _with_user_info(issuer: Issuer, token_response: Mapping[str, Any], claims: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the claims of an ID token, with those that the rules look at and that only the provider's UserInfo states.

    See OpenID Connect Core 1.0, section 5.3. Raises SignInFailed.
    """
    endpoint, token = _configuration(issuer).userinfo_endpoint, token_response.get("access_token")
    claims = {name: value for name, value in claims.items() if name != USER_INFO_CLAIMS}
    missing = [name for name in rules.names(issuer) if not rules.values(claims, name)]
    if not missing or not endpoint or not isinstance(token, str) or not token.isascii() or not token.isprintable():
        return claims
    request = documents.fetch(
        endpoint, MAX_RESPONSE_BYTES, allowed=issuer.tenant.allowed_networks, authorization=f"Bearer {token}"
    )
    try:
        reply = configuration.run(request)
        user_info = documents.parsed(reply)
    except DocumentError as problem:
        raise SignInFailed(f"What {issuer.name} knows of you (UserInfo) could not be read: {problem}") from problem
    if user_info.get("sub") != claims.get("sub") or not tokens.is_storable(reply.body):
        raise SignInFailed(f"What {issuer.name} knows of you (UserInfo) is not about you.")
    # By their whole names, which `rules.values` looks for first, and as many as it looks at.
    added: dict[str, Any] = {name: rules.values(user_info, name) for name in missing if rules.values(user_info, name)}
    for name in (*PROFILE, issuer.directory_claim):
        value = user_info.get(name)
        if not claims.get(name) and name not in added and isinstance(value, str) and len(value) <= MAX_PROFILE:
            added[name] = value
    return {**claims, **added, USER_INFO_CLAIMS: sorted(added)}


def _refresh_token(token_response: Mapping[str, Any]) -> str:
    token = token_response.get("refresh_token")
    return token if isinstance(token, str) else ""
