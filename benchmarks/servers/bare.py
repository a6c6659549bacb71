"""The floor: an ASGI application that reads the request and sends an answer that was made before.

It looks at nothing, so nothing in Python behind the same server and the same answer can be faster.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.servers.look_up import LOOK_UPS

STEPS = 20
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Canned:
    """Answers every POST with the same parts, each sent by itself."""

    def __init__(self, kind: str, *parts: bytes) -> None:
        self._kind = kind.encode()
        self._parts = parts

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request; there is nothing to do at start and end."""
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", self._kind)]
        if len(self._parts) == 1:
            headers.append((b"content-length", str(len(self._parts[0])).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        last = len(self._parts) - 1
        for number, part in enumerate(self._parts):
            await send({"type": "http.response.body", "body": part, "more_body": number < last})


def _result(result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", **result}}).encode()


def _progress(step: int) -> bytes:
    params = {"progressToken": 1, "progress": step, "total": STEPS, "message": f"step {step}"}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode()


def _text(text: str) -> bytes:
    return _result({"content": [{"type": "text", "text": text}]})


def _event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"


LOOK_UP = {
    "description": "Look something up: one of many tools like it, which only the list needs.",
    "inputSchema": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "shelf": {"type": "integer"}, "order": {"enum": ["newest"]}},
        "required": ["query"],
    },
}

plain = Canned("application/json", _text("hello world"))
many = Canned("application/json", _result({"tools": [{"name": name, **LOOK_UP} for name in LOOK_UPS]}))
streaming = Canned(
    "text/event-stream",
    *(_event(_progress(step)) for step in range(1, STEPS + 1)),
    _event(_text(f"{STEPS} steps")),
)
