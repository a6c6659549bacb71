"""Execution of calls from their rows: claimed once, recorded event by event, settled once.

Celery workers run background calls in this way, and web processes run tasks of tools that are not background tools.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from threading import Lock
from time import monotonic, sleep
from typing import Any
from uuid import UUID

import msgspec
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections
from django.utils import timezone

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import CallFinished, process_id
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import inputs, limits, run, uncertain
from tools_app.calls import tracing as traced
from tools_app.calls.conversation import OnStream, Rounds, unused_name
from tools_app.calls.invocation import (
    CallRecordBuilder,
    Invocation,
    Round,
    call_topic,
    event_data,
    record_builder_of_row,
    set_log_context_of_row,
)
from tools_app.calls.run import CallOutcome, LocalCall, outcome_of, run_tool, stopped
from tools_app.calls.stop_reasons import UNKNOWN
from tools_app.catalog import compiled
from tools_app.catalog.compiled import CompiledTool
from tools_app.core import encryption
from tools_app.core.database import call_in_db_thread, run_in_db_thread, run_in_db_thread_unbounded
from tools_app.core.notifications import publish
from tools_app.core.thread_loops import thread_loops
from tools_app.models import CallStatus, Outcome, RunningCall, Tenant
from tools_app.telemetry import tracing
from tools_app.telemetry.registry import metrics_registry
from tools_app.tool_api.context import Caller, Emit, ToolContext
from tools_app.tool_api.elicitation import Conversation
from tools_app.tool_api.results import InputRequired, failed

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.25
# Longer than a restart or failover of the database. After this the sweeper settles the call.
PATIENCE_SECONDS = 120.0


class CallPayload(msgspec.Struct, frozen=True):
    """The data of a call that runs from its row, stored encrypted. `used` are the keys of its questions so far."""

    arguments: dict[str, Any]
    capabilities: dict[str, Any]
    progress_token: str | int | None
    round: Round
    used: list[str] = []

    def sealed(self, call_id: UUID) -> bytes:
        """Return the payload encrypted, as the row stores it."""
        return encryption.seal(msgspec.json.encode(self), _purpose(call_id))


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
        by_tool = self.tool is not None and self.tool.allowed.calls_at_once
        return bool(by_tool) or self.tenant.calls_in_flight is not None


class RunResult(msgspec.Struct, frozen=True):
    """The outcome of a run. `has_inputs`: it has answers to questions, or the reason of its cancellation."""

    outcome: CallOutcome
    has_inputs: bool = False


def payload_of_invocation(invocation: Invocation) -> CallPayload:
    """Return the payload of an invocation."""
    return CallPayload(invocation.arguments, dict(invocation.capabilities), invocation.progress_token, invocation.round)


def payload_of_row(row: RunningCall) -> CallPayload:
    """Return the payload of a row. Raises encryption.DecryptionError."""
    opened = encryption.unseal(bytes(row.sealed_arguments or b""), _purpose(row.pk))
    return msgspec.json.decode(opened, type=CallPayload)


def run_claimed(call_id: UUID) -> None:
    """Run a queued call, unless another process has claimed or settled it."""
    try:
        # In the pool, so that this thread keeps no connection while the tool runs, possibly for hours.
        claim = call_in_db_thread(_claim, call_id)
    except Error:
        uncertain.not_started.note(call_id)  # it may have been claimed nevertheless
        raise
    if claim is not None:
        try:
            _settle(claim, thread_loops().run(_run(claim)))
        finally:
            connection.close()  # opened only if the call had inputs


async def run_here(call_id: UUID) -> None:
    """Run a queued call on the running event loop."""
    try:
        claim = await run_in_db_thread(_claim, call_id)
    except Error:
        uncertain.not_started.note(call_id)  # it may have been claimed nevertheless
        raise
    if claim is not None:
        await run_in_db_thread_unbounded(_settle, claim, await _run(claim))


def _claim(call_id: UUID) -> Claim | None:
    """Claim a queued call. One that cannot be started is settled as such, with its cause for the auditor."""
    row = _claimed_row(call_id)
    if row is None or row.tenant_id is None:
        return None
    metrics_registry.observe("mcphub_call_queue_seconds", [_seconds_in_queue(row)])
    tenant = Tenant.objects.get(pk=row.tenant_id)
    # Only a task can have earlier events: it runs again after its client has answered.
    builder = record_builder_of_row(
        row, tuple(tenant.redacted_keys), row.last_event_sequence() if row.task_seconds is not None else 0
    )
    try:
        return Claim(row, builder, tenant, _tool_of(row, tenant), payload_of_row(row))
    except Exception as problem:
        log.exception("Call %s could not be started", row.pk)
        message = f"The call of '{row.tool_name}' could not be started. Nothing ran."
        _record(builder, outcome_of(Outcome.NOT_STARTED, failed(message, str(problem))))
        return None


def _seconds_in_queue(row: RunningCall) -> float:
    """Return its time in the queue: since it arrived, or since its client answered its questions."""
    assert row.run_at is not None
    return max(0.0, (row.run_at - row.changed_at).total_seconds())


def _claimed_row(call_id: UUID) -> RunningCall | None:
    """Claim a queued call in one statement and return its row; None if another process claimed or settled it."""
    fields = RunningCall._meta.concrete_fields
    names = ", ".join(f'"{field.column}"' for field in fields)
    sql = (
        f'UPDATE "{RunningCall._meta.db_table}" SET "status" = %s, "owner" = %s, "run_at" = %s '  # noqa: S608 - our names
        f'WHERE "id" = %s AND "status" = %s RETURNING {names}'
    )
    values = {"status": CallStatus.RUNNING.value, "owner": process_id(), "run_at": timezone.now(), "id": call_id}
    parameters = [_stored(name, value) for name, value in values.items()]
    # SQLite commits once the row has been read: other threads of this process write after that.
    wrapper: Any = connections[DEFAULT_DB_ALIAS]
    with wrapper.write_lock() if connection.vendor == "sqlite" else nullcontext():
        found = list(RunningCall.objects.raw(sql, [*parameters, CallStatus.QUEUED.value]))
    return found[0] if found else None


def _stored(name: str, value: object) -> object:
    field: Any = RunningCall._meta.get_field(name)
    return field.get_db_prep_value(value, connection)


def _tool_of(row: RunningCall, tenant: Tenant) -> CompiledTool | None:
    return compiled.of_tenant(tenant).tools.get(row.tool_name) if tenant.is_active else None


class _RowCall(LocalCall):
    """A call that runs from its row, on the event loop of this asyncio task."""

    def __init__(self, row: RunningCall, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        # Only `tasks/cancel` cancels a task: `notifications/cancelled` must not match it.
        session_id = row.session_id if row.task_seconds is None else None
        super().__init__(row.pk, session_id, row.request_id, row.timeout_seconds)
        self._loop = loop
        self._task = task

    def interrupt(self) -> None:
        """Cancel what the call awaits."""
        self._loop.call_soon_threadsafe(self._task.cancel)


async def _run(claim: Claim) -> RunResult:
    row, tool = claim.row, claim.tool
    set_log_context_of_row(row, claim.tenant.slug, claim.payload.arguments)
    if tool is None:
        result = failed(
            f"The tool '{row.tool_name}' no longer exists. Nothing ran.",
            "its tool was disabled or deleted before the call started",
        )
        return RunResult(outcome_of(Outcome.NOT_STARTED, result))
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    call = _RowCall(row, loop, task)
    run.running_calls[call.id] = call
    try:
        if row.cancel_requested:
            # It never started: there is nothing to undo.
            return RunResult(stopped(row.method, Outcome.CANCELLED, UNKNOWN), has_inputs=True)
        emit = _emitter(claim)
        converse = partial(_conversation, claim, emit, call)
        context = ToolContext(row.pk, _caller(claim), emit, call.cancelled, converse, loop=loop)
        execute = run_tool if tracing.active is None else traced.run
        outcome = await execute(tool, claim.payload.arguments, context, call)
        return RunResult(outcome, has_inputs=call.asked or call.stopped_as is Outcome.CANCELLED)
    finally:
        del run.running_calls[call.id]


def _caller(claim: Claim) -> Caller:
    row, tenant = claim.row, claim.tenant
    return Caller(
        tenant.pk,
        tenant.slug,
        row.remote_address,
        row.client_name,
        row.client_version,
        row.protocol_version,
        claim.payload.capabilities,
        key_id=row.api_key_id,
    )


def _conversation(claim: Claim, emit: Emit, call: LocalCall) -> Conversation:
    """Return the function's way to request input, which depends on the client's era."""
    if claim.row.session_id is None:
        return Rounds(claim.payload.round)

    return OnStream(emit, call.answer)


def _emitter(claim: Claim) -> Callable[[str, dict[str, Any]], None]:
    builder, token = claim.builder, claim.payload.progress_token
    topic = call_topic(builder.facts.id)
    in_order = Lock()

    def emit(kind: str, data: dict[str, Any]) -> None:
        """Record an event, and notify the process that streams the call once it is durable.

        Sequence numbers follow the order of the records, so that a reader never misses an earlier event.
        """
        with in_order:
            recorder.current().submit(builder.event(kind, event_data(kind, data, token, builder), topic))

    return emit


def _settle(claim: Claim, ran: RunResult) -> None:
    """Record the outcome of a run. A task with questions waits, and runs again when its client has answered."""
    finished = ran.outcome
    if isinstance(finished.result, InputRequired) and claim.row.task_seconds is not None:
        _await_input(claim, finished.result)
        return
    _record(claim.builder, finished)
    if ran.has_inputs:
        # Remaining rows are deleted later; the call's slots are released in any case.
        with suppress(Error):
            inputs.forget(claim.row.pk)
    if claim.is_limited:
        limits.release_of(claim.row.tenant_id, claim.row.tool_id, claim.row.pk)


def _record(builder: CallRecordBuilder, finished: CallOutcome) -> None:
    """Record the end, with the full answer for the waiting process. An earlier settlement is kept."""
    call_id = builder.facts.id
    if finished.outcome == Outcome.CANCELLED and finished.result.cause == UNKNOWN.cause:
        finished = stopped(builder.facts.method, finished.outcome, inputs.reason_of(call_id))
    _record_with_retry(builder.finished(finished, call_topic(call_id), answer=finished.serialize()))


def _record_with_retry(ending: CallFinished) -> None:
    """Record an end, retrying while the database is unavailable. Raises RecorderUnavailable after PATIENCE_SECONDS."""
    until = monotonic() + PATIENCE_SECONDS
    while True:
        try:
            recorder.current().record(ending)
            return
        except RecorderUnavailable:
            if monotonic() > until:
                raise
            sleep(RETRY_SECONDS)


def _await_input(claim: Claim, unfinished: InputRequired) -> None:
    """Store a task that waits for answers, without a process. Keys of questions are never reused."""
    row, payload = claim.row, claim.payload
    asked, used = {}, list(payload.used)
    for name, request in unfinished.requests.items():
        key = unused_name(name, used)
        asked[key] = {"name": name, "request": request}
        used.append(key)
    kept = msgspec.structs.replace(
        payload, round=Round(unfinished.answers, unfinished.state, unfinished.refused), used=used
    )
    RunningCall.objects.filter(pk=row.pk, status=CallStatus.RUNNING).update(
        status=CallStatus.WAITING, asked=asked, sealed_arguments=kept.sealed(row.pk), changed_at=timezone.now()
    )
    publish.notify(call_topic(row.pk))


def _purpose(call_id: UUID) -> str:
    """Return the encryption purpose of a call's stored payload."""
    return f"arguments:{call_id}"
