"""Tasks as seen by their clients. The row of a call is the task; its encrypted answer is the result."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import OperationalError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.recorder.entries import process_id
from tools_app.calls.background import enqueue
from tools_app.calls.background.broker import BrokerUnavailable
from tools_app.calls.background.payload import payload_of_row
from tools_app.calls.events import answer_purpose
from tools_app.calls.invocation import CallRecordBuilder, call_topic
from tools_app.calls.outcomes import CallOutcome, deserialize
from tools_app.catalog.tool_api.results import ToolResult
from tools_app.core import encryption
from tools_app.core.database import MAX_SECONDS, run_in_db_thread, run_in_db_thread_unbounded
from tools_app.core.notifications import publish
from tools_app.identity.principal import Principal
from tools_app.models import Call, CallAnswer, CallEvent, CallStatus, Outcome, RunningCall

log = logging.getLogger(__name__)

WORKING, INPUT_REQUIRED, COMPLETED, FAILED, CANCELLED = "working", "input_required", "completed", "failed", "cancelled"
ENDED = frozenset({COMPLETED, FAILED, CANCELLED})
IN_PROGRESS = "In progress."

# The updates that are in progress: the event loop itself keeps no task alive.
_updates: set[asyncio.Task[None]] = set()


class TaskState(msgspec.Struct, frozen=True):
    """The state of a task: `requests` are its questions to the client. Times are in UTC.

    `version` is the revision of the request that created it.
    """

    id: UUID
    name: str
    version: str
    status: str
    message: str
    created_at: datetime
    updated_at: datetime
    ttl_ms: int
    requests: dict[str, Any] = {}
    outcome: CallOutcome | None = None


def initial_state(builder: CallRecordBuilder) -> TaskState:
    """Return the state of a task that has just begun."""
    facts = builder.facts
    return TaskState(
        id=facts.id,
        name=facts.tool_name,
        version=facts.protocol_version,
        status=WORKING,
        message=IN_PROGRESS,
        created_at=facts.started_at,
        updated_at=facts.started_at,
        ttl_ms=int((builder.task_seconds or 0) * 1000),
    )


async def find(call_id: UUID, principal: Principal) -> TaskState | None:
    """Return a task of this principal. None if missing, of another principal, or not a task, indistinguishably."""
    return await run_in_db_thread(_find, call_id, principal)


async def list_tasks(principal: Principal, before: UUID | None, most: int) -> list[TaskState]:
    """Return at most `most` of the principal's tasks older than `before`, newest first."""
    return await run_in_db_thread(_listed, principal, before, most)


async def update(call_id: UUID, principal: Principal, answers: Mapping[str, Any]) -> None:
    """Store answers to a task's questions. It continues once it has all of them. Other answers are ignored.

    Raises OperationalError after MAX_SECONDS, so that no client waits for a database that hangs. The update is
    completed nevertheless, also if the caller is cancelled: nobody else would start a task that was only stored.
    """
    updating = asyncio.create_task(_update_and_start(call_id, principal, answers))
    _updates.add(updating)
    updating.add_done_callback(_update_ended)
    bound = asyncio.timeout(MAX_SECONDS)
    try:
        async with bound:
            await asyncio.shield(updating)
    except TimeoutError:
        if bound.expired():
            raise OperationalError("the database does not answer") from None
        raise


async def _update_and_start(call_id: UUID, principal: Principal, answers: Mapping[str, Any]) -> None:
    ready = await run_in_db_thread_unbounded(_update, call_id, principal, answers)
    if ready is None:
        return
    try:
        await enqueue.enqueue_or_run(call_id, principal.tenant_id, background=ready.background)
    except BrokerUnavailable as problem:
        # The answers are stored and the task has the status queued: it is requeued when the broker is back.
        log.warning("Task %s continues later: %s", call_id, problem)


def _update_ended(updating: "asyncio.Task[None]") -> None:
    _updates.discard(updating)
    if not updating.cancelled() and (problem := updating.exception()):
        log.warning("An update of a task failed: %s", problem)


def _rows_of_key(principal: Principal, rows: "QuerySet[Any]") -> "QuerySet[Any]":
    return rows.filter(tenant_id=principal.tenant_id, api_key_id=principal.key_id)


