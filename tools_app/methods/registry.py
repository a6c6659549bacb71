"""The handlers of the methods of each era."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tools_app.calls.request import RequestContext
from tools_app.protocol.versions import Era

Handler = Callable[[RequestContext], Awaitable[bytes]]
H = TypeVar("H", bound=Handler)

BOTH_ERAS: Final = (Era.HANDSHAKE, Era.MODERN)

handlers: Final[dict[tuple[str, Era], Handler]] = {}


def method(name: str, *eras: Era) -> Callable[[H], H]:
    """Register the decorated handler for `name` in `eras`. It returns its result as JSON, or raises RpcError."""

    def register(handler: H) -> H:
        for era in eras:
            handlers[name, era] = handler
        return handler

    return register
