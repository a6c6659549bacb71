"""JSON-RPC 2.0 messages: parsing, serialization, and bounds on their fields.

All functions are pure. Invalid input becomes an `RpcError`, never another exception. The bounds count bytes in compact
JSON, in UTF-8; the full list is in `docs/security.md`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import orjson

from tools_app.protocol import exact_json
from tools_app.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RpcError
from tools_app.protocol.occurrences import LONG, occurrences

RequestId = str | int
# `isinstance(True, int)` is true, but a bool is not a valid id.
ID_TYPES: Final = (str, int)
# The maximum number of objects and lists in a message. Traversing a message takes time for each of them.
MAX_CONTAINERS: Final = 100_000
# The bytes of a text that are taken apart at a time.
WINDOW = 64 * 1024
# Levels of nesting in a message.
MAX_DEPTH: Final = 64


class Request(msgspec.Struct, frozen=True):
    """A message that expects a response. `meta` is `_meta` of its parameters, if that is an object."""

    id: RequestId
    method: str
    params: dict[str, Any]
    meta: dict[str, Any] = {}


class Notification(msgspec.Struct, frozen=True):
    """A message that expects no response."""

    method: str
    params: dict[str, Any]


class Response(msgspec.Struct, frozen=True):
    """A client's response to a request of the hub."""

    id: RequestId
    result: Any
    error: Any


class Malformed(msgspec.Struct, frozen=True):
    """An invalid message; `id` is set if it could be read."""

    error: RpcError
    id: RequestId | None = None


Message = Request | Notification | Response | Malformed


def decode(
    body: bytes | bytearray,
    max_depth: int = MAX_DEPTH,
    loads: Callable[[bytes | bytearray], Any] = exact_json.loads,
) -> Any:
    """Parse the JSON value in `body`. Raises RpcError for invalid JSON (RFC 8259) or nesting beyond `max_depth`.

    `orjson.loads` as `loads` is for values that are not passed on, which have the nearest floats for long numbers.
    """
    if len(body) < LONG:
        brackets = body.count(b"{") + body.count(b"[")
    else:
        brackets = occurrences(body, b"{") + occurrences(body, b"[")
    # Counted before parsing, which takes as much time again for each of them; brackets in strings do not count.
    if brackets > MAX_CONTAINERS and _containers(body) > MAX_CONTAINERS:
        raise RpcError(PARSE_ERROR, f"Parse error: more than {MAX_CONTAINERS} objects and lists")
    try:
        value = loads(body)
    except orjson.JSONDecodeError as problem:
        raise RpcError(PARSE_ERROR, f"Parse error: {problem}") from None
    # Counting brackets is a cheap upper bound of the depth; most bodies need no further check.
    if brackets > max_depth and _deeper_than(value, max_depth):
        raise RpcError(PARSE_ERROR, f"Parse error: nested deeper than {max_depth} levels")
    return value


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        level = _inner_containers(level)
        if not level:
            return False
    return bool(level)


def _containers(body: bytes | bytearray) -> int:
    """Count the objects and lists of a JSON text: brackets outside of strings."""
    body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    count = is_inside = 0
    # In windows: the pieces of a whole text of short strings would need many times its memory.
    for start in range(0, len(body), WINDOW):
        pieces = body[start : start + WINDOW].split(b'"')
        outside = b"".join(pieces[is_inside::2])
        count += outside.count(b"{") + outside.count(b"[")
        is_inside ^= (len(pieces) - 1) % 2
    return count


