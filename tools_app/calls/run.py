"""Execution of a tool, resource or prompt with a timeout, and the registry of the calls that run in this process.

Every failure becomes a response and a recorded cause. Any code of the process can stop a registered call.
"""

import asyncio
import logging
import traceback
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec
from django.conf import settings

from tools_app.calls import inputs
from tools_app.calls.outcomes import CallOutcome, failure, outcome_of, stopped
from tools_app.calls.stop_reasons import UNKNOWN, StopReason
from tools_app.catalog.kinds.base import Runner
from tools_app.catalog.shaping import Shaping, shaped
from tools_app.catalog.tool_api.context import Cancellation, CapabilityMissing, ToolContext
from tools_app.catalog.tool_api.elicitation import BadAnswer, Refused, Unanswered
from tools_app.catalog.tool_api.results import (
    CallCancelled,
    CallLost,
    InputRequired,
    PromptResult,
    ProtocolError,
    ResourceNotFound,
    ResourceResult,
    Result,
    ToolError,
    ToolResult,
    failed,
    size_of,
    text,
)
from tools_app.core import large_work, request_memory
from tools_app.core.config import config
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.sanitize import sanitized
from tools_app.core.telemetry.scrubbing import scrubbed
from tools_app.core.tracebacks import clear_traceback
from tools_app.models import Outcome
from tools_app.protocol import exact_json
from tools_app.protocol.content import InvalidContent, valid_content, valid_contents, valid_messages
from tools_app.protocol.errors import CAPABILITY_MISSING, RpcError, resource_not_found
from tools_app.protocol.schema import CompiledSchema
from tools_app.protocol.versions import is_modern

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_LOGGED_CHARACTERS = 300
# The members of a text without annotations.
PLAIN_TEXT = {"type", "text"}


class Runnable(Protocol):
    """Something that can run: a tool, or one read of a resource or prompt."""

    @property
    def method(self) -> str:
        """The MCP method that requests it."""

    @property
    def name(self) -> str:
        """The name under which clients know it."""

    @property
    def run(self) -> Runner:
        """The function."""

    @property
    def output(self) -> CompiledSchema | None:
        """The schema that its result must match."""

    @property
    def read_only(self) -> bool:
        """Whether it has no side effects, so that it can start before its intent is durable."""

    @property
    def timeout_seconds(self) -> float:
        """The timeout."""

    @property
    def shaping(self) -> Shaping | None:
        """How its results are shaped for clients."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One read of a resource or a prompt. It changes nothing, so it may start before its intent is durable."""

    method: str
    name: str
    run: Runner
    timeout_seconds: float
    output: CompiledSchema | None = None
    read_only: bool = True
    shaping: None = None


class DeadlineExceeded(Exception):
    """The hub's timeout, distinct from a TimeoutError of the function."""


