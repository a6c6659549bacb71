"""Connections to an upstream: kept, taken again, bounded and closed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tools_app.catalog.http.addresses import CheckedDialer, parse_networks
from tools_app.catalog.http.client import trusted_certificates
from tools_app.catalog.http.connection import HttpConnection, request_head
from tools_app.catalog.http.errors import ConnectError, PoolTimeout
from tools_app.catalog.http.urls import Url
from tools_app.upstreams.pool import ConnectionPool

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SECONDS = 5.0


class Server:
    """Answers each request with OK. `opened` has the writer of each connection, `ended` is released at each end."""

    def __init__(self) -> None:
        self.opened: list[asyncio.StreamWriter] = []
        self.ended = asyncio.Semaphore(0)
        self.port = 0

    @property
    def url(self) -> Url:
        return Url("http", "127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened.append(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.release()
        finally:
            writer.close()


def pool_of(size: int = 2, idle: int = 2, seconds: float = 60.0) -> ConnectionPool:
    dialer = CheckedDialer(parse_networks(["127.0.0.0/8"]))
    bounds: dict[str, Any] = {"connect_seconds": SECONDS, "read_seconds": SECONDS, "wait_seconds": 0.01}
    return ConnectionPool(
        dialer, trusted_certificates(), size=size, max_idle=idle, keep_alive_seconds=seconds, **bounds
    )


async def exchange_once(connection: HttpConnection, url: Url) -> bytes:
    response = await connection.send(request_head("GET", url, (), None), None)
    return b"".join([chunk async for chunk in response.chunks()])


async def request(pool: ConnectionPool, url: Url) -> bytes:
    connection = await pool.acquire(url)
    try:
        return await exchange_once(connection, url)
    finally:
        pool.release(url, connection)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server
        for writer in server.opened:
            writer.close()


def run(work: Callable[[Server], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4 * SECONDS), serving() as server:
            await work(server)

    asyncio.run(bounded())


def test_a_connection_that_may_be_closed_right_after_its_first_answer_is_not_taken_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tools_app.upstreams.pool.SETTLE_SECONDS", 60.0)

    async def work(server: Server) -> None:
        pool = pool_of()
        assert [await request(pool, server.url), await request(pool, server.url)] == [b"ok", b"ok"]
        assert len(server.opened) == 2
        await pool.aclose()

    run(work)


def test_one_request_after_another_takes_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.upstreams.pool.SETTLE_SECONDS", 0.0)

    async def work(server: Server) -> None:
        pool = pool_of()
        assert [await request(pool, server.url), await request(pool, server.url)] == [b"ok", b"ok"]
        assert len(server.opened) == 1
        await pool.aclose()
        await server.ended.acquire()

    run(work)


@pytest.mark.parametrize("end", ["gone", "expired", "elsewhere", "none is kept", "unexpected bytes"])
def test_a_connection_that_cannot_be_used_again_is_closed(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.upstreams.pool.SETTLE_SECONDS", 0.0)

    async def work(server: Server) -> None:
        pool = pool_of(seconds=-1.0 if end == "expired" else 60.0, idle=0 if end == "none is kept" else 2)
        await request(pool, server.url)
        first = server.opened[0]
        if end == "gone":
            first.transport.abort()
            await server.ended.acquire()
            server.ended.release()
        elif end == "unexpected bytes":
            first.write(OK)
        if end == "elsewhere":
            with pytest.raises(ConnectError):
                await request(pool, Url("http", "127.0.0.1", 1))
        else:
            assert await request(pool, server.url) == b"ok"
            assert len(server.opened) == 2
        await pool.aclose()
        await server.ended.acquire()

    run(work)


def test_a_request_without_a_free_connection_in_time_is_an_error() -> None:
    async def work(server: Server) -> None:
        pool = pool_of(size=1)
        connection = await pool.acquire(server.url)
        with pytest.raises(PoolTimeout):
            await request(pool, server.url)
        # Its request was not sent; closing ends it.
        await pool.aclose()
        pool.release(server.url, connection)
        await server.ended.acquire()
        with pytest.raises(ConnectError, match="were closed"):
            await request(pool, server.url)

    run(work)


def test_a_closed_pool_keeps_no_connection_that_was_being_opened() -> None:
    async def work(server: Server) -> None:
        pool = pool_of()
        opening = asyncio.create_task(pool.acquire(server.url))
        await asyncio.sleep(0)
        await pool.aclose()
        with pytest.raises(ConnectError, match="were closed"):
            await opening

    run(work)


def test_a_retired_pool_closes_what_is_unused_at_once_and_the_rest_after_use() -> None:
    async def work(server: Server) -> None:
        pool = pool_of()
        await asyncio.gather(request(pool, server.url), request(pool, server.url))
        connection = await pool.acquire(server.url)
        await pool.retire()
        await server.ended.acquire()
        assert await exchange_once(connection, server.url) == b"ok"
        assert connection.is_reusable
        pool.release(server.url, connection)
        await server.ended.acquire()

    run(work)


def test_a_connection_without_the_tls_that_was_asked_for_is_closed() -> None:
    async def work(server: Server) -> None:
        pool = pool_of(size=1)
        for _ in range(2):
            with pytest.raises(ConnectError):
                await pool.acquire(Url("https", "127.0.0.1", server.port))

    async def refusing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no TLS here\r\n")
        writer.close()

    async def bounded() -> None:
        async with asyncio.timeout(4 * SECONDS):
            server = Server()
            async with await asyncio.start_server(refusing, "127.0.0.1", 0) as listener:
                server.port = listener.sockets[0].getsockname()[1]
                await work(server)

    asyncio.run(bounded())
