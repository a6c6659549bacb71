"""Parsing of responses: everything is bounded, and ambiguous responses are rejected."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from tools_app.catalog.http.addresses import CheckedDialer, parse_networks
from tools_app.catalog.http.client import trusted_certificates
from tools_app.catalog.http.connection import (
    MAX_BUFFERED_BYTES,
    MAX_HEADERS,
    MAX_INFORMATIONAL,
    HttpConnection,
    connect,
    request_head,
)
from tools_app.catalog.http.errors import LocalProtocolError, ReadError, ReadTimeout, RemoteProtocolError
from tools_app.catalog.http.urls import Url

SECONDS = 5.0
HEAD = b"HTTP/1.1 200 OK\r\n"
FULL = HEAD + b"Content-Length: 2\r\n\r\nok"
INFORMATIONAL = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


@asynccontextmanager
async def connected(serve: Serve, seconds: float = SECONDS) -> AsyncIterator[tuple[HttpConnection, Url]]:
    """A connection to a server, and its URL."""

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    async with (
        asyncio.timeout(4 * SECONDS + 8 * seconds),
        await asyncio.start_server(closing, "127.0.0.1", 0) as listener,
    ):
        url = Url("http", "127.0.0.1", listener.sockets[0].getsockname()[1])
        dialer = CheckedDialer(parse_networks(["127.0.0.0/8"]))
        connection = await connect(dialer, url, trusted_certificates(), connect_seconds=SECONDS, seconds=seconds)
        try:
            yield connection, url
        finally:
            await connection.aclose()


def answering(*pieces: bytes) -> Serve:
    """A server that responds to a request's headers with `pieces`, and then waits for the connection to close."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        with suppress(ConnectionError):
            await reader.read()

    return serve


async def exchange(pieces: Sequence[bytes], *, ends: bool, method: str = "GET", seconds: float = SECONDS) -> object:
    """Send a request to a server that responds with `pieces`; return the body, and whether it is reusable."""

    async def ending(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)

    async with connected(ending if ends else answering(*pieces), seconds) as (connection, url):
        head = request_head(method, url, (), None)
        response = await connection.send(head, None, is_head=method == "HEAD")
        return b"".join([chunk async for chunk in response.chunks()]), connection.is_reusable


def send_request(*pieces: bytes, ends: bool = False, method: str = "GET", seconds: float = SECONDS) -> object:
    return asyncio.run(exchange(pieces, ends=ends, method=method, seconds=seconds))


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (FULL, (b"ok", True)),
        (CHUNKED + b"1\r\no\r\n1;x=y\r\nk\r\n0\r\nTrailer: x\r\n\r\n", (b"ok", True)),
        (INFORMATIONAL + FULL, (b"ok", True)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (b"", True)),
        (HEAD + b"Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", (b"", True)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", (b"ok", False)),
        (HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", (b"ok", False)),
        (FULL + FULL, (b"ok", False)),
        (FULL + b"more", (b"ok", False)),
    ],
    ids=["length", "chunked", "informational", "no content", "upper case", "old version", "close", "second response",
         "extra bytes"],
)  # fmt: skip
def test_a_response_ends_where_it_says(response: bytes, expected: object) -> None:
    assert send_request(response) == expected
    # However it is split, only data after the response in a later packet cannot be noticed yet.
    pieces = [response[start : start + 1] for start in range(len(response))]
    assert send_request(*pieces)[0] == expected[0]  # type: ignore[index]


@pytest.mark.parametrize(
    "response",
    [
        INFORMATIONAL * MAX_INFORMATIONAL + FULL,
        HEAD + b"X: y\r\n" * (MAX_HEADERS - 1) + b"Content-Length: 2\r\n\r\nok",
    ],
)
def test_as_much_as_may_precede_a_body_is_read(response: bytes) -> None:
    assert send_request(response) == (b"ok", True)


def test_a_header_of_an_informational_response_is_none_of_the_response() -> None:
    async def headers() -> dict[str, str]:
        early = b"HTTP/1.1 103 Early Hints\r\nX: early\r\nY: early\r\n\r\n"
        late = HEAD + b"X: late\r\nX: later\r\nContent-Length: 0\r\n\r\n"
        async with connected(answering(early + late)) as (connection, url):
            return (await connection.send(request_head("GET", url, (), None), None)).headers

    assert asyncio.run(headers()) == {"x": "late", "content-length": "0"}


def test_a_response_to_head_has_no_body() -> None:
    assert send_request(HEAD + b"Content-Length: 5\r\n\r\n", method="HEAD") == (b"", False)


