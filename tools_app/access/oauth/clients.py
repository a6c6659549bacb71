"""Applications that ask for access: their registration, their metadata, and their rows.

A client names itself by the URL of its metadata document, which is fetched in `oauth.client_documents`, or registers
itself (RFC 7591).
"""

import hmac
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.utils import timezone

from tools_app.access.keys import digest_of
from tools_app.access.oauth import devices, redirects
from tools_app.models import ClientSource, OAuthClient
from tools_app.models.oauth import MAX_CLIENT_ID, MAX_URI

MAX_NAME: Final = 100
SECRET_PREFIX: Final = "mcphub_cs_"  # noqa: S105 - no secret, but its beginning
CODE: Final = "authorization_code"
REFRESH: Final = "refresh_token"
PUBLIC: Final = "none"
SIGNED: Final = "private_key_jwt"
SECRET_METHODS: Final = ("client_secret_basic", "client_secret_post")
# Dynamic clients that nobody connected are deleted after this time.
UNUSED: Final = timedelta(days=30)
MAX_UNUSED: Final = 10_000


class TooManyClients(Exception):
    """So many clients registered that nobody connected: no further one is stored."""


class InvalidMetadata(ValueError):
    """The metadata of a client cannot be accepted. `error` is the code of RFC 7591, section 3.2.2."""

    def __init__(self, message: str, error: str = "invalid_client_metadata") -> None:
        super().__init__(message)
        self.error = error


def is_document(client_id: str) -> bool:
    """Whether a client ID is the URL of a metadata document."""
    return client_id.startswith("https://")


def check_document_url(client_id: str) -> None:
    """Raise InvalidMetadata unless a URL can name a client.

    See draft-ietf-oauth-client-id-metadata-document, section 3.
    """
    parts = urlsplit(client_id)
    segments = parts.path.split("/")
    if len(client_id) > MAX_CLIENT_ID or not client_id.isascii() or not client_id.isprintable():
        raise InvalidMetadata("The client ID is too long or has unusual characters.")
    if "#" in client_id or parts.username is not None or parts.path in ("", "/") or {".", ".."} & set(segments):
        raise InvalidMetadata("A client ID that is a URL has a path, and no fragment, user name or dot segments.")


def host_of(client: OAuthClient) -> str:
    """Return the host that a client proved to be of; "" if it proved none."""
    return urlsplit(client.client_id).netloc if client.source == ClientSource.DOCUMENT else ""


def from_document(client_id: str, document: Mapping[str, Any]) -> OAuthClient:
    """Store what a metadata document says. Raises InvalidMetadata."""
    if document.get("client_id") != client_id:
        raise InvalidMetadata("The client_id in the document is not the URL of the document.")
    method = document.get("token_endpoint_auth_method", PUBLIC)
    if method not in (PUBLIC, SIGNED):
        raise InvalidMetadata(f"A client with a metadata document has no secret: {PUBLIC} or {SIGNED}.")
    said = {
        **_keys(document, method),
        "source": ClientSource.DOCUMENT,
        "name": _name(document) or urlsplit(client_id).netloc[:MAX_NAME],
        **_returns(document),
        "auth_method": method,
        "fetched_at": timezone.now(),
    }
    client, _ = OAuthClient.objects.update_or_create(client_id=client_id, defaults=said)
    return client


def register(metadata: Mapping[str, Any]) -> tuple[OAuthClient, str]:
    """Store a client that registers itself; return it and its secret, which is "" for a public client.

    Raises InvalidMetadata, and TooManyClients.
    """
    method = metadata.get("token_endpoint_auth_method", SECRET_METHODS[0])
    if method not in (PUBLIC, *SECRET_METHODS):
        raise InvalidMetadata(f"token_endpoint_auth_method is one of {', '.join((PUBLIC, *SECRET_METHODS))}.")
    said = _returns(metadata)
    if said["redirect_uris"]:
        _check_response_types(metadata)
    if OAuthClient.objects.filter(source=ClientSource.DYNAMIC, connections=None).count() >= MAX_UNUSED:
        raise TooManyClients
    secret = "" if method == PUBLIC else SECRET_PREFIX + secrets.token_urlsafe(32)
    client = OAuthClient.objects.create(
        client_id=f"mcphub_client_{secrets.token_urlsafe(16)}",
        source=ClientSource.DYNAMIC,
        name=_name(metadata) or "Unnamed client",
        **said,
        auth_method=method,
        secret_digest=digest_of(secret) if secret else "",
    )
    return client, secret


def has_secret(client: OAuthClient, secret: str) -> bool:
    """Whether this is the client's secret, compared in constant time."""
    return bool(client.secret_digest) and hmac.compare_digest(client.secret_digest, digest_of(secret))


def prune() -> None:
    """Delete clients that nobody has connected within UNUSED. Blocked clients stay blocked."""
    OAuthClient.objects.filter(connections=None, created_at__lt=timezone.now() - UNUSED, blocked_at=None).delete()


def grants_of(client: OAuthClient) -> list[str]:
    """Return what a client may ask for tokens with. Clients from before devices could sign in have the default."""
    return client.grant_types or [CODE, REFRESH]


def _returns(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the grants that a client uses, and where it returns to if it uses codes. Raises InvalidMetadata."""
    wanted = metadata.get("grant_types", [CODE])
    if not isinstance(wanted, list):
        raise InvalidMetadata("grant_types is a list.")
    grants = [grant for grant in (CODE, devices.GRANT) if grant in wanted]
    if not grants:
        raise InvalidMetadata(f"grant_types must contain {CODE} or {devices.GRANT}.")
    has_uris = CODE in grants or bool(metadata.get("redirect_uris"))
    uris = _redirect_uris(metadata) if has_uris else []
    return {"grant_types": [*grants, REFRESH], "redirect_uris": uris}


def _check_response_types(metadata: Mapping[str, Any]) -> None:
    """Raise InvalidMetadata unless a client's list contains what the hub offers. It may contain more."""
    wanted = metadata.get("response_types", ["code"])
    if not isinstance(wanted, list) or "code" not in wanted:
        raise InvalidMetadata("response_types must contain code.")


def _redirect_uris(metadata: Mapping[str, Any]) -> list[str]:
    uris = metadata.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= redirects.MAX_URIS:
        raise InvalidMetadata(f"redirect_uris is a list of 1 to {redirects.MAX_URIS} URIs.", "invalid_redirect_uri")
    for uri in uris:
        if problem := redirects.problem_of(uri):
            raise InvalidMetadata(problem, "invalid_redirect_uri")
    return uris


def _keys(document: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return where the keys of a client that signs are. Raises InvalidMetadata."""
    uri, keys = document.get("jwks_uri", ""), document.get("jwks")
    if method == PUBLIC:
        return {"jwks_uri": "", "jwks": None}
    if isinstance(uri, str) and is_document(uri) and len(uri) <= MAX_URI:
        return {"jwks_uri": uri}
    if isinstance(keys, dict) and isinstance(keys.get("keys"), list):
        return {"jwks_uri": "", "jwks": keys}
    raise InvalidMetadata(f"A client that uses {SIGNED} has a jwks_uri with https://, or jwks.")


def _name(metadata: Mapping[str, Any]) -> str:
    """Return the name that a client gives itself, on one line and without control characters."""
    name = metadata.get("client_name")
    if not isinstance(name, str):
        return ""
    return " ".join("".join(letter for letter in name[: 4 * MAX_NAME] if letter.isprintable()).split())[:MAX_NAME]
