"""Metadata documents of clients, which name themselves by its URL (draft-ietf-oauth-client-id-metadata-document).

A document is read again after REFRESH_INTERVAL. It and the keys of a client are read at most once in a minute, however
often clients ask.
"""

from datetime import timedelta
from typing import Any, Final

from django.utils import timezone

from tools_app.core.http import documents
from tools_app.core.http.client import Reply
from tools_app.core.http.documents import DocumentError
from tools_app.core.ids import new_id
from tools_app.core.process.thread_loops import thread_loops
from tools_app.core.sanitize import is_storable, sanitized_json
from tools_app.identity.models.oauth import MAX_CLIENT_ID
from tools_app.identity.oauth import clients
from tools_app.identity.oauth.clients import InvalidMetadata
from tools_app.models import OAuthClient
from tools_app.tenants.keys import digest_of
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

REFRESH_INTERVAL: Final = timedelta(minutes=10)
# While a document cannot be read, what it said before counts for this time.
MAX_STALE: Final = timedelta(days=1)
SECONDS_BETWEEN_FETCHES: Final = 60.0
MAX_BYTES: Final = 16 * 1024


def find(client_id: str) -> OAuthClient | None:
    """Return a client, whose document is read if that is due. Raises DocumentError."""
    if len(client_id) > MAX_CLIENT_ID or not is_storable(client_id):
        return None
    row = OAuthClient.objects.filter(client_id=client_id).first()
    if not clients.is_document(client_id):
        return row
    if row is not None and (row.blocked_at or (row.fetched_at and row.fetched_at > timezone.now() - REFRESH_INTERVAL)):
        return row
    try:
        return _fetch_client(client_id)
    except (InvalidMetadata, DocumentError) as problem:
        if row is not None and row.fetched_at and row.fetched_at > timezone.now() - MAX_STALE:
            return row
        raise DocumentError(f"This client's document at {client_id} could not be read: {problem}") from problem


def _fetch_client(client_id: str) -> OAuthClient:
    clients.check_document_url(client_id)
    if not _may_fetch(client_id):
        raise DocumentError("It was read less than a minute ago. Try again in a minute.")
    return clients.from_document(client_id, documents.parsed(thread_loops().run(fetch(client_id))))


def read_keys(client: OAuthClient) -> None:
    """Read the public keys of a client again. Raises DocumentError."""
    client.keys_fetched_at = timezone.now()
    # Noted before, so that a server that hangs is not asked again at once.
    client.save(update_fields=["keys_fetched_at"])
    client.jwks = _fetch_keys(client.jwks_uri)
    client.save(update_fields=["jwks"])


def _fetch_keys(url: str) -> dict[str, Any]:
    """Return the keys at a URL. Raises DocumentError."""
    if _may_fetch(url):
        key_set: dict[str, Any] = sanitized_json(documents.parsed(thread_loops().run(fetch(url))))
        return key_set
    # An application that registers for each of its connections has the same keys in all of them.
    just_now = timezone.now() - timedelta(seconds=SECONDS_BETWEEN_FETCHES)
    recent = OAuthClient.objects.filter(jwks_uri=url, keys_fetched_at__gte=just_now, jwks__isnull=False)
    shared: dict[str, Any] | None = recent.order_by("-keys_fetched_at").values_list("jwks", flat=True).first()
    if shared is None:
        raise DocumentError("This client's keys were read less than a minute ago. Try again in a minute.")
    return shared


def _may_fetch(url: str) -> bool:
    """Whether a URL was not read within SECONDS_BETWEEN_FETCHES, by any process."""
    limit = ConcurrencyLimit("client", "documents", 1, f"oauth:document:{digest_of(url)}")
    return limits.acquire_here([limit], str(new_id()), SECONDS_BETWEEN_FETCHES) is None


async def fetch(url: str) -> Reply:
    """Read a document from a public address. Raises DocumentError."""
    return await documents.fetch(url, MAX_BYTES)
