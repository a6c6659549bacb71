"""One exchange with an upstream, from the request of a client to its result, with the questions in between.

The questions of an upstream cross the eras. A running call of the handshake era that asks a modern client is parked; a
modern upstream, which ends its call with questions, is sent the call again with their answers, as it demands.
"""

import asyncio
import hashlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from uuid import UUID

import orjson

from tools_app.catalog.kinds.upstream import Endpoint, Pin
from tools_app.protocol.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from tools_app.protocol.inbound import CAPABILITIES_META, LOG_META
from tools_app.protocol.jsonrpc import MAX_ANSWER_NAME_LENGTH
from tools_app.protocol.versions import is_modern
from tools_app.telemetry.secret_names import Scrubber
from tools_app.tool_api.context import MAX_QUESTIONS, ToolContext
from tools_app.tool_api.elicitation import BadAnswer, Question, Refused, Unanswered
from tools_app.tool_api.results import ToolError
from tools_app.upstreams import connections
from tools_app.upstreams.client import Listen, unsupported
from tools_app.upstreams.connections import Connection
from tools_app.upstreams.parked_rows import NoRoom, Ticket
from tools_app.upstreams.questions import BadQuestion, Request, as_answer, declaration, profile_of, question_of
from tools_app.upstreams.runs import MAX_OPEN, Run, max_open_bytes

T = TypeVar("T")

# The least severe messages that upstreams are asked for.
LOG_LEVEL: Final = "info"
# The error code of a client whose user refused (sampling, §Error Handling).
USER_REFUSED: Final = -1
MAX_STATE_LENGTH: Final = 64 * 1024
# A modern upstream may ask to be called again without an answer: this often, and this long later.
MAX_REPEATED: Final = 10
AGAIN_SECONDS: Final = 1.0
# What the hub keeps between the requests of a modern client, encrypted, in its request state.
KEPT: Final = "upstream"
COMPLETE, INPUT_REQUIRED = "complete", "input_required"
STATE, REQUESTS, RESPONSES = "requestState", "inputRequests", "inputResponses"
BUSY: Final = "Too many calls of this upstream wait for their clients. Try again later."


@dataclass(frozen=True)
class Forwarded:
    """A request to an upstream. `headers` repeat parameters of a tool. `as_task`: it runs as a task only."""

    method: str
    params: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    as_task: bool = False


