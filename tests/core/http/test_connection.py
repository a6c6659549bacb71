"""Responses on the wire: all is bounded, ambiguous ones are refused, and connections are kept if that is safe."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpcore2
import pytest

from tools_app.core.http import client
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.client import ConnectionPool, Outbound
from tools_app.core.http.network import MAX_BUFFERED_BYTES, MAX_HEAD_LINES, CheckedNetwork
from tools_app.core.http.urls import Url

SECONDS = 5.0
HEAD = b"HTTP/1.1 200 OK\r\n"
FULL = HEAD + b"Content-Length: 2\r\n\r\nok"
INFORMATIONAL = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TINY = CHUNKED + b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n"


def get(port: int, scheme: Any = "http") -> Outbound:
    return Outbound("GET", Url(scheme, "127.0.0.1", port))


class Server:
    """Answers each request with `pieces`, and closes the connection then if it `ends`.

    `opened` has the writer of each connection. `arrived` is released with each request, and `ended` when the client has
    closed a connection.
    """

    def __init__(self, pieces: Sequence[bytes] = (FULL,), *, ends: bool = False) -> None:
        self.pieces = pieces
        self.ends = ends
        self.opened: list[asyncio.StreamWriter] = []
        self.arrived, self.ended = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.port = 0

    def request(self, method: str = "GET") -> Outbound:
        return Outbound(method, Url("http", "127.0.0.1", self.port))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened.append(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.arrived.release()
                for piece in self.pieces:
                    writer.write(piece)
                    await asyncio.sleep(0)
                if self.ends:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.release()
        finally:
            writer.close()


@asynccontextmanager
async def serving(serve: Callable[..., Awaitable[None]]) -> AsyncIterator[int]:
    async with (
        asyncio.timeout(4 * SECONDS),
        await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20) as listener,
    ):
        yield listener.sockets[0].getsockname()[1]


def pool_of(size: int = 2, idle: int = 2, kept: float = 60.0, seconds: float = SECONDS) -> ConnectionPool:
    network = CheckedNetwork(parse_networks(["127.0.0.0/8"]))
    options: dict[str, Any] = {"connect_seconds": SECONDS, "read_seconds": seconds}
    return ConnectionPool(network, size=size, max_idle=idle, keep_alive_seconds=kept, **options)


async def send(pool: ConnectionPool, request: Outbound) -> bytes:
    async with pool.stream(request) as response:
        return b"".join([piece async for piece in response])


def run(
    work: Callable[[Server, ConnectionPool], Awaitable[Any]], server: Server | None = None, **pool_options: Any
) -> Any:
    """Return what `work` returns for a running server and a pool, which is closed afterwards."""

    async def bounded() -> Any:
        used = server or Server()
        async with serving(used.serve) as used.port:
            pool = pool_of(**pool_options)
            try:
                return await work(used, pool)
            finally:
                await pool.aclose()
                for writer in used.opened:
                    writer.close()

    return asyncio.run(bounded())


def read(*pieces: bytes, ends: bool = False, method: str = "GET", seconds: float = SECONDS) -> bytes:
    async def work(server: Server, pool: ConnectionPool) -> bytes:
        return await send(pool, server.request(method))

    body: bytes = run(work, Server(pieces, ends=ends), seconds=seconds)
    return body


# --- Where a response ends ---


@pytest.mark.parametrize(
    ("response", "body", "is_kept"),
    [
        (FULL, b"ok", True),
        (CHUNKED + b"1\r\no\r\n1;x=y\r\nk\r\n0\r\nTrailer: x\r\n\r\n", b"ok", True),
        (INFORMATIONAL + FULL, b"ok", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (HEAD + b"Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", b"", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (TINY, b"x" * 5000, True),
    ],
    ids=["length", "chunked", "informational", "no content", "upper case", "old version", "close", "tiny pieces"],
)
def test_a_response_ends_where_it_says_and_its_connection_is_kept_if_it_may_be(
    response: bytes, body: bytes, is_kept: bool
) -> None:
    async def work(server: Server, pool: ConnectionPool) -> int:
        assert [await send(pool, server.request()), await send(pool, server.request())] == [body, body]
        return len(server.opened)

    assert run(work, Server([response])) == (1 if is_kept else 2)
    if len(response) < 1000:
        assert read(*[response[start : start + 1] for start in range(len(response))]) == body


@pytest.mark.parametrize(
    "response", [INFORMATIONAL * 10 + FULL, HEAD + b"X: y\r\n" * (MAX_HEAD_LINES - 3) + b"Content-Length: 2\r\n\r\nok"]
)
def test_as_much_as_may_precede_a_body_is_read(response: bytes) -> None:
    assert read(response) == b"ok"


def test_a_header_of_an_informational_response_is_none_of_the_response() -> None:
    async def work(server: Server, pool: ConnectionPool) -> dict[str, str]:
        async with pool.stream(server.request()) as response:
            return response.headers

    early = b"HTTP/1.1 103 Early Hints\r\nX: early\r\nY: early\r\n\r\n"
    late = HEAD + b"X: late\r\nX: later\r\nContent-Length: 0\r\n\r\n"
    assert run(work, Server([early + late])) == {"x": "late", "content-length": "0"}


def test_a_response_to_head_has_no_body() -> None:
    assert read(HEAD + b"Content-Length: 5\r\n\r\n", method="HEAD") == b""


def test_a_response_without_a_length_ends_with_its_connection() -> None:
    assert read(HEAD + b"\r\nok", ends=True) == b"ok"


@pytest.mark.parametrize(
    "response",
    [
        HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        HEAD + b"Content-Length: -2\r\n\r\nok",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"xyz\r\n",
        CHUNKED + b"1" + b"0" * 40 + b"\r\n",
        CHUNKED + b"1;" + b"x" * 200_000,
        CHUNKED + b"0\r\n" + b"X: y\r\n" * 1000,
        b"HTTP/1.1 200 " + b"x" * 200_000,
        HEAD + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
        HEAD + b"X: y\r\n" * 1000 + b"Content-Length: 2\r\n\r\nok",
        HEAD + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        INFORMATIONAL * 1000 + FULL,
        b"HTTP/1.1 099 Low\r\n\r\n" + FULL,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + FULL,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-x\r\n",
    ],
)
def test_a_response_that_is_ambiguous_or_oversized_is_refused(response: bytes) -> None:
    with pytest.raises(httpcore2.RemoteProtocolError):
        read(response)


@pytest.mark.parametrize("response", [FULL, CHUNKED + b"2\r\nok\r\n0\r\n\r\n"])
def test_a_response_that_is_cut_off_anywhere_is_not_complete(response: bytes) -> None:
    for end in (0, 5, len(HEAD), len(HEAD) + 4, len(response) - 1):
        with pytest.raises(httpcore2.RemoteProtocolError):
            read(response[:end], ends=True)


def test_a_connection_that_breaks_is_not_waited_for() -> None:
    has_head = asyncio.Event()

    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        await has_head.wait()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def broken() -> None:
        async with (
            serving(breaking) as port,
            pool_of().stream(Outbound("GET", Url("http", "127.0.0.1", port))) as response,
        ):
            has_head.set()
            with pytest.raises(httpcore2.ReadError):
                await anext(response)

    asyncio.run(broken())


def test_silence_is_not_waited_for() -> None:
    with pytest.raises(httpcore2.ReadTimeout):
        read(FULL[:-1], seconds=0.05)


def test_a_large_response_that_is_read_slowly_arrives_whole() -> None:
    body = bytes(range(256)) * 8192

    async def work(server: Server, pool: ConnectionPool) -> bytes:
        received = b""
        async with pool.stream(server.request()) as response:
            async for piece in response:
                assert len(piece) <= MAX_BUFFERED_BYTES
                received += piece
                await asyncio.sleep(0)
        return received

    assert run(work, Server([HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body])) == body


# --- Requests ---


@pytest.mark.parametrize(
    "header",
    [("X", "a\r\nY: b"), ("X", "a\nb"), ("X", "a\0"), ("X: y\r\nZ", "a"), ("", "a"), ("Content-Length", "1"),
     ("transfer-encoding", "chunked"), ("X", "\u20ac"), ("\u20ac", "x")],
)  # fmt: skip
def test_no_header_can_add_to_a_request(header: tuple[str, str]) -> None:
    async def work(server: Server, pool: ConnectionPool) -> None:
        with pytest.raises(httpcore2.LocalProtocolError):
            await send(pool, Outbound("GET", server.request().url, (header,)))

    run(work)


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [("GET /y HTTP/1.1\r\nX:", "/", ""), ("GET ", "/", ""), ("", "/", ""), ("GET", "/ HTTP/1.1\r\nX: /", ""),
     ("GET", "/", "a b"), ("GET", "/\u20ac", "")],
)  # fmt: skip
def test_no_method_and_no_path_can_add_to_a_request(method: str, path: str, query: str) -> None:
    async def work(server: Server, pool: ConnectionPool) -> None:
        with pytest.raises(httpcore2.LocalProtocolError):
            await send(pool, Outbound(method, Url("http", "127.0.0.1", server.port, path, query)))

    run(work)


# --- Connections that are kept ---


@pytest.mark.parametrize("end", ["gone", "expired", "elsewhere", "none is kept", "unasked bytes", "unread", "retired"])
def test_a_connection_that_cannot_be_used_again_is_closed(end: str) -> None:
    async def work(server: Server, pool: ConnectionPool) -> None:
        if end == "unread":
            async with pool.stream(server.request()):
                pass
        else:
            await send(pool, server.request())
        if end == "gone":
            server.opened[0].transport.abort()
            await server.ended.acquire()
            server.ended.release()
        elif end == "unasked bytes":
            server.opened[0].write(FULL)
        elif end == "retired":
            await pool.retire()
        if end == "elsewhere":
            with pytest.raises(httpcore2.ConnectError):
                await send(pool, get(1))
            await pool.aclose()
        else:
            assert await send(pool, server.request()) == b"ok"
            assert len(server.opened) == 2
        await server.ended.acquire()

    run(work, kept=-1.0 if end == "expired" else 60.0, idle=0 if end == "none is kept" else 2)


@pytest.mark.parametrize("more", [FULL, b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 2\r\n\r\nno", b"\r\n"])
def test_a_response_that_was_sent_before_its_request_is_refused(more: bytes) -> None:
    async def work(server: Server, pool: ConnectionPool) -> None:
        assert await send(pool, server.request()) == b"ok"
        with pytest.raises(httpcore2.RemoteProtocolError):
            await send(pool, server.request())

    run(work, Server([FULL + more]))


@pytest.mark.parametrize(("size", "is_read"), [(20_000_000, False), (5_000_000, True)])
def test_a_connection_is_kept_only_if_its_request_was_read_to_its_end(size: int, is_read: bool) -> None:
    opened, is_over = [], asyncio.Event()

    async def reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        if is_read:
            await reader.readexactly(size)
        writer.write(FULL)
        if is_read:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(FULL)
        await is_over.wait()
        writer.transport.abort()

    async def sent() -> None:
        async with serving(reading) as port:
            pool, url = pool_of(), Url("http", "127.0.0.1", port)
            assert await send(pool, Outbound("POST", url, (), b"x" * size)) == b"ok"
            assert await send(pool, Outbound("GET", url)) == b"ok"
            is_over.set()
            await pool.aclose()

    asyncio.run(sent())
    assert len(opened) == (1 if is_read else 2)


def test_a_request_without_a_free_connection_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "POOL_SECONDS", 0.01)

    async def work(server: Server, pool: ConnectionPool) -> None:
        async with pool.stream(server.request()):
            with pytest.raises(httpcore2.PoolTimeout):
                await send(pool, server.request())

    run(work, size=1)


def test_a_closed_pool_ends_its_requests_and_takes_no_others() -> None:
    async def work(server: Server, pool: ConnectionPool) -> None:
        opening, running = (asyncio.create_task(send(pool, server.request())) for _ in range(2))
        await server.arrived.acquire()
        await server.arrived.acquire()
        late = asyncio.create_task(send(pool, server.request()))
        await pool.aclose()
        for task in (opening, running, late):
            with pytest.raises((httpcore2.ReadError, httpcore2.ConnectError)):
                await task
        with pytest.raises(httpcore2.ConnectError, match="were closed"):
            await send(pool, server.request())

    run(work, Server([CHUNKED]))


def test_a_retired_pool_closes_a_connection_in_use_after_its_request() -> None:
    async def work(server: Server, pool: ConnectionPool) -> None:
        async with pool.stream(server.request()) as response:
            await pool.retire()
            assert [piece async for piece in response] == [b"ok"]
        await server.ended.acquire()

    run(work)


def test_a_cancelled_request_closes_its_connection() -> None:
    async def work(server: Server, pool: ConnectionPool) -> None:
        task = asyncio.create_task(send(pool, server.request()))
        await server.arrived.acquire()
        task.cancel()
        await asyncio.wait([task])
        await server.ended.acquire()

    run(work, Server([CHUNKED]))


def test_a_connection_without_the_tls_that_was_asked_for_is_closed() -> None:
    async def refusing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no TLS here\r\n")
        writer.close()

    async def work() -> None:
        async with serving(refusing) as port:
            pool = pool_of(size=1)
            for _ in range(2):
                with pytest.raises(httpcore2.ConnectError):
                    await send(pool, get(port, "https"))

    asyncio.run(work())
