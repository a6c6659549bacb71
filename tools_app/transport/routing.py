"""Which ASGI requests are the protocol's, and which are Django's."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from tools_app.transport.streamable_http import StreamableHttpConsumer

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

MCP_PATH = re.compile(r"^/(?:t/(?P<slug>[^/]+)/)?mcp/?\Z")


def mcp_application(pages: Application) -> Application:
    """An ASGI application that sends `/mcp` and `/t/<slug>/mcp` to their consumer and everything else to `pages`.

    The protocol's paths pay for no middleware that they do not use.
    """
    streamable_http = StreamableHttpConsumer.as_asgi()

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        match = MCP_PATH.match(scope["path"]) if scope["type"] == "http" else None
        if match is None:
            await pages(scope, receive, send)
            return
        own = {**scope, "url_route": {"slug": match["slug"]}}
        # Servers write the address of this scope into their access logs, where a key in it does not belong.
        scope["query_string"] = b""
        await streamable_http(own, receive, send)

    return application
