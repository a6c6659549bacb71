"""Claims of queued calls: one process takes a call, once.

Threads that claim at the same time do so in one statement, as the recorder groups records: one by one, claims
were the largest part of a busy worker's time.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Any, Final
from uuid import UUID

import msgspec
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Field, Model
from django.utils import timezone

from tools_app.audit.recorder.entries import process_id
from tools_app.calls.background.payload import CallPayload, payload_of_row
from tools_app.calls.invocation import CallRecordBuilder, record_builder_of_row
from tools_app.calls.outcomes import CallOutcome, outcome_of
from tools_app.catalog import compiled
from tools_app.catalog.compiled import CompiledTool
from tools_app.catalog.tool_api.results import failed
from tools_app.core.batches import ThreadBatches
from tools_app.core.database import guarded, submit_to_db_thread
from tools_app.core.process.runtime import Service
from tools_app.core.telemetry.registry import metrics_registry
from tools_app.models import CallStatus, Outcome, RunningCall, Tenant

log = logging.getLogger(__name__)

# Claims in one statement; others wait for the next.
MAX_CLAIMED_TOGETHER: Final = 100
# What precedes the names of a tenant's columns among those of a call.
JOINED: Final = "tenant__"


class Claim(msgspec.Struct, frozen=True):
    """A call that this process claimed, prepared to run."""

    row: RunningCall
    builder: CallRecordBuilder
    tenant: Tenant
    tool: CompiledTool | None
    payload: CallPayload

    @property
    def is_limited(self) -> bool:
        """Whether it holds a concurrency slot of its tenant or tool."""
        by_tool = self.tool is not None and self.tool.allowed.concurrent_calls
        return bool(by_tool) or self.tenant.calls_in_flight is not None


class NotStartable(msgspec.Struct, frozen=True):
    """A call that this process claimed and cannot start. Its outcome has the cause for the auditor."""

    builder: CallRecordBuilder
    outcome: CallOutcome


def _claim_each(call_ids: list[UUID]) -> "list[Claim | NotStartable | None]":
    claimed = guarded(partial(claim_all, call_ids))
    # A call that two threads ask for is one's.
    return [claimed.pop(call_id, None) for call_id in call_ids]


claims: "Service[[], ThreadBatches[UUID, Claim | NotStartable | None]]" = Service(
    lambda: ThreadBatches(_claim_each, submit_to_db_thread, MAX_CLAIMED_TOGETHER)
)


def claim_with_others(call_id: UUID) -> Claim | NotStartable | None:
    """Claim a queued call from a thread that must not keep a connection; None if it was claimed or settled before.

    Raises the database's error.
    """
    return claims().submit(call_id).result()


def claim(call_id: UUID) -> Claim | NotStartable | None:
    """Claim a queued call; None if another process claimed or settled it."""
    return claim_all([call_id]).get(call_id)


def claim_all(call_ids: Sequence[UUID]) -> dict[UUID, Claim | NotStartable]:
    """Claim queued calls, without those that another process claimed or settled. Raises the database's error."""
    rows = _claimed_rows(call_ids)
    if not rows:
        return {}
    metrics_registry.observe("mcphub_call_queue_seconds", [_seconds_in_queue(row) for row in rows])
    tenants = _joined_tenants(rows) or _tenants_of(rows)
    return {row.pk: _claim_of(row, tenants[row.tenant_id]) for row in rows if row.tenant_id in tenants}


def _claim_of(row: RunningCall, tenant: Tenant) -> Claim | NotStartable:
    # Only a task can have earlier events: it runs again after its client has answered.
    event_count = row.last_event_sequence() if row.task_seconds is not None else 0
    builder = record_builder_of_row(row, tuple(tenant.redacted_keys), event_count)
    try:
        tool = compiled.of_tenant(tenant).tools.get(row.tool_name) if tenant.is_active else None
        return Claim(row, builder, tenant, tool, payload_of_row(row))
    except Exception as problem:
        log.exception("Call %s could not be started", row.pk)
        message = f"The call of '{row.tool_name}' could not be started. Nothing ran."
        return NotStartable(builder, outcome_of(Outcome.NOT_STARTED, failed(message, str(problem))))


def _seconds_in_queue(row: RunningCall) -> float:
    """Return its time in the queue: since it arrived, or since its client answered its questions."""
    assert row.run_at is not None
    return max(0.0, (row.run_at - row.changed_at).total_seconds())


