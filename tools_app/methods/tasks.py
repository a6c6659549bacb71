"""Tasks: calls whose results are retrieved later.

In the modern era they are the extension io.modelcontextprotocol/tasks, and the hub decides which calls become tasks. In
2025-11-25 they are experimental, and the client decides. In both, the row of the call is the task.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec
import orjson
from django.core import signing

from tools_app.calls import conversation, inputs
from tools_app.calls.background import delivery, task_state
from tools_app.calls.background.delivery import AwaitingInput
from tools_app.calls.background.start_task import TaskCreated, task_capabilities
from tools_app.calls.background.task_state import CANCELLED, ENDED, FAILED, INPUT_REQUIRED, WORKING, TaskState
from tools_app.calls.events import Event, NotificationEncoder
from tools_app.calls.invocation import call_topic
from tools_app.calls.outcomes import CallOutcome
from tools_app.calls.request import RequestContext, complete_result, downgrade_for_version, encoded_result
from tools_app.calls.stop_reasons import TASK_CANCELLED
from tools_app.catalog import compiled
from tools_app.core import fair_scheduler, large_work
from tools_app.core.database import run_in_db_thread
from tools_app.identity.principal import Principal
from tools_app.methods.registry import method
from tools_app.protocol import exact_json
from tools_app.protocol.errors import CAPABILITY_MISSING, INVALID_PARAMS, METHOD_NOT_FOUND, OVER_LIMIT, RpcError
from tools_app.protocol.inbound import text_in
from tools_app.protocol.versions import Era, has_tasks
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import MINUTE, Rate

log = logging.getLogger(__name__)

TASKS: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
EXPERIMENTAL: Final[Mapping[str, Any]] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
POLL_MS: Final = 500
PAGE: Final = 50
MAX_WATCHED: Final = 100
# A client that exceeds this does not wait between polls.
MAX_PER_MINUTE: Final = 6000


def declares_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Whether a modern-era client supports tasks."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)


async def create_task_result(context: RequestContext, created: TaskCreated) -> bytes:
    """Return the result of a call that became a task (SEP-2663, §Task Creation; 2025-11-25, tasks, §Creating Tasks)."""
    state = created.state or await task_state.find(created.call_id, context.principal)
    assert state is not None, "a task is durable before its client hears of it"
    if context.era is Era.MODERN:
        return exact_json.dumps({"resultType": "task", **_task(state)})
    # The task may have ended already, but this result gives its initial status (2025-11-25, tasks, §Task Status
    # Lifecycle).
    begun = msgspec.structs.replace(
        state, status=WORKING, message=task_state.IN_PROGRESS, updated_at=state.created_at, requests={}, outcome=None
    )
    return exact_json.dumps({"task": _experimental(begun)})


# --- The extension of the modern era --------------------------------------------------------------------------


@method("tasks/get", Era.MODERN)
async def get(context: RequestContext) -> bytes:
    """Return a task's status, and its result if it has one (SEP-2663, §Task Polling). Raises RpcError."""
    state = await _named(context)
    if state.outcome is not None:
        _note_reading(context, state)
    return encoded_result(detailed(state), context.era)


@method("tasks/update", Era.MODERN)
async def update(context: RequestContext) -> bytes:
    """Accept answers to a task's input requests (SEP-2663, §Task Update Requests). Raises RpcError."""
    state = await _named(context)
    if conversation.RESPONSES not in context.params:
        raise RpcError(
            INVALID_PARAMS, f"params.{conversation.RESPONSES} is missing.", {"field": conversation.RESPONSES}
        )
    await task_state.update(state.id, context.principal, conversation.answers_in(context.params))
    return encoded_result({}, context.era)


@method("tasks/cancel", Era.MODERN)
async def cancel(context: RequestContext) -> bytes:
    """Request cancellation; a task that has ended is not changed (SEP-2663, §Task Cancellation). Raises RpcError."""
    state = await _named(context)
    if state.status not in ENDED:
        await delivery.request_cancel([state.id], TASK_CANCELLED)
    return encoded_result({}, context.era)


def detailed(state: TaskState) -> dict[str, Any]:
    """Return a task with the fields of its status (SEP-2663, §Task Status)."""
    body = _task(state)
    if state.status == INPUT_REQUIRED:
        body["inputRequests"] = state.requests
    elif state.outcome is not None and state.status == FAILED:
        body["error"] = _error(state.outcome)
    elif state.outcome is not None and state.status in ENDED and state.outcome.refusal is None:
        body["result"] = orjson.Fragment(state.outcome.wire)
    if state.status == "cancelled":
        body.pop("result", None)
    return body


async def permitted_ids(context: RequestContext, ids: Any) -> list[UUID]:
    """Return the permitted tasks of a filter (SEP-2663, §Task Status Notifications). Raises RpcError."""
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise RpcError(INVALID_PARAMS, "params.notifications.taskIds must be a list of task ids.", status=400)
    if len(ids) > MAX_WATCHED:
        raise RpcError(INVALID_PARAMS, f"params.notifications.taskIds has at most {MAX_WATCHED} entries.", status=400)
    _check_revision(context)
    await _limit(context)
    named = [id for id in map(parsed_id, ids) if id is not None]
    return [id for id in named if await _find_own(context.principal, id, "tasks/get") is not None]


