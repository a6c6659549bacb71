"""Classification of inbound messages: era, accepted response types, and consistency of headers and body.

Pure functions over headers and messages. Header names are lower case, values are unchanged.
"""

import base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from tools_app.protocol.errors import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION, RpcError
from tools_app.protocol.jsonrpc import ID_TYPES, MAX_VERSION_LENGTH, Message, Request, capabilities_problem, client_info
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
CAPABILITIES_FIELD: Final = f"_meta['{CAPABILITIES_META}']"
LOG_META: Final = META_PREFIX + "logLevel"
SERVER_META: Final = META_PREFIX + "serverInfo"
SERVER: Final = {"name": "mcphub", "title": "mcphub", "version": "0.1.0"}
SUBSCRIPTION_META: Final = META_PREFIX + "subscriptionId"

# The parameter that the Mcp-Name header mirrors (2026-07-28, Streamable HTTP, §Standard Request Headers).
NAMED_BY: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

_META_TYPES: Final = (
    (VERSION_META, str, "a string"),
    (CAPABILITIES_META, dict, "an object"),
    (CLIENT_META, dict, "an object"),
)
_ENCODED_START, _ENCODED_END = "=?base64?", "?="


class Handshake(msgspec.Struct, frozen=True):
    """A message of the handshake era; its revision was negotiated by its session."""


class Modern(msgspec.Struct, frozen=True):
    """A request of the modern era with validated headers and metadata."""

    version: str
    client: Mapping[str, str]
    capabilities: Mapping[str, Any]


Route = Handshake | Modern


def is_modern(headers: Mapping[str, str], message: Message) -> bool:
    """Whether the rules of the modern revisions apply to a message (versioning, §Backward Compatibility)."""
    if headers.get(VERSION_HEADER) in MODERN_VERSIONS:
        return True
    return isinstance(message, Request) and VERSION_META in message.meta


def classify(headers: Mapping[str, str], message: Message) -> Route | RpcError:
    """Return the route of a message, or why it is refused.

    Modern requests are checked in this order: required metadata, headers against body, supported version.
    """
    named = headers.get(VERSION_HEADER)
    if isinstance(message, Request) and (named in MODERN_VERSIONS or VERSION_META in message.meta):
        return _modern_request(headers, message)
    if named is not None and named in MODERN_VERSIONS:
        return Modern(named, {}, {})
    if named is not None and named not in HANDSHAKE_VERSIONS:
        return unsupported(named, [*MODERN_VERSIONS, *reversed(HANDSHAKE_VERSIONS)])
    return Handshake()


def classify_alone(request: Request) -> Route | RpcError:
    """Classify a request without headers (stdio, §Request Metadata)."""
    if not is_modern({}, request):
        return Handshake()
    return _modern_request(None, request)


def _modern_request(  # noqa: C901, PLR0911 - one check after the other
    headers: Mapping[str, str] | None, request: Request
) -> Route | RpcError:
    meta = request.meta
    if VERSION_META not in meta or CAPABILITIES_META not in meta:
        missing = [key for key in (VERSION_META, CAPABILITIES_META) if key not in meta]
        message = f"params._meta lacks {' and '.join(missing)}."
        return RpcError(INVALID_PARAMS, message, {"missing": missing}, status=400)
    for key, kind, name in _META_TYPES:
        if key in meta and not isinstance(meta[key], kind):
            return RpcError(INVALID_PARAMS, f"params._meta['{key}'] must be {name}.", status=400)
    version, capabilities = meta[VERSION_META], meta[CAPABILITIES_META]
    if len(version) > MAX_VERSION_LENGTH:
        message = f"params._meta['{VERSION_META}'] has more than {MAX_VERSION_LENGTH} characters."
        return RpcError(INVALID_PARAMS, message, status=400)
    if capabilities and (problem := capabilities_problem(capabilities, CAPABILITIES_FIELD)) is not None:
        return problem
    if headers is not None:
        if headers.get(VERSION_HEADER) != version:
            return mismatch("MCP-Protocol-Version", headers.get(VERSION_HEADER), version)
        if headers.get(METHOD_HEADER) != request.method:
            return mismatch("Mcp-Method", headers.get(METHOD_HEADER), request.method)
        # It stands in the header as it is, or in Base64.
        named, repeated = request.params.get(NAMED_BY.get(request.method, "")), headers.get(NAME_HEADER)
        is_same = named == repeated and not str(named).startswith(_ENCODED_START)
        if isinstance(named, str) and request.method in NAMED_BY and not is_same and named != decoded(repeated):
            return mismatch("Mcp-Name", repeated, named)
    if version not in MODERN_VERSIONS:
        return unsupported(version, MODERN_VERSIONS)
    return Modern(version, client_info(meta.get(CLIENT_META) or {}), capabilities)


