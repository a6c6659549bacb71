"""JSON-RPC errors of the hub, and the one table that gives each its HTTP status."""

from collections.abc import Mapping
from typing import Any, Final

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_PERMITTED: Final = -32003
OVER_LIMIT: Final = -32004
RESOURCE_NOT_FOUND: Final = -32002
HEADER_MISMATCH: Final = -32020
CAPABILITY_MISSING: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

# What JSON-RPC keeps to itself and to the protocols that are built on it, and what it defines there.
RESERVED: Final = range(-32768, -31999)
JSON_RPC: Final = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR})

_ALWAYS: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INTERNAL_ERROR: 503,
    NOT_PERMITTED: 403,
    OVER_LIMIT: 429,
    HEADER_MISMATCH: 400,
    CAPABILITY_MISSING: 400,
    UNSUPPORTED_VERSION: 400,
}
_MODERN: Final[Mapping[int, int]] = {METHOD_NOT_FOUND: 404, INVALID_PARAMS: 400}


class RpcError(Exception):
    """A refusal that becomes a JSON-RPC error on the wire."""

    def __init__(
        self, code: int, message: str, data: Any = None, *, status: int | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status
        self.retry_after = retry_after

    def http_status(self, *, modern: bool) -> int:
        """The HTTP status of a response that carries only this error."""
        if self.status is not None:
            return self.status
        table = {**_ALWAYS, **_MODERN} if modern else _ALWAYS
        return table.get(self.code, 200)


def store_gone() -> RpcError:
    """The call was refused because it could not have been recorded."""
    return RpcError(INTERNAL_ERROR, "The hub cannot record calls right now. Nothing ran.", retry_after=1)


def resource_not_found(uri: str, *, modern: bool) -> RpcError:
    """The error for a URI that names nothing; its code changed with 2026-07-28 (resources, §Error Handling)."""
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return RpcError(code, "Resource not found", {"uri": uri})
