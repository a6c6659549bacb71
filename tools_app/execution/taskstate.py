"""Tasks as their clients see them: the row of a call is the task, and its sealed answer the result."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.identity import process_id
from tools_app.auth import vault
from tools_app.auth.principal import Principal
from tools_app.events import publish
from tools_app.events.store import answer_purpose
from tools_app.execution import detached
from tools_app.execution.invocation import Round, call_topic
from tools_app.execution.results import ToolResult
from tools_app.execution.run import Ran, restored
from tools_app.execution.worker import brought_to
from tools_app.models import Call, CallAnswer, CallEvent, CallStatus, Outcome, RunningCall
from tools_app.models.bridge import in_store

WORKING, INPUT_REQUIRED, COMPLETED, FAILED, CANCELLED = "working", "input_required", "completed", "failed", "cancelled"
ENDED = frozenset({COMPLETED, FAILED, CANCELLED})
IN_PROGRESS = "In progress."


class TaskState(msgspec.Struct, frozen=True):
    """Where a task stands: `requests` are what it asks its client, `ran` how it ended. Times are in UTC.

    `version` is the revision of the request that began it.
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
    ran: Ran | None = None


async def look(call_id: UUID, principal: Principal) -> TaskState | None:
    """A task of this principal; None for one that is not there, not its own, or no task: they look the same."""
    return await in_store(_look, call_id, principal)


async def listed(principal: Principal, before: UUID | None, most: int) -> list[TaskState]:
    """The principal's tasks, the newest first, at most `most` of those that are older than `before`."""
    return await in_store(_listed, principal, before, most)


async def update(call_id: UUID, principal: Principal, answers: Mapping[str, Any]) -> None:
    """Give a task answers to what it asks; once it has them all it goes on. Answers to anything else are ignored."""
    ready = await in_store(_update, call_id, principal, answers)
    if ready is not None:
        await detached.go_on(call_id, principal.tenant_id, background=ready.background)


def _own(principal: Principal, rows: "QuerySet[Any]") -> "QuerySet[Any]":
    return rows.filter(tenant_id=principal.tenant_id, api_key_id=principal.key_id)


def _look(call_id: UUID, principal: Principal) -> TaskState | None:
    running = _own(principal, RunningCall.objects.filter(pk=call_id).exclude(task_seconds=None)).first()
    if running is not None:
        return _of_running(running)
    ended = _own(principal, Call.objects.filter(pk=call_id)).first()
    answer = CallAnswer.objects.filter(pk=call_id, is_task=True, expires_at__gt=timezone.now()).first()
    return _of_ended(ended, answer) if ended and answer else None


def _listed(principal: Principal, before: UUID | None, most: int) -> list[TaskState]:
    running = _own(principal, RunningCall.objects.exclude(task_seconds=None))
    kept = CallAnswer.objects.filter(is_task=True, expires_at__gt=timezone.now())
    ended = _own(principal, Call.objects.filter(pk__in=kept.values("call_id")))
    if before is not None:
        running, ended = running.filter(pk__lt=before), ended.filter(pk__lt=before)
    # Ids are made in the order of time.
    newest = list(ended.order_by("-pk")[:most])
    answers = CallAnswer.objects.in_bulk([row.pk for row in newest])
    states = [_of_running(row) for row in running.order_by("-pk")[:most]]
    states += [_of_ended(row, answers[row.pk]) for row in newest if row.pk in answers]
    return sorted({state.id: state for state in states}.values(), key=lambda state: state.id, reverse=True)[:most]


def _of_running(row: RunningCall) -> TaskState:
    waits = row.status == CallStatus.WAITING
    return TaskState(
        id=row.pk,
        name=row.tool_name,
        version=row.protocol_version,
        status=INPUT_REQUIRED if waits else WORKING,
        message="Waiting for an answer." if waits else _said_last(row.pk),
        created_at=row.started_at,
        updated_at=row.changed_at,
        ttl_ms=int((row.task_seconds or 0) * 1000),
        requests={key: one["request"] for key, one in row.asked.items()} if waits else {},
    )


def _said_last(call_id: UUID) -> str:
    """The latest message that came with progress."""
    last = CallEvent.objects.filter(call_id=call_id, kind="progress").order_by("-sequence").first()
    message = msgspec.json.decode(last.data).get("message") if last else None
    return message if isinstance(message, str) else IN_PROGRESS


def _of_ended(row: Call, answer: CallAnswer) -> TaskState:
    ran = restored(Outcome(row.outcome), vault.unseal(bytes(answer.sealed), answer_purpose(row.pk)))
    status, message = _ending(ran, row)
    return TaskState(
        id=row.pk,
        name=row.tool_name,
        version=row.protocol_version,
        status=status,
        message=message,
        created_at=row.started_at,
        updated_at=row.finished_at,
        ttl_ms=int((answer.expires_at - row.started_at) / timedelta(milliseconds=1)),
        ran=ran,
    )


def _ending(ran: Ran, row: Call) -> tuple[str, str]:
    if ran.outcome == Outcome.CANCELLED:
        return CANCELLED, "The task was cancelled."
    if ran.refusal is not None:
        return FAILED, ran.refusal.message
    return COMPLETED, _told(ran) if row.is_error else "Done."


def _told(ran: Ran) -> str:
    """What a failed tool says of it."""
    content = ran.result.content if isinstance(ran.result, ToolResult) else []
    return next((str(block["text"]) for block in content if block.get("text")), "Failed.")


def _update(call_id: UUID, principal: Principal, answers: Mapping[str, Any]) -> RunningCall | None:
    """The row, if it is ready to go on."""
    with transaction.atomic():
        rows = RunningCall.objects.select_for_update().filter(pk=call_id, status=CallStatus.WAITING)
        row = _own(principal, rows).first()
        if row is None or not row.asked:
            return None
        brought, asked = brought_to(row), dict(row.asked)
        told = {asked.pop(key)["name"]: answers[key] for key in _known(answers, asked)}
        if not told:
            return None
        answered = Round({**brought.round.answers, **told}, brought.round.state)
        row.sealed_arguments = msgspec.structs.replace(brought, round=answered).sealed(row.pk)
        row.asked, row.changed_at = asked, timezone.now()
        if not asked:
            row.status, row.owner = CallStatus.QUEUED.value, process_id()
        row.save(update_fields=["sealed_arguments", "asked", "changed_at", "status", "owner"])
    publish.ring(call_topic(call_id))
    return None if asked else row


def _known(answers: Iterable[str], asked: Mapping[str, Any]) -> list[str]:
    return [key for key in answers if key in asked]
