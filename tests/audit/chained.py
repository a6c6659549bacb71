"""Chains of audit records, for tests that tamper with them."""

from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from tools_app.audit.checkpoints import signer, witness
from tools_app.audit.recorder import writers
from tools_app.audit.recorder.chain import digest, heads
from tools_app.audit.recorder.entries import (
    CallEventEntry,
    CallFinished,
    EventRow,
    Facts,
    FinishedRow,
    Payload,
    process_id,
)
from tools_app.audit.verification.records import Batch, ChainEntry
from tools_app.audit.verification.report import Finding, Report
from tools_app.audit.verification.verify import Scope, verify
from tools_app.core.ids import new_id
from tools_app.models import Call

LONG_AGO = timedelta(hours=1)


def forget() -> None:
    """Begin new chains, like a process that has just started on an empty database."""
    heads.stop()
    signer.checkpoint_signer.stop()
    witness.path().unlink(missing_ok=True)


def ending(
    tenant_id: UUID | None = None,
    text: str = "hello",
    *,
    of: UUID | None = None,
    at: datetime | None = None,
    events: int = 0,
    settles: bool = False,
) -> CallFinished:
    """A call that ended an hour ago, or `at`; `of` is the process that ran it."""
    at = at or timezone.now() - LONG_AGO
    facts = Facts(
        new_id(), tenant_id, None, None, None, "echo", 1, "tools/call", "1", "2026-07-28", "c", "1", "::1", "", at
    )
    ended = FinishedRow(at, 12, 3, "ok", 200, None, False, "", False, 7, 9, events, 1, of or process_id())
    return CallFinished(facts, ended, Payload(facts.id, f'{{"text":"{text}"}}', f'"{text} é"'), settles=settles)


def write(*endings: CallFinished) -> set[UUID]:
    """Write the entries in one batch, each with its number of events."""
    entries = [
        CallEventEntry(EventRow(entry.call_id, number, entry.row.finished_at, "progress", f'{{"progress":{number}}}'))
        for entry in endings
        for number in range(1, entry.row.event_count + 1)
    ]
    return writers.write([*entries, *endings])


def record(
    count: int, tenant_id: UUID | None = None, *, of: UUID | None = None, events: int = 0, size: int = 2
) -> list[UUID]:
    """Write `count` calls in batches of `size`; return their ids in the order of the chain."""
    calls = [ending(tenant_id, f"call {number}", of=of, events=events) for number in range(count)]
    for start in range(0, count, size):
        write(*calls[start : start + size])
    return [entry.call_id for entry in calls]


def checked(**scope: object) -> Report:
    """The report of verifying the whole database."""
    return verify(Scope(**scope))  # type: ignore[arg-type]


def found(**scope: object) -> Finding:
    """The single finding of the verification."""
    findings = checked(**scope).findings
    assert len(findings) == 1, findings
    return findings[0]


def change(call_id: UUID, **columns: object) -> None:
    """Change rows, like an attacker with write access to the database."""
    assert Call.objects.filter(pk=call_id).update(**columns) == 1


def rehash(entry: ChainEntry, before: bytes) -> bytes:
    """Give a record the hash that follows `before`, like an attacker who knows the algorithm, and return it."""
    altered = Batch([entry]).records[entry.call_id]
    assert altered.row is not None
    assert altered.texts is not None
    chain_hash = digest(before, altered.row, altered.events, *altered.texts)
    change(entry.call_id, chain_hash=chain_hash)
    return chain_hash
