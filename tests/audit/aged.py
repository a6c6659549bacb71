"""Audit records with a chosen time, for tests of retention."""

import secrets
from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from tools_app.audit.recorder.entries import (
    CallEventEntry,
    CallFinished,
    Entry,
    EventRow,
    Facts,
    FinishedRow,
    Payload,
    process_id,
)
from tools_app.audit.recorder.writers import write
from tools_app.core.ids import least_id
from tools_app.models import Call, Tenant

RANDOM_BITS = 74


def id_of(moment: datetime) -> UUID:
    """An ID with this timestamp."""
    return UUID(int=least_id(moment).int + secrets.randbits(RANDOM_BITS))


def days_ago(days: float) -> datetime:
    return timezone.now() - timedelta(days=days)


def entries_of(owner: UUID | None, moment: datetime, events: int = 2) -> list[Entry]:
    """The entries of a finished call with events, at this time."""
    facts = Facts(
        id_of(moment), owner, None, None, None, "echo", 1, "tools/call", "1", "2026-07-28", "c", "1", "::1", "", moment
    )
    ended = FinishedRow(moment, 12, 3, "ok", 200, None, False, "", False, 7, 9, events, 1, process_id())
    rows = [EventRow(facts.id, number, moment, "progress", "{}") for number in range(1, events + 1)]
    finished = CallFinished(facts, ended, Payload(facts.id, '{"a":1}', '{"b":2}'), settles=False)
    return [*map(CallEventEntry, rows), finished]


def write_at(tenant: Tenant | UUID | None, *moments: datetime) -> list[Call]:
    """Record calls of a tenant at these times, with payloads and events."""
    owner = tenant.pk if isinstance(tenant, Tenant) else tenant
    entries = [entry for moment in moments for entry in entries_of(owner, moment)]
    write(entries)
    ids = [entry.call_id for entry in entries if isinstance(entry, CallFinished)]
    return list(Call.objects.filter(pk__in=ids).order_by("started_at"))
