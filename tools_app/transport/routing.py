"""Which ASGI requests are the protocol's, and which are Django's."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from tools_app.transport import state
from tools_app.transport.legacy_sse import LegacyMessageConsumer, LegacySseConsumer
from tools_app.transport.streamable_http import StreamableHttpConsumer
from tools_app.transport.websocket import WebSocketConsumer

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

# What stands at the end of a path, with or without a tenant before it.
HTTP_CONSUMERS: dict[str, Callable[[], Application]] = {
    "mcp": StreamableHttpConsumer,
    "sse": LegacySseConsumer,
    "message": LegacyMessageConsumer,
}
SOCKET_CONSUMERS: dict[str, Callable[[], Application]] = {"ws": WebSocketConsumer}
MCP_PATH = re.compile(r"^/(?:t/(?P<slug>[^/]+)/)?(?P<name>mcp|sse|message|ws)/?\Z")


def mcp_application(pages: Application) -> Application:
    """An ASGI application that sends the protocol's paths to their consumers and everything else to `pages`.

    The protocol's paths pay for no middleware that they do not use.
    """

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        match = MCP_PATH.match(scope.get("path", ""))
        consumers = SOCKET_CONSUMERS if scope["type"] == "websocket" else HTTP_CONSUMERS
        consumer = consumers.get(match["name"]) if match and scope["type"] in ("http", "websocket") else None
        if match is None or consumer is None:
            if scope["type"] == "http":
                # Whoever serves pages keeps house, too: what admins change is signed within moments.
                state.current()
            await (refuse_socket(send) if scope["type"] == "websocket" else pages(scope, receive, send))
            return
        own = {**scope, "url_route": {"slug": match["slug"]}}
        # Servers write the address of this scope into their access logs, where a key in it does not belong.
        scope["query_string"] = b""
        await consumer()(own, receive, send)

    return application


async def refuse_socket(send: Any) -> None:
    """There is nothing at this path for a WebSocket: the server answers 403."""
    await send({"type": "websocket.close", "code": 1008})
