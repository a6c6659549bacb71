"""Dispatch of calls: resolve, limit, validate, run in this process or in a worker. Only recorded outcomes are returned.

In the web process, a tool that may have side effects starts only when its intent is durable. A read-only tool starts
immediately; its intent is written when it emits an event or runs longer than INTENT_DELAY_SECONDS, so a quick call is
one record.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from django.db import Error

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import CallEventEntry, CallStarted
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import events as store
from tools_app.calls import inputs, limits, run, stop_reasons, uncertain
from tools_app.calls import tracing as traced
from tools_app.calls.background.delivery import run_in_worker
from tools_app.calls.background.start_task import (
    TaskCreated,
    TaskRequest,
    may_be_task,
    refusal_of,
    run_as_task,
    task_limit_error,
)
from tools_app.calls.conversation import OnStream, Rounds
from tools_app.calls.events import Event, SendEvent
from tools_app.calls.invocation import (
    CallRecordBuilder,
    End,
    Invocation,
    call_topic,
    event_data,
    new_record_builder,
    set_log_context,
)
from tools_app.calls.run import (
    UNRECORDED,
    CallOutcome,
    LocalCall,
    Runnable,
    deserialize,
    outcome_of,
    run_tool,
    stopped,
    unanswered,
)
from tools_app.calls.stop_reasons import StopReason
from tools_app.catalog import compiled
from tools_app.catalog.compiled import CompiledTool
from tools_app.catalog.kinds.attachments import NO_SUCH, Attachments
from tools_app.core import fair_scheduler
from tools_app.core.config import config
from tools_app.core.database import run_in_db_thread
from tools_app.core.notifications.listener import TopicListener
from tools_app.models import CallStatus, Outcome, TaskSupport
from tools_app.protocol import mirrored
from tools_app.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from tools_app.protocol.schema import FieldProblem
from tools_app.protocol.versions import Era, reports_bad_arguments_in_result
from tools_app.telemetry import tracing
from tools_app.telemetry.scrubbing import release_arguments
from tools_app.tool_api.context import ToolContext
from tools_app.tool_api.elicitation import Conversation
from tools_app.tool_api.results import failed


class CallOptions(msgspec.Struct, frozen=True):
    """How a call reaches its client: `send_event` is called with each durable event; `can_resume` tells whether the
    client can reconnect for the answer, `task_request` its support of tasks, and `task_seconds` the TTL of a task.
    `respond_early` responds while the tool still runs.
    """

    send_event: SendEvent
    listener: TopicListener
    can_resume: Callable[[], bool]
    task_request: TaskRequest
    task_seconds: float
    respond_early: Callable[[CallOutcome], None]


async def call_tool(
    invocation: Invocation, era: Era, options: CallOptions, hub_tool: CompiledTool | None = None
) -> CallOutcome | TaskCreated:
    """Execute a `tools/call` and record it: of the tenant's tool of this name, or of a tool of the hub itself.

    The result of a cancelled call is not awaited. Raises RpcError, which is recorded too: for an unknown tool, invalid
    arguments up to 2025-06-18, and an exceeded limit. Raises RecorderUnavailable.
    """
    tool, principal = hub_tool, invocation.principal
    if tool is None:
        found = await compiled.cache.get(principal.tenant_id)
        tool = found.tools.get(invocation.name) if found else None
        # The decision of `presentation.may_call`, in place: this is the path of every call.
        if (
            found is None
            or tool is None
            or not principal.permits_name(tool.name)
            or (principal.toolset is not None and not found.in_toolset(principal.toolset, tool.name))
            or (tool.needs_person and principal.person_id is None)
        ):
            raise await refuse(invocation, era, _unknown_tool(invocation.name))
    if tool.mirrored and invocation.headers is not None:
        problem = mirrored.check(tool.mirrored, invocation.headers, invocation.arguments)
        if problem is not None:
            raise await refuse(invocation, era, problem, tool)
    if tool.task != TaskSupport.NEVER or options.task_request is TaskRequest.REQUESTED:
        refusal = refusal_of(tool, options.task_request)
        if refusal is not None:
            raise await refuse(invocation, era, refusal, tool)
    if rates := tool.allowed.calls + principal.allowed.calls:
        await limits.take_call(invocation, rates)
    if not tool.arguments.accepts(invocation.arguments):
        return await _bad_arguments(invocation, tool, era, tool.arguments.problems(invocation.arguments))
    if concurrency_limits := tool.allowed.concurrent_calls + principal.allowed.concurrent_calls:
        async with limits.concurrency_slot(invocation, concurrency_limits):
            return await _run(invocation, tool, era, options)
    return await _run(invocation, tool, era, options)


async def _run(invocation: Invocation, tool: CompiledTool, era: Era, options: CallOptions) -> CallOutcome | TaskCreated:
    """Run a checked call as a task, in a worker or inline."""
    if tool.attachments is not None and (problems := _unreadable(tool.attachments, invocation)):
        return await _bad_arguments(invocation, tool, era, problems)
    as_task = tool.task is not TaskSupport.NEVER and may_be_task(tool, options.task_request)
    task_seconds = options.task_seconds if as_task else None
    builder = new_record_builder(
        invocation, tool.id, tool.revision, background=tool.background, task_seconds=task_seconds
    )
    if builder.arguments_size > config.MCPHUB_MAX_ARGUMENT_BYTES:
        raise await refuse(invocation, era, _arguments_too_large(builder), tool)
    if as_task:
        too_many = await task_limit_error(invocation.principal)
        if too_many is not None:
            raise await refuse(invocation, era, too_many, tool)
        return await run_as_task(invocation, tool, builder, options.send_event, options.listener)
    if tool.background:
        return await run_in_worker(invocation, tool, builder, options.send_event, options.listener)
    if builder.arguments_size >= fair_scheduler.LARGE_BYTES:
        await fair_scheduler.long_step(builder.arguments_size)
    return await InlineCall(
        invocation, tool, builder, options.send_event, options.can_resume, respond_early=options.respond_early
    ).run()


async def read(
    invocation: Invocation,
    reading: Runnable,
    send_event: SendEvent,
    can_resume: Callable[[], bool],
    respond_early: Callable[[CallOutcome], None],
) -> CallOutcome:
    """Run a `resources/read` or a `prompts/get`, and record it. Raises RpcError and RecorderUnavailable."""
    if invocation.principal.allowed.calls:
        await limits.take_call(invocation, invocation.principal.allowed.calls)
    builder = new_record_builder(invocation)
    if builder.arguments_size > config.MCPHUB_MAX_ARGUMENT_BYTES:
        era = Era.MODERN if invocation.session is None else Era.HANDSHAKE
        raise await refuse(invocation, era, _arguments_too_large(builder))
    return await InlineCall(invocation, reading, builder, send_event, can_resume, respond_early=respond_early).run()


async def refuse(invocation: Invocation, era: Era, refusal: RpcError, tool: CompiledTool | None = None) -> RpcError:
    """Record a call that was rejected before it ran, and return the error. Raises RecorderUnavailable."""
    status = refusal.http_status(modern=era is Era.MODERN)
    end = End(Outcome.REJECTED, http_status=status, rpc_error=refusal.code, cause=refusal.message)
    await recorder.current().recording(_record_builder(invocation, tool).finished(end))
    return refusal


def _record_builder(invocation: Invocation, tool: CompiledTool | None) -> CallRecordBuilder:
    """Return the record builder of a call that does not run."""
    if tool is None:
        return new_record_builder(invocation)
    return new_record_builder(invocation, tool.id, tool.revision, background=tool.background)


def _arguments_too_large(builder: CallRecordBuilder) -> RpcError:
    most, size = config.MCPHUB_MAX_ARGUMENT_BYTES, builder.arguments_size
    message = f"The arguments are larger than the limit of {most} bytes (MCPHUB_MAX_ARGUMENT_BYTES)."
    return RpcError(INVALID_PARAMS, message, {"what": "argument bytes", "limit": most, "received": size})


def _unknown_tool(name: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Unknown tool: '{name}'", {"tool": name})


def _unreadable(attachments: Attachments, invocation: Invocation) -> list[FieldProblem]:
    """Return the arguments that name resources which the caller may not read."""
    principal = invocation.principal
    may_read = principal.permits_method("resources/read")
    return [
        FieldProblem(argument, NO_SUCH, uri)
        for argument, uri in attachments.uris(invocation.arguments)
        if not (may_read and principal.permits_name(uri))
    ]


async def _bad_arguments(
    invocation: Invocation, tool: CompiledTool, era: Era, problems: list[FieldProblem]
) -> CallOutcome:
    """Return or raise invalid arguments, as the client's revision requires (tools, §Error Handling)."""
    message = _argument_error(tool.name, problems)
    if not reports_bad_arguments_in_result(invocation.version):
        data = {"tool": tool.name, "errors": [problem.as_json() for problem in problems]}
        raise await refuse(invocation, era, RpcError(INVALID_PARAMS, message, data), tool)
    refused = outcome_of(Outcome.REJECTED, failed(message, "the arguments do not fit the schema"))
    await recorder.current().recording(_record_builder(invocation, tool).finished(refused))
    return refused


