"""Errors of upstream MCP servers, in their responses too, and of memory for their answers."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from tools_app.catalog.tool_api.results import ToolError
from tools_app.core import request_memory
from tools_app.core.http.errors import RequestFailed

# Of what an upstream says, in errors: cut only after its secrets were redacted.
MAX_ERROR_LENGTH: Final = 2000


class UpstreamFailed(RequestFailed, ToolError):
    """The upstream gave no usable answer. `message` is for the model, `cause` for the audit log.

    `sent` tells whether the upstream may have received the request: then its outcome is unknown, and it is never sent
    again. `broken`: the connection broke before the answer, as one does that the upstream closed while it was idle.
    """

    def __init__(self, message: str, cause: str = "", *, sent: bool = True, broken: bool = False) -> None:
        super().__init__(message, cause)
        self.sent = sent
        self.broken = broken


class TooLarge(UpstreamFailed):
    """The upstream sent more bytes than the hub accepts."""


class SessionExpired(UpstreamFailed):
    """The upstream does not know the session (404). It ran nothing, so the request may be sent in a new session."""

    def __init__(self) -> None:
        super().__init__("The session with the upstream has expired. Try again.", "404 for the session", sent=False)


class Refused(UpstreamFailed):
    """The upstream refused a request with an HTTP status and without a JSON-RPC error.

    `challenge` is the start of its WWW-Authenticate header.
    """

    def __init__(self, message: str, status: int, challenge: str = "") -> None:
        super().__init__(message, f"HTTP {status}")
        self.status = status
        self.challenge = challenge


class LoopRefused(Refused):
    """The upstream refused a request that has passed it, or too many hubs (508): see `core.hub_path`."""

    def __init__(self, message: str) -> None:
        super().__init__(message, HTTPStatus.LOOP_DETECTED)


class ErrorResponse(Exception):
    """The upstream answered a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class TaskFailed(ErrorResponse):
    """A task of the upstream ended with a JSON-RPC error."""


async def hold_result(size: int) -> None:
    """Wait until there is memory for so many bytes of an answer. Raises UpstreamFailed."""
    try:
        await request_memory.hold_result(size)
    except request_memory.TooMuchMemory as problem:
        raise UpstreamFailed(f"{problem} The call may have run.") from None


def result_of(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a response. Raises ErrorResponse for its error, and UpstreamFailed without a valid one."""
    error = response.get("error")
    if error is not None:
        if not isinstance(error, dict):
            error = {}
        code = error.get("code")
        text = error.get("message")
        message = text if isinstance(text, str) and text else "no message"
        raise ErrorResponse(code if isinstance(code, int) else 0, message, error.get("data"))
    result = response.get("result")
    if not isinstance(result, dict):
        raise UpstreamFailed("The upstream gave no valid result.")
    return result
