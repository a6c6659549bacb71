"""One exchange with an upstream, from the request of a client to its result, with the questions in between.

The questions of an upstream cross the eras. A running call of the handshake era that asks a modern client is parked; a
modern upstream, which ends its call with questions, is sent the call again with their answers, as it demands.
"""

import asyncio
import hashlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, TypeVar
from uuid import UUID

from tools_app.catalog.kinds.upstream.runner import Endpoint, Pin
from tools_app.catalog.tool_api.context import MAX_QUESTIONS, ToolContext
from tools_app.catalog.tool_api.elicitation import BadAnswer, ElicitUrl, Question, Refused, Unanswered, unused_name
from tools_app.catalog.tool_api.results import CallLost, PagesRequired, ToolError
from tools_app.core.database import run_in_db_thread
from tools_app.core.ids import new_id
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.protocol import exact_json
from tools_app.protocol.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from tools_app.protocol.inbound import CAPABILITIES_META, LOG_META
from tools_app.protocol.jsonrpc import MAX_ANSWER_NAME_LENGTH
from tools_app.protocol.versions import has_page_ids, is_modern
from tools_app.upstreams import connections, task_rows
from tools_app.upstreams.client import TASKS_CAPABILITY, Client, Listen, Message, answer_unsupported
from tools_app.upstreams.connections import Connection
from tools_app.upstreams.errors import ErrorResponse, UpstreamFailed
from tools_app.upstreams.exchanges import direct, pages, tasks
from tools_app.upstreams.parking import Ticket, TooManyParked
from tools_app.upstreams.questions import (
    MAX_OPEN_QUESTIONS,
    InvalidQuestion,
    Request,
    UpstreamRequest,
    as_result,
    max_open_bytes,
    question_of,
)
from tools_app.upstreams.sessions import capabilities_of, profile_of

T = TypeVar("T")

# The least severe messages that upstreams are asked for.
MIN_LOG_LEVEL: Final = "info"
# The error code of a client whose user refused (sampling, §Error Handling).
USER_REFUSED: Final = -1
# A modern upstream may ask to be called again without an answer: this often, and this long later.
MAX_EMPTY_ROUNDS: Final = 10
REPEAT_SECONDS: Final = 1.0
# After these seconds, a call whose person agreed to visit a page is sent again.
PAGE_DELAYS: Final = (1.0, 2.0, 4.0, 8.0)
COMPLETE, INPUT_REQUIRED = "complete", "input_required"
STATE, REQUESTS, RESPONSES = "requestState", "inputRequests", "inputResponses"
MAX_STATE_LENGTH: Final = 64 * 1024
# Where the state of a call has what the hub keeps of an exchange between the requests of a modern client, encrypted.
KEPT: Final = "upstream"
TOO_MANY_WAITING: Final = "Too many calls of this upstream wait for their clients. Try again later."


@dataclass(frozen=True)
class ForwardedRequest:
    """A request to an upstream. `headers` repeat parameters of a tool. `as_task`: it runs as a task only."""

    method: str
    params: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    as_task: bool = False


