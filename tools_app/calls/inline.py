"""A call that runs on the event loop of a web process: its events, its questions, and its end in another process.

A tool that may have side effects starts only when its intent is durable. A read-only tool starts immediately; its
intent is written when it emits an event or runs longer than INTENT_DELAY_SECONDS, so a quick call is one record.
"""

import asyncio
import logging
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import Error

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.recorder import RECORD_SECONDS, Recorder, RecorderUnavailable
from tools_app.calls import events, uncertain
from tools_app.calls import tracing as spans
from tools_app.calls.conversation import OnStream, Rounds
from tools_app.calls.events import Event, SendEvent
from tools_app.calls.invocation import CallRecordBuilder, Invocation, event_data
from tools_app.calls.outcomes import UNRECORDED, CallOutcome, deserialize, unanswered
from tools_app.calls.request import Cancelled, RequestContext, result_of
from tools_app.calls.run import LocalCall, Runnable, run_tool
from tools_app.catalog.tool_api.context import Caller, ToolContext
from tools_app.catalog.tool_api.elicitation import Conversation
from tools_app.core import fair_scheduler, large_work
from tools_app.core.database import run_in_db_thread
from tools_app.core.telemetry import tracing
from tools_app.models import CallStatus, Outcome
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError
from tools_app.protocol.jsonrpc import error_message, result_message

log = logging.getLogger(__name__)

# How long a read-only call runs before its intent is written: most calls have ended by then.
INTENT_DELAY_SECONDS = 0.02

_settlement_tasks: set[asyncio.Task[None] | None] = set()


@dataclass(eq=False, kw_only=True)
class InlineCall(LocalCall):
    """A call that runs on this event loop. `is_recorded`: its end has been given to the recorder.

    It has no reference cycles: memory that only the garbage collector can free is cold for the next call, which was
    measured at a tenth of the whole path.
    """

    context: RequestContext
    invocation: Invocation
    tool: Runnable
    builder: CallRecordBuilder
    send_event: SendEvent
    recorder: Recorder
    is_recorded: bool = False
    _intent_timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _thread: int = field(default_factory=threading.get_ident, init=False)
    # Durable events that wait for an earlier one, which may come from another thread; None for a lost event.
    _durable: dict[int, Event | None] = field(default_factory=dict, init=False)
    _sent: int = field(default=0, init=False)

    async def write_intent(self) -> None:
        """Record the intent, and wait until it is durable. Raises RecorderUnavailable."""
        durable = self.recorder.recording(
            self.builder.started(CallStatus.RUNNING, self.tool.timeout_seconds), self.loop
        )
        try:
            await durable
        except RecorderUnavailable:
            uncertain.not_started.note(self.id)
            raise

    async def run(self) -> CallOutcome:
        """Run the function. Raises only CancelledError, and only if the call was not stopped explicitly."""
        principal, client, session = self.invocation.principal, self.invocation.client, self.invocation.session
        caller = Caller(
            tenant_id=principal.tenant_id,
            tenant_slug=principal.tenant_slug,
            remote_address=client.remote_address,
            client_name=client.name,
            client_version=client.version,
            protocol_version=self.invocation.version,
            capabilities=self.invocation.capabilities,
            person_id=principal.person_id,
            key_id=principal.key_id,
            session_id=session.id if session else None,
        )
        context = ToolContext(self.id, caller, self._emit, self.cancelled, self._conversation, loop=self.loop)
        self.task = asyncio.current_task(self.loop)
        try:
            execute = run_tool if tracing.active is None else spans.run
            return await execute(self.tool, self.invocation.arguments, context, self, self._intend_later)
        finally:
            if self._intent_timer is not None:
                self._intent_timer.cancel()

    def _intend_later(self) -> None:
        self._intent_timer = self.loop.call_later(INTENT_DELAY_SECONDS, self._write_late_intent)

    def _write_late_intent(self) -> None:
        fair_scheduler.release_slot()
        # If that fails, the call is rejected at its end.
        with suppress(RecorderUnavailable):
            self._ensure_intent()

    def _ensure_intent(self) -> None:
        """Record the intent if it is not recorded yet. Raises RecorderUnavailable."""
        with self.builder.record_order:
            if not self.builder.is_started:
                self.recorder.submit(self.builder.started(CallStatus.RUNNING, self.tool.timeout_seconds))

    def _emit(self, kind: str, data: dict[str, Any]) -> None:
        """Record an event of the function, then send it, in the order of all events. Raises RecorderUnavailable.

        A function in a thread waits until it is durable, so that it cannot run ahead.
        """
        self._ensure_intent()
        data = event_data(kind, data, self.invocation.progress_token, self.builder)
        with self.builder.record_order:
            entry = self.builder.event(kind, data)
            event = Event(entry.row.sequence, kind, data)
            if threading.get_ident() == self._thread:
                try:
                    durable = self.recorder.recording(entry, self.loop)
                except RecorderUnavailable:
                    self._send_in_order(event, is_durable=False)
                    raise
                durable.add_done_callback(
                    lambda durable: self._send_in_order(event, is_durable=durable.exception() is None)
                )
                return
            recording = self.recorder.recording_in_thread(entry)
        is_durable = False
        try:
            recorder.wait_for(recording, RECORD_SECONDS)
            is_durable = True
        finally:
            self.loop.call_soon_threadsafe(partial(self._send_in_order, event, is_durable=is_durable))

    def _send_in_order(self, event: Event, *, is_durable: bool) -> None:
        self._durable[event.sequence] = event if is_durable else None
        while self._sent + 1 in self._durable:
            self._sent += 1
            durable = self._durable.pop(self._sent)
            if durable is not None:
                self.send_event(durable)

    def _conversation(self) -> Conversation:
        """Return the function's way to request input, which depends on the client's era."""
        if self.invocation.session is None:
            return Rounds(self.invocation.round)
        return OnStream(self._emit, self.answer)

    @property
    def has_row(self) -> bool:
        """Whether the call has a row, until it is settled."""
        return self.builder.is_started and not self.is_recorded

    def settled_elsewhere(self) -> None:
        """Reply with the outcome that another process recorded, while the function still runs.

        A function that ignores its cancellation keeps the task of its request.
        """
        self.loop.call_soon_threadsafe(lambda: _settlement_tasks.add(self.loop.create_task(self._reply_early())))

    async def _reply_early(self) -> None:
        id, sender = self.context.request.id, self.context.sender
        try:
            outcome = await recorded_elsewhere(self.invocation)
            # Without one, it was not settled: its intent still waits for its commit.
            if outcome is None or self.is_recorded:
                return
            self.is_recorded = True
            try:
                result = await large_work.run(len(outcome.wire), partial(result_of, outcome, self.context))
                sender.respond_early(result_message(id, result))
            except Cancelled:
                sender.respond_early(None)
            except RpcError as refusal:
                sender.respond_early(error_message(id, refusal))
        except RpcError:
            log.warning("The database is unavailable; call %s will be answered later", self.id)  # at the next sweep
        finally:
            _settlement_tasks.discard(asyncio.current_task())


async def recorded_elsewhere(invocation: Invocation) -> CallOutcome | None:
    """Return the outcome that another process recorded of a call; None without one. Raises RpcError."""
    try:
        recorded, answer = await run_in_db_thread(events.recorded_outcome, invocation.call_id)
    except Error as problem:
        raise RpcError(INTERNAL_ERROR, UNRECORDED, retry_after=1) from problem
    if recorded is None:
        return None
    outcome = Outcome(recorded)
    if answer is None:
        return unanswered(outcome, invocation.name)
    return await large_work.run(len(answer), partial(deserialize, outcome, answer))
