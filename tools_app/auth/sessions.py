"""Handshake-era sessions: made by `initialize`, found by any process, bound to their key, ended by DELETE or time."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tools_app.auth import usage
from tools_app.auth.keys import digest_of
from tools_app.auth.principal import Principal
from tools_app.auth.ring import Ring
from tools_app.models import Session, Tenant
from tools_app.models.bridge import in_store
from tools_app.models.storable import storable, storable_json
from tools_app.protocol.errors import OVER_LIMIT, RpcError

MOST_SUBSCRIPTIONS = 500
# When to try again where there are too many sessions: nobody knows when one ends.
RETRY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What requests need to know of their session. `capabilities` are what its client declared."""

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
        """Whether nobody used it for so long that it has expired."""
        return self.last_seen_at < _idle_since()


def _idle_since() -> datetime:
    return timezone.now() - timedelta(seconds=settings.MCPHUB_SESSION_IDLE_SECONDS)


def _load(digests: Sequence[str]) -> Mapping[str, SessionFacts]:
    rows = Session.objects.filter(digest__in=digests, ended_at=None)
    return {row.digest: _facts(row) for row in rows}


def _facts(row: Session) -> SessionFacts:
    return SessionFacts(
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


ring: Ring[str, SessionFacts] = Ring(_load)


class Agreement(NamedTuple):
    """What `initialize` agreed on; a channel's session begins before it, without a version."""

    version: str = ""
    client: Mapping[str, Any] = {}
    capabilities: Mapping[str, Any] = {}

    def columns(self) -> dict[str, Any]:
        """The same as columns of a row."""
        return {
            "protocol_version": self.version,
            "client_name": storable(str(self.client.get("name", "")), 200),
            "client_version": storable(str(self.client.get("version", "")), 100),
            "client_capabilities": storable_json(self.capabilities),
        }


async def start(principal: Principal, agreement: Agreement, remote_address: str, prefix: str = "") -> str:
    """Store a new session of `principal` and return its wire id: `prefix` and 256 random bits, visible ASCII.

    Raises RpcError if its tenant has as many as it may.
    """
    wire_id = prefix + secrets.token_urlsafe(32)
    row = Session(
        digest=digest_of(wire_id),
        tenant_id=principal.tenant_id,
        api_key_id=principal.key_id,
        remote_address=remote_address,
        **agreement.columns(),
    )
    most = principal.allowed.most_sessions
    await in_store(_start, row, settings.MCPHUB_MOST_SESSIONS if most is None else most)
    return wire_id


def _start(row: Session, most: int) -> None:
    with transaction.atomic():
        # One after the other, in whichever processes, so that none of them counts without the others.
        Tenant.objects.select_for_update(no_key=True).get(pk=row.tenant_id)
        alive = Session.objects.filter(tenant_id=row.tenant_id, ended_at=None, last_seen_at__gte=_idle_since())
        if alive.order_by()[:most].count() >= most:
            raise _too_many(most)
        row.save(force_insert=True)


def _too_many(most: int) -> RpcError:
    message = (
        f"This tenant has {most} open sessions, which is its limit. A session ends when its client deletes it or"
        f" closes its connection, or when it was not used for {settings.MCPHUB_SESSION_IDLE_SECONDS:g} seconds."
    )
    data = {"scope": "tenant", "what": "sessions", "limit": most, "retryAfterSeconds": RETRY_SECONDS}
    return RpcError(OVER_LIMIT, message, data, retry_after=RETRY_SECONDS)


async def agree(session: SessionFacts, agreement: Agreement) -> None:
    """Note what a session that waited for its `initialize` agreed on."""
    await in_store(Session.objects.filter(pk=session.id).update, **agreement.columns())
    ring.forget(session.digest)


async def find(principal: Principal, wire_id: str) -> SessionFacts | None:
    """The live session `wire_id` of this key. None for an unknown, ended, idle or foreign one: they look the same."""
    return await alive(principal, digest_of(wire_id))


async def alive(principal: Principal, digest: str) -> SessionFacts | None:
    """The same by the digest of its wire id."""
    session = await ring.get(digest)
    if session is None or session.idle:
        return None
    if session.key_id != principal.key_id or session.tenant_id != principal.tenant_id:
        return None
    usage.session_used(session.id)
    return session


async def end(session: SessionFacts, reason: str = "deleted") -> bool:
    """End a session, on its client's wish unless `reason` says else. False if it had ended before."""
    ended = await in_store(_end, [session.id], reason)
    ring.forget(session.digest)
    return bool(ended)


def end_by_person(row: Session) -> bool:
    """End a session because a tenant's admin wants it. False if it had ended before."""
    ended = _end([row.pk], "admin")
    ring.forget(row.digest)
    return bool(ended)


async def set_log_level(session: SessionFacts, level: str) -> None:
    """Note from which level on a client wants log messages."""
    await in_store(Session.objects.filter(pk=session.id).update, log_level=level)
    ring.forget(session.digest)


async def subscribe(session: SessionFacts, uri: str) -> bool:
    """Note that a client wants to hear of a resource. False if it has MOST_SUBSCRIPTIONS already."""
    subscribed = await in_store(_change_subscriptions, session.id, lambda uris: uris | {uri})
    ring.forget(session.digest)
    return subscribed


async def unsubscribe(session: SessionFacts, uri: str) -> None:
    """Note that a client wants to hear of a resource no more."""
    await in_store(_change_subscriptions, session.id, lambda uris: uris - {uri})
    ring.forget(session.digest)


async def listen_by(session: SessionFacts, stream: UUID) -> None:
    """Let a stream be the one that tells a session's client of changes."""
    await in_store(Session.objects.filter(pk=session.id).update, listener=stream)


async def stop_listening(session: SessionFacts, stream: UUID) -> None:
    """Undo it, unless another stream has become the one by now."""
    await in_store(Session.objects.filter(pk=session.id, listener=stream).update, listener=None)


def _load_listeners(ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
    rows = Session.objects.filter(pk__in=ids).values_list("pk", "listener")
    return {id: listener for id, listener in rows if listener is not None}


# A change of a catalog is told by all streams of its tenant at once: they ask in one query.
listeners: Ring[UUID, UUID] = Ring(_load_listeners)


async def is_listener(session: SessionFacts, stream: UUID) -> bool:
    """Whether a stream is the one, or becomes it because there is none."""
    listener = await listeners.fresh(session.id)
    if listener is not None:
        return listener == stream
    free = Session.objects.filter(Q(listener=stream) | Q(listener=None), pk=session.id)
    return bool(await in_store(free.update, listener=stream))


def _change_subscriptions(id: UUID, change: Callable[[set[str]], set[str]]) -> bool:
    with transaction.atomic():
        row = Session.objects.select_for_update().get(pk=id)
        uris = sorted(change(set(row.subscriptions)))
        if len(uris) > MOST_SUBSCRIPTIONS:
            return False
        Session.objects.filter(pk=id).update(subscriptions=uris)
    return True


def end_idle() -> int:
    """End every session that nobody used for MCPHUB_SESSION_IDLE_SECONDS; how many there were."""
    idle = Session.objects.filter(ended_at=None, last_seen_at__lt=_idle_since()).values_list("pk", flat=True)
    return _end(list(idle[:1000]), "idle")


def _end(ids: list[UUID], reason: str) -> int:
    return Session.objects.filter(pk__in=ids, ended_at=None).update(ended_at=timezone.now(), end_reason=reason)
