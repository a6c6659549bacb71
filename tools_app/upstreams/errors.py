"""Errors of upstream MCP servers."""

from typing import Any

from tools_app.catalog.http.errors import RequestFailed


class UpstreamFailed(RequestFailed):
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


class ErrorResponse(Exception):
    """The upstream answered a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