class Exchange:
    """Sends one request and asks the client what the upstream asks. On the event loop of the call."""

    def __init__(
        self, endpoint: Endpoint, pin: Pin, request: ForwardedRequest, context: ToolContext, scrubber: Scrubber
    ) -> None:
        self._endpoint = endpoint
        self._pin = pin
        self._request = request
        self._context = context
        self._scrubber = scrubber
        self._connections = connections.current()
        self._profile = profile_of(context.caller.capabilities)
        self._recipient = pages.recipient_of(context)
        self._is_left = partial(self._connections.is_left, context.call_id)

    @cached_property
    def _source(self) -> str:
        """A digest of what asks: answers and states of one upstream go to no other."""
        endpoint, pin = self._endpoint, self._pin
        identity: list[object] = [str(endpoint.id), endpoint.transport, endpoint.url, endpoint.command]
        identity += [pin.kind, pin.name, pin.digest]
        if endpoint.owner:
            identity.append(endpoint.owner)
        return hashlib.sha256(exact_json.dumps(identity)).hexdigest()

    async def run(self, listen: Listen) -> dict[str, Any]:
        """Return the result; `listen` gets the notifications before it, on the loop of the connections.

        Raises ErrorResponse, UpstreamFailed, ToolError, CallLost, PagesRequired, and what questions raise.
        """
        try:
            return await self._run(listen)
        finally:
            if self._recipient is not None:
                self._recipient.end()

    async def _run(self, listen: Listen) -> dict[str, Any]:
        state = self._context.state.get(KEPT) if is_modern(self._context.protocol_version) else None
        if state and state.get("source") != self._source:
            if "parked" in state:
                await self._abandon(_ticket_of(state))
            raise ToolError(
                f"The definition of '{self._pin.name}' has changed since its upstream asked. The answers were not sent."
            )
        if state and "parked" in state:
            try:
                return await self._resume(state, listen)
            except CallLost:
                # Its process died, and a task of the upstream may have outlived it.
                task_state = await run_in_db_thread(task_rows.take_over, self._context.call_id)
                if task_state is None:
                    raise
                self._context.forget_answers(state["asked"])
                state = self._context.state[KEPT] = task_state
        if state and "pages" in state:
            result = await self._send_after_pages(state, listen)
        else:
            result = await self._send(await self._ask_client(state) if state and "task" not in state else {}, listen)
        empty_rounds = 0
        while result.get("resultType", COMPLETE) == INPUT_REQUIRED:
            empty_rounds += not result.get(REQUESTS)
            if empty_rounds > MAX_EMPTY_ROUNDS:
                raise ToolError(f"The upstream '{self._endpoint.name}' asks to be called again without an end.")
            former_names = (self._context.state.get(KEPT) or {}).get("asked", ())
            state = self._store_state(result)
            self._context.forget_answers(former_names)
            result = await self._send(await self._ask_client(state), listen)
        if result.get("resultType", COMPLETE) != COMPLETE:
            raise ToolError(f"The upstream '{self._endpoint.name}' returned a result of an unknown type.")
        return result

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that runs on the loop of the connections."""
        return await asyncio.wrap_future(self._connections.submit(work))

    # --- Requests ---

    async def _send(self, extra: Mapping[str, Any], listen: Listen) -> dict[str, Any]:
        """Send the request. One that the upstream refuses until pages are visited did not run."""
        try:
            return await self._roundtrip(extra, listen)
        except ErrorResponse as error:
            await self._ask_for_pages(error, extra)
            raise

    async def _roundtrip(self, extra: Mapping[str, Any], listen: Listen) -> dict[str, Any]:
        state = self._context.state.get(KEPT) or {}
        client = None if "task" in state else direct.client_for(self._connections, self._endpoint, self._pin)
        if client is not None and not self._may_be_task(client):
            return await self._send_directly(client, extra, listen)
        run = UpstreamRequest()
        run.listener = listen
        run.used_names.update(state.get("used", ()))

        async def work(connection: Connection) -> dict[str, Any]:
            if "task" in state:
                client = await connection.client()
                return await tasks.resume(client, state, run.listen, run.answer, is_left=self._is_left)
            await connection.check(self._pin)
            async with connection.session(self._profile) as lease:
                run.lease = lease
                try:
                    return await self._send_on(connection, lease.client, run, extra)
                except ErrorResponse as error:
                    connection.pages.remember_error(error, self._recipient)
                    raise

        async def begin() -> dict[str, Request]:
            run.start(self._connections.use(self._endpoint, work))
            return await run.next()

        try:
            questions = await self._on_loop(begin())
            while questions:
                questions = await self._on_loop(run.next(await self._replies(run, questions)))
            return run.result()
        except Unanswered:
            raise  # it is parked
        except BaseException:
            self._connections.call_soon(run.cancel)
            raise

    async def _send_directly(self, client: Client, extra: Mapping[str, Any], listen: Listen) -> dict[str, Any]:
        """Send the request on the loop of the call. Its connection is told of a failure, which may open its circuit."""
        request, params = self._request, self._params(extra, capabilities_of(self._profile))
        try:
            return await client.request(request.method, params, listen, headers=request.headers)
        except (ErrorResponse, UpstreamFailed) as error:
            failure = error

        async def fail(connection: Connection) -> dict[str, Any]:
            if isinstance(failure, ErrorResponse):
                connection.pages.remember_error(failure, self._recipient)
            raise failure

        return await self._on_loop(self._connections.use(self._endpoint, fail, is_check=True))

    async def _send_on(
        self, connection: Connection, client: Client, run: UpstreamRequest, extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Send the request over one client, on the loop of the connections. A task is waited for."""
        request = self._request
        may_be_task = self._may_be_task(client)
        capabilities = capabilities_of(self._profile) | (tasks.CAPABILITIES if may_be_task else {})
        params = self._params(extra, capabilities)

        async def answer(message: Message) -> Message:
            connection.pages.remember_question(message, self._recipient)
            return await run.answer(message)

        if request.as_task and not client.is_modern:
            return await tasks.handshake_result(client, params, run.listen, headers=request.headers, answer=answer)
        # In the modern era, a server sends no requests.
        handler = answer_unsupported if client.is_modern else answer
        result = await client.request(request.method, params, run.listen, headers=request.headers, answer=handler)
        if may_be_task and result.get("resultType") == tasks.TASK:
            task = tasks.UpstreamTask(client, result, capabilities, run.listen, run.answer, is_left=self._is_left)
            await tasks.store_task(self._context, self._endpoint.id, task.id, self._source, capabilities)
            return await task.result(result)
        return result

    def _params(self, extra: Mapping[str, Any], capabilities: Mapping[str, Any]) -> dict[str, Any]:
        meta = {"progressToken": 0, LOG_META: MIN_LOG_LEVEL, CAPABILITIES_META: capabilities}
        return {**self._request.params, **extra, "_meta": meta}

    def _may_be_task(self, client: Client) -> bool:
        """Whether the upstream may answer with a task: a modern client must support that, like any capability."""
        if self._request.method != "tools/call" or not client.server.makes_tasks:
            return False
        return not is_modern(self._context.protocol_version) or self._context.supports(TASKS_CAPABILITY)

    # --- Pages that somebody must visit before the upstream runs the request ---

    async def _ask_for_pages(self, error: ErrorResponse, extra: Mapping[str, Any]) -> None:
        """Send the client to the pages that an error lists, in the way of its revision. Returns for other errors.

        Raises Unanswered, or PagesRequired, or ToolError with the addresses.
        """
        questions = pages.questions_of(error, self._scrubber)
        if not questions:
            return
        message = pages.pages_message(self._endpoint.name, questions.values())
        version = self._context.protocol_version
        if not self._context.supports(ElicitUrl.capability) or not (is_modern(version) or has_page_ids(version)):
            raise ToolError(message) from error
        if has_page_ids(version):
            raise PagesRequired(
                message, [{"elicitationId": str(new_id()), **item.params()} for item in questions.values()]
            )
        state = self._context.state.get(KEPT) or {}
        if "pages" in state:
            raise ToolError(message) from error
        used_names = list(state.get("used", ()))
        named_questions = {unused_name(name, used_names): question for name, question in questions.items()}
        self._context.state[KEPT] = {
            "source": self._source,
            "pages": _requests_of(named_questions),
            "more": dict(extra),
            "used": [*used_names, *named_questions],
        }
        await self._context.ask(named_questions)

    async def _send_after_pages(self, state: Mapping[str, Any], listen: Listen) -> dict[str, Any]:
        """Send the request again, once its client agreed to visit the pages.

        Nothing tells when the person is done there, so the upstream is asked a few times. It refuses until then.
        """
        questions, _ = self._questions(state["pages"])
        answers = await self._context.ask(questions)
        if not all(answer.accepted for answer in answers.values()):
            raise ToolError(pages.pages_message(self._endpoint.name, questions.values()))
        self._context.forget_answers(questions)
        for delay in PAGE_DELAYS:
            try:
                return await self._roundtrip(state["more"], listen)
            except ErrorResponse as error:
                if not pages.questions_of(error, self._scrubber):
                    raise
            await asyncio.sleep(delay)
        return await self._send(state["more"], listen)

    # --- Questions that are asked while a request runs ---

    async def _replies(self, run: UpstreamRequest, requests: Mapping[str, Request]) -> dict[str, dict[str, Any]]:
        """Return the responses to questions. Raises Unanswered, when the run is parked.

        If the upstream goes on without an answer, it is no longer awaited.
        """
        questions, refusals = self._questions(requests)
        if refusals:
            return refusals
        if is_modern(self._context.protocol_version):
            return await self._ask_or_park(run, questions)
        answer_task = asyncio.ensure_future(self._ask_in_turn(questions))
        end_task = asyncio.ensure_future(self._on_loop(run.ended()))
        try:
            await asyncio.wait([answer_task, end_task], return_when=asyncio.FIRST_COMPLETED)
            return answer_task.result() if answer_task.done() else {}
        finally:
            answer_task.cancel()
            end_task.cancel()
            await asyncio.wait([answer_task])

    async def _ask_in_turn(self, questions: Mapping[str, Question]) -> dict[str, dict[str, Any]]:
        replies: dict[str, dict[str, Any]] = {}
        for name, question in questions.items():
            try:
                value = (await self._context.ask({name: question}))[name]
            except Refused as error:
                replies[name] = _error(USER_REFUSED, str(error))
            except BadAnswer as error:
                replies[name] = _error(INVALID_PARAMS, f"The client's answer is invalid: {error}")
            else:
                replies[name] = {"result": as_result(question, value)}
        return replies

    async def _ask_or_park(self, run: UpstreamRequest, questions: Mapping[str, Question]) -> dict[str, dict[str, Any]]:
        try:
            values = await self._context.ask(questions)
        except Unanswered:
            try:
                ticket = await self._on_loop(self._park(run))
            except TooManyParked as error:
                return {name: _error(USER_REFUSED, str(error)) for name in questions}
            self._store_ticket(ticket, questions)
            raise
        return {name: {"result": as_result(question, values[name])} for name, question in questions.items()}

    async def _park(self, run: UpstreamRequest) -> Ticket:
        """Let a run wait for its client, on the loop of the connections. Raises TooManyParked."""
        caller, lease = self._context.caller, run.lease
        if lease is not None and not lease.park(caller.key_id):
            raise TooManyParked(TOO_MANY_WAITING)
        try:
            return await self._connections.parking.park(run, caller.tenant_id, self._endpoint.id, self._context.call_id)
        except TooManyParked:
            if lease is not None:
                lease.resume()
            raise

    async def _resume(self, state: Mapping[str, Any], listen: Listen) -> dict[str, Any]:
        """Return the result of a parked call, whose questions the client has answered. Raises Unanswered for others."""
        ticket = _ticket_of(state)
        questions, _ = self._questions(state["asked"])
        try:
            values = await self._context.ask(questions)
        except (BadAnswer, ToolError):
            await self._abandon(ticket)
            raise
        replies: dict[str, dict[str, Any]]
        replies = {name: {"result": as_result(question, values[name])} for name, question in questions.items()}
        while True:
            call_id, tenant_id = self._context.call_id, self._context.caller.tenant_id
            step = await self._on_loop(self._connections.parking.answer(ticket, call_id, tenant_id, replies, listen))
            if step.outcome is not None:
                # It is not sent again, even if its upstream asks for that.
                try:
                    return step.result()
                except ErrorResponse as error:
                    if pages_questions := pages.questions_of(error, self._scrubber):
                        message = pages.pages_message(self._endpoint.name, pages_questions.values())
                        raise ToolError(message) from error
                    raise
            ticket = step.ticket
            self._context.forget_answers(questions)
            questions, replies = self._questions(step.questions)
            if not replies:
                self._store_ticket(ticket, questions)
                try:
                    await self._context.ask(questions)
                except ToolError:
                    await self._abandon(ticket)
                    raise

    async def _abandon(self, ticket: Ticket) -> None:
        """Give up a parked call, whose upstream is told so."""
        await self._on_loop(self._connections.parking.abandon(ticket, self._context.call_id))

    def _store_ticket(self, ticket: Ticket, questions: Mapping[str, Question]) -> None:
        self._context.state[KEPT] = {
            "source": self._source,
            "parked": str(ticket.id),
            "round": ticket.round,
            "asked": _requests_of(questions),
        }

    def _questions(self, requests: Mapping[str, Request]) -> tuple[dict[str, Question], dict[str, dict[str, Any]]]:
        """Return the questions that can be asked, and the responses to those that cannot."""
        questions: dict[str, Question] = {}
        refusals: dict[str, dict[str, Any]] = {}
        for name, request in requests.items():
            try:
                question = question_of(self._scrubber.value(request))
            except InvalidQuestion as error:
                refusals[name] = _error(INVALID_PARAMS, str(error))
                continue
            if self._context.supports(question.capability):
                questions[name] = question
            else:
                refusals[name] = _error(METHOD_NOT_FOUND, f"The client does not support {question.capability}.")
        return questions, refusals

    # --- Questions that end a request of the modern era ---

    def _store_state(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is kept of a result that asks: its state, its questions by their names for the client, all names.

        Names are unique in all rounds. Raises ToolError for what cannot be asked.
        """
        requests, state = result.get(REQUESTS, {}), result.get(STATE)
        upstream = f"The upstream '{self._endpoint.name}'"
        is_valid = isinstance(requests, dict) and all(isinstance(request, dict) for request in requests.values())
        if not is_valid or (not requests and state is None):
            raise ToolError(f"{upstream} asks for input in an invalid way.")
        is_long = not isinstance(state, str | None) or len(state or "") > MAX_STATE_LENGTH
        if is_long or len(requests) > MAX_OPEN_QUESTIONS:
            raise ToolError(f"{upstream} asks too much at once.")
        if len(exact_json.dumps(requests)) > max_open_bytes():
            raise ToolError(f"{upstream} asks more than {max_open_bytes()} bytes at once.")
        names = list((self._context.state.get(KEPT) or {}).get("used", ()))
        questions: dict[str, dict[str, Any]] = {}
        for upstream_name, request in requests.items():
            name = upstream_name[: MAX_ANSWER_NAME_LENGTH - len(str(MAX_QUESTIONS)) - 1].replace("\0", "")
            while name in names:
                name = f"{upstream_name[: MAX_ANSWER_NAME_LENGTH // 2]}-{len(names) + 1}".replace("\0", "")
            names.append(name)
            questions[name] = {"own": upstream_name, "request": {key: request.get(key) for key in ("method", "params")}}
        if len(names) > MAX_QUESTIONS:
            raise ToolError(f"A call can ask at most {MAX_QUESTIONS} questions.")
        stored = {"source": self._source, "asked": questions, "state": state, "used": names}
        self._context.state[KEPT] = stored
        return stored

    async def _ask_client(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the client; return the parameters by which the request goes on. Raises Unanswered and ToolError."""
        questions, refusals = self._questions({name: entry["request"] for name, entry in stored["asked"].items()})
        for reply in refusals.values():
            raise ToolError(
                f"The upstream '{self._endpoint.name}' asks what cannot be asked: {reply['error']['message']}"
            )
        if not questions:
            await asyncio.sleep(REPEAT_SECONDS)
        values = await self._context.ask(questions) if questions else {}
        answers = {
            stored["asked"][name]["own"]: as_result(question, values[name]) for name, question in questions.items()
        }
        state = {STATE: stored["state"]} if stored["state"] is not None else {}
        return {**({RESPONSES: answers} if answers else {}), **state}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _ticket_of(state: Mapping[str, Any]) -> Ticket:
    return Ticket(UUID(state["parked"]), state["round"])


def _requests_of(questions: Mapping[str, Question]) -> dict[str, Request]:
    """Return questions as the requests that ask them."""
    return {name: {"method": question.method, "params": question.params()} for name, question in questions.items()}
