"""An HTTP request from ASGI: checks of its head, its size-limited body, headers, key and address.

A rejected client may still be sending. Closing the connection at once would reset it and lose the response, so the
response is sent completely and input is discarded for a bounded time before the exchange ends.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
from contextlib import suppress
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import parse_qs

from tools_app.access.principal import Credential, client_ip
from tools_app.core.config import config
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.protocol.inbound import ROUTING_HEADERS, accepted, mismatch
from tools_app.protocol.mirrored import PREFIX as PARAMETER_PREFIX

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Coroutine[Any, Any, None]]
Headers = Iterable[tuple[bytes, bytes]]
Scope = MutableMapping[str, Any]

SCHEMES: Final = {"ws": "http", "wss": "https"}
MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32 * 1024
MAX_PATH_BYTES: Final = 4096
MAX_QUERY_BYTES: Final = 8192
# Two parsers of a request that repeats one of these may disagree (RFC 9112, §3.2 and §6.3).
SINGLE: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"authorization", b"content-type"})
# Up to this size, an unread body does not close the connection.
MAX_SKIPPED_BYTES: Final = 64 * 1024
MAX_LINGER_BYTES: Final = 1024 * 1024
LINGER_SECONDS: Final = 1.0
# The timeout of a body, plus one second for each 64 KiB of its limit.
BODY_SECONDS: Final = 30.0
BYTES_PER_SECOND: Final = 64 * 1024
MAX_DIGITS: Final = 15
CLOSE: Final = (b"connection", b"close")
ACCEPT: Final = "accept"
FORWARDED_FOR: Final = "x-forwarded-for"
# Headers whose repetition is one list (RFC 9110, §5.3), like those that begin with `Mcp-Param-`.
LISTS: Final = frozenset({ACCEPT, FORWARDED_FOR})
WHITE_SPACE: Final = b" \t"
# The key in a scope of the headers by name.
BY_NAME: Final = "mcphub.headers"


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


class BodyRefused(Exception):
    """The body is not read to its end. The message is for the client, with this HTTP status."""

    status: ClassVar[int]


class BodyTooLarge(BodyRefused):
    """The body has more than `limit` bytes."""

    status = 413

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {limit} bytes.")


class BodyTooSlow(BodyRefused):
    """The body did not arrive within its timeout."""

    status = 408

    def __init__(self) -> None:
        super().__init__("The body did not come in time.")


class RequestBody:
    """The body of one request, chunked or not. `declared` is its Content-Length, 0 without one."""

    def __init__(self, headers: Mapping[str, str], receive: Receive) -> None:
        self._receive = receive
        length = headers.get("content-length", "")
        # Servers reject what is not a number; one with too many digits is large in any case.
        self.declared = int(length[: MAX_DIGITS + 1]) if length.isascii() and length.isdigit() else 0
        self.is_complete = not self.declared and "transfer-encoding" not in headers
        self._expects = "expect" in headers
        self.received = 0

    async def read(self, limit: int) -> bytes:
        """Read the whole body. Raises BodyTooLarge as soon as that is known, BodyTooSlow and Disconnected."""
        if self.declared > limit:
            raise BodyTooLarge(limit)
        # Usually there is one chunk, and servers close idle connections.
        body = await self.next()
        if not self.is_complete:
            body = await self._rest(body, limit)
        if self.received > limit:
            raise BodyTooLarge(limit)
        return body

    async def _rest(self, first: bytes, limit: int) -> bytes:
        chunks = [first]
        try:
            async with asyncio.timeout(seconds_for(limit)):
                while not self.is_complete:
                    if self.received > limit:
                        raise BodyTooLarge(limit)
                    chunks.append(await self.next())
        except TimeoutError:
            raise BodyTooSlow from None
        return b"".join(chunks)

    async def next(self) -> bytes:
        """Return the next chunk. Raises Disconnected."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        self.is_complete = not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        self.received += len(body)
        return body

    async def answer(self, send: Send, status: int, headers: Headers, content: bytes) -> None:
        """Answer the request, whether or not its body was read. `content` is the whole response body."""
        if self.is_complete:
            await send({"type": "http.response.start", "status": status, "headers": [*headers]})
            await send({"type": "http.response.body", "body": content})
            return
        closes = self._expects or not 0 < self.declared <= MAX_SKIPPED_BYTES
        more = (CLOSE,) if closes else ()
        await send({"type": "http.response.start", "status": status, "headers": [*headers, *more]})
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await self._skip()
        await send({"type": "http.response.body", "body": b""})

    async def _skip(self) -> None:
        """Discard the rest, up to MAX_LINGER_BYTES and LINGER_SECONDS."""
        end = self.received + MAX_LINGER_BYTES
        with suppress(TimeoutError, Disconnected):
            async with asyncio.timeout(LINGER_SECONDS):
                while not self.is_complete and self.received <= end:
                    await self.next()


def seconds_for(limit: int) -> float:
    """Return the timeout in seconds of a body of at most `limit` bytes."""
    return BODY_SECONDS + limit / BYTES_PER_SECOND


class Fault(NamedTuple):
    """Why a request is rejected."""

    status: int
    message: str


