"""Tasks: calls whose results their clients come back for.

The modern era has them as the extension io.modelcontextprotocol/tasks: the hub decides which call becomes one. In
2025-11-25 they are experimental, and the client decides. The row of the call is the task in either.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec
import orjson
from django.core import signing

from tools_app.auth import limits
from tools_app.auth.allowance import MINUTE, Rate
from tools_app.auth.principal import Principal
from tools_app.events.store import Event
from tools_app.execution import background, inputs, taskstate, turnstile
from tools_app.execution.background import PutAside
from tools_app.execution.invocation import call_topic
from tools_app.execution.run import Ran
from tools_app.execution.tasking import TaskWish, task_capabilities
from tools_app.execution.taskstate import CANCELLED, ENDED, FAILED, INPUT_REQUIRED, WORKING, TaskState
from tools_app.methods import rounds
from tools_app.methods.events import Hearing
from tools_app.methods.exchange import Exchange
from tools_app.methods.invoking import fitting, text_in
from tools_app.methods.registry import method
from tools_app.methods.results import complete, rendered
from tools_app.models.bridge import in_store
from tools_app.models.config import config
from tools_app.protocol.errors import CAPABILITY_MISSING, INVALID_PARAMS, METHOD_NOT_FOUND, OVER_LIMIT, RpcError
from tools_app.protocol.versions import Era, has_tasks

log = logging.getLogger(__name__)

TASKS: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
EXPERIMENTAL: Final[Mapping[str, Any]] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
POLL_MS: Final = 500
PAGE: Final = 50
MOST_WATCHED: Final = 100
# What asks more often than this does not wait between its looks.
MOST_PER_MINUTE: Final = 6000
LONGEST_WISH_MS: Final = 10**15


def wish_of(exchange: Exchange) -> TaskWish:
    """What a client says of tasks in a `tools/call`. Raises RpcError for a `task` that is none."""
    # Nobody gets a task that he could not come back for.
    may_return = exchange.principal.may_ask("tasks/get")
    if exchange.era is Era.MODERN:
        return TaskWish.OFFERED if may_return and declares_tasks(exchange.capabilities) else TaskWish.UNKNOWN
    if not has_tasks(exchange.version) or not (may_return and exchange.principal.may_ask("tasks/result")):
        return TaskWish.UNHEARD_OF
    return TaskWish.ASKED if exchange.params.get("task") is not None else TaskWish.UNASKED


def lifetime_of(exchange: Exchange) -> float:
    """For how many seconds a task is kept: as the client wishes, but not above MCPHUB_TASK_SECONDS. Raises RpcError."""
    task = exchange.params.get("task") if has_tasks(exchange.version) else None
    if task is None:
        return float(config.MCPHUB_TASK_SECONDS)
    ttl = task.get("ttl") if isinstance(task, dict) else False
    if ttl is None:
        return float(config.MCPHUB_TASK_SECONDS)
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < LONGEST_WISH_MS:
        message = "params.task must be an object, and its ttl a number of milliseconds."
        raise RpcError(INVALID_PARAMS, message, {"field": "task"})
    return min(ttl / 1000, float(config.MCPHUB_TASK_SECONDS))


def declares_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Whether a client of the modern era knows tasks."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)


async def created(exchange: Exchange, call_id: UUID) -> bytes:
    """The result that says that a call became a task (SEP-2663, §Task Creation; 2025-11-25, tasks, §Creating Tasks)."""
    state = await taskstate.look(call_id, exchange.principal)
    assert state is not None, "a task is durable before its client hears of it"
    if exchange.era is Era.MODERN:
        return orjson.dumps({"resultType": "task", **_task(state)})
    # It may have ended meanwhile, but this tells how it began (2025-11-25, tasks, §Task Status Lifecycle).
    begun = msgspec.structs.replace(
        state, status=WORKING, message=taskstate.IN_PROGRESS, updated_at=state.created_at, requests={}, ran=None
    )
    return orjson.dumps({"task": _experimental(begun)})


# --- The extension --------------------------------------------------------------------------------------------


@method("tasks/get", Era.MODERN)
async def get(exchange: Exchange) -> bytes:
    """Where a task stands, with its result once it has one (SEP-2663, §Task Polling). Raises RpcError."""
    state = await _named(exchange)
    if state.ran is not None:
        _note_reading(exchange, state)
    return rendered(detailed(state), exchange.era)


@method("tasks/update", Era.MODERN)
async def update(exchange: Exchange) -> bytes:
    """Take answers to what a task asks (SEP-2663, §Task Update Requests). Raises RpcError."""
    state = await _named(exchange)
    if rounds.RESPONSES not in exchange.params:
        raise RpcError(INVALID_PARAMS, f"params.{rounds.RESPONSES} is missing.", {"field": rounds.RESPONSES})
    await taskstate.update(state.id, exchange.principal, rounds.answers_in(exchange.params))
    return rendered({}, exchange.era)


@method("tasks/cancel", Era.MODERN)
async def cancel(exchange: Exchange) -> bytes:
    """Ask a task to stop; one that has ended stays as it is (SEP-2663, §Task Cancellation). Raises RpcError."""
    state = await _named(exchange)
    if state.status not in ENDED:
        await background.request_cancel([state.id])
    return rendered({}, exchange.era)


def detailed(state: TaskState) -> dict[str, Any]:
    """A task with what its status brings along (SEP-2663, §Task Status)."""
    body = _task(state)
    if state.status == INPUT_REQUIRED:
        body["inputRequests"] = state.requests
    elif state.ran is not None and state.status == FAILED:
        body["error"] = _error(state.ran)
    elif state.ran is not None and state.status in ENDED and state.ran.refusal is None:
        body["result"] = orjson.Fragment(state.ran.wire)
    if state.status == "cancelled":
        body.pop("result", None)
    return body


async def agreed(exchange: Exchange, ids: Any) -> list[UUID]:
    """The tasks of a client's wish list that it may hear of (SEP-2663, §Task Status Notifications). Raises RpcError."""
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise RpcError(INVALID_PARAMS, "params.notifications.taskIds must be a list of task ids.", status=400)
    if len(ids) > MOST_WATCHED:
        raise RpcError(INVALID_PARAMS, f"params.notifications.taskIds has at most {MOST_WATCHED} entries.", status=400)
    _check_revision(exchange)
    await _limit(exchange)
    named = [id for id in map(parsed_id, ids) if id is not None]
    return [id for id in named if await _own(exchange.principal, id) is not None]


