"""Connections to an upstream: kept, taken again, bounded and closed."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import httpcore
import pytest

from tools_app.upstreams.pool import ConnectionPool

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
URL = httpcore.URL("http://127.0.0.1:8000/mcp")
OTHER = httpcore.URL("http://127.0.0.1:8001/mcp")
TIMEOUTS = {"connect": 1.0, "read": 1.0, "write": 1.0, "pool": 0.01}


class Stream(httpcore.AsyncMockStream):
    """Answers each request with OK, and can be closed by the other side."""

    def __init__(self) -> None:
        super().__init__([])
        self.is_gone = self.was_closed = False

    async def read(self, *_arguments: Any, **_options: Any) -> bytes:
        return OK

    async def aclose(self) -> None:
        self.was_closed = True

    def get_extra_info(self, info: str) -> Any:
        return self.is_gone if info == "is_readable" else None

    async def start_tls(self, *_arguments: Any, **_options: Any) -> Any:
        raise httpcore.ConnectError("no TLS here")


class Dialer(httpcore.AsyncNetworkBackend):
    def __init__(self) -> None:
        self.opened: list[Stream] = []

    async def connect_tcp(self, *_arguments: Any, **_options: Any) -> Stream:
        self.opened.append(Stream())
        return self.opened[-1]


@pytest.fixture
def dialer() -> Dialer:
    return Dialer()


Make = Callable[..., ConnectionPool]


@pytest.fixture
def make(dialer: Dialer) -> Make:
    def pool(size: int = 2, idle: int = 2, seconds: float = 60.0) -> ConnectionPool:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return ConnectionPool(dialer, tls, size=size, idle=idle, seconds=seconds)

    return pool


async def ask(pool: ConnectionPool, url: httpcore.URL = URL) -> bytes:
    async with pool.stream("POST", url, [(b"Host", b"x"), (b"Content-Length", b"2")], b"hi", TIMEOUTS) as response:
        return await response.aread()


def test_one_request_after_another_takes_the_same_connection(make: Make, dialer: Dialer) -> None:
    async def work() -> None:
        pool = make()
        assert [await ask(pool), await ask(pool)] == [b"ok", b"ok"]
        assert len(dialer.opened) == 1
        await pool.aclose()

    asyncio.run(work())
    assert dialer.opened[0].was_closed


@pytest.mark.parametrize("end", ["gone", "expired", "elsewhere", "none is kept"])
def test_a_connection_that_cannot_be_used_again_is_closed(make: Make, dialer: Dialer, end: str) -> None:
    async def work() -> None:
        pool = make(seconds=0.0 if end == "expired" else 60.0, idle=0 if end == "none is kept" else 2)
        await ask(pool)
        dialer.opened[0].is_gone = end == "gone"
        await ask(pool, OTHER if end == "elsewhere" else URL)

    asyncio.run(work())
    assert len(dialer.opened) == 2
    assert dialer.opened[0].was_closed


def test_connections_that_were_not_used_for_long_are_closed_by_the_next_request(make: Make, dialer: Dialer) -> None:
    async def work() -> None:
        pool = make()
        await asyncio.gather(ask(pool), ask(pool))
        pool._seconds = 0.0
        await ask(pool)

    asyncio.run(work())
    assert all(stream.was_closed for stream in dialer.opened[:1])


def test_a_request_that_finds_no_place_in_time_is_told_so(make: Make, dialer: Dialer) -> None:
    async def work() -> None:
        pool = make(size=1)
        async with pool.stream("GET", URL, [(b"Host", b"x")], None, TIMEOUTS):
            with pytest.raises(httpcore.PoolTimeout):
                await ask(pool)
            # Its response was not read, so the connection cannot be used again; closing ends it.
            await pool.aclose()
        with pytest.raises(httpcore.ConnectError):
            await ask(pool)

    asyncio.run(work())
    assert [stream.was_closed for stream in dialer.opened] == [True]


def test_a_closed_pool_keeps_no_connection_that_was_being_opened(make: Make, dialer: Dialer) -> None:
    async def work() -> None:
        pool = make()
        opening = dialer.connect_tcp

        async def late(*arguments: Any, **options: Any) -> Stream:
            await pool.aclose()
            return await opening(*arguments, **options)

        dialer.connect_tcp = late  # type: ignore[method-assign]
        with pytest.raises(httpcore.ConnectError):
            await ask(pool)

    asyncio.run(work())
    assert dialer.opened[0].was_closed


def test_a_retired_pool_closes_what_is_unused_at_once_and_the_rest_after_use(make: Make, dialer: Dialer) -> None:
    async def work() -> None:
        pool = make()
        await asyncio.gather(ask(pool), ask(pool))
        async with pool.stream("POST", URL, [(b"Host", b"x"), (b"Content-Length", b"0")], None, TIMEOUTS) as response:
            await pool.retire()
            assert sorted(stream.was_closed for stream in dialer.opened) == [False, True]
            assert await response.aread() == b"ok"

    asyncio.run(work())
    assert [stream.was_closed for stream in dialer.opened] == [True, True]


def test_a_connection_without_the_tls_that_was_asked_for_is_closed(make: Make, dialer: Dialer) -> None:
    async def work() -> None:
        pool = make(size=1)
        for _ in range(2):
            with pytest.raises(httpcore.ConnectError):
                await ask(pool, httpcore.URL("https://127.0.0.1:8000/mcp"))

    asyncio.run(work())
    assert [stream.was_closed for stream in dialer.opened] == [True, True]
