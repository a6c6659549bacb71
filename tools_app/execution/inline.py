"""Calls that run in the web process.

A tool that may change something starts only when its intent is durable. One that says it is read-only starts at
once; its intent follows when it outlives a moment or says something, and a quick one is one record only.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tools_app.audit import recorder
from tools_app.audit.entries import Beginning, Ending, Saying
from tools_app.audit.recorder import RecorderGone
from tools_app.auth import vault
from tools_app.events.store import Event, answer_purpose
from tools_app.execution import inputs, local, logged, traced, turnstile
from tools_app.execution.context import ToolContext
from tools_app.execution.conversation import Conversation, OnStream, Rounds
from tools_app.execution.invocation import End, Invocation, Ledger, as_said, call_topic
from tools_app.execution.local import LocalCall
from tools_app.execution.results import failed
from tools_app.execution.run import Ran, Runnable, ran, run_tool
from tools_app.models import CallStatus, Outcome
from tools_app.models.bridge import in_store
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError
from tools_app.telemetry import tracing

Say = Callable[[Event], None]

# How long a read-only call may run before its intent is written: a quick call is over by then.
MOMENT_SECONDS = 0.02
UNRECORDED = "The hub could not record how the call ended. It may have run."
ABANDONED = "the client closed the request"


class InlineCall(LocalCall):
    """One call that runs on this event loop. `may_return`: whether its client may come back for the answer.

    It refers to nothing that refers back to it: a call that only the garbage collector can free leaves its memory
    cold for the next one, which was measured at a tenth of the whole path.
    """

    def __init__(
        self, invocation: Invocation, tool: Runnable, ledger: Ledger, say: Say, may_return: Callable[[], bool]
    ) -> None:
        session = invocation.session
        super().__init__(
            invocation.call_id, session.id if session else None, invocation.request_id, tool.timeout_seconds
        )
        self._invocation = invocation
        self._tool = tool
        self._ledger = ledger
        self._say = say
        self._may_return = may_return
        self._recorder = recorder.current()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._beginning_once = threading.Lock()
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._durable: dict[int, Event | None] = {}
        self._said = 0
        self._ended = False

    async def run(self) -> Ran:
        """Run the tool and record how it ended: when this returns, the record is durable. Raises RecorderGone."""
        local.add(self)
        logged.speak_of(self._invocation)
        try:
            return await self._recorded(await self._run())
        except asyncio.CancelledError as cancellation:
            self.stop(Outcome.CANCELLED)
            if not self._ended:
                cause = next(filter(None, cancellation.args), ABANDONED)
                self._recorder.submit(self._ledger.ending(End(Outcome.CANCELLED, http_status=None, cause=cause)))
            raise
        finally:
            local.remove(self)

    async def _run(self) -> Ran:
        if not self._tool.read_only:
            await self._recorder.recording(self._beginning(), self._loop)
        context = ToolContext(self.id, self._invocation.caller(), self._emit, self.cancelled, self._converse)
        context.belongs_to(self._loop)
        self._task = asyncio.current_task(self._loop)
        self._ledger.runs()
        try:
            run = run_tool if tracing.active is None else traced.run
            return await run(self._tool, self._invocation.arguments, context, self, self._begin_in_a_moment)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _recorded(self, finished: Ran) -> Ran:
        self._task = None
        if self.stopped_as is Outcome.CANCELLED and not self.reason:
            finished = finished.because(await in_store(inputs.reason_of, self.id))
        self._ended = True  # whoever leaves from here on cannot change the record any more
        try:
            recording = self._recorder.recording(self._ending(finished), self._loop)
            settled = await (recording if tracing.active is None else traced.recorded(recording))
        except RecorderGone as problem:
            raise RpcError(INTERNAL_ERROR, UNRECORDED, retry_after=1) from problem
        if self.asked or self.stopped_as is Outcome.CANCELLED:
            await in_store(inputs.forget, self.id)
        if settled:
            return finished
        return ran(Outcome.LOST, failed("The call was settled by another process."))

    def _ending(self, finished: Ran) -> Ending:
        end = finished.end()
        # Who heard anything knows where to come back, and may have to: what was said is on its way or was lost.
        if self._may_return() or (self._ledger.said and self._invocation.session is not None):
            end = end.with_answer(vault.seal(finished.kept(), answer_purpose(self.id)))
            return self._ledger.ending(end, call_topic(self.id))
        return self._ledger.ending(end)

    def _converse(self) -> Conversation:
        """How the function asks: by its client's era."""
        if self._invocation.session is None:
            return Rounds(self._invocation.round.answers, self._invocation.round.state)
        return OnStream(self._emit, self.answer)

    def _beginning(self) -> Beginning:
        return self._ledger.beginning(CallStatus.RUNNING, self._tool.timeout_seconds)

    def _begin(self) -> None:
        """Write the intent now, if it has not been. Raises RecorderGone."""
        with self._beginning_once:
            if not self._ledger.begun:
                self._recorder.submit(self._beginning())

    def _begin_in_a_moment(self) -> None:
        self._timer = self._loop.call_later(MOMENT_SECONDS, self._begin_in_time)

    def _begin_in_time(self) -> None:
        """Write the intent of a call whose moment is over: what cannot be recorded now is refused at its end."""
        turnstile.step_aside()
        with suppress(RecorderGone):
            self._begin()

    def _emit(self, kind: str, data: dict[str, Any]) -> None:
        """Record an event, then send it. A tool in a thread waits until its event is durable: it cannot run ahead."""
        self._begin()
        data = as_said(kind, data, self._invocation.progress_token, self._ledger)
        saying = self._ledger.saying(kind, data)
        event = Event(saying.said.sequence, kind, data)
        if threading.get_ident() == self._thread:
            self._record_here(saying, event)
        else:
            self._record_there(saying, event)

    def _record_here(self, saying: Saying, event: Event) -> None:
        def heard(durable: asyncio.Future[bool]) -> None:
            self._say_in_order(event.sequence, event if durable.exception() is None else None)

        try:
            self._recorder.recording(saying, self._loop).add_done_callback(heard)
        except RecorderGone:
            self._say_in_order(event.sequence, None)
            raise

    def _record_there(self, saying: Saying, event: Event) -> None:
        heard: Event | None = None
        try:
            self._recorder.record(saying)
            heard = event
        finally:
            self._loop.call_soon_threadsafe(self._say_in_order, event.sequence, heard)

    def _say_in_order(self, sequence: int, event: Event | None) -> None:
        """Send what is durable in the order of its numbers, whichever thread said it; None is for what was lost."""
        self._durable[sequence] = event
        while self._said + 1 in self._durable:
            self._said += 1
            heard = self._durable.pop(self._said)
            if heard is not None:
                self._say(heard)

    def interrupt(self) -> None:
        """Cancel what the call awaits."""
        self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