async def news(principal: Principal, known: dict[UUID, Any]) -> AsyncIterator[dict[str, Any]]:
    """Those of the `known` tasks that are not as they were, in detail; what is seen is noted, what ended is dropped."""
    for id, before in list(known.items()):
        state = await _own(principal, id)
        seen = (state.status, sorted(state.requests)) if state else None
        if state is not None and seen != before:
            yield detailed(state)
        if state is None or state.status in ENDED:
            del known[id]
        else:
            known[id] = seen


def wire_id(call_id: UUID) -> str:
    """What clients call a task: with a signature, because the id of a call is for the most part the time it was made.

    Where callers cannot be told apart, whoever knows the id has the task (SEP-2663, §Security Implications).
    """
    return _signer().sign(str(call_id))


def parsed_id(value: str) -> UUID | None:
    """The id of a task's call, if a text is what the hub calls one."""
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


def _error(ran: Ran) -> dict[str, Any]:
    assert ran.refusal is not None
    refusal = ran.refusal
    return {"code": refusal.code, "message": refusal.message} | ({"data": refusal.data} if refusal.data else {})


# --- The experiment of 2025-11-25 -----------------------------------------------------------------------------


@method("tasks/get", Era.HANDSHAKE)
async def get_experimental(exchange: Exchange) -> bytes:
    """Where a task stands (2025-11-25, tasks, §Getting Tasks). Raises RpcError."""
    return orjson.dumps(_experimental(await _named(exchange)))


@method("tasks/list", Era.HANDSHAKE)
async def list_experimental(exchange: Exchange) -> bytes:
    """The tasks of this key, the newest first (2025-11-25, tasks, §Listing Tasks). Raises RpcError."""
    _check_revision(exchange)
    if exchange.principal.key_id is None:
        raise _no_such_method(exchange)
    await _limit(exchange)
    states = await taskstate.listed(exchange.principal, _opened_cursor(exchange), PAGE + 1)
    shown = states[:PAGE]
    own = [state for state in shown if exchange.principal.may_use(state.name)]
    body: dict[str, Any] = {"tasks": [_experimental(state) for state in own]}
    if len(states) > PAGE:
        body["nextCursor"] = signing.dumps(str(shown[-1].id), salt="tasks/list")
    return orjson.dumps(body)


@method("tasks/cancel", Era.HANDSHAKE)
async def cancel_experimental(exchange: Exchange) -> bytes:
    """Cancel a task and say that it is (2025-11-25, tasks, §Task Cancellation). Raises RpcError for an ended one."""
    state = await _named(exchange)
    if state.status not in ENDED:
        await background.request_cancel([state.id])
        state = await _stopped(exchange, state)
        if state.status == CANCELLED:
            return orjson.dumps(_experimental(state))
    message = f"The task has ended already: it is {_experimental(state)['status']}."
    raise RpcError(INVALID_PARAMS, message, {"taskId": wire_id(state.id)})


async def _stopped(exchange: Exchange, state: TaskState) -> TaskState:
    """A task that was asked to stop, once it did; it may also have come to an end of its own."""
    with exchange.switchboard.watching(call_topic(state.id)) as watch:
        while state.status not in ENDED:
            await watch.wait()
            state = await _found(exchange)
    return state


@method("tasks/result", Era.HANDSHAKE)
async def result(exchange: Exchange) -> bytes:
    """Wait for a task's end and give what its request would have got (2025-11-25, tasks, §Result Retrieval).

    What the task says and asks meanwhile goes out on this request's stream. Raises RpcError.
    """
    state = await _named(exchange)
    if state.ran is None:
        state = await _ended(exchange, state)
    assert state.ran is not None
    _note_reading(exchange, state)
    if state.ran.refusal is not None:
        raise state.ran.refusal
    body = orjson.loads(complete(fitting(state.ran, exchange.version), exchange.era))
    return orjson.dumps({**body, "_meta": _related(state)})


