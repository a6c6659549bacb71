"""What a function may do while it runs: say how far it is, ask the client, and learn whether anybody still waits."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import msgspec

from tools_app.execution.pace import Pace
from tools_app.execution.questions import Elicit, Elicited, ElicitUrl, ListRoots, Question, Sample, declares, fitted
from tools_app.execution.results import CallCancelled, InputRequired, ToolError
from tools_app.models.ids import new_id
from tools_app.protocol.versions import LOG_LEVELS

if TYPE_CHECKING:
    from tools_app.execution.conversation import Conversation, Unanswered

Emit = Callable[[str, dict[str, Any]], None]
T = TypeVar("T")

# So many questions may one call ask: a model that wants one tool after the other is stopped (sampling, §Security).
MOST_QUESTIONS: Final = 100
AREAS: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class CapabilityMissing(Exception):
    """A function asked its client for what the client does not do. `path` is what it would have to declare."""

    def __init__(self, path: str) -> None:
        super().__init__(f"This needs a client that supports {path}.")
        self.path = path


class Cancellation:
    """Whether a call was cancelled, to be asked and waited for from any thread. Cheap as long as nobody waits."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: Event | None = None

    def is_set(self) -> bool:
        """Whether the call was cancelled."""
        return self._is_set

    def set(self) -> None:
        """Cancel. Whoever waits wakes."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the cancellation, at most `seconds`: whether it came."""
        self._event = self._event or Event()
        # Looked at after the event stands: a `set` that came before has not seen it.
        return self._is_set or self._event.wait(seconds)


class Caller(msgspec.Struct, frozen=True):
    """Who called, as far as a tool may know. `capabilities` are what its client declares."""

    tenant_id: UUID
    tenant_slug: str
    remote_address: str
    client_name: str
    client_version: str
    protocol_version: str
    capabilities: Mapping[str, Any]


