"""Persistent HTTP/1.1 connections to one upstream: the one that was used last is used next."""

import asyncio
import ssl
from time import monotonic
from typing import Final

from tools_app.catalog.http.addresses import CheckedDialer
from tools_app.catalog.http.connection import HttpConnection, connect
from tools_app.catalog.http.errors import ConnectError, PoolTimeout
from tools_app.catalog.http.urls import Url

WAIT_SECONDS: Final = 10.0
# How long a connection is not reused after its first exchange.
SETTLE_SECONDS: Final = 0.01
Origin = tuple[str, str, int]


class ConnectionPool:
    """At most `size` connections, which `dialer` opens; `max_idle` of them are kept open for further requests.

    One that was not used for `keep_alive_seconds` is closed with the next request. `connect_seconds` and `read_seconds`
    bound the opening of a connection and its silence. Not safe for use from several event loops.
    """

    def __init__(
        self,
        dialer: CheckedDialer,
        tls: ssl.SSLContext,
        *,
        size: int,
        max_idle: int,
        keep_alive_seconds: float,
        connect_seconds: float,
        read_seconds: float,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._dialer = dialer
        self._tls = tls
        self._max_idle = max_idle
        self._keep_alive_seconds = keep_alive_seconds
        self._connect_seconds = connect_seconds
        self._read_seconds = read_seconds
        self._wait_seconds = wait_seconds
        self._slots = asyncio.Semaphore(size)
        self._idle_connections: list[tuple[float, Origin, HttpConnection]] = []
        self._in_use: set[HttpConnection] = set()
        self._is_closed = False

    async def acquire(self, url: Url) -> HttpConnection:
        """Return a connection for one exchange, to be released after it.

        Raises PoolTimeout, NameNotResolved, AddressBlocked, ConnectError and ConnectTimeout.
        """
        if self._slots.locked():
            await self._wait_for_slot()
        else:
            await self._slots.acquire()
        try:
            connection = self._reusable(url.origin) or await self._open(url)
        except BaseException:
            self._slots.release()
            raise
        self._in_use.add(connection)
        return connection

    def release(self, url: Url, connection: HttpConnection) -> None:
        """Keep a connection whose response was read to its end, and close those that were not used for long."""
        self._in_use.discard(connection)
        self._slots.release()
        now = monotonic()
        if connection.is_reusable and len(self._idle_connections) < self._max_idle:
            self._idle_connections.append((now, url.origin, connection))
        else:
            connection.abort()
        while self._idle_connections and now - self._idle_connections[0][0] > self._keep_alive_seconds:
            self._idle_connections.pop(0)[2].abort()

    async def aclose(self) -> None:
        """Close all connections, also those in use. Further requests fail with ConnectError."""
        self._is_closed = True
        in_use = list(self._in_use)
        await self.retire()
        for connection in in_use:
            await connection.aclose()

    async def retire(self) -> None:
        """Close the connections that are not in use, and each of the others when its request has ended."""
        self._max_idle = 0
        unused, self._idle_connections = self._idle_connections, []
        for _, _, connection in unused:
            await connection.aclose()

    async def _wait_for_slot(self) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._slots.acquire()
        except TimeoutError as problem:
            raise PoolTimeout from problem

    def _reusable(self, origin: Origin) -> HttpConnection | None:
        """Return the connection that was used last, unless the upstream has closed it. Raises ConnectError.

        One that has carried a single exchange is not reused at once: some upstreams close it without saying so.
        """
        self._check_open()
        settled_before = monotonic() - SETTLE_SECONDS
        for index in range(len(self._idle_connections) - 1, -1, -1):
            released_at, connection_origin, connection = self._idle_connections[index]
            if connection_origin == origin and connection.exchanges == 1 and released_at > settled_before:
                continue
            del self._idle_connections[index]
            if connection_origin == origin and connection.is_silent():
                return connection
            connection.abort()
        return None

    async def _open(self, url: Url) -> HttpConnection:
        connection = await connect(
            self._dialer, url, self._tls, connect_seconds=self._connect_seconds, seconds=self._read_seconds
        )
        if self._is_closed:
            await connection.aclose()
        self._check_open()
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectError("the connections were closed")
