"""Handshake-era sessions: created by `initialize`, found by any process, bound to a key, ended by DELETE or expiry."""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.core.database import run_in_db_thread
from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.core.sanitize import for_column, sanitized_json
from tools_app.identity.principal import Principal
from tools_app.models import Action, Session, Tenant
from tools_app.protocol.errors import OVER_LIMIT, RpcError, limit_of_zero
from tools_app.protocol.jsonrpc import MAX_CLIENT_NAME_LENGTH, MAX_CLIENT_VERSION_LENGTH
from tools_app.tenants import last_used
from tools_app.tenants.keys import digest_of

MAX_SUBSCRIPTIONS = 500
# The maximum number of sessions in one query.
MAX_LOAD = 1000
# Total length of one session's URIs: each process that serves the session holds them in memory.
MAX_SUBSCRIBED_LENGTH = 128 * 1024
# The limit of a tenant that has none of its own.
DEFAULT_MAX_SESSIONS = 10_000
# An anonymous session that was not used for so long ends when its tenant has as many sessions as it may.
ANONYMOUS_UNUSED = timedelta(minutes=1)
# The retry delay when there are too many sessions: the end of one cannot be predicted.
RETRY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The facts of a session that requests need. `capabilities` are those that the client declared."""

    id: UUID
    digest: str
    key_id: UUID | None
    tenant_id: UUID
    version: str
    client_name: str
    client_version: str
    capabilities: Mapping[str, Any]
    log_level: str
    subscriptions: frozenset[str]
    last_seen_at: datetime

    @property
    def idle(self) -> bool:
        """Whether the session has expired because it was not used."""
        return self.last_seen_at < _idle_since()


def _idle_since() -> datetime:
    return timezone.now() - timedelta(seconds=settings.MCPHUB_SESSION_IDLE_TIMEOUT)


def _load(digests: Sequence[str]) -> Mapping[str, SessionFacts]:
    rows = Session.objects.filter(digest__in=digests, ended_at=None)
    return {
        row.digest: SessionFacts(
            id=row.pk,
            digest=row.digest,
            key_id=row.api_key_id,
            tenant_id=row.tenant_id,
            version=row.protocol_version,
            client_name=row.client_name,
            client_version=row.client_version,
            capabilities=row.client_capabilities,
            log_level=row.log_level,
            subscriptions=frozenset(row.subscriptions),
            last_seen_at=row.last_seen_at,
        )
        for row in rows
    }


def _size_of(session: SessionFacts) -> int:
    """Estimate the bytes of memory of a session: a Python object is a few times as large as its JSON."""
    return 4 * len(orjson.dumps(session.capabilities)) + sum(len(uri) + 64 for uri in session.subscriptions)


cache: RefreshAheadCache[str, SessionFacts] = RefreshAheadCache(_load, _size_of)


class Negotiation(NamedTuple):
    """What `initialize` negotiated; a channel's session begins before it, without a version."""

    version: str = ""
    client: Mapping[str, Any] = {}
    capabilities: Mapping[str, Any] = {}

    def columns(self) -> dict[str, Any]:
        """Return the values as columns of a row."""
        return {
            "protocol_version": self.version,
            "client_name": for_column(str(self.client.get("name", "")), MAX_CLIENT_NAME_LENGTH),
            "client_version": for_column(str(self.client.get("version", "")), MAX_CLIENT_VERSION_LENGTH),
            "client_capabilities": sanitized_json(self.capabilities),
        }


async def start(principal: Principal, negotiation: Negotiation, remote_address: str, prefix: str = "") -> str:
    """Store a new session of `principal`. Return its wire id: `prefix` and 256 random bits, visible ASCII.

    Raises RpcError if the tenant has reached its limit.
    """
    wire_id = prefix + secrets.token_urlsafe(32)
    row = Session(
        digest=digest_of(wire_id),
        tenant_id=principal.tenant_id,
        api_key_id=principal.key_id,
        remote_address=remote_address,
        **negotiation.columns(),
    )
    most = principal.allowed.most_sessions
    await run_in_db_thread(_start, row, DEFAULT_MAX_SESSIONS if most is None else most)
    return wire_id


def _start(row: Session, most: int) -> None:
    with transaction.atomic():
        # Serialized across processes, so that each count includes the others.
        tenant = Tenant.objects.select_for_update(no_key=True).get(pk=row.tenant_id)
        alive = Session.objects.filter(tenant_id=row.tenant_id, ended_at=None, last_seen_at__gte=_idle_since())
        # The column makes the index `session_open` sufficient: rows are large.
        if alive.order_by().values("last_seen_at")[:most].count() >= most:
            # Anybody may open sessions of a public tenant: those that nobody uses make room for others.
            unused = alive.filter(api_key=None, last_seen_at__lt=timezone.now() - ANONYMOUS_UNUSED)
            oldest = unused.order_by("last_seen_at").values_list("pk", flat=True).first()
            data = {"scope": "tenant", "what": "sessions", "limit": most}
            if most == 0:
                raise limit_of_zero("tenant", "open sessions", data)
            if not tenant.is_public or oldest is None:
                message = (
                    f"This tenant has {most} open sessions, which is its limit. A session ends when its client deletes"
                    " it or closes its connection, or when it was not used for"
                    f" {settings.MCPHUB_SESSION_IDLE_TIMEOUT:g} seconds."
                )
                retry = {"retryAfterSeconds": RETRY_SECONDS}
                raise RpcError(OVER_LIMIT, message, {**data, **retry}, retry_after=RETRY_SECONDS)
            _end([oldest], "needed by others")
        row.save(force_insert=True)