async def task_updates(principal: Principal, watched: dict[UUID, Any]) -> AsyncIterator[dict[str, Any]]:
    """Yield the `watched` tasks that changed, in detail. Updates `watched` and drops tasks that ended."""
    for id, before in list(watched.items()):
        state = await _find_own(principal, id, "tasks/get")
        seen = (state.status, sorted(state.requests)) if state else None
        if state is not None and seen != before:
            yield detailed(state)
        if state is None or state.status in ENDED:
            del watched[id]
        else:
            watched[id] = seen


def wire_id(call_id: UUID) -> str:
    """Return the task id for clients: signed, because the id of a call mostly consists of its start time.

    Where callers cannot be identified, knowledge of the id grants access to the task (SEP-2663, §Security
    Implications).
    """
    return _signer().sign(str(call_id))


def parsed_id(value: str) -> UUID | None:
    """Return the call id of a task id; None if it is invalid."""
    try:
        return UUID(_signer().unsign(value))
    except (signing.BadSignature, ValueError):
        return None


def _signer() -> signing.Signer:
    return signing.Signer(sep=".", salt="tasks")


def _task(state: TaskState) -> dict[str, Any]:
    return {
        "taskId": wire_id(state.id),
        "status": state.status,
        "statusMessage": state.message,
        "createdAt": state.created_at.isoformat(),
        "lastUpdatedAt": state.updated_at.isoformat(),
        "ttlMs": state.ttl_ms,
        "pollIntervalMs": POLL_MS,
    }


def _error(outcome: CallOutcome) -> dict[str, Any]:
    assert outcome.refusal is not None
    refusal = outcome.refusal
    return {"code": refusal.code, "message": refusal.message} | ({"data": refusal.data} if refusal.data else {})


# --- The experimental tasks of 2025-11-25 ---------------------------------------------------------------------


@method("tasks/get", Era.HANDSHAKE)
async def get_experimental(context: RequestContext) -> bytes:
    """Return the status of a task (2025-11-25, tasks, §Getting Tasks). Raises RpcError."""
    return exact_json.dumps(_experimental(await _named(context)))


@method("tasks/list", Era.HANDSHAKE)
async def list_experimental(context: RequestContext) -> bytes:
    """List the tasks of this key, newest first (2025-11-25, tasks, §Listing Tasks). Raises RpcError."""
    _check_revision(context)
    if context.principal.key_id is None:
        raise _no_such_method(context)
    await _limit(context)
    states = await task_state.list_tasks(context.principal, _opened_cursor(context), PAGE + 1)
    shown = states[:PAGE]
    found = await compiled.cache.get(context.principal.tenant_id)
    permitted = [state for state in shown if context.principal.may("tool", "tasks/list", state.name, found)]
    body: dict[str, Any] = {"tasks": [_experimental(state) for state in permitted]}
    if len(states) > PAGE:
        body["nextCursor"] = signing.dumps(str(shown[-1].id), salt="tasks/list")
    return exact_json.dumps(body)


@method("tasks/cancel", Era.HANDSHAKE)
async def cancel_experimental(context: RequestContext) -> bytes:
    """Cancel a task and wait until it stops (2025-11-25, tasks, §Task Cancellation). Raises RpcError if it ended."""
    state = await _named(context)
    if state.status not in ENDED:
        await delivery.request_cancel([state.id], TASK_CANCELLED)
        state = await _wait_until_stopped(context, state)
        if state.status == CANCELLED:
            return exact_json.dumps(_experimental(state))
    message = f"The task has ended already: it is {_experimental(state)['status']}."
    raise RpcError(INVALID_PARAMS, message, {"taskId": wire_id(state.id)})


async def _wait_until_stopped(context: RequestContext, state: TaskState) -> TaskState:
    """Wait until a task that was asked to stop has ended, cancelled or not."""
    with context.listener.subscribe(call_topic(state.id)) as subscription:
        while state.status not in ENDED:
            await subscription.wait()
            state = await _found(context)
    return state


@method("tasks/result", Era.HANDSHAKE)
async def result(context: RequestContext) -> bytes:
    """Wait for a task to end and return the result of its request (2025-11-25, tasks, §Result Retrieval).

    Events and questions of the task are sent on this request's stream meanwhile. Raises RpcError.
    """
    state = await _named(context)
    if state.outcome is None:
        state = await _wait_for_end(context, state)
    assert state.outcome is not None
    _note_reading(context, state)
    if state.outcome.refusal is not None:
        raise state.outcome.refusal
    outcome, related = state.outcome, _related(state)

    def with_meta() -> bytes:
        body = exact_json.loads(complete_result(downgrade_for_version(outcome, context.version), context.era))
        return exact_json.dumps({**body, "_meta": related})

    return await large_work.run(len(outcome.wire), with_meta)