def test_a_response_without_a_length_ends_with_its_connection() -> None:
    assert send_request(HEAD + b"\r\nok", ends=True) == (b"ok", False)


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
        b"HTTP/1.1 200 " + b"x" * 200_000,
        HEAD + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
        HEAD + b"X: y\r\n" * MAX_HEADERS + b"Content-Length: 2\r\n\r\nok",
        HEAD + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        INFORMATIONAL * (MAX_INFORMATIONAL + 1) + FULL,
        b"HTTP/1.1 099 Low\r\n\r\n" + FULL,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + FULL,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-x\r\n",
    ],
)
def test_a_response_that_is_ambiguous_or_oversized_is_refused(response: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        send_request(response)


@pytest.mark.parametrize("response", [FULL, CHUNKED + b"2\r\nok\r\n0\r\n\r\n"])
def test_a_response_that_is_cut_off_anywhere_is_not_complete(response: bytes) -> None:
    for end in (0, 5, len(HEAD), len(HEAD) + 4, len(response) - 1):
        with pytest.raises(RemoteProtocolError):
            send_request(response[:end], ends=True)


def test_a_connection_that_breaks_is_not_waited_for() -> None:
    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        await has_head.wait()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def broken() -> None:
        async with connected(breaking, 60.0) as (connection, url):
            response = await connection.send(request_head("GET", url, (), None), None)
            has_head.set()
            with pytest.raises(ReadError):
                await response.read()

    has_head = asyncio.Event()
    asyncio.run(broken())


def test_silence_is_not_waited_for() -> None:
    with pytest.raises(ReadTimeout):
        send_request(FULL[:-1], seconds=0.05)


class ChangeableLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that a test advances."""

    passed = 0.0

    def time(self) -> float:
        return super().time() + self.passed


def test_silence_begins_anew_with_everything_that_moves() -> None:
    loop = ChangeableLoop()

    async def pass_most_of_a_minute() -> None:
        for seconds in (0.0, 48.0):
            loop.passed += seconds
            for _ in range(5):
                await asyncio.sleep(0)

    async def moving() -> None:
        async with connected(answering(), 60.0) as (connection, url):
            sending = asyncio.create_task(connection.send(request_head("GET", url, (), None), None))
            await pass_most_of_a_minute()
            connection.resume_writing()
            for piece in (HEAD + b"Content-Length: 2\r\n\r\n", b"o", b"k"):
                await pass_most_of_a_minute()
                connection.data_received(piece)
            assert await (await sending).read() == b"ok"
            # No waiting.
            await pass_most_of_a_minute()
            await pass_most_of_a_minute()
            silent = asyncio.create_task(connection.send(request_head("GET", url, (), None), None))
            await pass_most_of_a_minute()
            connection.resume_writing()
            await pass_most_of_a_minute()
            assert not silent.done()
            await pass_most_of_a_minute()
            assert silent.done()
            with pytest.raises(ReadTimeout):
                await silent

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(moving())


@pytest.mark.parametrize(
    ("name", "value"),
    [("X", "a\r\nY: b"), ("X", "a\nb"), ("X", "a\0"), ("X: y\r\nZ", "a"), ("", "a"), ("Content-Length", "1"),
     ("transfer-encoding", "chunked"), ("X", "\u20ac")],
)  # fmt: skip
def test_no_header_can_add_to_a_request(name: str, value: str) -> None:
    with pytest.raises(LocalProtocolError):
        request_head("GET", Url("http", "example.com", 80), [(name, value)], None)


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [("GET /y HTTP/1.1\r\nX:", "/", ""), ("GET ", "/", ""), ("", "/", ""), ("GET", "/ HTTP/1.1\r\nX: /", ""),
     ("GET", "/", "a b"), ("GET", "/\u20ac", "")],
)  # fmt: skip
def test_no_method_and_no_path_can_add_to_a_request(method: str, path: str, query: str) -> None:
    with pytest.raises(LocalProtocolError):
        request_head(method, Url("http", "example.com", 80, path, query), (), None)


def test_a_connection_whose_last_response_was_not_read_is_not_used_again() -> None:
    async def unread() -> None:
        async with connected(answering(FULL)) as (connection, url):
            response = await connection.send(request_head("GET", url, (), None), None)
            assert not connection.is_reusable
            assert [chunk async for chunk in response.chunks()] == [b"ok"]
            assert connection.is_reusable

    asyncio.run(unread())


def test_a_connection_whose_response_has_not_ended_is_not_used_again() -> None:
    async def unfinished() -> None:
        async with connected(answering(CHUNKED + b"1\r\no\r\n")) as (connection, url):
            response = await connection.send(request_head("GET", url, (), None), None)
            assert await response.read() == b"o"
            assert not connection.is_reusable

    asyncio.run(unfinished())


@pytest.mark.parametrize(("size", "is_read"), [(20_000_000, False), (5_000_000, True)])
def test_a_connection_is_used_again_only_if_its_request_was_read_to_its_end(size: int, is_read: bool) -> None:
    content = b"x" * size

    async def reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if is_read:
            await reader.readexactly(len(content))
        writer.write(FULL)
        await is_over.wait()

    async def sent() -> None:
        async with connected(reading) as (connection, url):
            response = await connection.send(request_head("POST", url, (), content), content)
            assert [chunk async for chunk in response.chunks()] == [b"ok"]
            assert connection.is_reusable is is_read
            is_over.set()

    is_over = asyncio.Event()
    asyncio.run(sent())


def test_what_arrives_before_a_request_is_no_response_to_it() -> None:
    async def greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greets.wait()
        writer.write(FULL)
        with suppress(ConnectionError):
            await reader.read()
        is_refused.set()

    async def early() -> None:
        async with connected(greeting) as (connection, url):
            assert connection.is_reusable
            greets.set()
            await is_refused.wait()
            assert not connection.is_reusable
            with pytest.raises(ReadError):
                await connection.send(request_head("GET", url, (), None), None)

    greets, is_refused = asyncio.Event(), asyncio.Event()
    asyncio.run(early())


def test_a_large_response_that_is_read_slowly_arrives_whole() -> None:
    async def slow() -> None:
        body = bytes(range(256)) * 8192
        head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
        async with connected(answering(head + body)) as (connection, url):
            response = await connection.send(request_head("GET", url, (), None), None, most=len(body))
            received = b""
            while piece := await response.read():
                assert len(piece) <= 2 * MAX_BUFFERED_BYTES
                received += piece
                for _ in range(20):
                    await asyncio.sleep(0)
            assert received == body
            assert connection.is_reusable

    asyncio.run(slow())
