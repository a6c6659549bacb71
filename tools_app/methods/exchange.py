"""What a handler knows of the request that it answers, and what it may send before its answer."""

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

import msgspec

from tools_app.auth.principal import Principal
from tools_app.auth.sessions import SessionFacts
from tools_app.events.switchboard import Switchboard
from tools_app.execution.invocation import Client
from tools_app.protocol.jsonrpc import Request
from tools_app.protocol.versions import Era


class Cancelled(Exception):
    """The request was cancelled: there is no answer (cancellation, §Behavior Requirements)."""


class Sender(Protocol):
    """Where messages go that belong to one request."""

    @property
    def takes_messages(self) -> bool:
        """Whether the client accepts anything before its answer."""

    def put(self, message: bytes, id: str = "") -> None:
        """Send a message; `id` is where a broken stream is taken up again after it."""

    def pause(self) -> None:
        """End the stream for now, if its client can come back to it."""

    def resumable(self, call_id: UUID) -> None:
        """Let the client come back to the stream of this call."""

    def may_return(self) -> bool:
        """Whether the client was told how to come back."""


class Exchange(msgspec.Struct, frozen=True):
    """One request, who sends it, and under which rules. `capabilities` are what the client declares.

    `headers` are those that may repeat parameters of the body; None where the transport or the revision has none.
    `carrier` are the headers that may say which trace the request belongs to.
    """

    request: Request
    principal: Principal
    era: Era
    version: str
    client: Client
    capabilities: Mapping[str, Any]
    session: SessionFacts | None
    switchboard: Switchboard
    sender: Sender
    headers: Mapping[str, str] | None = None
    carrier: Mapping[str, str] = {}

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the request."""
        return self.request.params
