"""An HTTP request from ASGI: its checked head, its size-limited body and its client's address.

A rejected client may still be sending. Closing the connection at once would reset it and lose the response, so the
response is sent completely and input is discarded for a bounded time before the exchange ends.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import parse_qs

from tools_app.core import fair_scheduler, request_memory
from tools_app.core.config import config
from tools_app.identity.principal import Credential, client_ip
from tools_app.protocol.errors import INVALID_REQUEST, RpcError
from tools_app.protocol.inbound import ROUTING_HEADERS, accepted
from tools_app.protocol.mirrored import PREFIX as PARAMETER_PREFIX

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Coroutine[Any, Any, None]]
Headers = Iterable[tuple[bytes, bytes]]

SCHEMES: Final = {"ws": "http", "wss": "https"}
# Up to this size, an unread body does not close the connection.
MAX_SKIPPED_BYTES: Final = 64 * 1024
MAX_LINGER_BYTES: Final = 1024 * 1024
LINGER_SECONDS: Final = 1.0
MAX_DIGITS: Final = 15
CLOSE: Final = (b"connection", b"close")

MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32 * 1024
MAX_PATH_BYTES: Final = 4096
MAX_QUERY_BYTES: Final = 8192
# Two parsers of a request that repeats one of these may disagree (RFC 9112, §3.2 and §6.3).
SINGLE: Final = frozenset({"host", "content-length", "transfer-encoding", "authorization", "content-type"})
FORWARDED_FOR: Final = "x-forwarded-for"
# Headers whose repetition is one list (RFC 9110, §5.3), like those that begin with `Mcp-Param-`.
LISTS: Final = frozenset({"accept", FORWARDED_FOR})
JSON: Final = "application/json"
# The key in a scope of its head.
HEAD: Final = "mcphub.head"


class Fault(NamedTuple):
    """Why a request is rejected."""

    status: int
    message: str


class RequestHead:
    """What the headers, the path and the query of a request say.

    `headers` are by lower-case name: the values of a repeated list are joined; of other repeated headers, the last one
    is used. `fault` is why the request is rejected, if it is. `repeated_header` is a routing header that stands more
    than once: parsers that use the first or the last value disagree. `is_json` is about its Content-Type.
    """

    def __init__(  # noqa: C901 - all that a head is checked for
        self, raw: Sequence[tuple[bytes, bytes]], path: str, query: bytes
    ) -> None:
        # On the hot path: all headers are decoded at once, which costs half as much as one after the other.
        joined = b"\0".join(pieces := [*chain.from_iterable(raw)])
        texts = joined.decode("latin-1").split("\0")
        if len(texts) > len(pieces):
            texts = [piece.decode("latin-1") for piece in pieces]
        # Not every server strips the whitespace around a value (RFC 9110, §5.5).
        headers = dict(zip(texts[::2], [value.strip(" \t") for value in texts[1::2]], strict=False))
        self.repeated_header: str | None = None
        self.fault: Fault | None = None
        # What has too many headers is refused, however their names repeat.
        if len(headers) != len(raw) <= MAX_HEADERS:
            counts = Counter(texts[::2])
            for name in headers:
                if name in LISTS or name.startswith(PARAMETER_PREFIX):
                    values = zip(texts[::2], texts[1::2], strict=False)
                    headers[name] = ", ".join(value.strip(" \t") for repeated, value in values if repeated == name)
            self.repeated_header = next((name for name in ROUTING_HEADERS if counts[name] > 1), None)
            twice = next((name for name, count in counts.items() if count > 1 and name in SINGLE), None)
            if twice is not None:
                self.fault = Fault(400, f"The header {twice.title()} stands more than once in the request.")
        if len(raw) > MAX_HEADERS:
            self.fault = Fault(431, f"The request has more than {MAX_HEADERS} headers.")
        elif len(joined) - len(pieces) >= MAX_HEADER_BYTES:  # one separator less than pieces
            self.fault = Fault(431, f"The headers of the request have more than {MAX_HEADER_BYTES} bytes.")
        elif self.fault is not None:
            pass
        elif "content-length" in headers and "transfer-encoding" in headers:
            self.fault = Fault(400, "A request has either Content-Length or Transfer-Encoding.")
        elif len(path) > MAX_PATH_BYTES:
            self.fault = Fault(414, f"The path has more than {MAX_PATH_BYTES} bytes.")
        elif len(query) > MAX_QUERY_BYTES:
            self.fault = Fault(414, f"The query has more than {MAX_QUERY_BYTES} bytes.")
        elif "\0" in path or b"%00" in query or b"\0" in query:
            self.fault = Fault(400, "The address holds the character U+0000.")
        self.headers: Mapping[str, str] = headers
        self.query = query
        self.accepted = accepted(headers.get("accept"))
        kind = headers.get("content-type", JSON)
        self.is_json = kind == JSON or kind.partition(";")[0].strip().lower() == JSON

    def credential(self, slug: str | None) -> Credential | None:
        """Return the request's key: a bearer token, X-API-Key, or `?api_key=`, in this order.

        `slug` is that of the tenant in the path, if there is one.
        """
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (token := token.strip()):
            return Credential(token, tenant_slug=slug or "")
        if key := self.headers.get("x-api-key", "").strip():
            return Credential(key, tenant_slug=slug or "")
        key = query_parameter(self.query, "api_key")
        return Credential(key, from_query=True) if key else None


def head_of(scope: Scope) -> RequestHead:
    """Return the head of a request, which is parsed once and kept in its scope."""
    head: RequestHead | None = scope.get(HEAD)
    if head is None:
        head = scope[HEAD] = RequestHead(scope["headers"], scope.get("path", ""), scope.get("query_string", b""))
    return head


def query_parameter(query: bytes, name: str) -> str:
    """Return a parameter of a query, or "" if missing; the first value if repeated."""
    return parse_qs(query.decode("latin-1")).get(name, [""])[0] if query else ""


def not_json() -> RpcError:
    """Return the error (415) for a Content-Type other than JSON."""
    return RpcError(INVALID_REQUEST, "Content-Type must be application/json.", status=415)


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
        """Read the whole body. Raises BodyTooLarge as soon as that is known, BodyTooSlow and Disconnected.

        A large one waits until its tenant has memory for it. Raises TooMuchMemory if it gets none.
        """
        if self.declared > limit:
            raise BodyTooLarge(limit)
        # Usually there is one chunk, and servers close idle connections.
        chunks = [await self.next()]
        if not self.is_complete:
            is_held = self.declared > fair_scheduler.LARGE_BYTES
            if is_held:
                await request_memory.hold_body(self.declared)
            try:
                async with asyncio.timeout(request_memory.seconds_for(limit)):
                    while not self.is_complete:
                        if self.received > limit:
                            raise BodyTooLarge(limit)
                        if self.received > fair_scheduler.LARGE_BYTES and not (self.declared or is_held):
                            is_held = True
                            await request_memory.hold_body(limit)
                        chunks.append(await self.next())
            except TimeoutError:
                raise BodyTooSlow from None
        if self.received > limit:
            raise BodyTooLarge(limit)
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


class AsgiRequest:
    """One request."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self.head = head = scope.get(HEAD) or head_of(scope)
        self.http_method: str = scope.get("method", "GET")
        self.headers = head.headers
        self.accepted = head.accepted
        # The slug in the path, if it names a tenant.
        self.tenant_slug: str | None = scope.get("url_route", {}).get("slug")
        self.remote_address = client_ip(str((scope.get("client") or [""])[0]), head.headers.get(FORWARDED_FOR, ""))
        scheme = str(scope.get("scheme", "http"))
        # The scheme that the server received, http or https, with `ws` and `wss` mapped to them.
        self.scheme = SCHEMES.get(scheme, scheme)
        self.unread = RequestBody(head.headers, receive)

    @property
    def path(self) -> str:
        """The path as the client wrote it."""
        return str(self._scope["path"])

    @property
    def origin(self) -> str:
        """The origin under which the client reached the hub, by its Host, which must have been checked."""
        scheme = "https" if config.SECURE_SSL_REDIRECT else self.scheme
        return f"{scheme}://{self.headers.get('host', '')}"

    def parameter(self, name: str) -> str:
        """Return a query parameter, or "" if missing; the first value if repeated."""
        return query_parameter(self._scope["query_string"], name)

    async def disconnected(self) -> None:
        """Wait until the client disconnects, or sends more than MAX_LINGER_BYTES of unexpected data."""
        most = self.unread.received + MAX_LINGER_BYTES
        with suppress(Disconnected):
            while self.unread.received <= most:
                await self.unread.next()