def _claimed_rows(call_ids: Sequence[UUID]) -> list[RunningCall]:
    """Claim queued calls in one statement and return their rows.

    On PostgreSQL, several at once skip rows that somebody has locked, who may wait for another of them. Those are
    claimed one by one.
    """
    if len(call_ids) == 1 or connection.vendor == "sqlite":
        return _updated(call_ids, "")
    rows = _updated(call_ids, "FOR UPDATE SKIP LOCKED")
    found = {row.pk for row in rows}
    return [*rows, *(row for id in {*call_ids} - found for row in _updated([id], ""))]


def _updated(call_ids: Sequence[UUID], lock: str) -> list[RunningCall]:
    table, queued = f'"{RunningCall._meta.db_table}"', f'"id" IN ({_placeholders(call_ids)}) AND "status" = %s'
    where = f'"id" IN (SELECT "id" FROM {table} WHERE {queued} {lock})' if lock else queued  # noqa: S608 - our names
    sql = (
        f'UPDATE {table} SET "status" = %s, "owner" = %s, "run_at" = %s '  # noqa: S608 - our names
        f"WHERE {where} RETURNING {_columns(RunningCall)}"
    )
    if connection.vendor == "postgresql":
        sql = _joining_tenants(sql)
    values = {"status": CallStatus.RUNNING.value, "owner": process_id(), "run_at": timezone.now()}
    parameters = [*(_stored(RunningCall, *value) for value in values.items()), *_ids(RunningCall, call_ids)]
    # SQLite commits once the rows have been read: other threads of this process write after that.
    wrapper: Any = connections[DEFAULT_DB_ALIAS]
    with wrapper.write_lock() if connection.vendor == "sqlite" else nullcontext():
        return list(RunningCall.objects.raw(sql, [*parameters, CallStatus.QUEUED.value]))


def _joining_tenants(sql: str) -> str:
    """Return a statement that also reads the tenants of the calls that `sql` returns: one round trip for both."""
    columns = ", ".join(f'"tenant"."{column}" AS "{JOINED}{column}"' for column, _ in _tenant_columns())
    tenants = f'"{Tenant._meta.db_table}" AS "tenant" ON "tenant"."id" = "claimed"."tenant_id"'
    return f'WITH "claimed" AS ({sql}) SELECT "claimed".*, {columns} FROM "claimed" JOIN {tenants}'  # noqa: S608 - our names


def _joined_tenants(rows: Sequence[RunningCall]) -> Mapping[UUID | None, Tenant]:
    """Return the tenants that were read together with their calls; nothing where they were not."""
    tenants: dict[UUID | None, Tenant] = {}
    for row in rows:
        if row.tenant_id not in tenants and f"{JOINED}id" in row.__dict__:
            values = [getattr(row, f"{JOINED}{column}") for column, _ in _tenant_columns()]
            for position, (_, field) in enumerate(_tenant_columns()):
                for convert in field.get_db_converters(connection):
                    values[position] = convert(values[position], None, connection)
            tenants[row.tenant_id] = Tenant.from_db(
                DEFAULT_DB_ALIAS, [field.attname for _, field in _tenant_columns()], values
            )
    return tenants


@cache
def _tenant_columns() -> "list[tuple[str, Field[Any, Any]]]":
    return [(str(field.column), field) for field in Tenant._meta.concrete_fields]


def _tenants_of(rows: Sequence[RunningCall]) -> Mapping[UUID | None, Tenant]:
    """Read the tenants of calls, without the time that the ORM takes to write the statement."""
    ids = [*{row.tenant_id for row in rows if row.tenant_id is not None}]
    if not ids:
        return {}
    sql = f'SELECT {_columns(Tenant)} FROM "{Tenant._meta.db_table}" WHERE "id" IN ({_placeholders(ids)})'  # noqa: S608
    return {tenant.pk: tenant for tenant in Tenant.objects.raw(sql, _ids(Tenant, ids))}


@cache
def _columns(model: type[Model]) -> str:
    return ", ".join(f'"{field.column}"' for field in model._meta.concrete_fields)


def _placeholders(ids: Sequence[UUID]) -> str:
    return ", ".join(["%s"] * len(ids))


def _ids(model: type[Model], ids: Sequence[UUID]) -> list[object]:
    return [_stored(model, "id", id) for id in ids]


def _stored(model: type[Model], name: str, value: object) -> object:
    field: Any = model._meta.get_field(name)
    return field.get_db_prep_value(value, connection)
