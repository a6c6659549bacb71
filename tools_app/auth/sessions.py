"""Handshake-era sessions: made by `initialize`, found by any process, bound to their key, ended by DELETE or time."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from tools_app.auth import usage
from tools_app.auth.keys import digest_of
from tools_app.auth.principal import Principal
from tools_app.auth.ring import Ring
from tools_app.models import Session
from tools_app.models.bridge import in_store
from tools_app.models.storable import storable, storable_json


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What requests need to know of their session."""

    id: UUID
    key_id: UUID | None
    version: str
    client_name: str
    client_version: str
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
        row.pk, row.api_key_id, row.protocol_version, row.client_name, row.client_version, row.last_seen_at
    )


ring: Ring[str, SessionFacts] = Ring(_load)


async def start(
    principal: Principal, version: str, client: Mapping[str, Any], capabilities: Mapping[str, Any], remote_address: str
) -> str:
    """Store a new session of `principal` and return its wire id: 256 random bits, visible ASCII."""
    wire_id = secrets.token_urlsafe(32)
    await in_store(
        Session.objects.create,
        digest=digest_of(wire_id),
        tenant_id=principal.tenant_id,
        api_key_id=principal.key_id,
        protocol_version=version,
        client_name=storable(str(client.get("name", "")), 200),
        client_version=storable(str(client.get("version", "")), 100),
        client_capabilities=storable_json(capabilities),
        remote_address=remote_address,
    )
    return wire_id


async def find(principal: Principal, wire_id: str) -> SessionFacts | None:
    """The live session `wire_id` of this key. None for an unknown, ended, idle or foreign one: they look the same."""
    session = await ring.get(digest_of(wire_id))
    if session is None or session.key_id != principal.key_id or session.idle:
        return None
    usage.session_used(session.id)
    return session


async def end(session: SessionFacts, wire_id: str) -> bool:
    """End a session on its client's wish. False if it had ended before."""
    ended = await in_store(_end, [session.id], "deleted")
    ring.forget(digest_of(wire_id))
    return bool(ended)


def end_idle() -> int:
    """End every session that nobody used for MCPHUB_SESSION_IDLE_SECONDS; how many there were."""
    idle = Session.objects.filter(ended_at=None, last_seen_at__lt=_idle_since()).values_list("pk", flat=True)
    return _end(list(idle[:1000]), "idle")


def _end(ids: list[UUID], reason: str) -> int:
    return Session.objects.filter(pk__in=ids, ended_at=None).update(ended_at=timezone.now(), end_reason=reason)
