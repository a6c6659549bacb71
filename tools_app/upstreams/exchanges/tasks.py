"""Tasks of upstreams, which a call waits for: the extension of 2026-07-28, and those of 2025-11-25.

A modern upstream decides itself whether it answers a call with a task. The hub asks for its state until it has ended,
and passes its questions on like those of a running call. If the call is cancelled, so is the task.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError

from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core.database import run_in_db_thread
from tools_app.core.ids import new_id
from tools_app.protocol import exact_json
from tools_app.protocol.inbound import CAPABILITIES_META
from tools_app.upstreams import task_rows
from tools_app.upstreams.client import Answer, Client, Listen, Message
from tools_app.upstreams.errors import ErrorResponse, Refused, TaskFailed, UpstreamFailed, result_of

log = logging.getLogger(__name__)

CAPABILITIES: Final[dict[str, Any]] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
TASK: Final = "task"
FINAL_STATUSES: Final = ("completed", "failed", "cancelled")
# What a call hears when its upstream has created a task, besides the notifications of the upstream.
TASK_CREATED: Final = "hub/task_created"
MAX_ID_LENGTH: Final = 1024
# How often a state is asked for: what the upstream suggests, within these bounds.
POLL_SECONDS: Final = 1.0
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.1, 30.0
# Polls in a row that may fail: a task outlives the connection on which it was created.
MAX_FAILED_POLLS: Final = 5

# Asks a question of the upstream under its key; returns the response, with a `result` or an `error`.
Ask = Callable[[Message, str], Awaitable[Message]]


class UpstreamTask:
    """A task of a modern upstream. On the loop of the connections."""

    def __init__(
        self,
        client: Client,
        task: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        listen: Listen,
        ask: Ask,
        *,
        is_left: Callable[[], bool],
    ) -> None:
        task_id = task.get("taskId")
        if not isinstance(task_id, str) or not 0 < len(task_id) <= MAX_ID_LENGTH:
            raise UpstreamFailed("The upstream created a task without a valid id.")
        self._client = client
        self.id = task_id
        self._params = params_of(task_id, capabilities)
        self._listen = listen
        self._ask = ask
        self._is_left = is_left
        self._message = ""
        self._steps = 0
        # By the upstream's keys, each asked once.
        self._open_questions: dict[str, asyncio.Task[Message]] = {}
        self._methods: dict[str, Any] = {}
        self._closed_questions: set[str] = set()

    async def result(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of the call, when the task has ended. If this ends before the task, the task is cancelled,
        unless it is left to another process.

        Raises ErrorResponse if the task failed, ToolError, and UpstreamFailed.
        """
        is_over = False
        self._listen({"method": TASK_CREATED, "params": {}})
        try:
            state = task
            while not is_over:
                state = await self._next(state)
                is_over = state.get("status") in FINAL_STATUSES
            return _final_result(state)
        finally:
            for question in self._open_questions.values():
                question.cancel()
            if not is_over and not self._is_left():
                self._client.tell_later(self._client.request("tasks/cancel", self._params))

    async def _next(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Pass on what a state says, and return the next one. Answers are sent to the upstream as soon as they come."""
        status = state.get("status")
        self._report_progress(state.get("statusMessage"))
        if status == "input_required":
            self._update_questions(state.get("inputRequests", {}))
        # Until the next poll, or until the client has answered.
        suggested_ms = exact_json.number(state.get("pollIntervalMs"))
        seconds = POLL_SECONDS
        if suggested_ms is not None:
            seconds = min(max(suggested_ms / 1000, MIN_POLL_SECONDS), MAX_POLL_SECONDS)
        if status in FINAL_STATUSES:
            seconds = 0.0
        if self._open_questions:
            await asyncio.wait(self._open_questions.values(), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)
        if answers := self._answers():
            await self._client.request("tasks/update", {**self._params, "inputResponses": answers})
        return await self._state()

    async def _state(self) -> dict[str, Any]:
        failed_polls = 0
        while True:
            try:
                state = await self._client.request("tasks/get", self._params)
            except UpstreamFailed as error:
                failed_polls += 1
                if isinstance(error, Refused) or failed_polls == MAX_FAILED_POLLS:
                    raise
                await asyncio.sleep(POLL_SECONDS)
                continue
            if state.get("status") not in {"working", "input_required", *FINAL_STATUSES}:
                raise UpstreamFailed("The upstream gave no valid state of its task.")
            return state

    def _report_progress(self, message: Any) -> None:
        """Pass a new status on as progress, which counts the changes: a task has no numbers."""
        if isinstance(message, str) and message and message != self._message:
            self._message = message
            self._steps += 1
            params = {"progress": self._steps, "message": message}
            self._listen({"method": "notifications/progress", "params": params})

    def _update_questions(self, requests: Any) -> None:
        """Ask what was not asked yet, and withdraw what the task does not wait for any more."""
        if not isinstance(requests, dict) or not all(isinstance(request, dict) for request in requests.values()):
            raise UpstreamFailed("The task of the upstream asks for input in an invalid way.")
        for key in [key for key in self._open_questions if key not in requests]:
            self._open_questions.pop(key).cancel()
            self._closed_questions.add(key)
        for key, request in requests.items():
            if key not in self._open_questions and key not in self._closed_questions:
                self._methods[key] = method = request.get("method")
                question = self._ask({"id": key, "method": method, "params": request.get("params")}, key)
                self._open_questions[key] = asyncio.ensure_future(question)

    def _answers(self) -> dict[str, Any]:
        """Return the answers that have come since the last time. Raises ToolError for what cannot be answered."""
        answers: dict[str, Any] = {}
        for key in [key for key, question in self._open_questions.items() if question.done()]:
            response = self._open_questions.pop(key).result()
            self._closed_questions.add(key)
            if "result" in response:
                answers[key] = response["result"]
            elif self._methods[key] == "elicitation/create":
                answers[key] = {"action": "cancel"}
            else:
                raise ToolError(f"The task of the upstream asks what cannot be asked: {response['error']['message']}")
        return answers


def params_of(id: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of requests about a task. They declare what the request that created it did."""
    return {"taskId": id, "_meta": {CAPABILITIES_META: dict(capabilities)}}


def _final_result(state: Mapping[str, Any]) -> dict[str, Any]:
    match state["status"]:
        case "completed":
            return result_of({"result": state.get("result")})
        case "failed":
            with _as_task_failure():
                return result_of({"error": state.get("error") or {}})
    text = state.get("statusMessage")
    raise ToolError(f"The upstream cancelled its task{f': {text}' if isinstance(text, str) and text else '.'}")


@contextmanager
def _as_task_failure() -> Iterator[None]:
    """Raise the error of a task as TaskFailed."""
    try:
        yield
    except ErrorResponse as error:
        raise TaskFailed(error.code, error.message, error.data) from error


async def store_task(
    context: ToolContext, upstream_id: UUID, task_id: str, source: str, capabilities: Mapping[str, Any]
) -> None:
    """Store the task of a call, so that another process can wait for it, or cancel it."""
    try:
        await asyncio.shield(run_in_db_thread(task_rows.write, context, upstream_id, task_id, source, capabilities))
    except DatabaseError as error:
        log.warning("The task of an upstream ends with this process, as it could not be stored: %s", error)


async def resume(
    client: Client, state: Mapping[str, Any], listen: Listen, ask: Ask, *, is_left: Callable[[], bool]
) -> dict[str, Any]:
    """Wait for a task that another process began (see `task_rows`). Nothing is sent again."""
    task = {"taskId": state["task"], "status": "working"}
    return await UpstreamTask(client, task, state["declared"], listen, ask, is_left=is_left).result(task)


# --- 2025-11-25: the client decides ---


async def handshake_result(
    client: Client, params: Mapping[str, Any], listen: Listen, *, headers: Mapping[str, str], answer: Answer
) -> dict[str, Any]:
    """Call a tool as a task, and return its result when it has ended (2025-11-25, tasks, §Retrieving Task Results).

    The token of the request's progress stays that of the task (2025-11-25, tasks, §Progress). If this is cancelled, so
    is the task. Raises ErrorResponse and UpstreamFailed.
    """
    token = str(new_id())
    task_params = {**params, "task": {}, "_meta": {**params.get("_meta", {}), "progressToken": token}}
    client.listeners[token] = listen
    try:
        created = await client.request("tools/call", task_params, listen, headers=headers, answer=answer)
        task = created.get("task")
        id = task.get("taskId") if isinstance(task, dict) else None
        if not isinstance(id, str) or not id:
            raise UpstreamFailed("The upstream created no task.")
        try:
            with _as_task_failure():
                return await client.request("tasks/result", {"taskId": id}, listen, answer=answer)
        except asyncio.CancelledError:
            client.tell_later(client.request("tasks/cancel", {"taskId": id}))
            raise
    finally:
        del client.listeners[token]