def fault_of(scope: Scope) -> Fault | None:
    """Return what is wrong with the head of a request, or None."""
    headers = scope["headers"]
    if len(headers) > MAX_HEADERS:
        return Fault(431, f"The request has more than {MAX_HEADERS} headers.")
    if sum(map(len, chain.from_iterable(headers))) > MAX_HEADER_BYTES:
        return Fault(431, f"The headers of the request have more than {MAX_HEADER_BYTES} bytes.")
    by_name = headers_in(scope)
    if len(by_name) != len(headers):
        counts = Counter(name for name, _ in headers)
        twice = next((name for name in counts if name in SINGLE and counts[name] > 1), None)
        if twice is not None:
            return Fault(400, f"The header {twice.decode().title()} stands more than once in the request.")
    if "content-length" in by_name and "transfer-encoding" in by_name:
        return Fault(400, "A request has either Content-Length or Transfer-Encoding.")
    return _target_fault(scope)


def _target_fault(scope: Scope) -> Fault | None:
    path, query = scope["path"], scope.get("query_string", b"")
    if len(path) > MAX_PATH_BYTES:
        return Fault(414, f"The path has more than {MAX_PATH_BYTES} bytes.")
    if len(query) > MAX_QUERY_BYTES:
        return Fault(414, f"The query has more than {MAX_QUERY_BYTES} bytes.")
    if "\0" in path or b"%00" in query or b"\0" in query:
        return Fault(400, "The address holds the character U+0000.")
    return None


def headers_in(scope: Scope) -> dict[str, str]:
    """Return a request's headers by lower-case name. They are parsed once, and kept in its scope.

    The values of a repeated list are joined; of other repeated headers, the last value is used.
    """
    headers: dict[str, str] | None = scope.get(BY_NAME)
    if headers is None:
        raw = scope["headers"]
        # Not every server strips the whitespace around a value (RFC 9110, §5.5).
        headers = {name.decode("latin-1"): value.strip(WHITE_SPACE).decode("latin-1") for name, value in raw}
        if len(headers) != len(raw):
            for name in [name for name in headers if name in LISTS or name.startswith(PARAMETER_PREFIX)]:
                values = [value for repeated, value in raw if repeated.decode("latin-1") == name]
                headers[name] = ", ".join(value.strip(WHITE_SPACE).decode("latin-1") for value in values)
        scope[BY_NAME] = headers
    return headers


def remote_address(scope: Scope, headers: Mapping[str, str]) -> str:
    """Return the client's IP address behind trusted proxies."""
    client = scope.get("client")
    return client_ip(str(client[0]) if client else "", headers.get(FORWARDED_FOR, ""))


class AsgiRequest:
    """One request, with the headers of `headers_in`."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self.http_method: str = scope.get("method", "GET")
        self.headers = headers_in(scope)
        self.has_repeated_headers = len(self.headers) != len(scope["headers"])
        # The slug in the path, if it names a tenant.
        self.tenant_slug: str | None = scope.get("url_route", {}).get("slug")
        self.remote_address = remote_address(scope, self.headers)
        scheme = str(scope.get("scheme", "http"))
        # The scheme that the server received, http or https, with `ws` and `wss` mapped to them.
        self.scheme = SCHEMES.get(scheme, scheme)
        # The media types that the client accepts.
        self.accepted = accepted(self.headers.get(ACCEPT))
        self.unread = RequestBody(self.headers, receive)

    @property
    def path(self) -> str:
        """The path as the client wrote it."""
        return str(self._scope["path"])

    @property
    def origin(self) -> str:
        """The origin under which the client reached the hub, by its Host, which must have been checked."""
        scheme = "https" if config.SECURE_SSL_REDIRECT else self.scheme
        return f"{scheme}://{self.headers.get('host', '')}"

    def check_routing_headers(self) -> None:
        """Raise RpcError for a repeated routing header: parsers that use the first or the last value disagree."""
        names = [name.decode("latin-1") for name, _ in self._scope["headers"]]
        repeated = next((name for name in ROUTING_HEADERS if names.count(name) > 1), None)
        if repeated is not None:
            raise mismatch(repeated, "repeated", "it once")

    @property
    def credential(self) -> Credential | None:
        """The request's key: a bearer token, X-API-Key, or `?api_key=`, in this order."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return Credential(token.strip(), place=self.tenant_slug or "")
        if key := self.headers.get("x-api-key", "").strip():
            return Credential(key, place=self.tenant_slug or "")
        key = self.parameter("api_key")
        return Credential(key, from_query=True) if key else None

    def parameter(self, name: str) -> str:
        """Return a query parameter, or "" if missing; the first value if repeated."""
        query = self._scope["query_string"]
        return parse_qs(query.decode("latin-1")).get(name, [""])[0] if query else ""

    def check_content_type(self) -> None:
        """Raise RpcError (415) for a Content-Type other than JSON."""
        kind = self.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RpcError(INVALID_REQUEST, "Content-Type must be application/json.", status=415)

    async def disconnected(self) -> None:
        """Wait until the client disconnects, or sends more than MAX_LINGER_BYTES of unexpected data."""
        most = self.unread.received + MAX_LINGER_BYTES
        with suppress(Disconnected):
            while self.unread.received <= most:
                await self.unread.next()
