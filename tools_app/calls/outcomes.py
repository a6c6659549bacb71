"""Outcomes of calls: what is recorded, and what the client receives, in this process or in the one that follows it."""

import msgspec

from tools_app.calls.invocation import End
from tools_app.calls.stop_reasons import SHUTDOWN, UNKNOWN, StopReason
from tools_app.catalog.tool_api.results import InputRequired, PromptResult, ResourceResult, Result, ToolResult, failed
from tools_app.models import BY_CALL_TOOL, TOOLS_CALL, Outcome
from tools_app.protocol import exact_json
from tools_app.protocol.errors import INTERNAL_ERROR, RpcError

WITHDRAWN = b'{"withdrawn":true}'
UNRECORDED = "The database did not confirm the record of this call in time. It may have run."


class CallOutcome(End, frozen=True, kw_only=True):
    """The outcome of a run and its response: `wire` is `result` as JSON, recorded and sent unchanged.

    `refusal` is set if the client receives a JSON-RPC error instead of a result, `withdrawn` if it cancelled the
    request and receives nothing.
    """

    result: Result
    refusal: RpcError | None = None
    withdrawn: bool = False

    def serialize(self) -> bytes:
        """Return the outcome as JSON, for the process that responds to the client."""
        if self.withdrawn:
            return WITHDRAWN
        if self.refusal is None:
            return self.wire
        refusal = self.refusal
        return exact_json.dumps({"refusal": [refusal.code, refusal.message, refusal.data, refusal.status]})


def outcome_of(
    outcome: Outcome, result: Result, refusal: RpcError | None = None, *, wire: bytes | None = None
) -> CallOutcome:
    """Return the outcome for `result`; `wire` is its JSON, if known. Raises TypeError if it cannot be JSON."""
    if wire is None:
        try:
            wire = exact_json.dumps(result.as_json())
        except TypeError as problem:
            try:
                fields = exact_json.with_decimals(msgspec.structs.asdict(result))
            except RecursionError:
                raise problem from None
            result = type(result)(**fields)
            wire = exact_json.dumps(result.as_json())
    return CallOutcome(
        outcome=outcome,
        rpc_error=refusal.code if refusal else None,
        is_error=result.is_error,
        cause=result.cause or (refusal.message if refusal else ""),
        wire=wire,
        result=result,
        refusal=refusal,
    )


def failure(method: str, outcome: Outcome, message: str, cause: str) -> CallOutcome:
    """Return a failure: for a tool a result that a model can read, otherwise a JSON-RPC error."""
    refusal = None if method in (TOOLS_CALL, BY_CALL_TOOL) else RpcError(INTERNAL_ERROR, message, status=200)
    return outcome_of(outcome, failed(message, cause), refusal)


def stopped(method: str, outcome: Outcome, reason: StopReason) -> CallOutcome:
    """Return the outcome of a stopped call: the only place that sets its response and the cause in its record."""
    finished = failure(method, outcome, reason.message, reason.cause)
    return msgspec.structs.replace(finished, withdrawn=True) if reason.withdrawn else finished


# --- Answers of calls that ended elsewhere: restored from what was recorded, or in place of what was not ---


def deserialize(outcome: Outcome, data: bytes) -> CallOutcome:
    """Restore an outcome from the output of `serialize`."""
    body = exact_json.loads(data)
    if "withdrawn" in body:
        return msgspec.structs.replace(outcome_of(outcome, failed(UNKNOWN.message), wire=data), withdrawn=True)
    if "refusal" in body:
        code, message, data, status = body["refusal"]
        return outcome_of(outcome, failed(message), RpcError(code, message, data, status=status))
    result: Result
    if "contents" in body:
        result = ResourceResult(body["contents"])
    elif "messages" in body:
        result = PromptResult(body["messages"], body.get("description", ""))
    elif "inputRequests" in body:
        result = InputRequired(body["inputRequests"], body["answers"], body["state"], body["refused"])
    else:
        result = ToolResult(body["content"], body.get("structuredContent"), body["isError"])
    return outcome_of(outcome, result, wire=data)


UNANSWERED = {
    Outcome.NOT_STARTED: "The call of '{name}' was abandoned before it started. Nothing ran. Try again.",
    Outcome.LOST: "The process that ran '{name}' was lost. The call may have run partially.",
    Outcome.TIMEOUT: "The call of '{name}' took too long and was abandoned.",
    Outcome.CANCELLED: UNKNOWN.message,
    Outcome.INTERRUPTED: SHUTDOWN.message,
}


NOT_KEPT = "The call of '{name}' has ended, but its result is no longer stored. It ran: check before you call it again."


def unanswered(outcome: Outcome, name: str) -> CallOutcome:
    """Return the response to a call that ended without an answer, or whose answer is no longer stored."""
    return outcome_of(outcome, failed(UNANSWERED.get(outcome, NOT_KEPT).format(name=name)))
