"""Answers of calls that ended elsewhere: restored from what was recorded, or in place of what was not."""

import msgspec

from tools_app.calls.run import CallOutcome, outcome_of
from tools_app.calls.stop_reasons import SHUTDOWN, UNKNOWN
from tools_app.catalog.tool_api.results import InputRequired, PromptResult, ResourceResult, Result, ToolResult, failed
from tools_app.models import Outcome
from tools_app.protocol import exact_json
from tools_app.protocol.errors import RpcError


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
