"""Execution of calls from their rows: claimed once, recorded event by event, settled once.

Celery workers run background calls in this way, and web processes run tasks of tools that are not background tools.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Any
from uuid import UUID

import msgspec
from django.db import Error, connection
from django.utils import timezone

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import CallFinished
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import inputs, limits, run, uncertain
from tools_app.calls import tracing as traced
from tools_app.calls.background import claims
from tools_app.calls.background.claims import Claim, NotStartable
from tools_app.calls.conversation import OnStream, Rounds
from tools_app.calls.invocation import CallRecordBuilder, Round, call_topic, event_data, set_log_context_of_row
from tools_app.calls.outcomes import CallOutcome, outcome_of, stopped
from tools_app.calls.run import Deadline, LocalCall, run_tool
from tools_app.calls.stop_reasons import UNKNOWN
from tools_app.catalog.tool_api.context import Caller, ToolContext
from tools_app.catalog.tool_api.elicitation import Conversation, unused_name
from tools_app.catalog.tool_api.results import InputRequired, failed
from tools_app.core.database import run_in_db_thread, run_in_db_thread_unbounded
from tools_app.core.notifications import publish
from tools_app.core.process.thread_loops import thread_loops
from tools_app.core.telemetry import tracing
from tools_app.models import CallStatus, Outcome, RunningCall
from tools_app.protocol import exact_json

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.25
# Longer than a restart or failover of the database. After this the sweeper settles the call.
PATIENCE_SECONDS = 120.0


class RunResult(msgspec.Struct, frozen=True):
    """The outcome of a run. `has_inputs`: it has answers to questions, or the reason of its cancellation."""

    outcome: CallOutcome
    has_inputs: bool = False


def run_claimed(call_id: UUID) -> None:
    """Run a queued call, unless another process has claimed or settled it."""
    try:
        # In another thread, so that this one keeps no connection while the tool runs, possibly for hours.
        claim = claims.claim_with_others(call_id)
    except Error:
        uncertain.not_started.note(call_id)  # it may have been claimed nevertheless
        raise
    if isinstance(claim, NotStartable):
        _record(claim.builder, claim.outcome)
    elif claim is not None:
        try:
            _settle(claim, thread_loops().run(_run(claim)))
        finally:
            connection.close()  # opened only if the call had inputs


async def run_in_process(call_id: UUID) -> None:
    """Run a queued call on the running event loop."""
    try:
        claim = await run_in_db_thread(claims.claim, call_id)
    except Error:
        uncertain.not_started.note(call_id)  # it may have been claimed nevertheless
        raise
    if isinstance(claim, NotStartable):
        await run_in_db_thread_unbounded(_record, claim.builder, claim.outcome)
    elif claim is not None:
        await run_in_db_thread_unbounded(_settle, claim, await _run(claim))


async def _run(claim: Claim) -> RunResult:
    row, tool = claim.row, claim.tool
    set_log_context_of_row(row, claim.tenant.slug, claim.payload.arguments)
    if tool is None:
        result = failed(
            f"The tool '{row.tool_name}' no longer exists. Nothing ran.",
            "its tool was disabled or deleted before the call started",
        )
        return RunResult(outcome_of(Outcome.NOT_STARTED, result))
    # Only `tasks/cancel` cancels a task: `notifications/cancelled` must not match it.
    session_id = row.session_id if row.task_seconds is None else None
    call = LocalCall(
        id=row.pk, session_id=session_id, request_id=row.request_id, deadline=Deadline(row.timeout_seconds)
    )
    call.note_start()
    run.running_calls[call.id] = call
    try:
        if row.cancel_requested:
            # It never started: there is nothing to undo.
            return RunResult(stopped(row.method, Outcome.CANCELLED, UNKNOWN), has_inputs=True)
        emit = _emitter(claim)
        tenant, payload = claim.tenant, claim.payload
        caller = Caller(
            tenant.pk,
            tenant.slug,
            row.remote_address,
            row.client_name,
            row.client_version,
            row.protocol_version,
            payload.capabilities,
            person_id=row.person_id,
            key_id=row.api_key_id,
            session_id=row.session_id,
        )

        def converse() -> Conversation:
            """Return the function's way to request input, which depends on the client's era."""
            return Rounds(payload.round) if row.session_id is None else OnStream(emit, call.answer)

        context = ToolContext(row.pk, caller, emit, call.cancelled, converse, loop=call.loop)
        execute = run_tool if tracing.active is None else traced.run
        outcome = await execute(tool, claim.payload.arguments, context, call)
        return RunResult(outcome, has_inputs=call.has_asked or call.stopped_as is Outcome.CANCELLED)
    finally:
        call.note_end()
        del run.running_calls[call.id]


def _emitter(claim: Claim) -> Callable[[str, dict[str, Any]], None]:
    builder, token = claim.builder, claim.payload.progress_token
    topic = call_topic(builder.facts.id)

    def emit(kind: str, data: dict[str, Any]) -> None:
        """Record an event, and notify the process that streams the call once it is durable."""
        with builder.record_order:
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
    questions, used = {}, list(payload.used)
    for name, request in unfinished.requests.items():
        key = unused_name(name, used)
        questions[key] = {"name": name, "request": request}
        used.append(key)
    stored = msgspec.structs.replace(
        payload, round=Round(unfinished.answers, unfinished.state, unfinished.refused), used=used
    )
    RunningCall.objects.filter(pk=row.pk, status=CallStatus.RUNNING).update(
        status=CallStatus.WAITING,
        asked=exact_json.without_decimals(questions),
        sealed_arguments=stored.sealed(row.pk),
        changed_at=timezone.now(),
    )
    publish.notify(call_topic(row.pk))
