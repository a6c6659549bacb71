"""Multi round-trip requests: questions of a function that is run again with the answers (2026-07-28).

Earlier answers and the function's state travel with the client as an encrypted token, which is bound to the caller and
the request and expires.
"""

import base64
import hashlib
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson

from tools_app.calls.invocation import Round
from tools_app.catalog.tool_api.results import InputRequired, without
from tools_app.core import encryption
from tools_app.identity.principal import Principal
from tools_app.methods.context import SERVER, RequestContext
from tools_app.protocol import exact_json
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import SERVER_META
from tools_app.protocol.jsonrpc import check_answers

STATE_SECONDS = 3600.0
STATE, RESPONSES = "requestState", "inputResponses"
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


class _RequestState(msgspec.Struct, frozen=True):
    expires: float
    answers: dict[str, Any]
    state: dict[str, Any]
    refused: dict[str, int] = {}


def round_of(context: RequestContext) -> Round:
    """Return the earlier rounds that a request carries. Raises RpcError for a state that belongs to another request."""
    params = context.params
    answers = answers_in(params)
    if STATE not in params:
        return Round(answers=answers)
    opened = _decrypted(params[STATE], _purpose(context.principal, context.request.method, params))
    return Round({**opened.answers, **answers}, opened.state, opened.refused)


def answers_in(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's answers by question name. Raises RpcError -32602."""
    answers = params.get(RESPONSES, {})
    if not isinstance(answers, dict) or not all(isinstance(answer, dict) for answer in answers.values()):
        raise RpcError(INVALID_PARAMS, f"params.{RESPONSES} must be an object of objects.", {"field": RESPONSES})
    check_answers(answers, RESPONSES)
    return answers


def input_required_result(unfinished: InputRequired, context: RequestContext) -> bytes:
    """Return the result that asks the client (multi round-trip requests, §InputRequiredResult)."""
    purpose = _purpose(context.principal, context.request.method, context.params)
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
