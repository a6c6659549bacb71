"""Persistent HTTP/1.1 connections to one upstream.

httpcore's own pool looks at every connection whenever a request begins and ends, which took most of the time of a call.
This one takes the connection that was used last, and looks at nothing else.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Final

import httpcore

HTTP_1_1: Final = ["http/1.1"]
Header = tuple[bytes, bytes]


class ConnectionPool:
    """At most `size` connections, which `dialer` opens; `idle` of them are kept open for further requests.

    One that was not used for `seconds` is closed with the next request. Not safe for use from several event loops.
    """

    def __init__(
        self, dialer: httpcore.AsyncNetworkBackend, tls: ssl.SSLContext, *, size: int, idle: int, seconds: float
    ) -> None:
        self._dialer = dialer
        self._tls = tls
        self._idle = idle
        self._seconds = seconds
        self._places = asyncio.Semaphore(size)
        self._unused: list[tuple[float, httpcore.Origin, httpcore.AsyncHTTP11Connection]] = []
        self._used: set[httpcore.AsyncHTTP11Connection] = set()
        self._is_closed = False

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: httpcore.URL,
        headers: Sequence[Header],
        content: bytes | None,
        timeouts: Mapping[str, float],
    ) -> AsyncIterator[httpcore.Response]:
        """Send a request. Raises httpcore's exceptions, and those of the dialer."""
        await self._take_place(timeouts["pool"])
        try:
            connection = await self._connection(url, timeouts["connect"])
            self._used.add(connection)
            try:
                sending = connection.stream(
                    method, url, headers=headers, content=content, extensions={"timeout": dict(timeouts)}
                )
                async with sending as response:
                    yield response
            finally:
                self._used.discard(connection)
                await self._put_back(url.origin, connection)
        finally:
            self._places.release()

    async def aclose(self) -> None:
        """Close all connections, also those in use. Further requests fail with ConnectError."""
        self._is_closed = True
        every = list(self._used)
        await self.retire()
        for connection in every:
            await _closed(connection)

    async def retire(self) -> None:
        """Close the connections that are not in use, and each of the others when its request has ended."""
        self._idle = 0
        every = [connection for _, _, connection in self._unused]
        self._unused.clear()
        for connection in every:
            await _closed(connection)

    async def _take_place(self, seconds: float) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except TimeoutError as problem:
            raise httpcore.PoolTimeout from problem

    async def _connection(self, url: httpcore.URL, seconds: float) -> httpcore.AsyncHTTP11Connection:
        """Return the connection that was used last, or a new one. Raises ConnectError if the pool is closed."""
        origin = url.origin
        self._check_open()
        while self._unused:
            _, known, connection = self._unused.pop()
            # The upstream may have closed it meanwhile.
            if known == origin and not connection.has_expired():
                return connection
            await _closed(connection)
        host = origin.host.decode("ascii")
        stream = await self._dialer.connect_tcp(host, origin.port, timeout=seconds)
        if origin.scheme == b"https":
            self._tls.set_alpn_protocols(HTTP_1_1)
            try:
                stream = await stream.start_tls(self._tls, server_hostname=host, timeout=seconds)
            except BaseException:
                await stream.aclose()
                raise
        if self._is_closed:
            await stream.aclose()
        self._check_open()
        return httpcore.AsyncHTTP11Connection(origin, stream, keepalive_expiry=self._seconds)

    def _check_open(self) -> None:
        if self._is_closed:
            raise httpcore.ConnectError("the connections were closed")

    async def _put_back(self, origin: httpcore.Origin, connection: httpcore.AsyncHTTP11Connection) -> None:
        """Keep a connection whose response was read to its end, and close those that were not used for long."""
        if connection.is_idle() and len(self._unused) < self._idle:
            self._unused.append((monotonic(), origin, connection))
        else:
            await _closed(connection)
        while self._unused and monotonic() - self._unused[0][0] > self._seconds:
            _, _, old = self._unused.pop(0)
            await _closed(old)


async def _closed(connection: httpcore.AsyncHTTP11Connection) -> None:
    with suppress(OSError, httpcore.NetworkError):
        await connection.aclose()
