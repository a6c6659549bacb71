"""The context of a running function: progress, log messages, questions to the client, and cancellation.

Progress that comes too fast is dropped, except for the last value: it is sent when its interval ends, or when the call
ends.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from threading import Event, Lock
from time import monotonic
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.catalog.tool_api.elicitation import (
    Conversation,
    Elicit,
    Elicited,
    ElicitUrl,
    ListRoots,
    Question,
    Sample,
    Unanswered,
    declares,
    for_version,
)
from tools_app.catalog.tool_api.results import CallCancelled, InputRequired, ToolError
from tools_app.core.ids import new_id
from tools_app.protocol.versions import LOG_LEVELS

Data = dict[str, Any]
# Progress notifications of one call in a second.
MAX_PROGRESS_PER_SECOND: Final = 100


class ProgressThrottle:
    """The progress throttle of one call. Safe to use from any thread.

    `later` schedules a function after a number of seconds, in a thread that must not block.
    """

    def __init__(self, emit: Callable[[Data], None], later: Callable[[float, Callable[[], None]], None]) -> None:
        self._emit = emit
        self._later = later
        self._max_per_second = MAX_PROGRESS_PER_SECOND
        self._lock = Lock()
        # Values are sent one at a time, in increasing order. The lock is never held for long.
        self._sending = Lock()
        self._last: float | None = None
        self._second = 0.0
        self._count = 0
        self._pending: Data | None = None
        self._is_scheduled = False
        self._closed = False

    def send(self, value: float, data: Data) -> None:
        """Send `data`, or hold it back for now; dropped if `value` does not exceed the previous one."""
        with self._lock:
            if self._closed or (self._last is not None and value <= self._last):
                return
            self._last, self._pending = value, data
            if not self._may_send():
                self._schedule()
                return
        self._send_newest()

    def close(self) -> None:
        """Send the value that was held back, and no more: the function has ended."""
        with self._lock:
            self._closed = True
        with suppress(RecorderUnavailable):
            self._send_newest()

    def _send_later(self) -> None:
        with self._lock:
            self._is_scheduled = False
            if self._closed or self._pending is None:
                return
            self._may_send()
        with suppress(RecorderUnavailable):
            self._send_newest()

    def _send_newest(self) -> None:
        if not self._sending.acquire(blocking=False):
            with self._lock:
                self._schedule()
            return
        try:
            with self._lock:
                data, self._pending = self._pending, None
            if data is not None:
                self._emit(data)
        finally:
            self._sending.release()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._later(max(0.0, self._second + 1.0 - monotonic()), self._send_later)

    def _may_send(self) -> bool:
        now = monotonic()
        if now - self._second >= 1.0:
            self._second, self._count = now, 0
        self._count += 1
        return bool(self._count <= self._max_per_second)


Emit = Callable[[str, dict[str, Any]], None]
T = TypeVar("T")

# The maximum number of questions of one call, which stops loops of a model that requests tools (sampling, §Security).
MAX_QUESTIONS: Final = 100
# Kinds of events: the call becomes a task; a page is done with.
TASK_EVENT: Final = "task"
PAGE_EVENT: Final = "page"
CAPABILITY_AREAS: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class CapabilityMissing(Exception):
    """A function used a client feature that the client does not support. `path` is the required capability."""

    def __init__(self, path: str) -> None:
        super().__init__(f"This tool requires a client that supports {path}.")
        self.path = path


class Cancellation:
    """A cancellation flag that any thread can read and wait for. Cheap unless a thread waits."""

    _is_set = False
    _event: Event | None = None

    def is_set(self) -> bool:
        """Whether the call was cancelled."""
        return self._is_set

    def set(self) -> None:
        """Cancel, and wake all waiters."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the cancellation; returns whether it happened."""
        self._event = self._event or Event()
        # Read after the event exists: an earlier `set` did not see the event.
        return self._is_set or self._event.wait(seconds)


class Caller(msgspec.Struct, frozen=True):
    """The caller, as far as a tool may know it. `capabilities` are those that its client declares.

    `person_id` is the primary key of the user for whom the client acts; None for a key that acts for no person.
    `key_id` is that of the API key, None without one, and `session_id` that of a session of the handshake era.
    """

    tenant_id: UUID
    tenant_slug: str
    remote_address: str
    client_name: str
    client_version: str
    protocol_version: str
    capabilities: Mapping[str, Any]
    person_id: int | None = None
    key_id: UUID | None = None
    session_id: UUID | None = None


