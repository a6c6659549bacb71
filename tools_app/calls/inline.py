"""Calls that run on the event loop of a web process.

A tool that may have side effects starts only when its intent is durable. A read-only tool starts immediately; its
intent is written when it emits an event or runs longer than INTENT_DELAY_SECONDS, so a quick call is one record.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from django.db import Error

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.entries import CallEventEntry, CallFinished, CallStarted
from tools_app.audit.recorder.recorder import RECORD_SECONDS, RecorderUnavailable
from tools_app.calls import events as store
from tools_app.calls import inputs, run, stop_reasons, uncertain
from tools_app.calls import tracing as traced
from tools_app.calls.conversation import OnStream, Rounds
from tools_app.calls.deadline import DeadlineExceeded
from tools_app.calls.events import Event, SendEvent
from tools_app.calls.invocation import CallRecordBuilder, End, Invocation, call_topic, event_data, set_log_context
from tools_app.calls.recorded_answers import deserialize, unanswered
from tools_app.calls.run import UNRECORDED, CallOutcome, LocalCall, Runnable, run_tool, stopped, timed_out
from tools_app.calls.stop_reasons import StopReason
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.elicitation import Conversation
from tools_app.core import fair_scheduler, large_work
from tools_app.core.database import run_in_db_thread
from tools_app.core.telemetry import tracing
from tools_app.core.telemetry.scrubbing import release_arguments
from tools_app.models import CallStatus, Outcome
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError

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
        respond_early: Callable[[CallOutcome], Awaitable[None]],
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
        self._thread = threading.get_ident()
        self._timer: asyncio.TimerHandle | None = None
        self._durable: dict[int, Event | None] = {}
        self._sent = 0
        self._ended = False

    async def run(self) -> CallOutcome:
        """Run the tool and record the outcome, durable on return. Raises RecorderUnavailable."""
        run.running_calls[self.id] = self
        set_log_context(self._invocation)
        recording: asyncio.Task[CallOutcome] | None = None
        try:
            finished = await self._run()
            if len(finished.whole or finished.wire) <= fair_scheduler.LARGE_BYTES:
                return await self._recorded(finished)
            # The record of a large result takes a while. A client that leaves meanwhile does not change it.
            recording = asyncio.create_task(self._recorded(finished))
            return await asyncio.shield(recording)
        except asyncio.CancelledError as cancellation:
            self.note_end()
            reason = stop_reasons.reason_of(cancellation)
            self.stop(Outcome.CANCELLED, reason)
            if not self._ended and recording is None:
                end = End(Outcome.CANCELLED, http_status=None, cause=reason.cause)
                self._recorder.submit(self._builder.finished(end))
            raise
        finally:
            if recording is None or recording.done():
                del run.running_calls[self.id]
            else:
                recording.add_done_callback(lambda _: run.running_calls.pop(self.id))
            if self._builder.arguments_size >= fair_scheduler.LARGE_BYTES:
                release_arguments()

    async def _run(self) -> CallOutcome:
        if not self._tool.read_only:
            await self._write_intent()
            if self.stopped_as is not None:
                # There was no function to cancel when it was stopped, and stopping again has no effect.
                return stopped(self._tool.method, self.stopped_as, self.reason or stop_reasons.UNKNOWN)
        caller = self._invocation.caller()
        context = ToolContext(self.id, caller, self._emit, self.cancelled, self._conversation, loop=self._loop)
        self._task = asyncio.current_task(self._loop)  # as `note_start` does
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
        self._task = None  # as `note_end` does
        if finished.outcome is Outcome.CANCELLED and self.stopped_as is not None and self.reason is None:
            finished = stopped(self._tool.method, Outcome.CANCELLED, await self._noted_reason())
        topic, answer = "", None
        # A client that was sent an event can resume, and may have to: the event may have been lost on the way.
        if self._can_resume() or (self._builder.event_count and self._invocation.session is not None):
            topic, answer = call_topic(self.id), finished.serialize()
        if len(finished.whole or finished.wire) <= fair_scheduler.LARGE_BYTES:
            entry = self._builder.finished(finished, topic, answer=answer)
        else:
            finished, entry = await self._large_entry(finished, topic, answer)
        self._ended = True  # a later disconnect no longer changes the record
        try:
            recording = self._recorder.recording(entry, self._loop)
            settled = await (recording if tracing.active is None else traced.traced_recording(recording))
        except RecorderUnavailable as problem:
            uncertain.may_have_run.note(self.id)
            raise RpcError(INTERNAL_ERROR, UNRECORDED, retry_after=1) from problem
        if self.has_asked or self.stopped_as is Outcome.CANCELLED:
            # Remaining rows are deleted later; the client does not wait for an unavailable database.
            with suppress(Error):
                await run_in_db_thread(inputs.forget, self.id)
        return finished if settled else await self._settled_outcome() or unanswered(Outcome.LOST, self._invocation.name)

    async def _large_entry(
        self, finished: CallOutcome, topic: str, answer: bytes | None
    ) -> tuple[CallOutcome, CallFinished]:
        """Return the outcome with its record, for a large result. It is a timeout if there is no time to redact it."""
        build = partial(self._builder.finished, finished, topic, answer=answer)
        try:
            work = large_work.run(len(finished.whole or finished.wire), build)
            return finished, await self.deadline.keep(work)
        except DeadlineExceeded:
            finished = timed_out(self._tool)
            return finished, self._builder.finished(finished, topic, answer=finished.serialize() if topic else None)

    async def _noted_reason(self) -> StopReason:
        try:
            return await run_in_db_thread(inputs.reason_of, self.id)
        except Error:
            return stop_reasons.UNKNOWN

    async def _settled_outcome(self) -> CallOutcome | None:
        """Return the outcome that another process recorded, for the client; None without one. Raises RpcError."""
        try:
            recorded, answer = await run_in_db_thread(store.recorded_outcome, self.id)
        except Error as problem:
            raise RpcError(INTERNAL_ERROR, UNRECORDED, retry_after=1) from problem
        if recorded is None:
            return None
        outcome = Outcome(recorded)
        if answer is None:
            return unanswered(outcome, self._invocation.name)
        return await large_work.run(len(answer), partial(deserialize, outcome, answer))

    def _conversation(self) -> Conversation:
        """Return the function's way to request input, which depends on the client's era."""
        if self._invocation.session is None:
            return Rounds(self._invocation.round)
        return OnStream(self._emit, self.answer)

    def _intent(self) -> CallStarted:
        return self._builder.started(CallStatus.RUNNING, self._tool.timeout_seconds)

    def _ensure_intent(self) -> None:
        """Write the intent if it is not written yet. Raises RecorderUnavailable."""
        with self._builder.record_order:
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
        if threading.get_ident() == self._thread:
            self._record_on_loop(kind, data)
        else:
            self._record_from_thread(kind, data)

    def _next_event(self, kind: str, data: dict[str, Any]) -> tuple[CallEventEntry, Event]:
        entry = self._builder.event(kind, data)
        return entry, Event(entry.row.sequence, kind, data)

    def _record_on_loop(self, kind: str, data: dict[str, Any]) -> None:
        def on_durable(durable: asyncio.Future[bool]) -> None:
            self._send_in_order(event.sequence, event if durable.exception() is None else None)

        with self._builder.record_order:
            entry, event = self._next_event(kind, data)
            try:
                self._recorder.recording(entry, self._loop).add_done_callback(on_durable)
            except RecorderUnavailable:
                self._send_in_order(event.sequence, None)
                raise

    def _record_from_thread(self, kind: str, data: dict[str, Any]) -> None:
        with self._builder.record_order:
            entry, event = self._next_event(kind, data)
            durable = self._recorder.recording_in_thread(entry)
        recorded: Event | None = None
        try:
            recorder.wait_for(durable, RECORD_SECONDS)
            recorded = event
        finally:
            self._loop.call_soon_threadsafe(self._send_in_order, event.sequence, recorded)

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
            finished = await self._settled_outcome()
            # Without one, it was not settled: its intent still waits for its commit.
            if finished is not None and not self._ended:
                self._ended = True
                await self._respond_early(finished)
        except RpcError:
            log.warning("The database is unavailable; call %s will be answered later", self.id)  # at the next sweep
        finally:
            _settlement_tasks.discard(asyncio.current_task())
