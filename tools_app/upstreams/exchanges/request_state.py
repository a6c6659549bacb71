"""What the hub keeps of an exchange between the requests of a modern client: encrypted, in its request state."""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import UUID

from tools_app.catalog.kinds.upstream.runner import Endpoint, Pin
from tools_app.catalog.tool_api.context import MAX_QUESTIONS
from tools_app.catalog.tool_api.elicitation import Question
from tools_app.catalog.tool_api.results import ToolError
from tools_app.protocol import exact_json
from tools_app.protocol.jsonrpc import MAX_ANSWER_NAME_LENGTH
from tools_app.upstreams.parked_rows import Ticket
from tools_app.upstreams.questions import Request
from tools_app.upstreams.runs import MAX_OPEN_QUESTIONS, max_open_bytes

# Where it is in the state of a call.
KEPT: Final = "upstream"
# Of a result that asks.
STATE, REQUESTS = "requestState", "inputRequests"
MAX_STATE_LENGTH: Final = 64 * 1024


def source_of(endpoint: Endpoint, pin: Pin) -> str:
    """Return a digest of what asks: answers and states of one upstream go to no other."""
    identity: list[object] = [
        str(endpoint.id),
        endpoint.transport,
        endpoint.url,
        endpoint.command,
        pin.kind,
        pin.name,
        pin.digest,
    ]
    if endpoint.owner:
        identity.append(endpoint.owner)
    return hashlib.sha256(exact_json.dumps(identity)).hexdigest()


def ticket_of(state: Mapping[str, Any]) -> Ticket:
    """Return the ticket of a parked call."""
    return Ticket(UUID(state["parked"]), state["round"])


def request_of(question: Question) -> Request:
    """Return a question as the request that asks it."""
    return {"method": question.method, "params": question.params()}


def state_of_result(result: Mapping[str, Any], used_names: Collection[str], upstream: str) -> dict[str, Any]:
    """Return what is kept of a result that asks: its state, its questions by their names for the client, and all names.

    Names are unique in all rounds; `used` are those of earlier ones. Raises ToolError for what cannot be asked.
    """
    requests, state = result.get(REQUESTS, {}), result.get(STATE)
    is_valid = isinstance(requests, dict) and all(isinstance(request, dict) for request in requests.values())
    if not is_valid or (not requests and state is None):
        raise ToolError(f"The upstream '{upstream}' asks for input in an invalid way.")
    if not isinstance(state, str | None) or len(state or "") > MAX_STATE_LENGTH or len(requests) > MAX_OPEN_QUESTIONS:
        raise ToolError(f"The upstream '{upstream}' asks too much at once.")
    if len(exact_json.dumps(requests)) > max_open_bytes():
        raise ToolError(f"The upstream '{upstream}' asks more than {max_open_bytes()} bytes at once.")
    names = list(used_names)
    questions: dict[str, dict[str, Any]] = {}
    for upstream_name, request in requests.items():
        name = upstream_name[: MAX_ANSWER_NAME_LENGTH - len(str(MAX_QUESTIONS)) - 1].replace("\0", "")
        while name in names:
            name = f"{upstream_name[: MAX_ANSWER_NAME_LENGTH // 2]}-{len(names) + 1}".replace("\0", "")
        names.append(name)
        questions[name] = {"own": upstream_name, "request": {key: request.get(key) for key in ("method", "params")}}
    if len(names) > MAX_QUESTIONS:
        raise ToolError(f"A call can ask at most {MAX_QUESTIONS} questions.")
    return {"asked": questions, "state": state, "used": names}
