"""Which handler answers which method, in which era."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tools_app.methods.exchange import Exchange
from tools_app.protocol.errors import METHOD_NOT_FOUND, RpcError
from tools_app.protocol.versions import Era

Handler = Callable[[Exchange], Awaitable[bytes]]
H = TypeVar("H", bound=Handler)

BOTH_ERAS = (Era.HANDSHAKE, Era.MODERN)

_handlers: dict[tuple[str, Era], Handler] = {}


def method(name: str, *eras: Era) -> Callable[[H], H]:
    """Let the decorated handler answer `name` in `eras`. It returns its result as JSON, or raises RpcError."""

    def register(handler: H) -> H:
        for era in eras:
            _handlers[name, era] = handler
        return handler

    return register


def handler_of(name: str, era: Era) -> Handler:
    """The handler of a method. Raises RpcError -32601 if the era has no such method."""
    handler = _handlers.get((name, era))
    if handler is None:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: '{name}'", {"method": name})
    return handler
