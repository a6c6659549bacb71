"""The JSON-RPC errors of the hub and their HTTP statuses."""

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
# Pages must be visited first (2025-11-25, elicitation, §URL Elicitation Required Error).
PAGES_REQUIRED: Final = -32042

# The range that JSON-RPC reserves, and the codes defined in it.
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
    """A refusal that is sent as a JSON-RPC error."""

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
        """The HTTP status of a response that contains only this error."""
        if self.status is not None:
            return self.status
        table = {**_ALWAYS, **_MODERN} if modern else _ALWAYS
        return table.get(self.code, 200)


DATABASE_AWAY: Final = "The database is unavailable, so calls cannot be recorded. Nothing ran. Try again in a moment."


def store_gone() -> RpcError:
    """Return the refusal of a call that could not be recorded."""
    return RpcError(INTERNAL_ERROR, DATABASE_AWAY, retry_after=1)


def limit_of_zero(scope: str, limited: str, data: dict[str, Any]) -> RpcError:
    """Return the refusal for a limit of zero, which has no time to retry.

    `limited` is what the limit counts, such as "calls per minute".
    """
    message = (
        f"The limit of {limited} for this {scope} is 0: none are allowed. An admin of the tenant can change the limit."
    )
    return RpcError(OVER_LIMIT, message, data)


def resource_not_found(uri: str, *, modern: bool) -> RpcError:
    """Return the error for an unknown URI; its code changed with 2026-07-28 (resources, §Error Handling)."""
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return RpcError(code, "Resource not found", {"uri": uri})
