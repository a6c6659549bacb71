"""What a handler knows of the request that it answers, and what it may send before its answer."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tools_app.auth.principal import Principal
from tools_app.auth.sessions import SessionFacts
from tools_app.events.switchboard import Switchboard
from tools_app.execution.invocation import Client
from tools_app.protocol.jsonrpc import Request
from tools_app.protocol.versions import Era


class Cancelled(Exception):
    """The request was cancelled: there is no answer (cancellation, §Behavior Requirements)."""


class Exchange(msgspec.Struct, frozen=True):
    """One request, who sends it, and under which rules. `send` takes messages that belong to this request."""

    request: Request
    principal: Principal
    era: Era
    version: str
    client: Client
    session: SessionFacts | None
    switchboard: Switchboard
    send: Callable[[bytes], None]

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the request."""
        return self.request.params