def _find(call_id: UUID, principal: Principal) -> TaskState | None:
    running = _rows_of_key(principal, RunningCall.objects.filter(pk=call_id).exclude(task_seconds=None)).first()
    if running is not None:
        return _of_running(running)
    ended = _rows_of_key(principal, Call.objects.filter(pk=call_id)).first()
    answer = CallAnswer.objects.filter(pk=call_id, is_task=True, expires_at__gt=timezone.now()).first()
    return _of_ended(ended, answer) if ended and answer else None


def _listed(principal: Principal, before: UUID | None, most: int) -> list[TaskState]:
    running = _rows_of_key(principal, RunningCall.objects.exclude(task_seconds=None))
    unexpired = CallAnswer.objects.filter(is_task=True, expires_at__gt=timezone.now())
    ended = _rows_of_key(principal, Call.objects.filter(pk__in=unexpired.values("call_id")))
    if before is not None:
        running, ended = running.filter(pk__lt=before), ended.filter(pk__lt=before)
    # Ids are ordered by creation time. Running tasks first: one that ends in between is then found twice, not missed.
    states = [_of_running(row) for row in running.order_by("-pk")[:most]]
    newest = list(ended.order_by("-pk")[:most])
    answers = CallAnswer.objects.in_bulk([row.pk for row in newest])
    states += [_of_ended(row, answers[row.pk]) for row in newest if row.pk in answers]
    return sorted({state.id: state for state in states}.values(), key=lambda state: state.id, reverse=True)[:most]


def _of_running(row: RunningCall) -> TaskState:
    waits, message = row.status == CallStatus.WAITING, "Waiting for an answer."
    if not waits:
        progress = CallEvent.objects.filter(call_id=row.pk, kind="progress").order_by("-sequence").first()
        latest = msgspec.json.decode(progress.data).get("message") if progress else None
        message = latest if isinstance(latest, str) else IN_PROGRESS
    return TaskState(
        id=row.pk,
        name=row.tool_name,
        version=row.protocol_version,
        status=INPUT_REQUIRED if waits else WORKING,
        message=message,
        created_at=row.started_at,
        updated_at=row.changed_at,
        ttl_ms=int((row.task_seconds or 0) * 1000),
        requests={key: one["request"] for key, one in row.asked.items()} if waits else {},
    )


def _of_ended(row: Call, answer: CallAnswer) -> TaskState:
    ran = deserialize(Outcome(row.outcome), encryption.unseal(bytes(answer.sealed), answer_purpose(row.pk)))
    status, message = COMPLETED, "Done."
    if ran.outcome == Outcome.CANCELLED:
        status, message = CANCELLED, "The task was cancelled."
    elif ran.refusal is not None:
        status, message = FAILED, ran.refusal.message
    elif row.is_error:
        content = ran.result.content if isinstance(ran.result, ToolResult) else []
        message = next((str(block["text"]) for block in content if block.get("text")), "Failed.")
    return TaskState(
        id=row.pk,
        name=row.tool_name,
        version=row.protocol_version,
        status=status,
        message=message,
        created_at=row.started_at,
        updated_at=row.finished_at,
        ttl_ms=int((answer.expires_at - row.started_at) / timedelta(milliseconds=1)),
        outcome=ran,
    )


def _update(call_id: UUID, principal: Principal, answers: Mapping[str, Any]) -> RunningCall | None:
    """Store answers and return the row if the task can continue."""
    with transaction.atomic():
        rows = RunningCall.objects.select_for_update().filter(pk=call_id, status=CallStatus.WAITING)
        row = _rows_of_key(principal, rows).first()
        if row is None or not row.asked:
            return None
        payload, questions = payload_of_row(row), dict(row.asked)
        by_name = {questions.pop(key)["name"]: answers[key] for key in [key for key in answers if key in questions]}
        if not by_name:
            return None
        answered = msgspec.structs.replace(payload.round, answers={**payload.round.answers, **by_name})
        row.sealed_arguments = msgspec.structs.replace(payload, round=answered).sealed(row.pk)
        row.asked, row.changed_at = questions, timezone.now()
        if not questions:
            row.status, row.owner = CallStatus.QUEUED.value, process_id()
        row.save(update_fields=["sealed_arguments", "asked", "changed_at", "status", "owner"])
    publish.notify(call_topic(call_id))
    return None if questions else row