def message(value: Any) -> Message:  # noqa: C901, PLR0911 - one check after the other
    """Convert a decoded JSON object into a message (base protocol, §Messages)."""
    if not isinstance(value, dict):
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: a message is a JSON object."))
    id = value.get("id")
    if "id" in value and type(id) not in ID_TYPES:
        fault = "'id' must be a string or an integer of at most 64 bits"
        return Malformed(RpcError(INVALID_REQUEST, f"Invalid request: {fault}."))
    if value.get("jsonrpc") != "2.0":
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: 'jsonrpc' must be \"2.0\"."), id)
    if "method" not in value:
        if id is None or ("result" in value) == ("error" in value):
            return Malformed(RpcError(INVALID_REQUEST, "Invalid request: neither a request nor a response."), id)
        return Response(id, value.get("result"), value.get("error"))
    method, params = value["method"], value.get("params", {})
    if isinstance(id, str) and not is_short(id, MAX_ID_BYTES):
        # It is not repeated in the error.
        return Malformed(RpcError(INVALID_REQUEST, f"Invalid request: 'id' has more than {MAX_ID_BYTES} bytes."))
    if not isinstance(method, str) or len(method) > MAX_METHOD_LENGTH:
        fault = f"'method' must be a string of at most {MAX_METHOD_LENGTH} characters"
        return Malformed(RpcError(INVALID_REQUEST, f"Invalid request: {fault}."), id)
    if not isinstance(params, dict):
        return Malformed(RpcError(INVALID_REQUEST, "Invalid request: 'params' must be an object."), id)
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        meta = {}
    token = meta.get("progressToken")
    if isinstance(token, str) and not is_short(token, MAX_PROGRESS_TOKEN_BYTES):
        return Malformed(_too_large("_meta.progressToken", f"{MAX_PROGRESS_TOKEN_BYTES} bytes"), id)
    if meta and len(exact_json.dumps(meta)) > MAX_META_BYTES:
        return Malformed(_too_large("_meta", f"{MAX_META_BYTES} bytes"), id)
    return Notification(method, params) if id is None else Request(id, method, params, meta)


def id_json(id: RequestId | None) -> bytes:
    """Return an id as JSON."""
    return exact_json.dumps(id)


def result_message(id: RequestId, result: bytes) -> bytes:
    """Return a response with `result`, which is serialized JSON and is not serialized again."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (exact_json.dumps(id), result)


def error_message(id: RequestId | None, error: RpcError) -> bytes:
    """Return an error response; without an id if none could be read (2025-11-25, base protocol, §Error Responses)."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    envelope: dict[str, Any] = {"jsonrpc": "2.0", "error": body}
    if id is not None:
        envelope["id"] = id
    return exact_json.dumps(envelope)


def notification_message(method: str, params: dict[str, Any] | None = None) -> bytes:
    """Return a notification to the client."""
    envelope: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        envelope["params"] = params
    return exact_json.dumps(envelope)


def request_message(id: RequestId, method: str, params: dict[str, Any]) -> bytes:
    """Return a request to the client."""
    return exact_json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


MAX_ID_BYTES: Final = 200
MAX_METHOD_LENGTH: Final = 200
# Messages of a batch (revision 2025-03-26).
MAX_BATCH: Final = 50
MAX_PROGRESS_TOKEN_BYTES: Final = 200
MAX_META_BYTES: Final = 64 * 1024
MAX_CAPABILITIES_BYTES: Final = 16 * 1024
MAX_CAPABILITIES_DEPTH: Final = 16
MAX_CAPABILITIES_KEYS: Final = 500
MAX_VERSION_LENGTH: Final = 100
MAX_URI_LENGTH: Final = 8192
# The argument value to complete, and the name or URI that it belongs to.
MAX_COMPLETED_LENGTH: Final = 8192
# A client's answer to one question: a form, a model's message (may include images), the roots of its workspace.
MAX_ANSWER_BYTES: Final = 1024 * 1024
# All answers of one request (2026-07-28, multi round-trip requests).
MAX_ANSWERS: Final = 100
MAX_ANSWER_NAME_LENGTH: Final = 200
# The client's name and version are truncated to this length.
MAX_CLIENT_NAME_LENGTH: Final = 200
MAX_CLIENT_VERSION_LENGTH: Final = 100

