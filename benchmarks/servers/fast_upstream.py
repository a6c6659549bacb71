"""An upstream that is as fast as one in Python can be: echo, in both eras, without a session or a framework."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
ECHO = {
    "name": "echo",
    "description": "Greet back.",
    "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "annotations": {"readOnlyHint": True},
}
SERVER = {"name": "fast", "version": "1"}
CAPABILITIES = {"tools": {}}
MODERN = "2026-07-28"
CACHED = {"ttlMs": 60_000, "cacheScope": "private"}
NO_CONTENT = 202


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    params = message.get("params", {})
    match message["method"]:
        case "initialize":
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": SERVER}
        case "server/discover":
            meta = {"io.modelcontextprotocol/serverInfo": SERVER}
            return {"supportedVersions": [MODERN], "capabilities": CAPABILITIES, "_meta": meta, **CACHED}
        case "tools/list":
            return {"tools": [ECHO], **CACHED}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"hello {params['arguments']['message']}"}], "isError": False}
    return {}


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Serve one request; there is nothing to do at start and end."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    message = orjson.loads(body) if body else {}
    status, said = NO_CONTENT, b""
    if "id" in message:
        result = {"resultType": "complete", **answer(message)}
        status, said = 200, orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": said})