class Deadline(msgspec.Struct):
    """The deadline of one run on one event loop, in one or more parts; `left` is the remaining time in seconds."""

    left: float
    _began: float = 0.0
    _limit: asyncio.Timeout | None = None
    _pauses: int = 0

    async def keep(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raises DeadlineExceeded."""
        self._began = asyncio.get_running_loop().time()
        self._limit = asyncio.timeout(None if self._pauses else self.left)
        try:
            async with self._limit:
                return await work
        except TimeoutError as problem:
            if self._limit.expired():
                raise DeadlineExceeded from problem
            raise
        finally:
            self._limit = None
            if not self._pauses:
                self.left -= asyncio.get_running_loop().time() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the deadline until the end of the block, or of the last of several concurrent blocks."""
        loop = asyncio.get_running_loop()
        self._pauses += 1
        if self._pauses == 1 and self._limit is not None:
            self.left -= loop.time() - self._began
            self._limit.reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and self._limit is not None:
                self._began = loop.time()
                self._limit.reschedule(self._began + self.left)


@dataclass(eq=False, kw_only=True)
class LocalCall:
    """A call that runs in this process, on the event loop of the asyncio task that makes it.

    Stopping it cancels that task, from `note_start` to `note_end`.
    """

    id: UUID
    session_id: UUID | None
    request_id: str
    deadline: Deadline
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    task: asyncio.Task[Any] | None = None
    cancelled: Cancellation = field(default_factory=Cancellation)
    stopped_as: Outcome | None = None
    reason: StopReason | None = None
    has_asked: bool = False

    def note_start(self) -> None:
        """Note that the function starts, in the current asyncio task."""
        self.task = asyncio.current_task(self.loop)

    def note_end(self) -> None:
        """Note that the function has ended: a cancellation would only interrupt the settlement of the call."""
        self.task = None

    def stop(self, outcome: Outcome, reason: StopReason | None = None) -> None:
        """Stop the call with this `outcome`, from any thread. Without `reason`, it is read from the database.

        Stopping twice has no effect.
        """
        if self.stopped_as is None:
            self.stopped_as, self.reason = outcome, reason
            self.cancelled.set()
            self.interrupt()

    def interrupt(self) -> None:
        """Cancel what the function awaits; called from any thread."""
        self.loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def answer(self, name: str) -> Mapping[str, Any]:
        """Return the client's response to a question; the deadline pauses meanwhile. Raises `inputs.NoAnswer`."""
        self.has_asked = True
        with self.deadline.paused():
            return await inputs.wait_for(self.id, name, settings.MCPHUB_ELICITATION_TIMEOUT)

    @property
    def has_row(self) -> bool:
        """Whether the call has a row, until it is settled."""
        return True

    def settled_elsewhere(self) -> None:
        """Handle settlement by another process while the function still runs; called from any thread."""


# Running calls by id. The code that runs a call adds and removes it.
running_calls: dict[UUID, LocalCall] = {}


def running_here() -> list[LocalCall]:
    """Return the calls that run in this process."""
    return list(running_calls.values())


def stop_call(call_id: UUID, reason: StopReason | None = None) -> bool:
    """Cancel a call. False if it does not run in this process."""
    call = running_calls.get(call_id)
    if call is not None:
        call.stop(Outcome.CANCELLED, reason)
    return call is not None


def stop_request(session_id: UUID, request_id: str, reason: StopReason) -> bool:
    """Cancel the call of a session's request. False if it does not run in this process."""
    for call in running_here():
        if call.session_id == session_id and call.request_id == request_id:
            call.stop(Outcome.CANCELLED, reason)
            return True
    return False


async def run_tool(  # noqa: C901, PLR0912 - all ways in which a tool ends
    tool: Runnable,
    arguments: dict[str, Any],
    context: ToolContext,
    call: LocalCall,
    on_suspend: Callable[[], object] = lambda: None,
) -> CallOutcome:
    """Run `tool` to completion. Raises only CancelledError, and only if the call was not stopped explicitly.

    `on_suspend` is called once, if the tool or the work on its result suspends.
    """
    try:
        running = tool.run(arguments, context)
        try:
            # Most tools never suspend and need no timeout.
            waits_for = running.send(None)
        except StopIteration as end:
            result: Result = end.value
            before_shaping = on_suspend
        else:
            on_suspend()
            before_shaping = lambda: None  # noqa: E731 - it was called
            result = await call.deadline.keep(yield_from_started(running, waits_for))
        size = size_of(result)
        if size <= LARGE_BYTES and tool.shaping is None:
            finished = _validated(tool, result)
            if len(finished.wire) <= LARGE_BYTES:
                return finished
        return await call.deadline.keep(_shaped(tool, result, size, context, before_shaping))
    except (asyncio.CancelledError, CallCancelled) as problem:
        task = asyncio.current_task()
        if isinstance(problem, asyncio.CancelledError) and task is not None:
            if call.stopped_as is None and task.cancelling():
                raise
            task.uncancel()
        call.note_end()
        await context.give_up()
        reason = call.reason
        if reason is None and call.stopped_as is not None:
            reason = UNKNOWN
        elif reason is None:
            reason = StopReason(f"the tool raised {type(problem).__name__} without being cancelled")
        return stopped(tool.method, call.stopped_as or Outcome.CANCELLED, reason)
    except Unanswered as unanswered:
        call.note_end()
        unfinished = context.unfinished(unanswered)
        size = size_of(unfinished)
        return await large_work.run(size, partial(_input_required, tool, unfinished))
    except DeadlineExceeded:
        call.cancelled.set()
        return timed_out(tool)
    except GeneratorExit:
        raise
    except BaseException as problem:  # noqa: BLE001 - an exception of a tool is its own failure
        call.note_end()
        size = _size_of_exception(problem)
        outcome = await large_work.run(size, partial(_outcome_of_exception, tool, problem, context))
        clear_traceback(problem)
        return outcome
    finally:
        context.close()


def _size_of_exception(problem: BaseException) -> int:
    try:
        return size_of([problem.args, problem])
    except Exception:  # noqa: BLE001 - its attributes are a tool's, and may do anything
        return LARGE_BYTES + 1


@types.coroutine
def yield_from_started(running: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Do what `yield from` does, for a coroutine that has already started."""
    while True:
        try:
            sent = yield waits_for
        except BaseException as thrown:  # noqa: BLE001 - cancellation is for the coroutine to handle
            step = partial(running.throw, thrown)
        else:
            step = partial(running.send, sent)
        try:
            waits_for = step()
        except StopIteration as end:
            result: T = end.value
            return result


def _validated(tool: Runnable, result: Result) -> CallOutcome:  # noqa: C901 - one check after the other
    """Return the outcome of a result that every client accepts, or what is wrong with it.

    Structured content alone is repeated as a text, for clients and models that read no other (tools, §Structured
    Content).
    """
    try:
        if isinstance(result, ToolResult):
            for block in result.content:
                # Almost all results have such blocks only.
                is_plain = type(block) is dict and block.keys() == PLAIN_TEXT and block["type"] == "text"
                if not is_plain or type(block["text"]) is not str:
                    result = msgspec.structs.replace(result, content=valid_content(result.content))
                    break
            if not result.content and result.structured is not None:
                repeated = exact_json.dumps(result.structured)
                # Quotes are escaped within a text.
                is_small = 3 * len(repeated) <= config.MCPHUB_MAX_RESULT_BYTES
                whole = "(The structured content is too large to be repeated as a text.)"
                content = [text(repeated.decode() if is_small else whole)]
                result = msgspec.structs.replace(result, content=content)
        elif isinstance(result, ResourceResult):
            result = msgspec.structs.replace(result, contents=valid_contents(result.contents, tool.name))
        elif isinstance(result, PromptResult):
            result = msgspec.structs.replace(result, messages=valid_messages(result.messages))
        finished = outcome_of(Outcome.TOOL_ERROR if result.is_error else Outcome.OK, result)
    except TypeError as problem:
        return _invalid_result(tool, f"not JSON: {problem}")
    except InvalidContent as problem:
        return _failure(tool, Outcome.TOOL_ERROR, f"'{tool.name}' returned an invalid result: {problem}.")
    if len(finished.wire) > config.MCPHUB_MAX_RESULT_BYTES:
        return _too_large(tool, len(finished.wire))
    if tool.output is None or result.is_error or not isinstance(result, ToolResult):
        return finished
    if result.structured is None:
        return _invalid_result(tool, "no structured content")
    wire = exact_json.loads(exact_json.dumps(result.structured))
    problems = [f"{problem.field or 'result'}: {problem.message}" for problem in tool.output.problems(wire)]
    return _invalid_result(tool, "; ".join(problems)) if problems else finished


async def _shaped(
    tool: Runnable, result: Result, size: int, context: ToolContext, on_suspend: Callable[[], object]
) -> CallOutcome:
    """Return what the client receives, once there is memory for a large result. The record keeps the whole."""
    on_suspend()
    if size > LARGE_BYTES and large_work.is_full():
        return _failure(tool, Outcome.TOOL_ERROR, str(request_memory.TooMuchMemory()))
    finished = await large_work.run(size, partial(_validated, tool, result))
    if len(finished.wire) > LARGE_BYTES:
        try:
            await request_memory.cover_result(len(finished.wire))
        except request_memory.TooMuchMemory as problem:
            return _failure(tool, Outcome.TOOL_ERROR, str(problem))
    if tool.shaping is None or not isinstance(finished.result, ToolResult) or finished.outcome is not Outcome.OK:
        return finished
    # An anonymous caller cannot be recognized when it asks for the whole.
    shaped_result = await shaped(
        context.caller.tenant_id, tool.shaping, finished.wire, context.call_id if context.caller.key_id else None
    )
    if shaped_result is None:
        return finished
    size = size_of(shaped_result)
    outcome = await large_work.run(size, partial(outcome_of, Outcome.OK, shaped_result))
    return msgspec.structs.replace(outcome, whole=finished.wire)


def _input_required(tool: Runnable, unfinished: InputRequired) -> CallOutcome:
    try:
        finished = outcome_of(Outcome.INPUT_REQUIRED, unfinished)
    except TypeError as problem:
        return _invalid_result(tool, f"its questions or its state are not JSON: {problem}")
    return finished if len(finished.wire) <= config.MCPHUB_MAX_RESULT_BYTES else _too_large(tool, len(finished.wire))


def _too_large(tool: Runnable, size: int) -> CallOutcome:
    message = (
        f"The result of '{tool.name}' is larger than {config.MCPHUB_MAX_RESULT_BYTES} bytes (MCPHUB_MAX_RESULT_BYTES)."
    )
    return _failure(tool, Outcome.TOOL_ERROR, message, f"{size} bytes")


def _invalid_result(tool: Runnable, problem: str) -> CallOutcome:
    log.error("Result of tool %s does not match its output schema: %s", tool.name, problem)
    message = f"The tool '{tool.name}' returned a result that does not match its output schema."
    return _failure(tool, Outcome.TOOL_ERROR, message, problem)


def _outcome_of_exception(tool: Runnable, problem: BaseException, context: ToolContext) -> CallOutcome:
    """Return the outcome for an exception: some have a message for the client, all others only for the auditor."""
    if isinstance(problem, CapabilityMissing):
        if not is_modern(context.protocol_version):
            return _failure(tool, Outcome.TOOL_ERROR, str(problem))
        # 2026-07-28, base protocol, §Error Codes
        data = {"requiredCapabilities": capability_declaration(problem.path)}
        refusal = RpcError(CAPABILITY_MISSING, str(problem), data)
        return outcome_of(Outcome.REJECTED, failed(str(problem)), refusal)
    if isinstance(problem, CallLost):
        return _failure(tool, Outcome.LOST, str(problem), problem.cause)
    if isinstance(problem, ProtocolError | ToolError | Refused | BadAnswer):
        return _failure_of(tool, problem)
    if isinstance(problem, ResourceNotFound):
        refusal = resource_not_found(tool.name, modern=is_modern(context.protocol_version))
        return outcome_of(Outcome.REJECTED, failed(refusal.message), refusal)
    # Its type and the first line of its message: a syntax error has it last, and notes follow it. The record contains
    # the traceback, next to the arguments.
    lines = traceback.format_exception_only(problem)
    summary = next((line for line in lines if type(problem).__name__ in line), lines[0]).strip().partition("\n")[0]
    shown = problem if log.isEnabledFor(logging.DEBUG) else None
    log.error("Tool %s raised %s", tool.name, summary[:MAX_LOGGED_CHARACTERS], exc_info=shown)
    # Scrub here, where the arguments whose values must not be stored are known.
    cause = scrubbed("".join(traceback.format_exception(problem)))
    return _failure(tool, Outcome.TOOL_ERROR, f"An error occurred invoking '{tool.name}'.", cause)


def _failure_of(tool: Runnable, problem: Exception) -> CallOutcome:
    """Return a failure with the tool's own message, if it can be serialized."""
    try:
        message = sanitized(str(problem))
        finished = _failure(tool, Outcome.TOOL_ERROR, message)
        if isinstance(problem, ProtocolError):
            refusal = RpcError(problem.code, message, problem.data, status=200)
            finished = outcome_of(Outcome.TOOL_ERROR, failed(message), refusal)
        size = len(finished.serialize())
    except Exception as broken:  # noqa: BLE001 - `__str__` and the data of an error are the tool's own
        return _invalid_result(
            tool, f"its {type(problem).__name__} cannot be serialized: {type(broken).__name__}: {broken}"
        )
    return finished if size <= config.MCPHUB_MAX_RESULT_BYTES else _too_large(tool, size)


def _failure(tool: Runnable, outcome: Outcome, message: str, cause: str = "") -> CallOutcome:
    """Return a failure: for a tool a result that a model can read, otherwise a JSON-RPC error."""
    return failure(tool.method, outcome, message, cause)


def capability_declaration(path: str) -> Mapping[str, Any]:
    """Return the declaration of a capability: `{"elicitation": {"url": {}}}` for "elicitation.url"."""
    area, _, mode = path.partition(".")
    return {area: {mode: {}} if mode else {}}


def timed_out(tool: Runnable) -> CallOutcome:
    """Return the outcome of a call that did not end within its timeout."""
    return _failure(tool, Outcome.TIMEOUT, timeout_message(tool.name, tool.timeout_seconds), "timed out")


def timeout_message(name: str, seconds: float) -> str:
    """Return the message to the client for a timeout."""
    return f"The tool '{name}' did not finish within {seconds:g} seconds."
