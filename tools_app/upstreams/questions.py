"""One running request to an upstream, with the questions that the upstream asks meanwhile.

A question of an upstream is checked like one of the hub's own functions. What cannot be asked is refused to the
upstream, and its call goes on.

A request outlives the request of the client that began it: the answers to its questions may come with another one. It
runs on the event loop of the connections.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools_app.catalog.tool_api.context import CAPABILITY_AREAS, MAX_QUESTIONS
from tools_app.catalog.tool_api.elicitation import Elicit, Elicited, ElicitUrl, ListRoots, Question, Sample
from tools_app.core.config import config
from tools_app.core.sanitize import has_nul
from tools_app.protocol import exact_json
from tools_app.protocol.content import valid_sampling
from tools_app.protocol.errors import INTERNAL_ERROR
from tools_app.protocol.forms import form_schema
from tools_app.protocol.jsonrpc import MAX_ANSWER_NAME_LENGTH
from tools_app.protocol.schema import InvalidSchema
from tools_app.upstreams.client import Listen, Message, answer_unsupported, ignore
from tools_app.upstreams.sessions import Lease

# The parameters of a sampling request that are passed on, besides messages and maxTokens.
SAMPLING_PARAMETERS: Final = (
    *("modelPreferences", "systemPrompt", "includeContext", "temperature", "stopSequences"),
    *("metadata", "tools", "toolChoice"),
)
MAX_QUESTION_BYTES: Final = 256 * 1024
# Questions of one call that wait for an answer at the same time, and their bytes of JSON together.
MAX_OPEN_QUESTIONS: Final = 20
MAX_OPEN_BYTES: Final = 1024 * 1024
GATHER_SECONDS: Final = 0.05

Request = dict[str, Any]


class InvalidQuestion(Exception):
    """The hub does not ask this. The message is for the upstream."""


def question_of(request: Mapping[str, Any]) -> Question:
    """Return a request of an upstream (`method` and `params`) as a question. Raises InvalidQuestion."""
    method, params = request.get("method"), request.get("params")
    if not isinstance(params, dict | None):
        raise InvalidQuestion("The parameters are not an object.")
    encoded = exact_json.dumps([method, params])
    if len(encoded) > MAX_QUESTION_BYTES:
        raise InvalidQuestion(f"The question is larger than {MAX_QUESTION_BYTES} bytes.")
    if has_nul([method, params], encoded):
        raise InvalidQuestion("The question contains a NUL character.")
    try:
        match method:
            case "elicitation/create":
                return _elicitation(params or {})
            case "sampling/createMessage":
                return _sampling(params or {})
            case "roots/list":
                return ListRoots()
    except (ValueError, InvalidSchema) as error:
        raise InvalidQuestion(str(error)) from error
    raise InvalidQuestion(f"This method is not forwarded: {str(method)[:100]}")


def _elicitation(params: Mapping[str, Any]) -> Question:
    message, schema, url = (params.get(name) for name in ("message", "requestedSchema", "url"))
    elicitation_id = params.get("elicitationId")
    match params.get("mode", "form"):
        case "form" if isinstance(message, str) and isinstance(schema, dict):
            return Elicit(message, form_schema(schema))
        case "url" if isinstance(message, str) and isinstance(url, str):
            return ElicitUrl(message, url, elicitation_id if isinstance(elicitation_id, str) else "")
    raise InvalidQuestion("The elicitation is invalid.")


def _sampling(params: Mapping[str, Any]) -> Question:
    messages, max_tokens = params.get("messages"), params.get("maxTokens")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidQuestion("The messages are not a list of objects.")
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int):
        raise InvalidQuestion("maxTokens is not an integer.")
    options = {name: params[name] for name in SAMPLING_PARAMETERS if params.get(name) is not None}
    return Sample(valid_sampling(messages), max_tokens, options)


def as_result(question: Question, value: Any) -> dict[str, Any]:
    """Return the result for the upstream; `value` is what `question.read` returned."""
    if isinstance(value, Elicited):
        is_form = isinstance(question, Elicit) and value.accepted
        return {"action": value.action, **({"content": value.content} if is_form else {})}
    return {"roots": value} if isinstance(question, ListRoots) else value


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

    def __init__(self) -> None:
        self.listener: Listen = ignore
        self.lease: Lease | None = None
        self._open: dict[str, OpenQuestion] = {}
        # Names of questions that were asked before: answers to them are kept.
        self.used_names: set[str] = set()
        self._numbers = dict.fromkeys(CAPABILITY_AREAS.values(), 0)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[dict[str, Any]] | None = None

    def start(self, work: Coroutine[Any, Any, dict[str, Any]]) -> None:
        """Start the request. `work` returns its result."""
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
        request = {"method": message["method"], "params": message.get("params")}
        size, max_bytes = len(exact_json.dumps(request)), max_open_bytes()
        text = ""
        if len(self._open) >= MAX_OPEN_QUESTIONS or sum(self._numbers.values()) >= MAX_QUESTIONS:
            text = "This call asks too many questions."
        elif size + sum(question.size for question in self._open.values()) > max_bytes:
            text = f"The open questions of a call are larger than {max_bytes} bytes together."
        if text:
            return {**response, "error": {"code": INTERNAL_ERROR, "message": text}}
        self._numbers[area] += 1
        fallback = f"{area}-{self._numbers[area]}"
        # Its key, if that is usable and no other question of the call had it.
        name = key if 0 < len(key) <= MAX_ANSWER_NAME_LENGTH and "\0" not in key else fallback
        while name in self.used_names:
            name = f"{fallback}-{len(self.used_names) + 1}"
        self.used_names.add(name)
        question = self._open[name] = OpenQuestion(request, size, asyncio.get_running_loop().create_future())
        self._changed.set()
        try:
            return {**response, **await question.reply}
        finally:
            self._open.pop(name, None)

    async def next(self, replies: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Request]:
        """Pass on responses, then wait for questions and return all that are open, by name; none at the end."""
        self.reply(replies or {})
        while not self.is_done():
            self._changed.clear()
            if self._unanswered():
                # Questions that are asked at the same time arrive one after the other.
                await asyncio.sleep(GATHER_SECONDS)
                if not self.is_done() and (questions := self._unanswered()):
                    return questions
            else:
                await self._changed.wait()
        return {}

    def _close_questions(self, _task: object) -> None:
        """Answer what is still open: the request has ended, and no client is asked any more."""
        error = {"code": INTERNAL_ERROR, "message": "The call has ended."}
        self.reply({name: {"error": error} for name in self._open})
        self._changed.set()

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
        if self._task is not None:
            self._task.cancel()
