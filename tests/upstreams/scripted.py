"""A scripted upstream whose responses tests write byte by byte, for what no SDK sends."""

import json
from collections.abc import Callable
from typing import Any

from tests.web_services import Received, http_response
from tests.wire.client import MODERN

LOOK = {"name": "look", "description": "Look.", "inputSchema": {"type": "object"}}
JSON = "application/json"


def reply(id: Any, result: Any = None, error: Any = None) -> bytes:
    """A response as JSON."""
    body = {"error": error} if error is not None else {"result": result}
    return http_response(200, json.dumps({"jsonrpc": "2.0", "id": id, **body}).encode(), JSON, Connection="close")


def result(text: str) -> dict[str, Any]:
    """The result of a tool."""
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": False}


def discovered(capabilities: Any = None) -> dict[str, Any]:
    return {"supportedVersions": [MODERN], "capabilities": capabilities or {"tools": {}}}


def modern(
    call: Callable[[Received, dict[str, Any]], Any], tools: Callable[[], list[dict[str, Any]]] = lambda: [LOOK]
) -> Callable[[Received], Any]:
    """The responses of a modern server. `call` responds to `tools/call` with a text or with raw bytes."""

    def answer(request: Received) -> Any:
        message = json.loads(request.body)
        match message["method"]:
            case "server/discover":
                return reply(message["id"], discovered())
            case "tools/list":
                return reply(message["id"], {"resultType": "complete", "tools": tools()})
        response = call(request, message)
        return reply(message["id"], result(response)) if isinstance(response, str) else response

    return answer
