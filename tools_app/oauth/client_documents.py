"""Metadata documents of clients, which name themselves by its URL (draft-ietf-oauth-client-id-metadata-document).

A document is read again after FRESH, and at most once in a minute, however often clients ask.
"""

import asyncio
from datetime import timedelta
from typing import Any, Final

import orjson
from django.utils import timezone

from tools_app.access.keys import digest_of
from tools_app.access.limits import limits
from tools_app.access.limits.quotas import ConcurrencyLimit
from tools_app.access.oauth import clients
from tools_app.access.oauth.clients import InvalidMetadata
from tools_app.catalog.http.client import Outbound, Reply, Terms, exchange
from tools_app.catalog.http.errors import RequestFailed
from tools_app.catalog.http.urls import BadUrl, parse_url
from tools_app.core.thread_loops import thread_loops
from tools_app.models import OAuthClient
from tools_app.models.ids import new_id
from tools_app.models.oauth import MAX_CLIENT_ID

FRESH: Final = timedelta(minutes=10)
# While a document cannot be read, what it said before counts for this time.
STALE: Final = timedelta(days=1)
SECONDS_BETWEEN_FETCHES: Final = 60.0
TIMEOUT_SECONDS: Final = 5.0
MAX_BYTES: Final = 16 * 1024
OK: Final = 200


class Unreadable(Exception):
    """The metadata document of a client could not be read, or says something wrong. The message says what."""


def find(client_id: str) -> OAuthClient | None:
    """Return a client, whose document is read if that is due. Raises Unreadable."""
    if len(client_id) > MAX_CLIENT_ID:
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
    return clients.from_document(client_id, _parsed(thread_loops().run(fetch(client_id))))


def read_keys(client: OAuthClient) -> None:
    """Read the public keys of a client again. Raises Unreadable."""
    client.keys_fetched_at = timezone.now()
    # Noted before, so that a server that hangs is not asked again at once.
    client.save(update_fields=["keys_fetched_at"])
    client.jwks = _parsed(thread_loops().run(fetch(client.jwks_uri)))
    client.save(update_fields=["jwks"])


async def fetch(url: str) -> Reply:
    """Read a document from a public address, without redirects. Raises Unreadable."""
    headers = (("Accept", "application/json"), ("User-Agent", "mcphub"))
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await exchange(Outbound("GET", parse_url(url), headers), Terms((), TIMEOUT_SECONDS, MAX_BYTES))
    except TimeoutError:
        raise Unreadable(f"No answer within {TIMEOUT_SECONDS:g} seconds.") from None
    except (RequestFailed, BadUrl) as problem:
        raise Unreadable(str(problem)) from problem


def _parsed(reply: Reply) -> dict[str, Any]:
    if reply.status != OK:
        raise Unreadable(f"The server answered with status {reply.status}.")
    return parsed_object(reply.body)


def parsed_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises Unreadable."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Unreadable("It is not JSON.") from None
    if not isinstance(document, dict):
        raise Unreadable("It is not a JSON object.")
    return document