# A character takes at most six bytes of JSON ("\u0000"), so most values need not be encoded to be measured.
_BYTES_OF_CHARACTER: Final = 6


def is_short(value: str, max_bytes: int) -> bool:
    """Whether an id or a token has at most `max_bytes` bytes of JSON."""
    if len(value) * _BYTES_OF_CHARACTER + 2 <= max_bytes:
        return True
    return len(value) < max_bytes and len(exact_json.dumps(value)) <= max_bytes


def capabilities_problem(capabilities: Mapping[str, Any], field: str) -> RpcError | None:
    """Return the error for capabilities with too many bytes, levels or keys. `field` is their location.

    They are refused rather than truncated: the hub must not use more or fewer capabilities than the client declared.
    """
    try:
        size = len(orjson.dumps(capabilities))
    except TypeError:
        # The database's JSON has no Decimals.
        message = f"params.{field} holds a number of more digits than 64 bits hold."
        return RpcError(INVALID_PARAMS, message, {"field": field}, status=400)
    if size > MAX_CAPABILITIES_BYTES:
        return _too_large(field, f"{MAX_CAPABILITIES_BYTES} bytes")
    level: list[Any] = [capabilities]
    keys = depth = 0
    while level:
        depth += 1
        keys += sum(len(node) for node in level if isinstance(node, dict))
        level = _inner_containers(level)
    if depth > MAX_CAPABILITIES_DEPTH:
        return _too_large(field, f"{MAX_CAPABILITIES_DEPTH} levels")
    if keys > MAX_CAPABILITIES_KEYS:
        return _too_large(field, f"{MAX_CAPABILITIES_KEYS} keys")
    return None


def check_answer(answer: Any, field: str) -> None:
    """Raise RpcError -32602 for an answer that is too large. `field` is its location."""
    if answer and len(exact_json.dumps(answer)) > MAX_ANSWER_BYTES:
        raise _too_large(field, f"{MAX_ANSWER_BYTES} bytes")


def check_answers(answers: Mapping[str, Any], field: str) -> None:
    """Raise RpcError -32602 for answers that are too large or too many, or whose names are too long."""
    if len(answers) > MAX_ANSWERS:
        raise _too_large(field, f"{MAX_ANSWERS} answers")
    for name, answer in answers.items():
        if len(name) > MAX_ANSWER_NAME_LENGTH:
            raise _too_large(field, f"{MAX_ANSWER_NAME_LENGTH} characters in the name of an answer")
        check_answer(answer, f"{field}.{name}")


def client_info(sent: Mapping[str, Any]) -> dict[str, str]:
    """Return `clientInfo` with its name and version truncated. No behaviour depends on them.

    NUL is removed, because PostgreSQL cannot store it.
    """
    info: dict[str, str] = {}
    if isinstance(name := sent.get("name"), str):
        info["name"] = name[:MAX_CLIENT_NAME_LENGTH].replace("\0", "\ufffd")
    if isinstance(version := sent.get("version"), str):
        info["version"] = version[:MAX_CLIENT_VERSION_LENGTH].replace("\0", "\ufffd")
    return info


def check_text(value: str, field: str, longest: int) -> None:
    """Raise RpcError -32602 for a text that is too long, or that contains NUL, which PostgreSQL cannot store."""
    if len(value) > longest:
        raise _too_large(field, f"{longest} characters")
    if "\0" in value:
        raise RpcError(INVALID_PARAMS, f"params.{field} holds the character U+0000.", {"field": field}, status=400)


def _inner_containers(level: list[Any]) -> list[Any]:
    """Return the objects and lists of the next level."""
    return [
        child
        for node in level
        for child in (node.values() if isinstance(node, dict) else node)
        if isinstance(child, dict | list)
    ]


def _too_large(field: str, bound: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"params.{field} has more than {bound}.", {"field": field}, status=400)
