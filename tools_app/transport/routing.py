"""Routing of ASGI requests to MCP transports or to Django."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.transport import state
from tools_app.transport.legacy_sse import LegacyMessageConsumer, LegacySseConsumer
from tools_app.transport.page_guard import reject, serve_page
from tools_app.transport.request import Application, AsgiRequest, Fault, head_of
from tools_app.transport.responses import refusal, send_reply
from tools_app.transport.stranger_queue import queued, queued_pages
from tools_app.transport.streamable_http import StreamableHttpConsumer
from tools_app.transport.websocket import WebSocketConsumer

# The last segment of a path, with or without a tenant before it.
HTTP_CONSUMERS: dict[str, Callable[[], Application]] = {
    "mcp": StreamableHttpConsumer,
    "sse": LegacySseConsumer,
    "message": LegacyMessageConsumer,
}
SOCKET_CONSUMERS: dict[str, Callable[[], Application]] = {"ws": WebSocketConsumer}
MCP_PATH = re.compile(r"^/(?:t/(?P<slug>[^/]+)/)?(?P<name>mcp|sse|message|ws)/?\Z")


def mcp_application(pages: Application) -> Application:
    """Return an ASGI application that routes MCP paths to their consumers and everything else to `pages`.

    MCP paths skip Django's middleware.
    """
    pages = queued_pages(pages)

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        fault = head_of(scope).fault if scope["type"] in ("http", "websocket") else None
        if fault is not None:
            await queued(scope, partial(_refuse, fault, scope, receive, send), send)
            return
        match = MCP_PATH.match(scope.get("path", ""))
        consumers = SOCKET_CONSUMERS if scope["type"] == "websocket" else HTTP_CONSUMERS
        consumer = consumers.get(match["name"]) if match and scope["type"] in ("http", "websocket") else None
        if match is None or consumer is None:
            if scope["type"] == "http":
                # A process that serves pages also runs housekeeping, which signs admins' changes promptly.
                state.current()
                await serve_page(pages, scope, receive, send)
                return
            await (refuse_socket(send) if scope["type"] == "websocket" else pages(scope, receive, send))
            return
        inner_scope = {**scope, "url_route": {"slug": match["slug"]}}
        # Servers write the URL of this scope to their access logs, which must not contain keys.
        scope["query_string"] = b""
        await consumer()(inner_scope, receive, send)

    return application


async def _refuse(fault: Fault, scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer a request with an invalid head."""
    if scope["type"] == "websocket":
        await refuse_socket(send)
        return
    http_request = AsgiRequest(scope, receive)
    if MCP_PATH.match(http_request.path) is None:
        await reject(http_request, send, fault)
        return
    await send_reply(http_request, send, refusal(RpcError(INVALID_REQUEST, fault.message, status=fault.status)))


async def refuse_socket(send: Any) -> None:
    """Reject a WebSocket at an unknown path: the server answers 403."""
    await send({"type": "websocket.close", "code": 1008})
