"""Applications that ask for access: their registration, their metadata, and their rows.

A client registers itself (RFC 7591), or names itself by the URL of its metadata document, which is read again after
REFRESH_INTERVAL (draft-ietf-oauth-client-id-metadata-document). The document and the keys of a client are read at most
once in a minute, however often clients ask.
"""

import hmac
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db.models import Count, QuerySet
from django.utils import timezone

from tools_app.core.http import documents
from tools_app.core.http.client import Reply
from tools_app.core.http.documents import DocumentError
from tools_app.core.ids import new_id
from tools_app.core.process.thread_loops import thread_loops
from tools_app.core.sanitize import is_storable, sanitized_json
from tools_app.core.urls import netloc_of, split_url
from tools_app.identity.models.oauth import MAX_CLIENT_ID, MAX_URI
from tools_app.identity.oauth import devices, key_sets, redirects
from tools_app.models import ClientSource, OAuthClient
from tools_app.tenants.keys import digest_of
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

MAX_NAME: Final = 100
SECRET_PREFIX: Final = "mcphub_cs_"  # noqa: S105 - no secret, but its beginning
CODE: Final = "authorization_code"
REFRESH: Final = "refresh_token"
PUBLIC: Final = "none"
SIGNED: Final = "private_key_jwt"
SECRET_METHODS: Final = ("client_secret_basic", "client_secret_post")
AUTH_METHODS: Final = (PUBLIC, *SECRET_METHODS, SIGNED)
# Clients without a connection are deleted after this time, and before it where others need their room.
UNUSED: Final = timedelta(hours=24)
MAX_UNUSED: Final = 10_000
MAX_UNUSED_OF_NETWORK: Final = 500
MAX_UNUSED_DOCUMENTS: Final = 10_000
# A person may be signing in: so long after the registration, and after they were asked.
FRESH: Final = timedelta(minutes=10)
ASKED: Final = timedelta(hours=1)
REFRESH_INTERVAL: Final = timedelta(minutes=10)
# While a document cannot be read, what it said before counts for this time.
MAX_STALE: Final = timedelta(days=1)
SECONDS_BETWEEN_FETCHES: Final = 60.0
MAX_DOCUMENT_BYTES: Final = 16 * 1024


class TooManyClients(Exception):
    """There are too many registered clients without a connection, all of them new, to store another."""


class InvalidMetadata(ValueError):
    """The metadata of a client cannot be accepted. `error` is the code of RFC 7591, section 3.2.2."""

    def __init__(self, message: str, error: str = "invalid_client_metadata") -> None:
        super().__init__(message)
        self.error = error


# --- Metadata documents -------------------------------------------------------------------------------------------


def is_document(client_id: str) -> bool:
    """Whether a client ID is the URL of a metadata document."""
    return client_id.startswith("https://")


def find(client_id: str) -> OAuthClient | None:
    """Return a client, whose document is read if that is due. Raises DocumentError."""
    if len(client_id) > MAX_CLIENT_ID or not is_storable(client_id):
        return None
    row = OAuthClient.objects.filter(client_id=client_id).first()
    if not is_document(client_id):
        return row
    if row is not None and (row.blocked_at or (row.fetched_at and row.fetched_at > timezone.now() - REFRESH_INTERVAL)):
        return row
    try:
        check_document_url(client_id)
        if not _may_fetch(client_id):
            raise DocumentError("It was read less than a minute ago. Try again in a minute.")
        return from_document(client_id, documents.parsed(thread_loops().run(fetch(client_id))))
    except (InvalidMetadata, DocumentError) as problem:
        if row is not None and row.fetched_at and row.fetched_at > timezone.now() - MAX_STALE:
            return row
        raise DocumentError(f"This client's document at {client_id} could not be read: {problem}") from problem


def check_document_url(client_id: str) -> None:
    """Raise InvalidMetadata unless a URL can name a client.

    See draft-ietf-oauth-client-id-metadata-document, section 3.
    """
    parts = split_url(client_id)
    if parts is None:
        raise InvalidMetadata("The client ID is not a valid URL.")
    if len(client_id) > MAX_CLIENT_ID or not client_id.isascii() or not client_id.isprintable():
        raise InvalidMetadata("The client ID is too long or has unusual characters.")
    if "#" in client_id or parts.has_user or parts.path in ("", "/") or {".", ".."} & {*parts.path.split("/")}:
        raise InvalidMetadata("A client ID that is a URL has a path, and no fragment, user name or dot segments.")


