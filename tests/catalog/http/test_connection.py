"""What another side can send over a connection: everything is bounded, and nothing is read in two ways."""

import asyncio
from collections.abc import Sequence

import pytest

from tools_app.catalog.http.addresses import CheckedDialer, parse_networks
from tools_app.catalog.http.client import trusted_certificates
from tools_app.catalog.http.connection import connect, request_head
from tools_app.catalog.http.errors import LocalProtocolError, ReadTimeout, RemoteProtocolError, TransportError
from tools_app.catalog.http.urls import Url

SECONDS = 5.0
HEAD = b"HTTP/1.1 200 OK\r\n"
FULL = HEAD + b"Content-Length: 2\r\n\r\nok"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


async def exchanged(pieces: Sequence[bytes], *, ends: bool, method: str = "GET", seconds: float = SECONDS) -> object:
    """Send a request to a server that answers with `pieces`; return the body, and whether it can be used again."""
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        if not ends:
            await is_over.wait()
        writer.close()

    async with asyncio.timeout(4 * SECONDS), await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        url = Url("http", "127.0.0.1", listener.sockets[0].getsockname()[1])
        dialer = CheckedDialer(parse_networks(["127.0.0.0/8"]))
        connection = await connect(dialer, url, trusted_certificates(), connect_seconds=SECONDS, seconds=seconds)
        try:
            head = request_head(method, url, (), None)
            response = await connection.send(head, None, is_head=method == "HEAD")
            return b"".join([chunk async for chunk in response.chunks()]), connection.is_reusable
        finally:
            await connection.aclose()
            is_over.set()


def asked(*pieces: bytes, ends: bool = False, method: str = "GET", seconds: float = SECONDS) -> object:
    return asyncio.run(exchanged(pieces, ends=ends, method=method, seconds=seconds))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (FULL, (b"ok", True)),
        (CHUNKED + b"1\r\no\r\n1;x=y\r\nk\r\n0\r\nTrailer: x\r\n\r\n", (b"ok", True)),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + FULL, (b"ok", True)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (b"", True)),
        (HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", (b"ok", False)),
        (FULL + FULL, (b"ok", False)),
        (FULL + b"more", (b"ok", False)),
    ],
    ids=["length", "chunked", "informational", "no content", "close", "second response", "extra bytes"],
)
def test_a_response_ends_where_it_says(answer: bytes, expected: object) -> None:
    assert asked(answer) == expected
    # However it is cut, only what follows the response in a later packet is not known yet.
    pieces = [answer[start : start + 1] for start in range(len(answer))]
    assert asked(*pieces)[0] == expected[0]  # type: ignore[index]


def test_a_response_to_head_has_no_body() -> None:
    assert asked(HEAD + b"Content-Length: 5\r\n\r\n", method="HEAD") == (b"", False)


def test_a_response_without_a_length_ends_with_its_connection() -> None:
    assert asked(HEAD + b"\r\nok", ends=True) == (b"ok", False)


@pytest.mark.parametrize(
    "answer",
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
        HEAD + b"X: y\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + FULL,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-x\r\n",
    ],
)
def test_a_response_that_is_ambiguous_or_oversized_is_refused(answer: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        asked(answer)


@pytest.mark.parametrize("answer", [FULL, CHUNKED + b"2\r\nok\r\n0\r\n\r\n"])
def test_a_response_that_is_cut_off_anywhere_is_not_complete(answer: bytes) -> None:
    for end in (0, 5, len(HEAD), len(HEAD) + 4, len(answer) - 1):
        with pytest.raises(TransportError):
            asked(answer[:end], ends=True)


def test_silence_is_not_waited_for() -> None:
    with pytest.raises(ReadTimeout):
        asked(FULL[:-1], seconds=0.05)


@pytest.mark.parametrize(
    ("name", "value"),
    [("X", "a\r\nY: b"), ("X", "a\nb"), ("X", "a\0"), ("X: y\r\nZ", "a"), ("", "a"), ("Content-Length", "1"),
     ("transfer-encoding", "chunked"), ("X", "\u20ac")],
)  # fmt: skip
def test_no_header_can_add_to_a_request(name: str, value: str) -> None:
    with pytest.raises(LocalProtocolError):
        request_head("GET", Url("http", "example.com", 80), [(name, value)], None)


def test_a_connection_whose_last_response_was_not_read_is_not_used_again() -> None:
    async def unread() -> bool:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(FULL)
            await reader.read()
            writer.close()

        async with asyncio.timeout(4 * SECONDS), await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
            url = Url("http", "127.0.0.1", listener.sockets[0].getsockname()[1])
            dialer = CheckedDialer(parse_networks(["127.0.0.0/8"]))
            connection = await connect(dialer, url, trusted_certificates(), connect_seconds=SECONDS, seconds=SECONDS)
            response = await connection.send(request_head("GET", url, (), None), None)
            before = connection.is_reusable
            assert [chunk async for chunk in response.chunks()] == [b"ok"]
            assert connection.is_reusable
            await connection.aclose()
            return before

    assert not asyncio.run(unread())
