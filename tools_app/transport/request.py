"""An HTTP request from ASGI: its head, its size-limited body and its client's address.

A rejected client may still be sending. Closing the connection at once would reset it and lose the response, so the
response is sent completely and input is discarded for a bounded time before the exchange ends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

from tools_app.core import fair_scheduler, request_memory
from tools_app.core.config import config
from tools_app.identity.principal import client_ip
from tools_app.transport.request_head import FORWARDED_FOR, Scope, head_of, query_parameter

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
        self._is_held = False

    async def read(self, limit: int) -> bytes:
        """Read the whole body. Raises BodyTooLarge as soon as that is known, BodyTooSlow and Disconnected.

        A large one waits until its tenant has memory for it. Raises TooMuchMemory if it gets none.
        """
        if self.declared > limit:
            raise BodyTooLarge(limit)
        # Usually there is one chunk, and servers close idle connections.
        body = await self.next()
        if not self.is_complete:
            if self.declared > fair_scheduler.LARGE_BYTES:
                await self._hold(self.declared)
            body = await self._rest(body, limit)
        if self.received > limit:
            raise BodyTooLarge(limit)
        return body

    async def _rest(self, first: bytes, limit: int) -> bytes:
        chunks = [first]
        try:
            async with asyncio.timeout(request_memory.seconds_for(limit)):
                while not self.is_complete:
                    if self.received > limit:
                        raise BodyTooLarge(limit)
                    if self.received > fair_scheduler.LARGE_BYTES and not (self.declared or self._is_held):
                        await self._hold(limit)
                    chunks.append(await self.next())
        except TimeoutError:
            raise BodyTooSlow from None
        return b"".join(chunks)

    async def _hold(self, size: int) -> None:
        """Wait until there is memory for so many bytes. Raises TooMuchMemory."""
        self._is_held = True
        await request_memory.hold_body(size)

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


def remote_address(scope: Scope, headers: Mapping[str, str]) -> str:
    """Return the client's IP address behind trusted proxies."""
    client = scope.get("client")
    return client_ip(str(client[0]) if client else "", headers.get(FORWARDED_FOR, ""))


class AsgiRequest:
    """One request."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self.head = head = head_of(scope)
        self.http_method: str = scope.get("method", "GET")
        self.headers = head.headers
        self.accepted = head.accepted
        # The slug in the path, if it names a tenant.
        self.tenant_slug: str | None = scope.get("url_route", {}).get("slug")
        self.remote_address = remote_address(scope, head.headers)
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