def from_document(client_id: str, document: Mapping[str, Any]) -> OAuthClient:
    """Store what a metadata document says. Raises InvalidMetadata."""
    if document.get("client_id") != client_id:
        raise InvalidMetadata("The client_id in the document is not the URL of the document.")
    method = document.get("token_endpoint_auth_method", PUBLIC)
    if method not in (PUBLIC, SIGNED):
        raise InvalidMetadata(f"A client with a metadata document has no secret: {PUBLIC} or {SIGNED}.")
    # ChatGPT prefers to sign, and names `none` beside it in a field of the metadata of servers.
    offered = document.get("token_endpoint_auth_methods_supported")
    has_keys = document.get("jwks_uri") or document.get("jwks")
    others = [way for way in (SIGNED, PUBLIC) if isinstance(offered, list) and way in offered and way != method]
    methods = [method, *(way for way in others if way == PUBLIC or has_keys)]
    values = {
        **_keys(document, methods),
        "source": ClientSource.DOCUMENT,
        "name": _name(document) or netloc_of(client_id)[:MAX_NAME],
        **_returns(document),
        "auth_method": method,
        "auth_methods": methods,
        "fetched_at": timezone.now(),
    }
    # What was read from another place is not of this client any more.
    moved = OAuthClient.objects.filter(client_id=client_id).exclude(jwks_uri=values["jwks_uri"])
    moved.update(jwks=None, keys_fetched_at=None)
    client, is_new = OAuthClient.objects.update_or_create(client_id=client_id, defaults=values)
    if is_new:
        # Anybody can name any number of documents. One that is removed is read again when it is needed.
        unused = _unused(ClientSource.DOCUMENT)
        oldest = _abandoned(unused).order_by("fetched_at").first() if unused.count() > MAX_UNUSED_DOCUMENTS else None
        if oldest is not None:
            oldest.delete()
    return client


def read_keys(client: OAuthClient) -> None:
    """Read the public keys of a client again. Raises DocumentError."""
    client.keys_fetched_at = timezone.now()
    # Noted before, so that a server that hangs is not asked again at once.
    client.save(update_fields=["keys_fetched_at"])
    if _may_fetch(client.jwks_uri):
        client.jwks = sanitized_json(documents.parsed(thread_loops().run(fetch(client.jwks_uri))))
    else:
        # An application that registers for each of its connections has the same keys in all of them.
        just_now = timezone.now() - timedelta(seconds=SECONDS_BETWEEN_FETCHES)
        recent = OAuthClient.objects.filter(
            jwks_uri=client.jwks_uri, keys_fetched_at__gte=just_now, jwks__isnull=False
        ).order_by("-keys_fetched_at")
        client.jwks = recent.values_list("jwks", flat=True).first()
        if client.jwks is None:
            raise DocumentError("This client's keys were read less than a minute ago. Try again in a minute.")
    client.save(update_fields=["jwks"])


def _may_fetch(url: str) -> bool:
    """Whether a URL was not read within SECONDS_BETWEEN_FETCHES, by any process."""
    limit = ConcurrencyLimit("client", "documents", 1, f"oauth:document:{digest_of(url)}")
    return limits.acquire_blocking([limit], str(new_id()), SECONDS_BETWEEN_FETCHES) is None


async def fetch(url: str) -> Reply:
    """Read a document from a public address. Raises DocumentError."""
    return await documents.fetch(url, MAX_DOCUMENT_BYTES)


# --- Registration -------------------------------------------------------------------------------------------------


def register(metadata: Mapping[str, Any], network: str = "") -> tuple[OAuthClient, str]:
    """Store a client that registers itself from a network.

    Returns it and its secret, which is "" for one that has none or signs. Raises InvalidMetadata, and TooManyClients.
    """
    method = metadata.get("token_endpoint_auth_method", SECRET_METHODS[0])
    if method not in AUTH_METHODS:
        raise InvalidMetadata(f"token_endpoint_auth_method is one of {', '.join(AUTH_METHODS)}.")
    if metadata.get("jwks_uri") and metadata.get("jwks"):
        raise InvalidMetadata("Send either jwks_uri or jwks (RFC 7591, section 2).")
    values = {**_returns(metadata), **_keys(metadata, [method])}
    response_types = metadata.get("response_types", ["code"])
    if values["redirect_uris"] and not (isinstance(response_types, list) and "code" in response_types):
        raise InvalidMetadata("response_types must contain code.")
    _make_room(network)
    secret = SECRET_PREFIX + secrets.token_urlsafe(32) if method in SECRET_METHODS else ""
    client = OAuthClient.objects.create(
        client_id=f"mcphub_client_{secrets.token_urlsafe(16)}",
        source=ClientSource.DYNAMIC,
        name=_name(metadata) or "Unnamed client",
        **values,
        auth_method=method,
        secret_digest=digest_of(secret) if secret else "",
        network=network,
    )
    return client, secret