async def _wait_for_end(context: RequestContext, state: TaskState) -> TaskState:
    assert context.session is not None
    encoder = NotificationEncoder(state.id, context.version, context.session.log_level, _related(state))
    last_sequence = 0
    fair_scheduler.release_slot()
    with context.listener.subscribe(call_topic(state.id)) as subscription:
        while state.outcome is None:
            async for task_updates in delivery.follow(state.id, state.name, last_sequence, subscription):
                if isinstance(task_updates, Event):
                    last_sequence = task_updates.sequence
                    message = encoder.message_of(task_updates)
                    if message is not None and await _is_news(state, task_updates):
                        context.sender.put(message)
                elif isinstance(task_updates, AwaitingInput):
                    # A task of the modern era: its client answers through `tasks/update`.
                    await subscription.wait()
            state = await _found(context)
    return state


async def _is_news(state: TaskState, event: Event) -> bool:
    """Whether an event is still relevant to the stream: not a question that was answered already."""
    return event.kind != "request" or event.data["name"] in await run_in_db_thread(
        inputs.unanswered_questions, state.id
    )


def _experimental(state: TaskState) -> dict[str, Any]:
    """Return a task in the form of 2025-11-25, where a tool error is a failed task."""
    body = _task(state)
    failed = state.outcome is not None and state.outcome.result.is_error and state.status == "completed"
    return {
        **{name: body[name] for name in ("taskId", "statusMessage", "createdAt", "lastUpdatedAt")},
        "status": FAILED if failed else state.status,
        "ttl": state.ttl_ms,
        "pollInterval": POLL_MS,
    }


def _related(state: TaskState) -> dict[str, Any]:
    return {RELATED: {"taskId": wire_id(state.id)}}


def _opened_cursor(context: RequestContext) -> UUID | None:
    cursor = context.params.get("cursor")
    try:
        return None if cursor is None else UUID(signing.loads(str(cursor), salt="tasks/list"))
    except (signing.BadSignature, ValueError):
        raise RpcError(INVALID_PARAMS, "params.cursor is not one that this hub gave.") from None


# --- Both kinds -----------------------------------------------------------------------------------------------


async def _named(context: RequestContext) -> TaskState:
    """Return the task of a request. Raises RpcError for an unknown task, or a client that does not support tasks."""
    if not await _is_experimental(context):
        _check_revision(context)
    await _limit(context)
    return await _found(context)


async def _found(context: RequestContext) -> TaskState:
    name = text_in(context.params, "taskId")
    id = parsed_id(name)
    state = await _find_own(context.principal, id, context.request.method) if id else None
    if state is None:
        raise RpcError(INVALID_PARAMS, "There is no such task, or it has expired.", {"taskId": name})
    return state


async def _find_own(principal: Principal, id: UUID, method: str) -> TaskState | None:
    """Return a task of this principal, if it may still use this method with the tool."""
    state = await task_state.find(id, principal)
    if state is None:
        return None
    found = await compiled.cache.get(principal.tenant_id)
    return state if principal.may("tool", method, state.name, found) else None


def _check_revision(context: RequestContext) -> None:
    if context.era is Era.MODERN and not declares_tasks(context.capabilities):
        data = {"requiredCapabilities": task_capabilities()}
        raise RpcError(CAPABILITY_MISSING, "This needs a client that declares the tasks extension.", data)
    if context.era is Era.HANDSHAKE and not has_tasks(context.version):
        raise _no_such_method(context)


async def _is_experimental(context: RequestContext) -> bool:
    """Whether a modern client that supports only experimental tasks names one (SEP-2663, §Backward Compatibility)."""
    if context.era is not Era.MODERN or declares_tasks(context.capabilities):
        return False
    if context.request.method == "tasks/update" or not isinstance(context.capabilities.get("tasks"), dict):
        return False
    id = parsed_id(text_in(context.params, "taskId"))
    state = await task_state.find(id, context.principal) if id else None
    return state is not None and has_tasks(state.version)


def _no_such_method(context: RequestContext) -> RpcError:
    name = context.request.method
    return RpcError(METHOD_NOT_FOUND, f"Method not found: '{name}'", {"method": name})


async def _limit(context: RequestContext) -> None:
    """Raise RpcError above the rate limit of a caller (2025-11-25, tasks, §Task Isolation and Access Control)."""
    who = context.principal.limit_key
    over = await limits.take([Rate("caller", "requests about tasks", MAX_PER_MINUTE, MINUTE, f"tasks:{who}")])
    if over is not None:
        message = f"At most {MAX_PER_MINUTE} requests about tasks a minute."
        raise RpcError(OVER_LIMIT, message, {"retryAfterSeconds": over.retry_after}, retry_after=over.retry_after)


def _note_reading(context: RequestContext, state: TaskState) -> None:
    """Log which key read a result; the audit log has the caller and the events of the call."""
    who = context.principal
    log.info("The result of task %s was read by key %s of tenant %s", state.id, who.key_id, who.tenant_slug)