def mismatch(header: str, found: str | None, expected: str) -> RpcError:
    """Return the error for a header that does not match the body (Streamable HTTP, §Server Validation)."""
    if found is None:
        return RpcError(HEADER_MISMATCH, f"Header mismatch: {header} is missing, the body says '{expected}'")
    return RpcError(HEADER_MISMATCH, f"Header mismatch: {header} is '{found}', the body says '{expected}'")


def unsupported(version: str, supported: Iterable[str]) -> RpcError:
    """Return the error for an unsupported revision, with the supported revisions of the client's era, or all."""
    data = {"supported": list(supported), "requested": version}
    return RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def decoded(value: str | None) -> str | None:
    """Decode a header value from its Base64 form; None if that form is invalid (§Value Encoding)."""
    if value is None or not (value.startswith(_ENCODED_START) and value.endswith(_ENCODED_END)):
        return value
    payload = value[len(_ENCODED_START) : -len(_ENCODED_END)]
    try:
        return base64.b64decode(payload, validate=True).decode()
    except ValueError:
        return None


def encoded(text: str) -> str:
    """Return a text as a header value, in Base64 where it is needed (2026-07-28, Streamable HTTP, §Value Encoding)."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith(_ENCODED_START)
    payload = base64.b64encode(text.encode()).decode()
    return text if is_plain and text else f"{_ENCODED_START}{payload}{_ENCODED_END}"


def log_level(request: Request) -> str | None:
    """Return the request's minimum log level (2026-07-28, logging, §Per-Request Log Level).

    Raises RpcError -32602 for an unknown level.
    """
    level = request.meta.get(LOG_META)
    if level is not None and level not in LOG_LEVELS:
        message = f"params._meta['{LOG_META}'] must be one of {', '.join(LOG_LEVELS)}."
        raise RpcError(INVALID_PARAMS, message, {"field": LOG_META})
    return level


def progress_token(request: Request) -> str | int | None:
    """Return the progress token of a request (progress, §Progress Flow)."""
    token = request.meta.get("progressToken")
    return token if type(token) in ID_TYPES else None


def text_in(params: Mapping[str, Any], field: str) -> str:
    """Return a string from the parameters. Raises RpcError -32602."""
    value = params.get(field)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"params.{field} must be a string.", {"field": field})
    return value


def texts(params: Mapping[str, Any], field: str) -> dict[str, str]:
    """Return an object of strings from the parameters; empty if it is absent. Raises RpcError -32602."""
    value = params.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise RpcError(INVALID_PARAMS, f"params.{field} must be an object of strings.", {"field": field})
    return value


# --- Accepted response types (RFC 9110, §12.5.1; 2026-07-28, Streamable HTTP) ---

JSON: Final = "application/json"
STREAM: Final = "text/event-stream"
# A longer header is parsed each time, which bounds the cache of headers from unknown clients.
MAX_CACHED: Final = 200


class Accepted(NamedTuple):
    """`json` and `stream`: the accepted types; `only_stream`: whether a stream may be sent where there is no choice.

    A wildcard for all types, or no header, means JSON: such a client need not support event streams.
    """

    json: bool
    stream: bool
    only_stream: bool


def accepted(header: str | None) -> Accepted:
    """Parse an Accept header. A client that prefers streams by quality gets only streams."""
    if not header:
        return Accepted(json=True, stream=False, only_stream=True)
    return _cached(header) if len(header) <= MAX_CACHED else _read(header)


def _read(header: str) -> Accepted:
    qualities: dict[str, float] = {}
    for part in header.lower().split(","):
        media_range, _, parameters = part.partition(";")
        if media_range.strip():
            qualities[media_range.strip()] = _quality(parameters)
    json, stream = _of(JSON, qualities), _of(STREAM, qualities)
    is_named = STREAM in qualities or "text/*" in qualities
    return Accepted(
        json=json > 0 and not (is_named and stream > json),
        stream=stream > 0 and (is_named or not json),
        only_stream=stream > 0,
    )


def _of(media_type: str, qualities: dict[str, float]) -> float:
    """Return the quality of the most specific range that matches a type; 0 if none does."""
    ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
    return next((qualities[one] for one in ranges if one in qualities), 0.0)


def _quality(parameters: str) -> float:
    """Return the weight of a range; 1 if it is absent or not a number from 0 to 1."""
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                return 1.0
            return quality if 0 <= quality <= 1 else 1.0
    return 1.0


_cached = lru_cache(maxsize=256)(_read)