class Exchange:
    """Sends one request and asks the client what the upstream asks. On the event loop of the call."""

    def __init__(
        self, endpoint: Endpoint, pin: Pin, request: Forwarded, context: ToolContext, scrubber: Scrubber
    ) -> None:
        self._endpoint = endpoint
        self._pin = pin
        self._request = request
        self._context = context
        self._scrubber = scrubber
        self._holder = connections.current()
        self._profile = profile_of(context.caller.capabilities)
        self._source = _source(endpoint, pin)

    async def run(self, listen: Listen) -> dict[str, Any]:
        """Return the result; `listen` gets the notifications before it, on the loop of the connections.

        Raises ErrorResponse, UpstreamFailed, ToolError, CallLost, Unanswered, and what questions to the client raise.
        """
        kept = self._context.state.get(KEPT) if is_modern(self._context.protocol_version) else None
        if kept and kept.get("source") != self._source:
            if "parked" in kept:
                await self._abandoned(_ticket(kept))
            raise ToolError(
                f"The definition of '{self._pin.name}' has changed since its upstream asked. The answers were not sent."
            )
        if kept and "parked" in kept:
            return await self._resumed(kept, listen)
        result = await self._sent(await self._answered(kept) if kept else {}, listen)
        repeated = 0
        while result.get("resultType", COMPLETE) == INPUT_REQUIRED:
            repeated += not result.get(REQUESTS)
            if repeated > MAX_REPEATED:
                raise ToolError(f"The upstream '{self._endpoint.name}' asks to be called again without an end.")
            former = (self._context.state.get(KEPT) or {}).get("asked", ())
            kept = self._noted(result)
            self._context.forget_answers(former)
            result = await self._sent(await self._answered(kept), listen)
        if result.get("resultType", COMPLETE) != COMPLETE:
            raise ToolError(f"The upstream '{self._endpoint.name}' returned a result of an unknown type.")
        return result

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that runs on the loop of the connections."""
        return await asyncio.wrap_future(self._holder.submit(work))

    # --- Requests, and questions that are asked while they run ---

    async def _sent(self, more: Mapping[str, Any], listen: Listen) -> dict[str, Any]:
        run = Run()
        run.listener = listen
        meta = {"progressToken": 0, LOG_META: LOG_LEVEL, CAPABILITIES_META: declaration(self._profile)}
        request = self._request
        params = {**request.params, **more, "_meta": meta}

        async def work(connection: Connection) -> dict[str, Any]:
            await connection.check(self._pin)
            async with connection.session(self._profile) as lease:
                run.lease, client = lease, lease.client
                # In the modern era, a server sends no requests.
                answer = unsupported if client.is_modern else run.answer
                if request.as_task and not client.is_modern:
                    return await client.task_result(params, run.listen, headers=request.headers, answer=answer)
                return await client.request(request.method, params, run.listen, headers=request.headers, answer=answer)

        async def begin() -> dict[str, Request]:
            run.start(self._holder.use(self._endpoint, work))
            return await run.next()

        try:
            asked = await self._on_loop(begin())
            while asked:
                replies = await self._replies(run, asked)
                asked = await self._on_loop(_replied(run, replies))
            return run.result()
        except Unanswered:
            raise  # it is parked
        except BaseException:
            self._holder.submit(_cancelled(run))
            raise

    async def _replies(self, run: Run, asked: Mapping[str, Request]) -> dict[str, dict[str, Any]]:
        """Return the responses to questions. Raises Unanswered, when the run is parked.

        If the upstream goes on without an answer, it is no longer awaited.
        """
        questions, refused = self._questions(asked)
        if refused:
            return refused
        if is_modern(self._context.protocol_version):
            return await self._parked(run, questions)
        asking = asyncio.ensure_future(self._ask_in_turn(questions))
        ended = asyncio.ensure_future(self._on_loop(run.ended()))
        try:
            await asyncio.wait([asking, ended], return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else {}
        finally:
            asking.cancel()
            ended.cancel()
            await asyncio.wait([asking])

    async def _ask_in_turn(self, questions: Mapping[str, Question]) -> dict[str, dict[str, Any]]:
        replies: dict[str, dict[str, Any]] = {}
        for name, question in questions.items():
            try:
                value = (await self._context.ask({name: question}))[name]
            except Refused as problem:
                replies[name] = _error(USER_REFUSED, str(problem))
            except BadAnswer as problem:
                replies[name] = _error(INVALID_PARAMS, f"The client's answer is invalid: {problem}")
            else:
                replies[name] = {"result": as_answer(question, value)}
        return replies

    async def _parked(self, run: Run, questions: Mapping[str, Question]) -> dict[str, dict[str, Any]]:
        try:
            values = await self._context.ask(questions)
        except Unanswered:
            try:
                ticket = await self._on_loop(self._park(run))
            except NoRoom as problem:
                return {name: _error(USER_REFUSED, str(problem)) for name in questions}
            self._keep(ticket, {name: _request(question) for name, question in questions.items()})
            raise
        return {name: {"result": as_answer(question, values[name])} for name, question in questions.items()}

    async def _park(self, run: Run) -> Ticket:
        """Let a run wait for its client, on the loop of the connections. Raises NoRoom."""
        caller, lease = self._context.caller, run.lease
        if lease is not None and not lease.park(caller.key_id):
            raise NoRoom(BUSY)
        try:
            return await self._holder.parking.park(run, caller.tenant_id, self._endpoint.id, self._context.call_id)
        except NoRoom:
            if lease is not None:
                lease.resume()
            raise

    async def _resumed(self, kept: Mapping[str, Any], listen: Listen) -> dict[str, Any]:
        """Return the result of a parked call, whose questions the client has answered. Raises Unanswered for others."""
        ticket = _ticket(kept)
        parking = self._holder.parking
        questions, _ = self._questions(kept["asked"])
        try:
            values = await self._context.ask(questions)
        except (BadAnswer, ToolError):
            await self._abandoned(ticket)
            raise
        replies: dict[str, dict[str, Any]]
        replies = {name: {"result": as_answer(question, values[name])} for name, question in questions.items()}
        while True:
            tenant_id = self._context.caller.tenant_id
            answering = parking.answer(ticket, self._context.call_id, tenant_id, replies, listen)
            step = await self._on_loop(answering)
            if step.outcome is not None:
                return step.result()
            ticket = step.ticket
            self._context.forget_answers(questions)
            questions, replies = self._questions(step.asked)
            if not replies:
                self._keep(ticket, {name: _request(question) for name, question in questions.items()})
                try:
                    await self._context.ask(questions)
                except ToolError:
                    await self._abandoned(ticket)
                    raise

    async def _abandoned(self, ticket: Ticket) -> None:
        """Give up a parked call, whose upstream is told so."""
        await self._on_loop(self._holder.parking.abandon(ticket, self._context.call_id))

    def _keep(self, ticket: Ticket, asked: Mapping[str, Request]) -> None:
        self._context.state[KEPT] = {
            "source": self._source,
            "parked": str(ticket.id),
            "round": ticket.round,
            "asked": dict(asked),
        }

    def _questions(self, asked: Mapping[str, Request]) -> tuple[dict[str, Question], dict[str, dict[str, Any]]]:
        """Return the questions that can be asked, and the responses to those that cannot."""
        questions: dict[str, Question] = {}
        refused: dict[str, dict[str, Any]] = {}
        for name, request in asked.items():
            try:
                question = question_of(self._scrubber.value(request))
            except BadQuestion as problem:
                refused[name] = _error(INVALID_PARAMS, str(problem))
                continue
            if self._context.supports(question.capability):
                questions[name] = question
            else:
                refused[name] = _error(METHOD_NOT_FOUND, f"The client does not support {question.capability}.")
        return questions, refused

    # --- Questions that end a request of the modern era ---

    def _noted(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is kept of a result that asks: names for the client, which are unique in all rounds."""
        requests, state = result.get(REQUESTS, {}), result.get(STATE)
        valid = isinstance(requests, dict) and all(isinstance(one, dict) for one in requests.values())
        if not valid or (not requests and state is None):
            raise ToolError(f"The upstream '{self._endpoint.name}' asks for input in an invalid way.")
        if not isinstance(state, str | None) or len(state or "") > MAX_STATE_LENGTH or len(requests) > MAX_OPEN:
            raise ToolError(f"The upstream '{self._endpoint.name}' asks too much at once.")
        if len(orjson.dumps(requests)) > max_open_bytes():
            raise ToolError(f"The upstream '{self._endpoint.name}' asks more than {max_open_bytes()} bytes at once.")
        used = list((self._context.state.get(KEPT) or {}).get("used", ()))
        asked: dict[str, dict[str, Any]] = {}
        for own, request in requests.items():
            name = own[: MAX_ANSWER_NAME_LENGTH - len(str(MAX_QUESTIONS)) - 1].replace("\0", "")
            while name in used:
                name = f"{own[: MAX_ANSWER_NAME_LENGTH // 2]}-{len(used) + 1}".replace("\0", "")
            used.append(name)
            asked[name] = {"own": own, "request": {key: request.get(key) for key in ("method", "params")}}
        if len(used) > MAX_QUESTIONS:
            raise ToolError(f"A call can ask at most {MAX_QUESTIONS} questions.")
        kept = {"source": self._source, "asked": asked, "state": state, "used": used}
        self._context.state[KEPT] = kept
        return kept

    async def _answered(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the client; return the parameters by which the request goes on. Raises Unanswered and ToolError."""
        questions, refused = self._questions({name: one["request"] for name, one in kept["asked"].items()})
        for reply in refused.values():
            raise ToolError(
                f"The upstream '{self._endpoint.name}' asks what cannot be asked: {reply['error']['message']}"
            )
        if not questions:
            await asyncio.sleep(AGAIN_SECONDS)
        values = await self._context.ask(questions) if questions else {}
        answers = {
            kept["asked"][name]["own"]: as_answer(question, values[name]) for name, question in questions.items()
        }
        state = {STATE: kept["state"]} if kept["state"] is not None else {}
        return {**({RESPONSES: answers} if answers else {}), **state}


async def _replied(run: Run, replies: Mapping[str, Mapping[str, Any]]) -> dict[str, Request]:
    run.reply(replies)
    return await run.next()


async def _cancelled(run: Run) -> None:
    run.cancel()


def _source(endpoint: Endpoint, pin: Pin) -> str:
    """Return a digest of what asks: answers and states of one upstream go to no other."""
    at: list[object] = [
        str(endpoint.id),
        endpoint.transport,
        endpoint.url,
        endpoint.command,
        pin.kind,
        pin.name,
        pin.digest,
    ]
    if endpoint.owner:
        at.append(endpoint.owner)
    return hashlib.sha256(orjson.dumps(at)).hexdigest()


def _ticket(kept: Mapping[str, Any]) -> Ticket:
    return Ticket(UUID(kept["parked"]), kept["round"])


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _request(question: Question) -> Request:
    return {"method": question.method, "params": question.params()}
