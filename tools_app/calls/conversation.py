"""Requests for input from a running function to its client: one implementation for each era.

In the handshake era a question is sent on the call's stream and the function waits. In the modern era a question
without an answer ends the run; the client retries the request with its answers, and the function runs again. Earlier
answers and the function's state travel with the client as an encrypted token (`requestState`), which is bound to the
caller and the request and expires.
"""

import base64
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import orjson

from tools_app.calls.inputs import NoAnswer, result_of
from tools_app.calls.invocation import Round
from tools_app.catalog.tool_api.context import Emit
from tools_app.catalog.tool_api.elicitation import BadAnswer, Question, Unanswered, as_request, unused_name
from tools_app.catalog.tool_api.results import InputRequired, without
from tools_app.core import encryption
from tools_app.identity.principal import Principal
from tools_app.protocol import exact_json
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import SERVER, SERVER_META
from tools_app.protocol.jsonrpc import check_answers

# Clients give up after about ten rounds, without knowing the reason.
MAX_BAD_ANSWERS: Final = 3

Wait = Callable[[str], Awaitable[Mapping[str, Any]]]


class Rounds:
    """The modern era (2026-07-28, multi round-trip requests), with the client's answers so far."""

    def __init__(self, first: Round) -> None:
        self.state = dict(first.state)
        self._answers = dict(first.answers)
        self._refused = dict(first.refused)

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Return the valid answers. Raises Unanswered for the other questions, which are then sent to the client.

        A repeated question contains the error of its answer. Raises BadAnswer for the last of MAX_BAD_ANSWERS.
        """
        read: dict[str, Any] = {}
        missing: dict[str, Any] = {}
        for name, question in questions.items():
            if name not in self._answers:
                missing[name] = as_request(question)
                continue
            try:
                read[name] = question.read(self._answers[name])
            except BadAnswer as problem:
                del self._answers[name]
                self._count_refused(name, problem)
                missing[name] = as_request(question, str(problem))
        if missing:
            raise Unanswered(missing)
        return read

    def _count_refused(self, name: str, problem: BadAnswer) -> None:
        self._refused[name] = self._refused.get(name, 0) + 1
        if self._refused[name] >= MAX_BAD_ANSWERS:
            raise BadAnswer(f"No answer to {name!r} could be used, of {MAX_BAD_ANSWERS}. The last one: {problem}")

    def forget(self, names: Iterable[str]) -> None:
        """Drop answers, so that the state of the next round does not carry them."""
        for name in names:
            self._answers.pop(name, None)
            self._refused.pop(name, None)

    def unfinished(self, unanswered: Unanswered) -> InputRequired:
        """Return the result of a run that needs another round."""
        return InputRequired(unanswered.requests, self._answers, self.state, self._refused)


class OnStream:
    """The handshake era: `emit` sends a request once it is durable, `wait` returns the client's response."""

    def __init__(self, emit: Emit, wait: Wait) -> None:
        self.state: dict[str, Any] = {}
        self._emit = emit
        self._wait = wait
        self._used: set[str] = set()

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Return the answers. Raises BadAnswer, and Refused if the client responds with an error or not at all.

        Requests that are no longer awaited are cancelled (lifecycle, §Timeouts).
        """
        sent_names: dict[str, str] = {}
        for name, question in questions.items():
            sent_names[name] = unused_name(name, self._used)
            self._used.add(sent_names[name])
            self._emit("request", {"name": sent_names[name], **as_request(question)})
        waiting = dict(sent_names)
        read: dict[str, Any] = {}
        try:
            for name, question in questions.items():
                response = await self._wait(sent_names[name])
                del waiting[name]
                read[name] = question.read(result_of(response))
        except BaseException as problem:
            self._withdraw(waiting.values(), "no answer in time" if isinstance(problem, NoAnswer) else "not needed")
            raise
        return read

    def _withdraw(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            self._emit("withdrawal", {"name": name, "reason": reason})

    def forget(self, names: Iterable[str]) -> None:
        """Do nothing: answers are not kept."""

    def unfinished(self, unanswered: Unanswered) -> InputRequired:
        """Not applicable: in this era a function waits."""
        raise AssertionError from unanswered


# --- The rounds of a request, as its client carries them ---

STATE_SECONDS = 3600.0
STATE, RESPONSES = "requestState", "inputResponses"
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


class _RequestState(msgspec.Struct, frozen=True):
    expires: float
    answers: dict[str, Any]
    state: dict[str, Any]
    refused: dict[str, int] = {}


def round_of(principal: Principal, method: str, params: Mapping[str, Any]) -> Round:
    """Return the earlier rounds that a request carries. Raises RpcError for a state that belongs to another request."""
    answers = answers_in(params)
    if STATE not in params:
        return Round(answers=answers)
    opened = _decrypted(params[STATE], _purpose(principal, method, params))
    return Round({**opened.answers, **answers}, opened.state, opened.refused)


def answers_in(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's answers by question name. Raises RpcError -32602."""
    answers = params.get(RESPONSES, {})
    if not isinstance(answers, dict) or not all(isinstance(answer, dict) for answer in answers.values()):
        raise RpcError(INVALID_PARAMS, f"params.{RESPONSES} must be an object of objects.", {"field": RESPONSES})
    check_answers(answers, RESPONSES)
    return answers


def input_required_result(
    unfinished: InputRequired, principal: Principal, method: str, params: Mapping[str, Any]
) -> bytes:
    """Return the result that asks the client (multi round-trip requests, §InputRequiredResult)."""
    purpose = _purpose(principal, method, params)
    request_state = _RequestState(time.time() + STATE_SECONDS, unfinished.answers, unfinished.state, unfinished.refused)
    return exact_json.dumps(
        {
            "resultType": "input_required",
            "inputRequests": unfinished.requests,
            STATE: _encrypted(request_state, purpose),
            "_meta": {SERVER_META: SERVER},
        }
    )


def _purpose(principal: Principal, method: str, params: Mapping[str, Any]) -> str:
    """Return the encryption purpose, which binds a state to one key, method and set of parameters."""
    signed_params = exact_json.dumps(without(params, STATE, RESPONSES, "_meta"), option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(signed_params).hexdigest()
    return f"round:{principal.tenant_id}:{principal.key_id}:{method}:{digest}"


def _encrypted(request_state: _RequestState, purpose: str) -> str:
    return _as_text(encryption.seal(_encode(request_state), purpose))


def _as_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


def _decrypted(state: object, purpose: str) -> _RequestState:
    try:
        raw = base64.urlsafe_b64decode(state) if isinstance(state, str) else b""
        if _as_text(raw) != state:
            raise ValueError("Base64 has several spellings for some bytes; the hub gave one")
        request_state = msgspec.convert(exact_json.loads(encryption.unseal(raw, purpose)), _RequestState)
    except (encryption.DecryptionError, ValueError) as problem:
        raise _invalid_state("is not one that this hub gave for this request") from problem
    if request_state.expires < time.time():
        raise _invalid_state("has expired: make the request again without it")
    return request_state


def _invalid_state(why: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"params.{STATE} {why}.", {"field": STATE})
