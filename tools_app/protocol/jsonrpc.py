"""JSON-RPC 2.0 messages: from bytes to values, and from values to bytes.

Everything here is pure. Input that is not a message becomes an `RpcError`, never another exception.
"""

from typing import Any

import msgspec
import orjson

from tools_app.protocol.errors import INVALID_REQUEST, PARSE_ERROR, RpcError

RequestId = str | int


class Request(msgspec.Struct, frozen=True):
    """A message that wants an answer."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(msgspec.Struct, frozen=True):
    """A message that wants none."""

    method: str
    params: dict[str, Any]


class Response(msgspec.Struct, frozen=True):
    """A client's answer to a request of the hub."""

    id: RequestId
    result: Any
    error: Any


class Malformed(msgspec.Struct, frozen=True):
    """An element that is no message; `id` is set if it could be read."""

    error: RpcError
    id: RequestId | None = None


Message = Request | Notification | Response | Malformed


def decode(body: bytes, max_depth: int) -> Any:
    """The JSON value in `body`. Raises RpcError if it is not JSON (RFC 8259) or is nested deeper than `max_depth`."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise RpcError(PARSE_ERROR, f"Parse error: {problem}") from None
    # Counting brackets is a bound on the depth that costs almost nothing: most bodies end here.
    if body.count(b"{") + body.count(b"[") > max_depth and _deeper_than(value, max_depth):
        raise RpcError(PARSE_ERROR, f"Parse error: nested deeper than {max_depth} levels")
    return value


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return any(isinstance(node, dict | list) for node in level)


def _children(node: Any) -> Any:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def message(value: Any) -> Message:
    """The message that a decoded JSON object stands for (base protocol, §Messages)."""
    if not isinstance(value, dict):
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: a message is a JSON object."))
    id = value.get("id")
    if "id" in value and not _is_id(id):
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: 'id' must be a string or an integer."))
    if value.get("jsonrpc") != "2.0":
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: 'jsonrpc' must be \"2.0\"."), id)
    return _call(value, id) if "method" in value else _response(value, id)


def _call(value: dict[str, Any], id: RequestId | None) -> Message:
    method, params = value["method"], value.get("params", {})
    if not isinstance(method, str):
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: 'method' must be a string."), id)
    if not isinstance(params, dict):
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: 'params' must be an object."), id)
    return Notification(method, params) if id is None else Request(id, method, params)


def _response(value: dict[str, Any], id: RequestId | None) -> Message:
    if id is None or ("result" in value) == ("error" in value):
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: neither a request nor a response."), id)
    return Response(id, value.get("result"), value.get("error"))


def _is_id(id: Any) -> bool:
    return isinstance(id, str) or (isinstance(id, int) and not isinstance(id, bool))


def id_json(id: RequestId | None) -> bytes:
    """An id as it stands in a message."""
    return orjson.dumps(id)


def result_message(id: RequestId, result: bytes) -> bytes:
    """A response around `result`, which is JSON already: what was rendered once is not rendered again."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_json(id), result)


def error_message(id: RequestId | None, error: RpcError) -> bytes:
    """An error response; without an id where none could be read (2025-11-25, base protocol, §Error Responses)."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    envelope: dict[str, Any] = {"jsonrpc": "2.0", "error": body}
    if id is not None:
        envelope["id"] = id
    return orjson.dumps(envelope)


def notification_message(method: str, params: dict[str, Any] | None = None) -> bytes:
    """A notification to the client."""
    envelope: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        envelope["params"] = params
    return orjson.dumps(envelope)


def request_message(id: RequestId, method: str, params: dict[str, Any]) -> bytes:
    """A request to the client."""
    return orjson.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