class ToolContext:
    """The context passed to a function through a parameter annotated with `ToolContext`.

    Safe to use from any thread. Questions are awaited; a function that is not `async` uses `wait_for`.
    """

    def __init__(
        self,
        call_id: UUID,
        caller: Caller,
        emit: Emit,
        cancelled: Cancellation,
        converse: Callable[[], Conversation],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.call_id = call_id
        self.caller = caller
        self._emit = emit
        self._cancelled = cancelled
        self._converse = converse
        self._conversing: Conversation | None = None
        # The event loop that runs the questions of a synchronous function.
        self._loop = loop
        self._progress: ProgressThrottle | None = None
        self._question_counts: dict[str, int] = {}
        self._questions = 0
        self._waiting: set[asyncio.Task[Any]] = set()

    @property
    def protocol_version(self) -> str:
        """The protocol revision of the client."""
        return self.caller.protocol_version

    @property
    def state(self) -> dict[str, Any]:
        """JSON state that the function receives when it is run again with answers."""
        return self._conversation.state

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled; a tool that sees this should stop."""
        return self._cancelled.is_set()

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is over or the call is cancelled. Raises CallCancelled.

        It blocks the thread, so it is for synchronous tools; an `async` tool awaits `asyncio.sleep`.
        """
        if self._cancelled.wait(seconds):
            raise CallCancelled

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the client (progress, §Progress Flow); recorded before it is sent.

        A value that does not exceed the previous one is dropped, as the specification requires. Values that come too
        fast are dropped as well, except for the last of them. Raises CallCancelled when the call was cancelled, so that
        a tool that reports progress stops.
        """
        self._stop_if_cancelled()
        data: dict[str, Any] = {"progress": done}
        if total is not None:
            data["total"] = total
        if message is not None:
            data["message"] = message
        self._progress = self._progress or ProgressThrottle(partial(self._emit, "progress"), self._later)
        self._progress.send(done, data)

    def close(self) -> None:
        """Send the progress value that was held back, and no more: the function has ended."""
        if self._progress is not None:
            self._progress.close()

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to the client (logging, §Log Message Notifications); recorded before it is sent.

        The client receives it if its level admits `level`, one of those of RFC 5424. Raises ValueError for an unknown
        level, and CallCancelled.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is not a log level. Use one of {', '.join(LOG_LEVELS)}.")
        self._stop_if_cancelled()
        named = {"logger": logger} if logger else {}
        self._emit("log", {"level": level, **named, "data": data})

    def begin_task(self) -> None:
        """Let the call become a task at once, if its client supports that and the call can be one."""
        self._emit(TASK_EVENT, {})

    def complete_page(self, id: str) -> None:
        """Tell the client that a page is done with (2025-11-25, elicitation, §Completion Notifications)."""
        self._emit(PAGE_EVENT, {"elicitationId": id})

    def close_stream(self) -> None:
        """End the call's stream for now; a client of the handshake era reconnects for the rest (SEP-1699)."""
        self._emit("pause", {})

    def supports(self, capability: str) -> bool:
        """Whether the client declared "elicitation", "elicitation.url", "sampling" or "roots"."""
        return declares(self.caller.capabilities, capability)

    async def elicit(self, message: str, schema: Mapping[str, Any], *, key: str | None = None) -> Elicited:
        """Ask the user to fill in a form (elicitation, §Form Mode). Raises the exceptions of `ask`."""
        elicited: Elicited = await self._ask_one(Elicit(message, dict(schema)), key)
        return elicited

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Elicited:
        """Ask the user to visit a URL (elicitation, §URL Mode). Raises the exceptions of `ask`."""
        elicited: Elicited = await self._ask_one(ElicitUrl(message, url), key)
        return elicited

    async def sample(
        self, messages: list[dict[str, Any]], max_tokens: int, *, key: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Request a message of the client's model (sampling, §Creating Messages). Raises the exceptions of `ask`."""
        message: dict[str, Any] = await self._ask_one(Sample(messages, max_tokens, options), key)
        return message

    async def list_roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """Return the roots of the client's workspace (roots, §Listing Roots). Raises the exceptions of `ask`."""
        roots: list[dict[str, Any]] = await self._ask_one(ListRoots(), key)
        return roots

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask the client several questions at once; returns the answers by question name.

        In the modern era the function is run again from the start when the client sends the answers, so the code before
        a question must be safe to repeat. Raises CapabilityMissing if the client lacks a capability, and ToolError for
        more than MAX_QUESTIONS questions.
        """
        self._stop_if_cancelled()
        self._questions += len(questions)
        if self._questions > MAX_QUESTIONS:
            raise ToolError(f"A call can ask at most {MAX_QUESTIONS} questions.")
        for question in questions.values():
            if not self.supports(question.capability):
                raise CapabilityMissing(question.capability)
        return await self._conversation.ask(
            {
                name: for_version(question, str(new_id()), self.protocol_version, self.caller.capabilities)
                for name, question in questions.items()
            }
        )

    def forget_answers(self, names: Iterable[str]) -> None:
        """Drop the answers to these questions, which the function needs no more.

        In the modern era, each round of questions carries the earlier answers there and back, so they grow.
        """
        self._conversation.forget(names)

    def wait_for(self, answer: Coroutine[Any, Any, T]) -> T:
        """Await a question in a function that is not `async`: `context.wait_for(context.elicit(...))`.

        Raises CallCancelled if the call is cancelled meanwhile.
        """
        assert self._loop is not None, "only a function that runs as a tool, a resource or a prompt can ask"
        try:
            return asyncio.run_coroutine_threadsafe(self._awaited(answer), self._loop).result()
        except concurrent.futures.CancelledError:
            raise CallCancelled from None

    async def give_up(self) -> None:
        """Cancel pending `wait_for` calls: the call has ended, and its questions are withdrawn."""
        for task in (waiting := list(self._waiting)):
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)

    async def _awaited(self, answer: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await answer
        finally:
            self._waiting.discard(task)

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, work)

    def unfinished(self, unanswered: "Unanswered") -> InputRequired:
        """Return the outcome of a run that must be repeated with answers."""
        return self._conversation.unfinished(unanswered)

    @property
    def _conversation(self) -> Conversation:
        """Created on first use: most functions ask nothing."""
        if self._conversing is None:
            self._conversing = self._converse()
        return self._conversing

    def _stop_if_cancelled(self) -> None:
        if self.cancelled:
            raise CallCancelled

    async def _ask_one(self, question: Question, key: str | None) -> Any:
        name = key or self._next_name(CAPABILITY_AREAS[question.method])
        return (await self.ask({name: question}))[name]

    def _next_name(self, area: str) -> str:
        number = self._question_counts[area] = self._question_counts.get(area, 0) + 1
        return f"{area}-{number}"
