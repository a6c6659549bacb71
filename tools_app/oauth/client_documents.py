"""Metadata documents of clients, which name themselves by its URL (draft-ietf-oauth-client-id-metadata-document).

A document is read again after FRESH, and at most once in a minute, however often clients ask.
"""

from datetime import timedelta
from typing import Final

from django.utils import timezone

from tools_app.access.keys import digest_of
from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.access.oauth import clients
from tools_app.access.oauth.clients import InvalidMetadata
from tools_app.catalog.http import documents
from tools_app.catalog.http.client import Reply
from tools_app.catalog.http.documents import Unreadable
from tools_app.core.sanitize import is_storable
from tools_app.core.thread_loops import thread_loops
from tools_app.models import OAuthClient
from tools_app.models.ids import new_id
from tools_app.models.oauth import MAX_CLIENT_ID

FRESH: Final = timedelta(minutes=10)
# While a document cannot be read, what it said before counts for this time.
STALE: Final = timedelta(days=1)
SECONDS_BETWEEN_FETCHES: Final = 60.0
MAX_BYTES: Final = 16 * 1024


def find(client_id: str) -> OAuthClient | None:
    """Return a client, whose document is read if that is due. Raises Unreadable."""
    if len(client_id) > MAX_CLIENT_ID or not is_storable(client_id):
        return None
    row = OAuthClient.objects.filter(client_id=client_id).first()
    if not clients.is_document(client_id):
        return row
    if row is not None and (row.blocked_at or (row.fetched_at and row.fetched_at > timezone.now() - FRESH)):
        return row
    try:
        return _read(client_id)
    except (InvalidMetadata, Unreadable) as problem:
        if row is not None and row.fetched_at and row.fetched_at > timezone.now() - STALE:
            return row
        raise Unreadable(f"This client's document at {client_id} could not be read: {problem}") from problem


def _read(client_id: str) -> OAuthClient:
    clients.check_document_url(client_id)
    limit = ConcurrencyLimit("client", "documents", 1, f"oauth:document:{digest_of(client_id)}")
    if limits.hold_here([limit], str(new_id()), SECONDS_BETWEEN_FETCHES) is not None:
        raise Unreadable("It was read less than a minute ago. Try again in a minute.")
    return clients.from_document(client_id, documents.parsed(thread_loops().run(fetch(client_id))))


def read_keys(client: OAuthClient) -> None:
    """Read the public keys of a client again. Raises Unreadable."""
    client.keys_fetched_at = timezone.now()
    # Noted before, so that a server that hangs is not asked again at once.
    client.save(update_fields=["keys_fetched_at"])
    client.jwks = documents.parsed(thread_loops().run(fetch(client.jwks_uri)))
    client.save(update_fields=["jwks"])


async def fetch(url: str) -> Reply:
    """Read a document from a public address. Raises Unreadable."""
    return await documents.fetch(url, MAX_BYTES)
