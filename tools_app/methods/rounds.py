"""Questions of a run that has to be asked for again (2026-07-28, multi round-trip requests).

What a function was told so far, and what it wants to find again, travels with the client: sealed, bound to who asks
for what, and good for a while only.
"""

import base64
import hashlib
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from tools_app.auth import vault
from tools_app.auth.principal import Principal
from tools_app.execution.invocation import FIRST_ROUND, Round
from tools_app.execution.results import InputRequired, without
from tools_app.methods.exchange import Exchange
from tools_app.methods.results import SERVER
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.inbound import SERVER_META
from tools_app.protocol.versions import Era

STATE_SECONDS = 3600.0
STATE, RESPONSES = "requestState", "inputResponses"


class _Sealed(msgspec.Struct, frozen=True):
    expires: float
    answers: dict[str, Any]
    state: dict[str, Any]


def round_of(exchange: Exchange) -> Round:
    """What a request brings from earlier rounds. Raises RpcError for a state that is not this request's own."""
    params = exchange.params
    if exchange.era is not Era.MODERN or not (STATE in params or RESPONSES in params):
        return FIRST_ROUND
    brought = answers_in(params)
    if STATE not in params:
        return Round(answers=brought)
    opened = _opened(params[STATE], _purpose(exchange.principal, exchange.request.method, params))
    return Round(answers={**opened.answers, **brought}, state=opened.state)


def answers_in(params: Mapping[str, Any]) -> dict[str, Any]:
    """The client's answers by the names of their questions. Raises RpcError -32602."""
    brought = params.get(RESPONSES, {})
    if not isinstance(brought, dict) or not all(isinstance(answer, dict) for answer in brought.values()):
        raise RpcError(INVALID_PARAMS, f"params.{RESPONSES} must be an object of objects.", {"field": RESPONSES})
    return brought


def rendered(unfinished: InputRequired, exchange: Exchange) -> bytes:
    """The result that asks the client (multi round-trip requests, §InputRequiredResult)."""
    purpose = _purpose(exchange.principal, exchange.request.method, exchange.params)
    return orjson.dumps(
        {
            "resultType": "input_required",
            "inputRequests": unfinished.requests,
            STATE: _sealed(_Sealed(time.time() + STATE_SECONDS, unfinished.answers, unfinished.state), purpose),
            "_meta": {SERVER_META: SERVER},
        }
    )


def _purpose(principal: Principal, method: str, params: Mapping[str, Any]) -> str:
    """Whose state it is and what it is for: it opens for nobody and nothing else."""
    asked = orjson.dumps(without(params, STATE, RESPONSES, "_meta"), option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(asked).hexdigest()
    return f"round:{principal.tenant_id}:{principal.key_id}:{method}:{digest}"


def _sealed(kept: _Sealed, purpose: str) -> str:
    return _as_text(vault.seal(msgspec.json.encode(kept), purpose))


def _as_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


def _opened(state: object, purpose: str) -> _Sealed:
    try:
        raw = base64.urlsafe_b64decode(state) if isinstance(state, str) else b""
        if _as_text(raw) != state:
            raise ValueError("Base64 has several spellings for some bytes; the hub gave one")
        kept = msgspec.json.decode(vault.unseal(raw, purpose), type=_Sealed)
    except (vault.Unsealable, ValueError) as problem:
        raise _refused("is not one that this hub gave for this request") from problem
    if kept.expires < time.time():
        raise _refused("has expired: make the request again without it")
    return kept


def _refused(why: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"params.{STATE} {why}.", {"field": STATE})