def _argument_error(tool_name: str, problems: list[FieldProblem]) -> str:
    lines = [f"Invalid arguments for '{tool_name}':", *(_line(problem) for problem in problems)]
    return "\n".join(lines)


def _line(problem: FieldProblem) -> str:
    return f"- {problem.field}: {problem.message}" if problem.field else f"- {problem.message}"


log = logging.getLogger(__name__)


# How long a read-only call runs before its intent is written: most calls have ended by then.
INTENT_DELAY_SECONDS = 0.02


_settlement_tasks: set[asyncio.Task[None] | None] = set()


class InlineCall(LocalCall):
    """A call that runs on this event loop. `can_resume`: whether its client can reconnect for the answer.

    `respond_early` responds to the client while the function still runs: one that ignores its cancellation keeps this
    task.

    It has no reference cycles: memory that only the garbage collector can free is cold for the next call, which was
    measured at a tenth of the whole path.
    """

    def __init__(
        self,
        invocation: Invocation,
        tool: Runnable,
        builder: CallRecordBuilder,
        send_event: SendEvent,
        can_resume: Callable[[], bool],
        *,
        respond_early: Callable[[CallOutcome], None],
    ) -> None:
        session = invocation.session
        super().__init__(
            invocation.call_id, session.id if session else None, invocation.request_id, tool.timeout_seconds
        )
        self._invocation = invocation
        self._tool = tool
        self._builder = builder
        self._send_event = send_event
        self._can_resume = can_resume
        self._respond_early = respond_early
        self._recorder = recorder.current()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._intent_lock = threading.Lock()
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._durable: dict[int, Event | None] = {}
        self._sent = 0
        self._ended = False

    async def run(self) -> CallOutcome:
        """Run the tool and record the outcome, durable on return. Raises RecorderUnavailable."""
        run.running_calls[self.id] = self
        set_log_context(self._invocation)
        try:
            return await self._recorded(await self._run())
        except asyncio.CancelledError as cancellation:
            reason = stop_reasons.reason_of(cancellation)
            self.stop(Outcome.CANCELLED, reason)
            if not self._ended:
                end = End(Outcome.CANCELLED, http_status=None, cause=reason.cause)
                self._recorder.submit(self._builder.finished(end))
            raise
        finally:
            del run.running_calls[self.id]
            if self._builder.arguments_size >= fair_scheduler.LARGE_BYTES:
                release_arguments()

    async def _run(self) -> CallOutcome:
        if not self._tool.read_only:
            await self._write_intent()
        caller = self._invocation.caller()
        context = ToolContext(self.id, caller, self._emit, self.cancelled, self._conversation, loop=self._loop)
        self._task = asyncio.current_task(self._loop)
        self._builder.note_start()
        try:
            execute = run_tool if tracing.active is None else traced.run
            return await execute(self._tool, self._invocation.arguments, context, self, self._schedule_intent)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _write_intent(self) -> None:
        """Wait for the intent to be durable. Raises RecorderUnavailable."""
        durable = self._recorder.recording(self._intent(), self._loop)
        try:
            await durable
        except RecorderUnavailable:
            uncertain.not_started.note(self.id)
            raise

    async def _recorded(self, finished: CallOutcome) -> CallOutcome:
        self._task = None
        if finished.outcome is Outcome.CANCELLED and self.stopped_as is not None and self.reason is None:
            finished = stopped(self._tool.method, Outcome.CANCELLED, await self._noted_reason())
        self._ended = True  # a later disconnect no longer changes the record
        topic, answer = "", None
        # A client that was sent an event can resume, and may have to: the event may have been lost on the way.
        if self._can_resume() or (self._builder.event_count and self._invocation.session is not None):
            topic, answer = call_topic(self.id), finished.serialize()
        try:
            recording = self._recorder.recording(self._builder.finished(finished, topic, answer=answer), self._loop)
            settled = await (recording if tracing.active is None else traced.traced_recording(recording))
        except RecorderUnavailable as problem:
            uncertain.may_have_run.note(self.id)
            raise RpcError(INTERNAL_ERROR, UNRECORDED, retry_after=1) from problem
        if self.has_asked or self.stopped_as is Outcome.CANCELLED:
            # Remaining rows are deleted later; the client does not wait for an unavailable database.
            with suppress(Error):
                await run_in_db_thread(inputs.forget, self.id)
        return finished if settled else await self._settled_elsewhere()

    async def _noted_reason(self) -> StopReason:
        try:
            return await run_in_db_thread(inputs.reason_of, self.id)
        except Error:
            return stop_reasons.UNKNOWN

    async def _settled_elsewhere(self) -> CallOutcome:
        """Return the recorded outcome of a call that another process settled, for its client. Raises RpcError."""
        try:
            recorded, answer = await run_in_db_thread(store.recorded_outcome, self.id)
        except Error as problem:
            raise RpcError(INTERNAL_ERROR, UNRECORDED, retry_after=1) from problem
        outcome = Outcome(recorded or Outcome.LOST)
        return unanswered(outcome, self._invocation.name) if answer is None else deserialize(outcome, answer)

    def _conversation(self) -> Conversation:
        """Return the function's way to request input, which depends on the client's era."""
        if self._invocation.session is None:
            return Rounds(self._invocation.round)
        return OnStream(self._emit, self.answer)

    def _intent(self) -> CallStarted:
        return self._builder.started(CallStatus.RUNNING, self._tool.timeout_seconds)

    def _ensure_intent(self) -> None:
        """Write the intent if it is not written yet. Raises RecorderUnavailable."""
        with self._intent_lock:
            if not self._builder.is_started:
                self._recorder.submit(self._intent())

    def _schedule_intent(self) -> None:
        self._timer = self._loop.call_later(INTENT_DELAY_SECONDS, self._write_late_intent)

    def _write_late_intent(self) -> None:
        """Write the intent of a call that still runs. If that fails, the call is rejected at its end."""
        fair_scheduler.release_slot()
        with suppress(RecorderUnavailable):
            self._ensure_intent()

    def _emit(self, kind: str, data: dict[str, Any]) -> None:
        """Record an event, then send it. A tool in a thread waits for durability, so it cannot run ahead."""
        self._ensure_intent()
        data = event_data(kind, data, self._invocation.progress_token, self._builder)
        entry = self._builder.event(kind, data)
        event = Event(entry.row.sequence, kind, data)
        if threading.get_ident() == self._thread:
            self._record_on_loop(entry, event)
        else:
            self._record_from_thread(entry, event)

    def _record_on_loop(self, entry: CallEventEntry, event: Event) -> None:
        def on_durable(durable: asyncio.Future[bool]) -> None:
            self._send_in_order(event.sequence, event if durable.exception() is None else None)

        try:
            self._recorder.recording(entry, self._loop).add_done_callback(on_durable)
        except RecorderUnavailable:
            self._send_in_order(event.sequence, None)
            raise

    def _record_from_thread(self, entry: CallEventEntry, event: Event) -> None:
        durable: Event | None = None
        try:
            self._recorder.record(entry)
            durable = event
        finally:
            self._loop.call_soon_threadsafe(self._send_in_order, event.sequence, durable)

    def _send_in_order(self, sequence: int, event: Event | None) -> None:
        """Send durable events in sequence, whichever thread emitted them; None stands for a lost event."""
        self._durable[sequence] = event
        while self._sent + 1 in self._durable:
            self._sent += 1
            durable = self._durable.pop(self._sent)
            if durable is not None:
                self._send_event(durable)

    @property
    def has_row(self) -> bool:
        """Whether the call has a row, until it is settled."""
        return self._builder.is_started and not self._ended

    def settled_elsewhere(self) -> None:
        """Send the recorded outcome while the function still runs."""
        self._loop.call_soon_threadsafe(
            lambda: _settlement_tasks.add(self._loop.create_task(self._send_settled_outcome()))
        )

    async def _send_settled_outcome(self) -> None:
        try:
            finished = await self._settled_elsewhere()
            if not self._ended:
                self._ended = True
                self._respond_early(finished)
        except RpcError:
            log.warning("The database is unavailable; call %s will be answered later", self.id)  # at the next sweep
        finally:
            _settlement_tasks.discard(asyncio.current_task())

    def interrupt(self) -> None:
        """Cancel what the call awaits."""
        self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
