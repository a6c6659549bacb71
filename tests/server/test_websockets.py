"""Bounds on what WebSocket clients send, and on the time in which they read nothing, with both servers."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from http.client import HTTPResponse

import pytest

from tests.processes.hub import Connect, listening
from tests.server.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Frame,
    close_code,
    frame,
    handshake,
    handshake_of,
    read_frame,
)
from tools_app.protocol.close_codes import TOO_MANY, TOO_MANY_FRAMES, TOO_SLOW
from tools_app.server.base import SERVERS
from tools_app.server.websocket_input import MAX_SMALL_FRAMES, SMALL_BYTES

IDLE_SECONDS = 0.5
MAX_MESSAGE_BYTES = 1024 * 1024
MEGABYTE = b"x" * 1024 * 1024
# More than both ends of a connection of this machine buffer.
MOST_BYTES = 50 * 1024 * 1024
# It echoes messages, except "many" and "slow". `/sent` responds with how much was taken from it.
ECHO = """
import asyncio
import sys
from django.utils.module_loading import import_string
from tools_app.core import request_memory
from tools_app.server import base

base.IDLE_SECONDS = IDLE_SECONDS
request_memory.BODY_SECONDS = IDLE_SECONDS
request_memory.BYTES_PER_SECOND = 2**30
request_memory.WAIT_SECONDS = IDLE_SECONDS
request_memory._bodies = request_memory.MemoryBudget(lambda: (2 * MAX_MESSAGE_BYTES,) * 2)
Server = import_string(sys.argv[1])
sent = serving = 0
go_on = asyncio.Event()

async def application(scope, receive, send):
    global serving
    if scope["type"] == "http":
        if scope["path"] == "/go-on":
            go_on.set()
            go_on.clear()
        number = serving if scope["path"] == "/serving" else sent
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": b"%03d" % number})
        return
    serving += 1
    try:
        await serve(scope, receive, send)
    finally:
        serving -= 1

async def serve(scope, receive, send):
    global sent
    await receive()
    memory = scope[request_memory.MESSAGE_MEMORY]
    memory.tenant = scope["path"]
    if scope["path"] == "/accepts-later":
        await go_on.wait()
    await send({"type": "websocket.accept"})
    if scope["path"] == "/receives-later":
        await go_on.wait()
    while (said := await receive())["type"] == "websocket.receive":
        text = said.get("text") or "binary"
        free = memory.take(len(text))
        if free is not None:
            free()
        if text == "many":
            for number in range(100):
                await send({"type": "websocket.send", "text": "x" * 1048576})
                sent += 1
        elif len(text) > 65536:
            assert free is not None
            await send({"type": "websocket.send", "text": str(len(text))})
        else:
            await send({"type": "websocket.send", "text": text})
    memory.close()

listener = base.bind("127.0.0.1", 0)
server = Server(application, listener, MAX_MESSAGE_BYTES)
server.run(lambda: print(listener.getsockname()[1], flush=True))
"""


@pytest.fixture(scope="module", params=SERVERS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects to such a server."""
    program = ECHO.replace("MAX_MESSAGE_BYTES", str(MAX_MESSAGE_BYTES))
    program = program.replace("= IDLE_SECONDS", f"= {IDLE_SECONDS}")
    with listening(program, request.param) as connect:
        yield connect


