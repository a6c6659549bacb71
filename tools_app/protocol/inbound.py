"""Which era a POST belongs to and whether its headers fit its body: pure functions over headers and messages.

Header names are lower-case, values are as they came.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tools_app.protocol.errors import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION, RpcError
from tools_app.protocol.jsonrpc import Message, Notification, Request
from tools_app.protocol.versions import HANDSHAKE_VERSIONS, LOG_LEVELS, MODERN_VERSIONS

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
SESSION_HEADER: Final = "mcp-session-id"
ROUTING_HEADERS: Final = frozenset({VERSION_HEADER, METHOD_HEADER, NAME_HEADER})

META_PREFIX: Final = "io.modelcontextprotocol/"
VERSION_META: Final = META_PREFIX + "protocolVersion"
CLIENT_META: Final = META_PREFIX + "clientInfo"
CAPABILITIES_META: Final = META_PREFIX + "clientCapabilities"
LOG_META: Final = META_PREFIX + "logLevel"
SERVER_META: Final = META_PREFIX + "serverInfo"
SUBSCRIPTION_META: Final = META_PREFIX + "subscriptionId"

# Which parameter the Mcp-Name header repeats (2026-07-28, Streamable HTTP, §Standard Request Headers).
NAMED_BY: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

_ENCODED_START, _ENCODED_END = "=?base64?", "?="


class Handshake(msgspec.Struct, frozen=True):
    """A message of the handshake era; its revision is what its session agreed on."""


class Modern(msgspec.Struct, frozen=True):
    """A request of the modern era, its headers and metadata checked."""

    version: str
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]


Route = Handshake | Modern


def is_modern(headers: Mapping[str, str], message: Message) -> bool:
    """Whether a message is to be judged by the modern revisions' rules (versioning, §Backward Compatibility)."""
    if headers.get(VERSION_HEADER) in MODERN_VERSIONS:
        return True
    return isinstance(message, Request) and VERSION_META in _meta(message.params)


def classify(headers: Mapping[str, str], message: Message) -> Route | RpcError:
    """The route of a message, or why it is refused.

    Modern requests are checked in this order: required metadata, headers against body, supported version.
    """
    if is_modern(headers, message):
        return _modern_request(headers, message) if isinstance(message, Request) else _modern_other(headers)
    version = headers.get(VERSION_HEADER)
    if version is not None and version not in HANDSHAKE_VERSIONS:
        return unsupported(version, [*MODERN_VERSIONS, *reversed(HANDSHAKE_VERSIONS)])
    return Handshake()


def classify_alone(request: Request) -> Route | RpcError:
    """The same for a request that came without headers (stdio, §Request Metadata)."""
    if not is_modern({}, request):
        return Handshake()
    meta = _meta(request.params)
    return _envelope_problem(meta) or _supported(meta)


def _modern_request(headers: Mapping[str, str], request: Request) -> Route | RpcError:
    meta = _meta(request.params)
    problem = _envelope_problem(meta) or _header_problem(headers, request, meta[VERSION_META])
    return problem or _supported(meta)


def _supported(meta: Mapping[str, Any]) -> Route | RpcError:
    version = meta[VERSION_META]
    if version not in MODERN_VERSIONS:
        return unsupported(version, MODERN_VERSIONS)
    return Modern(version, meta.get(CLIENT_META) or {}, meta[CAPABILITIES_META])


def _modern_other(headers: Mapping[str, str]) -> Route | RpcError:
    version = headers.get(VERSION_HEADER, "")
    return Modern(version, {}, {}) if version in MODERN_VERSIONS else unsupported(version, MODERN_VERSIONS)


def _meta(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _envelope_problem(meta: Mapping[str, Any]) -> RpcError | None:
    missing = [key for key in (VERSION_META, CAPABILITIES_META) if key not in meta]
    if missing:
        message = f"params._meta lacks {' and '.join(missing)}."
        return RpcError(INVALID_PARAMS, message, {"missing": missing}, status=400)
    for key, kind, name in (
        (VERSION_META, str, "a string"),
        (CAPABILITIES_META, dict, "an object"),
        (CLIENT_META, dict, "an object"),
    ):
        if key in meta and not isinstance(meta[key], kind):
            return RpcError(INVALID_PARAMS, f"params._meta['{key}'] must be {name}.", status=400)
    return None


def _header_problem(headers: Mapping[str, str], request: Request, version: str) -> RpcError | None:
    if headers.get(VERSION_HEADER) != version:
        return mismatch("MCP-Protocol-Version", headers.get(VERSION_HEADER), version)
    if headers.get(METHOD_HEADER) != request.method:
        return mismatch("Mcp-Method", headers.get(METHOD_HEADER), request.method)
    parameter = NAMED_BY.get(request.method)
    if parameter is None:
        return None
    expected = request.params.get(parameter)
    if isinstance(expected, str) and decoded(headers.get(NAME_HEADER)) != expected:
        return mismatch("Mcp-Name", headers.get(NAME_HEADER), expected)
    return None


def mismatch(header: str, found: str | None, expected: str) -> RpcError:
    """The error for a header that disagrees with the body (Streamable HTTP, §Server Validation)."""
    if found is None:
        return RpcError(HEADER_MISMATCH, f"Header mismatch: {header} is missing, the body says '{expected}'")
    return RpcError(HEADER_MISMATCH, f"Header mismatch: {header} is '{found}', the body says '{expected}'")


def unsupported(version: str, supported: Iterable[str]) -> RpcError:
    """The error for a revision that the hub does not speak, with those of the client's era, or all, that it does."""
    data = {"supported": list(supported), "requested": version}
    return RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def decoded(value: str | None) -> str | None:
    """A header value with its Base64 form undone; None if that form is broken (§Value Encoding)."""
    if value is None or not (value.startswith(_ENCODED_START) and value.endswith(_ENCODED_END)):
        return value
    payload = value[len(_ENCODED_START) : -len(_ENCODED_END)]
    try:
        return base64.b64decode(payload, validate=True).decode()
    except ValueError:
        return None


def log_level(request: Request) -> str | None:
    """From which level on the client wants log messages of this request (2026-07-28, logging, §Per-Request Log Level).

    Raises RpcError -32602 for a level that is none.
    """
    level = _meta(request.params).get(LOG_META)
    if level is not None and level not in LOG_LEVELS:
        message = f"params._meta['{LOG_META}'] must be one of {', '.join(LOG_LEVELS)}."
        raise RpcError(INVALID_PARAMS, message, {"field": LOG_META})
    return level


def progress_token(message: Request | Notification) -> str | int | None:
    """The token under which the client wants to hear of progress (progress, §Progress Flow)."""
    token = _meta(message.params).get("progressToken")
    is_token = isinstance(token, str) or (isinstance(token, int) and not isinstance(token, bool))
    return token if is_token else None