async def _ended(exchange: Exchange, state: TaskState) -> TaskState:
    assert exchange.session is not None
    hearing = Hearing(state.id, exchange.version, exchange.session.log_level, _related(state))
    heard = 0
    turnstile.step_aside()
    with exchange.switchboard.watching(call_topic(state.id)) as watch:
        while state.ran is None:
            async for news in background.followed(state.id, state.name, heard, watch):
                if isinstance(news, Event):
                    heard = news.sequence
                    message = hearing.message_of(news)
                    if message is not None and await _is_news(state, news):
                        exchange.sender.put(message)
                elif isinstance(news, PutAside):
                    # A task of the modern era: its client answers there.
                    await watch.wait()
            state = await _found(exchange)
    return state


async def _is_news(state: TaskState, event: Event) -> bool:
    """Whether an event still says something to who comes for the result: not a question that was answered already."""
    return event.kind != "request" or event.data["name"] in await in_store(inputs.unanswered, state.id)


def _experimental(state: TaskState) -> dict[str, Any]:
    """A task as 2025-11-25 has it: one whose tool failed is a failed one."""
    body = _task(state)
    failed = state.ran is not None and state.ran.result.is_error and state.status == "completed"
    return {
        **{name: body[name] for name in ("taskId", "statusMessage", "createdAt", "lastUpdatedAt")},
        "status": FAILED if failed else state.status,
        "ttl": state.ttl_ms,
        "pollInterval": POLL_MS,
    }


def _related(state: TaskState) -> dict[str, Any]:
    return {RELATED: {"taskId": wire_id(state.id)}}


def _opened_cursor(exchange: Exchange) -> UUID | None:
    cursor = exchange.params.get("cursor")
    try:
        return None if cursor is None else UUID(signing.loads(str(cursor), salt="tasks/list"))
    except (signing.BadSignature, ValueError):
        raise RpcError(INVALID_PARAMS, "params.cursor is not one that this hub gave.") from None


# --- What both share ------------------------------------------------------------------------------------------


async def _named(exchange: Exchange) -> TaskState:
    """The task that a request names. Raises RpcError if there is none for this caller, or the client knows no tasks."""
    if not await _is_of_earlier_kind(exchange):
        _check_revision(exchange)
    await _limit(exchange)
    return await _found(exchange)


async def _found(exchange: Exchange) -> TaskState:
    name = text_in(exchange.params, "taskId")
    id = parsed_id(name)
    state = await _own(exchange.principal, id) if id else None
    if state is None:
        raise RpcError(INVALID_PARAMS, "There is no such task, or it has expired.", {"taskId": name})
    return state


async def _own(principal: Principal, id: UUID) -> TaskState | None:
    """A task of this principal, as long as its key opens the tool."""
    state = await taskstate.look(id, principal)
    return state if state is not None and principal.may_use(state.name) else None


def _check_revision(exchange: Exchange) -> None:
    if exchange.era is Era.MODERN and not declares_tasks(exchange.capabilities):
        data = {"requiredCapabilities": task_capabilities()}
        raise RpcError(CAPABILITY_MISSING, "This needs a client that declares the tasks extension.", data)
    if exchange.era is Era.HANDSHAKE and not has_tasks(exchange.version):
        raise _no_such_method(exchange)


async def _is_of_earlier_kind(exchange: Exchange) -> bool:
    """Whether a modern client that knows only the earlier tasks means one (SEP-2663, §Backward Compatibility)."""
    if exchange.era is not Era.MODERN or declares_tasks(exchange.capabilities):
        return False
    if exchange.request.method == "tasks/update" or not isinstance(exchange.capabilities.get("tasks"), dict):
        return False
    id = parsed_id(text_in(exchange.params, "taskId"))
    state = await taskstate.look(id, exchange.principal) if id else None
    return state is not None and has_tasks(state.version)


def _no_such_method(exchange: Exchange) -> RpcError:
    name = exchange.request.method
    return RpcError(METHOD_NOT_FOUND, f"Method not found: '{name}'", {"method": name})


async def _limit(exchange: Exchange) -> None:
    """Raise RpcError for a caller that asks too often (2025-11-25, tasks, §Task Isolation and Access Control)."""
    who = exchange.principal.limited_as
    over = await limits.take([Rate("caller", "requests about tasks", MOST_PER_MINUTE, MINUTE, f"tasks:{who}")])
    if over is not None:
        message = f"At most {MOST_PER_MINUTE} requests about tasks a minute."
        raise RpcError(OVER_LIMIT, message, {"retryAfterSeconds": over.retry_after}, retry_after=over.retry_after)


def _note_reading(exchange: Exchange, state: TaskState) -> None:
    """Log who took a result away; who asked for it, and how it came about, is in the audit log."""
    who = exchange.principal
    log.info("The result of task %s was read by key %s of tenant %s", state.id, who.key_id, who.tenant_slug)
