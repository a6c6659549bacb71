"""Decision which calls become tasks, by their tool, their client's support and their duration."""

import asyncio
from contextlib import suppress
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
from django.db import Error
from django.db.models import F
from django.utils import timezone

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import stop_reasons, uncertain
from tools_app.calls.background import delivery, enqueue, task_state
from tools_app.calls.background.delivery import AwaitingInput
from tools_app.calls.background.payload import payload_of_row
from tools_app.calls.background.task_state import TaskState
from tools_app.calls.events import Event, SendEvent
from tools_app.calls.invocation import CallRecordBuilder, Invocation, call_topic, record_builder_of_row
from tools_app.calls.outcomes import UNRECORDED, CallOutcome, outcome_of
from tools_app.catalog.compiled import CompiledTool
from tools_app.catalog.tool_api.context import TASK_EVENT
from tools_app.catalog.tool_api.results import InputRequired
from tools_app.core import fair_scheduler
from tools_app.core.database import run_in_db_thread
from tools_app.core.notifications.listener import TopicListener
from tools_app.identity.principal import Principal
from tools_app.models import CallAnswer, Outcome, RunningCall, TaskSupport
from tools_app.protocol.errors import CAPABILITY_MISSING, INTERNAL_ERROR, METHOD_NOT_FOUND, OVER_LIMIT, RpcError

# After this time, a call of a tool with optional tasks becomes a task.
TASK_AFTER_SECONDS = 1.0
# Maximum of concurrent tasks of a caller.
MAX_TASKS = 1000


class TaskRequest(Enum):
    """Whether a request asks for a task, accepts one, or cannot have one."""

    UNSUPPORTED = "a revision before 2025-11-25"
    NOT_REQUESTED = "2025-11-25, an ordinary request"
    REQUESTED = "2025-11-25, a request for a task"
    NO_EXTENSION = "the modern era, without the extension"
    ACCEPTED = "the modern era, with the extension"


class TaskCreated(msgspec.Struct, frozen=True):
    """A call that became a task: it continues, and its client retrieves the result later.

    `state` is known of one that has just begun. That of another one is in the database.
    """

    call_id: UUID
    state: TaskState | None = None


class _TaskBegun(Exception):
    """The call has become a task before its time: its upstream runs it as one."""


def refusal_of(tool: CompiledTool, task_request: TaskRequest) -> RpcError | None:
    """Return why a call cannot run as requested (2025-11-25, tasks, §Tool-Level Negotiation; SEP-2663)."""
    if task_request is TaskRequest.NO_EXTENSION and tool.task == TaskSupport.REQUIRED:
        message = f"'{tool.name}' runs only as a task. The client must declare the tasks extension."
        return RpcError(CAPABILITY_MISSING, message, {"requiredCapabilities": task_capabilities()})
    if task_request is TaskRequest.NOT_REQUESTED and tool.task == TaskSupport.REQUIRED:
        return RpcError(METHOD_NOT_FOUND, f"'{tool.name}' runs only as a task. Request one with params.task.")
    if task_request is TaskRequest.REQUESTED and tool.task == TaskSupport.NEVER:
        return RpcError(METHOD_NOT_FOUND, f"'{tool.name}' cannot run as a task. Call it without params.task.")
    return None


def may_be_task(tool: CompiledTool, task_request: TaskRequest) -> bool:
    """Whether an accepted call can become a task."""
    return task_request is TaskRequest.REQUESTED or (
        task_request is TaskRequest.ACCEPTED and tool.task != TaskSupport.NEVER
    )


async def task_limit_error(principal: Principal) -> RpcError | None:
    """Return the error if a caller has too many tasks (2025-11-25, tasks, §Resource Management)."""
    running = await run_in_db_thread(_count, principal)
    if running < MAX_TASKS:
        return None
    return RpcError(OVER_LIMIT, f"At most {MAX_TASKS} tasks at once.", {"limit": "tasks", "most": MAX_TASKS})


def _count(principal: Principal) -> int:
    rows = RunningCall.objects.filter(tenant_id=principal.tenant_id, api_key_id=principal.key_id)
    if principal.key_id is None:
        rows = rows.filter(remote_address=principal.address)
    return rows.exclude(task_seconds=None).count()


def task_capabilities() -> dict[str, Any]:
    """Return the capabilities of a client that supports tasks."""
    return {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def run_as_task(
    invocation: Invocation,
    tool: CompiledTool,
    builder: CallRecordBuilder,
    send_event: SendEvent,
    listener: TopicListener,
) -> CallOutcome | TaskCreated:
    """Run a call from its row: as a task from the start, or as one that becomes a task if it takes long.

    Raises RecorderUnavailable or RpcError if it could not start.
    """
    call_id = builder.facts.id

    def until_task(event: Event) -> None:
        if event.kind == TASK_EVENT:
            raise _TaskBegun
        send_event(event)

    with listener.subscribe(call_topic(call_id)) as subscription:
        # A separate asyncio task: a partly started call could not be cancelled.
        start = asyncio.create_task(enqueue.start_background_call(invocation, tool, builder))
        try:
            await asyncio.shield(start)
            fair_scheduler.release_slot()
            if invocation.session is not None or tool.task == TaskSupport.REQUIRED:
                await _become_task(call_id)
                return TaskCreated(call_id, task_state.initial_state(builder))
            try:
                async with asyncio.timeout(TASK_AFTER_SECONDS):
                    ended = await delivery.forward_events(call_id, tool.name, until_task, subscription)
            except (TimeoutError, _TaskBegun):
                await _become_task(call_id)
                return TaskCreated(call_id)
            if isinstance(ended, AwaitingInput):
                return await _questions(call_id)
        except asyncio.CancelledError as cancellation:
            # Its client has not been told that the call is a task, so it can neither cancel nor answer it.
            await asyncio.shield(delivery.give_up(call_id, start, stop_reasons.reason_of(cancellation)))
            raise
    # Answered directly, so it is not a task. If the database is unavailable, the row stays until it expires.
    with suppress(Error):
        await run_in_db_thread(CallAnswer.objects.filter(pk=call_id).delete)
    return ended


async def _become_task(call_id: UUID) -> None:
    """Make a call a task, which survives this process from now on; without the database, it ends with its process."""
    fresh = RunningCall.objects.filter(pk=call_id, changed_at=F("started_at"))
    with suppress(Error):
        await run_in_db_thread(lambda: fresh.update(changed_at=timezone.now()))


async def _questions(call_id: UUID) -> CallOutcome | TaskCreated:
    """Return the questions of a call that is not a task yet. As for any other call, they end it. Raises RpcError."""
    try:
        row = await run_in_db_thread(RunningCall.objects.filter(pk=call_id).first)
        if row is None or not row.is_awaiting_input:
            return TaskCreated(call_id)
        payload = payload_of_row(row)
        requests = {one["name"]: one["request"] for one in row.asked.values()}
        known = payload.round
        finished = outcome_of(
            Outcome.INPUT_REQUIRED, InputRequired(requests, known.answers, known.state, known.refused)
        )
        builder = record_builder_of_row(row, event_count=await run_in_db_thread(row.last_event_sequence))
        settled = await recorder.current().recording(builder.finished(finished))
    except (Error, RecorderUnavailable) as problem:
        uncertain.may_have_run.note(call_id)
        raise RpcError(INTERNAL_ERROR, UNRECORDED, retry_after=1) from problem
    return finished if settled else TaskCreated(call_id)
