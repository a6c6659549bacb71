"""One running request to an upstream, with the questions that the upstream asks meanwhile.

It outlives the request of the client that began it: the answers to its questions may come with another one. All of it
runs on the event loop of the connections.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools_app.catalog.tool_api.context import CAPABILITY_AREAS, MAX_QUESTIONS
from tools_app.core.config import config
from tools_app.protocol import exact_json
from tools_app.protocol.errors import INTERNAL_ERROR
from tools_app.protocol.jsonrpc import MAX_ANSWER_NAME_LENGTH
from tools_app.upstreams.client import Listen, Message, answer_unsupported, ignore
from tools_app.upstreams.questions import Request
from tools_app.upstreams.sessions import Lease

# Questions of one call that wait for an answer at the same time, and their bytes of JSON together.
MAX_OPEN_QUESTIONS: Final = 20
MAX_OPEN_BYTES: Final = 1024 * 1024
GATHER_SECONDS: Final = 0.05


def max_open_bytes() -> int:
    """Return the bound of all open questions: a modern client sends them back, with its answers, in one request."""
    return min(MAX_OPEN_BYTES, int(config.MCPHUB_MAX_BODY_BYTES) // 4)


@dataclass
class OpenQuestion:
    """A question without its answer yet."""

    request: Request
    size: int
    reply: "asyncio.Future[Mapping[str, Any]]"


class UpstreamRequest:
    """A running request. `listener` gets its notifications, and `lease` is what it runs on, once that is known."""

    def __init__(self, work: "Coroutine[Any, Any, dict[str, Any]] | None" = None) -> None:
        self.listener: Listen = ignore
        self.lease: Lease | None = None
        self._open: dict[str, OpenQuestion] = {}
        # Names of questions that were asked before: answers to them are kept.
        self.used_names: set[str] = set()
        self._numbers = dict.fromkeys(CAPABILITY_AREAS.values(), 0)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[dict[str, Any]] | None = None
        self._on_question_or_end: Callable[[], object] | None = None
        self._is_cancelled = False
        if work is not None:
            self.start(work)

    def start(
        self, work: Coroutine[Any, Any, dict[str, Any]], on_question_or_end: Callable[[], object] | None = None
    ) -> None:
        """Start the request. `work` returns its result.

        `on_question_or_end` is called once: at its end, or with its first question.

        One that was cancelled before does not start.
        """
        if self._is_cancelled:
            work.close()
            return
        self._on_question_or_end = on_question_or_end
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._close_questions)

    def listen(self, message: Message) -> None:
        """Take a notification of the upstream."""
        self.listener(message)

    async def answer(self, message: Message, key: str = "") -> Message:
        """Return the response to a request of the upstream, when there is one. `key`: how the upstream names it."""
        area = CAPABILITY_AREAS.get(str(message["method"]))
        if area is None:
            return await answer_unsupported(message)
        response = {"jsonrpc": "2.0", "id": message["id"]}
        if len(self._open) >= MAX_OPEN_QUESTIONS or sum(self._numbers.values()) >= MAX_QUESTIONS:
            return {**response, "error": {"code": INTERNAL_ERROR, "message": "This call asks too many questions."}}
        request = {"method": message["method"], "params": message.get("params")}
        size, max_bytes = len(exact_json.dumps(request)), max_open_bytes()
        if size + sum(question.size for question in self._open.values()) > max_bytes:
            text = f"The open questions of a call are larger than {max_bytes} bytes together."
            return {**response, "error": {"code": INTERNAL_ERROR, "message": text}}
        self._numbers[area] += 1
        name = self._name(key, f"{area}-{self._numbers[area]}")
        question = self._open[name] = OpenQuestion(request, size, asyncio.get_running_loop().create_future())
        self._notify_change()
        try:
            return {**response, **await question.reply}
        finally:
            self._open.pop(name, None)

    def _name(self, key: str, fallback: str) -> str:
        """Return the name of a question: its key, if that is usable and no other question of the call had it."""
        name = key if 0 < len(key) <= MAX_ANSWER_NAME_LENGTH and "\0" not in key else fallback
        while name in self.used_names:
            name = f"{fallback}-{len(self.used_names) + 1}"
        self.used_names.add(name)
        return name

    async def next(self) -> dict[str, Request]:
        """Wait for questions and return all that are open, by name; empty when the request has ended."""
        while True:
            self._changed.clear()
            if self.is_done():
                return {}
            if self._unanswered():
                # Questions that are asked at the same time arrive one after the other.
                await asyncio.sleep(GATHER_SECONDS)
                if not self.is_done() and (questions := self._unanswered()):
                    return questions
                continue
            await self._changed.wait()

    def _close_questions(self, _task: object) -> None:
        """Answer what is still open: the request has ended, and no client is asked any more."""
        error = {"code": INTERNAL_ERROR, "message": "The call has ended."}
        self.reply({name: {"error": error} for name in self._open})
        self._notify_change()

    def _notify_change(self) -> None:
        self._changed.set()
        on_question_or_end, self._on_question_or_end = self._on_question_or_end, None
        if on_question_or_end is not None:
            on_question_or_end()

    def _unanswered(self) -> dict[str, Request]:
        return {name: question.request for name, question in self._open.items() if not question.reply.done()}

    def reply(self, replies: Mapping[str, Mapping[str, Any]]) -> None:
        """Pass on responses by the names of their questions: each has a `result` or an `error`."""
        for name, reply in replies.items():
            question = self._open.get(name)
            if question is not None and not question.reply.done():
                question.reply.set_result(reply)

    def is_done(self) -> bool:
        """Whether the request has ended."""
        return self._task is not None and self._task.done()

    async def ended(self) -> None:
        """Wait for the end."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def result(self) -> dict[str, Any]:
        """Return the result of an ended request, or raise its error. Safe to use from any thread."""
        assert self._task is not None
        return self._task.result()

    def cancel(self) -> None:
        """Cancel the request. The upstream is told so."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()
