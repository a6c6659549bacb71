"""Clients that send or read too slowly, under both servers. They are cut off; those that go on, slowly, are not."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from typing import Any

import pytest
import websockets.sync.client

from tests.processes.hub import WAIT_SECONDS, Connect, listening
from tests.server.frames import TEXT, Frame, frame, handshake, read_frame
from tools_app.server import boundary
from tools_app.server.base import SERVERS
from tools_app.transport.request import BodyTooSlow

# They wait for longer than a server does.
pytestmark = pytest.mark.slow

# Twenty pauses are three times as long as a server waits. A busy machine makes a pause longer, but not as long as that.
IDLE_SECONDS, PAUSE_SECONDS = 2, 0.3
MAX_MESSAGE_BYTES = 1024 * 1024
LARGE_BYTES = 50 * 1024 * 1024
# It answers once it has all of a request; `/large` and the message "many" get more than both ends of a connection
# buffer, `/over` is answered once the last `/large` ended, and `/serving` with the number of open WebSockets.
SERVING = f"""
import asyncio
import sys
import django
from django.utils.module_loading import import_string
django.setup()
from tools_app.server import base, boundary
boundary.IDLE_SECONDS = {IDLE_SECONDS}
Server = import_string(sys.argv[1])
is_over, go_on, serving = asyncio.Event(), asyncio.Event(), 0

async def application(scope, receive, send):
    global serving
    if scope["type"] == "websocket":
        serving += 1
        try:
            await echo(scope, receive, send)
        finally:
            serving -= 1
        return
    while (await receive()).get("more_body"):
        pass
    body = b"done"
    if scope["path"] == "/serving":
        body = b"%04d" % serving
    if scope["path"] == "/go-on":
        go_on.set()
    if scope["path"] == "/over":
        await is_over.wait()
    if scope["path"] == "/large":
        is_over.clear()
        try:
            headers = [(b"content-length", b"{LARGE_BYTES}")]
            await send({{"type": "http.response.start", "status": 200, "headers": headers}})
            for left in reversed(range(50)):
                await send({{"type": "http.response.body", "body": b"x" * {MAX_MESSAGE_BYTES}, "more_body": left > 0}})
        finally:
            is_over.set()
        return
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}})
    await send({{"type": "http.response.body", "body": body}})

async def echo(scope, receive, send):
    await receive()
    await send({{"type": "websocket.accept"}})
    if scope["path"] == "/receives-later":
        await go_on.wait()
    while (event := await receive())["type"] == "websocket.receive":
        for _ in range(50 if event["text"] == "many" else 0):
            await send({{"type": "websocket.send", "text": "x" * {MAX_MESSAGE_BYTES}}})
        await send({{"type": "websocket.send", "text": event["text"]}})

listener = base.bind("127.0.0.1", 0)
port = listener.getsockname()[1]
Server(boundary.Boundary(application), listener, {MAX_MESSAGE_BYTES}).run(lambda: print(port, flush=True))
"""


@pytest.fixture(scope="module", params=SERVERS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects to such a server."""
    with listening(SERVING, request.param) as connect:
        yield connect


def get(client: socket.socket, path: str) -> HTTPResponse:
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    response = HTTPResponse(client)
    response.begin()
    return response


def test_a_body_that_goes_on_coming_is_waited_for(connect: Connect) -> None:
    with connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n")
        client.settimeout(PAUSE_SECONDS)
        for _ in range(19):
            client.sendall(b"x")
            with pytest.raises(TimeoutError):
                client.recv(1000)
        client.settimeout(WAIT_SECONDS)
        client.sendall(b"x")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_read_its_response_is_cut_off(connect: Connect) -> None:
    with connect() as client:
        response = get(client, "/large")
        with connect() as other:
            assert get(other, "/over").read() == b"done"
        received = 0
        with contextlib.suppress(ConnectionError):
            while piece := response.fp.read1(262_144):
                received += len(piece)
        assert received < LARGE_BYTES


def test_a_client_that_reads_its_response_slowly_gets_all_of_it(connect: Connect) -> None:
    with connect() as client:
        response, never = get(client, "/large"), threading.Event()
        for _ in range(20):
            response.read(2 * MAX_MESSAGE_BYTES)
            never.wait(PAUSE_SECONDS)
        assert len(response.read()) == LARGE_BYTES - 40 * MAX_MESSAGE_BYTES


def test_a_websocket_may_be_silent_for_long(connect: Connect) -> None:
    with connect() as client:
        address = f"ws://127.0.0.1:{client.getpeername()[1]}/"
        with websockets.sync.client.connect(address, sock=client, open_timeout=WAIT_SECONDS) as channel:
            with pytest.raises(TimeoutError):
                channel.recv(2 * IDLE_SECONDS)
            channel.send("x")
            assert channel.recv(WAIT_SECONDS) == "x"


def serving(connect: Connect) -> int:
    with connect() as client:
        return int(get(client, "/serving").read())


def test_a_client_that_reads_no_messages_is_cut_off(connect: Connect, eventually: Callable[..., object]) -> None:
    with connect() as client:
        before, received = serving(connect), 0
        handshake(client)
        client.sendall(frame(TEXT, b"many"))
        client.recv(1)
        eventually(lambda: serving(connect) <= before)
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(262_144):
                received += len(piece)
        assert received < LARGE_BYTES


def test_an_application_is_told_of_a_client_that_leaves_without_reading(
    connect: Connect, eventually: Callable[..., object]
) -> None:
    with connect() as client:
        before = serving(connect)
        handshake(client)
        client.sendall(frame(TEXT, b"many"))
        client.recv(1)
    eventually(lambda: serving(connect) <= before)


def test_little_is_read_while_the_application_receives_nothing(connect: Connect) -> None:
    with connect() as client:
        handshake(client, "/receives-later")
        client.settimeout(PAUSE_SECONDS)
        sent, message = 0, frame(TEXT, b"x" * 100_000)
        with contextlib.suppress(TimeoutError):
            while sent < LARGE_BYTES:
                sent += client.send(message[sent % len(message) :])
        assert sent < LARGE_BYTES
        with connect() as other:
            get(other, "/go-on")
        assert read_frame(client) == Frame(TEXT, b"x" * 100_000)


def test_a_body_that_does_not_begin_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "IDLE_SECONDS", 0.05)

    async def application(_scope: Any, receive: Any, _send: Any) -> None:
        with pytest.raises(BodyTooSlow):
            await receive()

    async def send(_message: Any) -> None:
        pytest.fail("nothing is sent")

    request = boundary.Boundary(application)({"type": "http"}, asyncio.Event().wait, send)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(request, WAIT_SECONDS))