class ToolContext:
    """Handed to a function that asks for it by annotating a parameter with `ToolContext`.

    Safe to use from any thread. Questions are awaited; a function that is not `async` asks by `wait_for`.
    """

    def __init__(
        self,
        call_id: UUID,
        caller: Caller,
        emit: Emit,
        cancelled: Cancellation,
        converse: "Callable[[], Conversation]",
    ) -> None:
        self.call_id = call_id
        self.caller = caller
        self._emit = emit
        self._cancelled = cancelled
        self._converse = converse
        self._conversing: Conversation | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._progress: Pace | None = None
        self._asked: dict[str, int] = {}
        self._questions = 0
        self._waiting: set[asyncio.Task[Any]] = set()

    @property
    def protocol_version(self) -> str:
        """The revision of the protocol that the client speaks."""
        return self.caller.protocol_version

    @property
    def state(self) -> dict[str, Any]:
        """JSON that the function finds again when it is run anew with the answers to its questions."""
        return self._conversation.state

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled: a tool that notices should stop."""
        return self._cancelled.is_set()

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than anybody wants the answer. Raises CallCancelled when the call is cancelled.

        It blocks the thread, so it is for synchronous tools; an `async` one awaits `asyncio.sleep`.
        """
        if self._cancelled.wait(seconds):
            raise CallCancelled

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is (progress, §Progress Flow); recorded before it is sent.

        A value that is not above the last one is left out, as the specification wants, and so are values that come
        too fast, but for the last of them. Raises CallCancelled when the call was cancelled, so that a tool that
        reports progress stops by itself.
        """
        self._stop_if_cancelled()
        data: dict[str, Any] = {"progress": done}
        if total is not None:
            data["total"] = total
        if message is not None:
            data["message"] = message
        self._progress = self._progress or Pace(partial(self._emit, "progress"), self._later)
        self._progress.say(done, data)

    def close(self) -> None:
        """Say what was kept back, and no more: the function is over, however it ended."""
        if self._progress is not None:
            self._progress.close()

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Tell the client something (logging, §Log Message Notifications); recorded before it is sent.

        The client hears it if it wants messages of this `level`, which is one of RFC 5424. Raises ValueError for a
        level that is none, and CallCancelled.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is no log level: use one of {', '.join(LOG_LEVELS)}.")
        self._stop_if_cancelled()
        named = {"logger": logger} if logger else {}
        self._emit("log", {"level": level, **named, "data": data})

    def close_stream(self) -> None:
        """End the call's stream for now: a client of the handshake era comes back for the rest (SEP-1699)."""
        self._emit("pause", {})

    def supports(self, capability: str) -> bool:
        """Whether the client declared "elicitation", "elicitation.url", "sampling" or "roots"."""
        return declares(self.caller.capabilities, capability)

    async def elicit(self, message: str, schema: Mapping[str, Any], *, key: str | None = None) -> Elicited:
        """Let a person fill in a form (elicitation, §Form Mode). Raises as `ask` does."""
        elicited: Elicited = await self._ask_one(Elicit(message, dict(schema)), key)
        return elicited

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Elicited:
        """Send a person to a page (elicitation, §URL Mode). Raises as `ask` does."""
        elicited: Elicited = await self._ask_one(ElicitUrl(message, url), key)
        return elicited

    async def sample(
        self, messages: list[dict[str, Any]], max_tokens: int, *, key: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Let the client's model answer (sampling, §Creating Messages). Raises as `ask` does."""
        message: dict[str, Any] = await self._ask_one(Sample(messages, max_tokens, options), key)
        return message

    async def list_roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """The roots of the client's workspace (roots, §Listing Roots). Raises as `ask` does."""
        roots: list[dict[str, Any]] = await self._ask_one(ListRoots(), key)
        return roots

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask the client several things at once; the answers by the names of their questions.

        In the modern era the function is run again from its top once the client brings the answers, so what comes
        before a question should bear being done twice. Raises CapabilityMissing for what the client does not do, and
        ToolError for more than MOST_QUESTIONS questions.
        """
        self._stop_if_cancelled()
        self._questions += len(questions)
        if self._questions > MOST_QUESTIONS:
            raise ToolError(f"A call asks at most {MOST_QUESTIONS} questions.")
        for question in questions.values():
            if not self.supports(question.capability):
                raise CapabilityMissing(question.capability)
        return await self._conversation.ask(
            {
                name: fitted(question, str(new_id()), self.protocol_version, self.caller.capabilities)
                for name, question in questions.items()
            }
        )

    def wait_for(self, answer: Coroutine[Any, Any, T]) -> T:
        """Await a question from a function that is not `async`: `context.wait_for(context.elicit(...))`.

        Raises CallCancelled when the call is cancelled meanwhile.
        """
        assert self._loop is not None, "only a function that runs as a tool, a resource or a prompt can ask"
        try:
            return asyncio.run_coroutine_threadsafe(self._awaited(answer), self._loop).result()
        except concurrent.futures.CancelledError:
            raise CallCancelled from None

    async def give_up(self) -> None:
        """Wake functions from what they `wait_for`: the call is over, and what it asked is withdrawn."""
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

    def belongs_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say on which loop the questions of a synchronous function are asked."""
        self._loop = loop

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, work)

    def unfinished(self, unanswered: "Unanswered") -> InputRequired:
        """How a run ended that is to be run again with answers."""
        return self._conversation.unfinished(unanswered)

    @property
    def _conversation(self) -> "Conversation":
        """Begun when it is first needed: most functions ask nothing."""
        if self._conversing is None:
            self._conversing = self._converse()
        return self._conversing

    def _stop_if_cancelled(self) -> None:
        if self.cancelled:
            raise CallCancelled

    async def _ask_one(self, question: Question, key: str | None) -> Any:
        name = key or self._next_name(AREAS[question.method])
        return (await self.ask({name: question}))[name]

    def _next_name(self, area: str) -> str:
        asked = self._asked[area] = self._asked.get(area, 0) + 1
        return f"{area}-{asked}"