def test_a_message_arrives_in_fragments(connect: Connect) -> None:
    with connect() as client:
        handshake(client)
        client.sendall(frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b", fin=False) + frame(CONTINUATION, b"c"))
        assert read_frame(client) == Frame(TEXT, b"abc")


def test_a_binary_message_arrives_in_fragments(connect: Connect) -> None:
    with connect() as client:
        handshake(client)
        client.sendall(frame(BINARY, b"a", fin=False) + frame(CONTINUATION, b"b"))
        assert read_frame(client) == Frame(TEXT, b"binary")


def test_a_large_message_may_have_many_fragments(connect: Connect) -> None:
    pieces = [frame(CONTINUATION, b"x" * SMALL_BYTES, fin=False)] * (MAX_MESSAGE_BYTES // SMALL_BYTES - 1)
    with connect() as client:
        handshake(client)
        client.sendall(frame(TEXT, b"x" * SMALL_BYTES, fin=False) + b"".join(pieces) + frame(CONTINUATION))
        assert read_frame(client) == Frame(TEXT, str(MAX_MESSAGE_BYTES).encode())


def test_many_small_messages_arrive_in_order(connect: Connect) -> None:
    with connect() as client:
        handshake(client)
        client.sendall(b"".join(frame(TEXT, str(number).encode()) for number in range(20_000)))
        for number in range(20_000):
            assert read_frame(client) == Frame(TEXT, str(number).encode())


@pytest.mark.parametrize("piece", [b"", b"x"])
def test_a_message_of_many_small_fragments_closes_the_connection(connect: Connect, piece: bytes) -> None:
    with connect() as client:
        handshake(client)
        with contextlib.suppress(ConnectionError):
            client.sendall(frame(TEXT, fin=False) + frame(CONTINUATION, piece, fin=False) * 100_000)
        assert close_code(client) == TOO_MANY_FRAMES


def test_pings_are_answered(connect: Connect) -> None:
    with connect() as client:
        handshake(client)
        for number in range(3):
            client.sendall(frame(PING, str(number).encode()))
            assert read_frame(client) == Frame(PONG, str(number).encode())


@pytest.mark.parametrize("opcode", [PING, PONG])
def test_many_pings_close_the_connection(connect: Connect, opcode: int) -> None:
    with connect() as client:
        handshake(client)
        client.sendall(frame(opcode) * (2 * MAX_SMALL_FRAMES))
        assert close_code(client) == TOO_MANY_FRAMES


def test_a_large_message_waits_for_the_memory_of_its_tenant(connect: Connect) -> None:
    with connect() as first, connect() as second:
        handshake(first, "/acme")
        handshake(second, "/acme")
        first.sendall(frame(TEXT, MEGABYTE)[:-1])
        second.sendall(frame(TEXT, b"small"))
        assert read_frame(second) == Frame(TEXT, b"small")
        with connect() as other:
            handshake(other, "/other")
            other.sendall(frame(TEXT, MEGABYTE))
            assert read_frame(other) == Frame(TEXT, b"1048576")
        second.sendall(frame(TEXT, MEGABYTE)[:-1])
        first.sendall(b"x")
        assert read_frame(first) == Frame(TEXT, b"1048576")
        second.sendall(b"x")
        assert read_frame(second) == Frame(TEXT, b"1048576")


def test_a_large_message_that_gets_no_memory_closes_the_connection(connect: Connect) -> None:
    with connect() as first, connect() as second:
        handshake(first, "/acme")
        handshake(second, "/acme")
        first.sendall(frame(TEXT, MEGABYTE)[:-1])
        second.sendall(frame(TEXT, MEGABYTE)[:100_000])
        # What is first depends on which of them is served first.
        assert {close_code(first), close_code(second)} <= {TOO_MANY, TOO_SLOW}


def test_a_large_message_that_does_not_end_closes_the_connection(connect: Connect) -> None:
    with connect() as client:
        handshake(client, "/slow")
        client.sendall(frame(TEXT, MEGABYTE)[:-1])
        assert close_code(client) == TOO_SLOW


def number_of(connect: Connect, path: str) -> int:
    """The number that the application responds with at a path."""
    with connect() as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        response = HTTPResponse(client)
        response.begin()
        return int(response.read())


def flood(client: socket.socket, data: bytes) -> int:
    """Send until the server takes no more, and return the number of bytes."""
    client.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < MOST_BYTES:
            sent += client.send(data)
    return sent


@pytest.mark.parametrize("path", ["/accepts-later", "/receives-later"])
def test_little_is_read_while_the_application_receives_nothing(connect: Connect, path: str) -> None:
    with connect() as client:
        if path == "/accepts-later":
            client.sendall(handshake_of(client, path))
        else:
            handshake(client, path)
        # The header of a large message behind small ones, which are not received.
        client.sendall((frame(TEXT) * 30 + frame(TEXT, MEGABYTE))[:3000])
        assert flood(client, b"x" * 100_000) < MOST_BYTES
        number_of(connect, "/go-on")


def test_an_application_is_told_of_a_client_that_leaves_without_reading(
    connect: Connect, eventually: Callable[..., object]
) -> None:
    with connect() as client:
        handshake(client)
        client.sendall(frame(TEXT, b"many"))
        eventually(lambda: number_of(connect, "/sent"))
        client.sendall(frame(CLOSE, b"\x03\xe8"))
        eventually(lambda: number_of(connect, "/serving") == 0)


@pytest.mark.slow
def test_a_client_that_reads_nothing_is_cut_off_and_pings_are_not_kept_for_it(connect: Connect) -> None:
    with connect() as client:
        handshake(client)
        client.sendall(frame(TEXT, b"many"))
        with contextlib.suppress(ConnectionError):
            while client.recv(1, 0x2):  # MSG_PEEK: it stays unread
                client.sendall(frame(PING, b"x" * 125))
        assert number_of(connect, "/sent") < 50