async def store_negotiation(session: SessionFacts, negotiation: Negotiation) -> None:
    """Store the agreement of a session that was waiting for its `initialize`."""
    await run_in_db_thread(Session.objects.filter(pk=session.id).update, **negotiation.columns())
    cache.forget(session.digest)


async def find(principal: Principal, wire_id: str) -> SessionFacts | None:
    """Return the live session `wire_id` of this key. None for an unknown, ended, idle or foreign one alike."""
    return await find_by_digest(principal, digest_of(wire_id))


async def find_by_digest(principal: Principal, digest: str) -> SessionFacts | None:
    """Like `find`, by the digest of the wire id."""
    session = await cache.get(digest)
    if session is None or session.idle:
        return None
    if session.key_id != principal.key_id or session.tenant_id != principal.tenant_id:
        return None
    last_used.session_used(session.id)
    return session


async def open_digests(ids: Mapping[str, UUID]) -> Collection[str]:
    """Return those of the sessions, ids by digest, that have neither ended nor expired. Counts as a use of them."""
    if not ids:
        return ()
    found = await run_in_db_thread(_open_digests, list(ids))
    last_used.sessions_used(ids[digest] for digest in found)
    return found


def _open_digests(digests: list[str]) -> Collection[str]:
    found: set[str] = set()
    for start in range(0, len(digests), MAX_LOAD):
        some = digests[start : start + MAX_LOAD]
        alive = Session.objects.filter(digest__in=some, ended_at=None, last_seen_at__gte=_idle_since()).order_by()
        # Usually all of them, and counting costs less than reading.
        found.update(some if alive.count() == len(some) else alive.values_list("digest", flat=True))
    return found


async def end(session: SessionFacts, reason: str = "deleted") -> bool:
    """End a session, by its client's request unless `reason` differs. Return False if it had already ended."""
    ended = await run_in_db_thread(_end, [session.id], reason)
    cache.forget(session.digest)
    return bool(ended)


def end_by_person(row: Session) -> bool:
    """End a session on behalf of a tenant's admin, and record that. Return False if it had already ended."""
    with changes.change_log_transaction():
        ended = _end([row.pk], "admin")
        cache.forget(row.digest)
        if not ended:
            return False
        row.refresh_from_db(fields=["ended_at", "end_reason"])
        ended_at = row.ended_at.isoformat() if row.ended_at else None
        changes.record(Action.CHANGED, row, before={"ended_at": None}, after={"ended_at": ended_at})
        return True


async def set_log_level(session: SessionFacts, level: str) -> None:
    """Store the minimum level of log messages for a client."""
    await run_in_db_thread(Session.objects.filter(pk=session.id).update, log_level=level)
    cache.forget(session.digest)


async def subscribe(session: SessionFacts, uri: str) -> bool:
    """Subscribe a client to a resource. Return False if the session has reached its limit on subscriptions."""
    subscribed = await run_in_db_thread(_change_subscriptions, session.id, lambda uris: uris | {uri})
    cache.forget(session.digest)
    return subscribed


async def unsubscribe(session: SessionFacts, uri: str) -> None:
    """Unsubscribe a client from a resource."""
    await run_in_db_thread(_change_subscriptions, session.id, lambda uris: uris - {uri})
    cache.forget(session.digest)


async def set_listener(session: SessionFacts, stream: UUID) -> None:
    """Make a stream the one that sends notifications of changes to a session's client."""
    await run_in_db_thread(Session.objects.filter(pk=session.id).update, listener=stream)


async def clear_listener(session: SessionFacts, stream: UUID) -> None:
    """Undo `set_listener`, unless another stream has replaced this one."""
    await run_in_db_thread(Session.objects.filter(pk=session.id, listener=stream).update, listener=None)


def _load_listeners(ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
    rows = Session.objects.filter(pk__in=ids).values_list("pk", "listener")
    return {id: listener for id, listener in rows if listener is not None}


# All streams of a tenant send a catalog change at once: their lookups share one query.
listeners: RefreshAheadCache[UUID, UUID] = RefreshAheadCache(_load_listeners)


async def is_listener(session: SessionFacts, stream: UUID) -> bool:
    """Whether a stream sends the session's notifications; it takes over if there is none."""
    listener = await listeners.fresh(session.id)
    if listener is not None:
        return listener == stream
    free = Session.objects.filter(Q(listener=stream) | Q(listener=None), pk=session.id)
    return bool(await run_in_db_thread(free.update, listener=stream))


def _change_subscriptions(id: UUID, change: Callable[[set[str]], set[str]]) -> bool:
    with transaction.atomic():
        row = Session.objects.select_for_update().get(pk=id)
        uris = sorted(change(set(row.subscriptions)))
        if len(uris) > MAX_SUBSCRIPTIONS or sum(map(len, uris)) > MAX_SUBSCRIBED_LENGTH:
            return False
        Session.objects.filter(pk=id).update(subscriptions=uris)
    return True


def end_idle() -> int:
    """End every session not used for MCPHUB_SESSION_IDLE_TIMEOUT. Return how many were ended."""
    idle = Session.objects.filter(ended_at=None, last_seen_at__lt=_idle_since()).values_list("pk", flat=True)
    return _end(list(idle[:1000]), "idle")


def _end(ids: list[UUID], reason: str) -> int:
    return Session.objects.filter(pk__in=ids, ended_at=None).update(ended_at=timezone.now(), end_reason=reason)
