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
# How long a connection rests after its first exchange.
FIRST_REST_SECONDS: Final = 0.01
Origin = tuple[str, str, int]


class ConnectionPool:
    """At most `size` connections, which `dialer` opens; `idle` of them are kept open for further requests.

    One that was not used for `seconds` is closed with the next request. `connect_seconds` and `idle_seconds` bound the
    opening of a connection and its silence. Not safe for use from several event loops.
    """

    def __init__(
        self,
        dialer: CheckedDialer,
        tls: ssl.SSLContext,
        *,
        size: int,
        idle: int,
        seconds: float,
        connect_seconds: float,
        idle_seconds: float,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._dialer = dialer
        self._tls = tls
        self._idle = idle
        self._seconds = seconds
        self._connect_seconds = connect_seconds
        self._idle_seconds = idle_seconds
        self._wait_seconds = wait_seconds
        self._places = asyncio.Semaphore(size)
        self._unused: list[tuple[float, Origin, HttpConnection]] = []
        self._used: set[HttpConnection] = set()
        self._is_closed = False

    async def acquire(self, url: Url) -> HttpConnection:
        """Return a connection for one exchange, to be released after it.

        Raises PoolTimeout, Unresolved, AddressRefused, ConnectError and ConnectTimeout.
        """
        if self._places.locked():
            await self._wait_for_place()
        else:
            await self._places.acquire()
        try:
            connection = self._reusable(url.origin) or await self._opened(url)
        except BaseException:
            self._places.release()
            raise
        self._used.add(connection)
        return connection

    def release(self, url: Url, connection: HttpConnection) -> None:
        """Keep a connection whose response was read to its end, and close those that were not used for long."""
        self._used.discard(connection)
        self._places.release()
        now = monotonic()
        if connection.is_reusable and len(self._unused) < self._idle:
            self._unused.append((now, url.origin, connection))
        else:
            connection.abort()
        while self._unused and now - self._unused[0][0] > self._seconds:
            self._unused.pop(0)[2].abort()

    async def aclose(self) -> None:
        """Close all connections, also those in use. Further requests fail with ConnectError."""
        self._is_closed = True
        used = list(self._used)
        await self.retire()
        for connection in used:
            await connection.aclose()

    async def retire(self) -> None:
        """Close the connections that are not in use, and each of the others when its request has ended."""
        self._idle = 0
        unused, self._unused = self._unused, []
        for _, _, connection in unused:
            await connection.aclose()

    async def _wait_for_place(self) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError as problem:
            raise PoolTimeout from problem

    def _reusable(self, origin: Origin) -> HttpConnection | None:
        """Return the connection that was used last, unless the upstream has closed it. Raises ConnectError.

        One that has carried a single exchange rests for a moment first: some upstreams close it without saying so.
        """
        self._check_open()
        latest = monotonic() - FIRST_REST_SECONDS
        for at in range(len(self._unused) - 1, -1, -1):
            since, known, connection = self._unused[at]
            if known == origin and connection.exchanges == 1 and since > latest:
                continue
            del self._unused[at]
            if known == origin and connection.is_silent():
                return connection
            connection.abort()
        return None

    async def _opened(self, url: Url) -> HttpConnection:
        connection = await connect(
            self._dialer, url, self._tls, connect_seconds=self._connect_seconds, seconds=self._idle_seconds
        )
        if self._is_closed:
            await connection.aclose()
        self._check_open()
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectError("the connections were closed")