def _make_room(network: str) -> None:
    """Delete an unused client if there are too many: the oldest of the network, or of the one that has the most.

    So strangers who register many take room from each other, and from nobody else. Raises TooManyClients.
    """
    unused = _unused(ClientSource.DYNAMIC)
    counts = dict(unused.values_list("network").annotate(Count("pk")))
    abandoned = _abandoned(unused)
    if counts.get(network, 0) >= MAX_UNUSED_OF_NETWORK:
        abandoned = abandoned.filter(network=network)
    elif sum(counts.values()) < MAX_UNUSED:
        return
    networks = abandoned.values_list("network", flat=True).distinct()
    crowded = max(networks, key=lambda name: counts.get(name, 0), default=None)
    if crowded is None:
        raise TooManyClients
    oldest = abandoned.filter(network=crowded).order_by("created_at").first()
    if oldest is not None:
        oldest.delete()


def _unused(source: ClientSource) -> QuerySet[OAuthClient]:
    return OAuthClient.objects.filter(source=source, connections=None, blocked_at=None).order_by()


def _abandoned(unused: QuerySet[OAuthClient]) -> QuerySet[OAuthClient]:
    """Return those with which nobody is signing in now, as far as is known."""
    now = timezone.now()
    return unused.filter(created_at__lt=now - FRESH).exclude(last_used_at__gte=now - ASKED)


def _returns(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the grants that a client uses, and where it returns to if it uses codes. Raises InvalidMetadata."""
    wanted = metadata.get("grant_types", [CODE])
    if not isinstance(wanted, list):
        raise InvalidMetadata("grant_types is a list.")
    grants = [grant for grant in (CODE, devices.GRANT) if grant in wanted]
    if not grants:
        raise InvalidMetadata(f"grant_types must contain {CODE} or {devices.GRANT}.")
    uris = metadata.get("redirect_uris")
    if CODE not in grants and not uris:
        uris = []
    elif not isinstance(uris, list) or not 0 < len(uris) <= redirects.MAX_URIS:
        raise InvalidMetadata(f"redirect_uris is a list of 1 to {redirects.MAX_URIS} URIs.", "invalid_redirect_uri")
    for uri in uris:
        if problem := redirects.problem_of(uri):
            raise InvalidMetadata(problem, "invalid_redirect_uri")
    return {"grant_types": [*grants, REFRESH], "redirect_uris": uris}


def _keys(metadata: Mapping[str, Any], methods: list[str]) -> dict[str, Any]:
    """Return where the keys of a client that signs are. Raises InvalidMetadata."""
    uri, keys = metadata.get("jwks_uri"), metadata.get("jwks")
    if SIGNED not in methods:
        return {"jwks_uri": "", "jwks": None}
    if isinstance(uri, str) and is_document(uri) and len(uri) <= MAX_URI and uri.isascii() and uri.isprintable():
        return {"jwks_uri": uri}
    if not isinstance(keys, dict) or "keys" not in keys:
        raise InvalidMetadata(f"A client that uses {SIGNED} has a jwks_uri with https://, or jwks.")
    try:
        return {"jwks_uri": "", "jwks": key_sets.checked(keys)}
    except ValidationError as problem:
        raise InvalidMetadata(f"jwks: {' '.join(problem.messages)}") from problem


def _name(metadata: Mapping[str, Any]) -> str:
    """Return the name that a client gives itself, on one line and without control characters."""
    name = metadata.get("client_name")
    if not isinstance(name, str):
        return ""
    return " ".join("".join(letter for letter in name[: 4 * MAX_NAME] if letter.isprintable()).split())[:MAX_NAME]


# --- Rows ---------------------------------------------------------------------------------------------------------


def set_blocked(row: OAuthClient, *, blocked: bool) -> bool:
    """Block a client in the whole hub, or let it in again. Return False if nothing changed."""
    if (row.blocked_at is not None) == blocked:
        return False
    row.blocked_at = timezone.now() if blocked else None
    row.save(update_fields=["blocked_at"])
    return True


def host_of(client: OAuthClient) -> str:
    """Return the host that a client proved to be of; "" if it proved none."""
    return netloc_of(client.client_id) if client.source == ClientSource.DOCUMENT else ""


def note_asked(client: OAuthClient) -> None:
    """Note that a person is asked to allow a client, which is then not deleted before they can decide."""
    OAuthClient.objects.filter(pk=client.pk).update(last_used_at=timezone.now())


def has_secret(client: OAuthClient, secret: str) -> bool:
    """Whether this is the client's secret, compared in constant time."""
    return bool(client.secret_digest) and hmac.compare_digest(client.secret_digest, digest_of(secret))


def prune() -> None:
    """Delete clients that nobody connected or used for UNUSED. Blocked clients stay blocked."""
    before = timezone.now() - UNUSED
    unused = OAuthClient.objects.filter(connections=None, created_at__lt=before, blocked_at=None)
    unused.exclude(last_used_at__gte=before).delete()


def methods_of(client: OAuthClient) -> list[str]:
    """Return how a client may authenticate. One with a secret may send it in either way."""
    if client.auth_method in SECRET_METHODS:
        return list(SECRET_METHODS)
    return client.auth_methods or [client.auth_method]
