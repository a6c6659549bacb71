"""Idle timeouts: servers wait for a request, or the rest of one, as long as bytes arrive."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import websockets.sync.client

from tests.processes.hub import WAIT_SECONDS, Connect, listening
from tools_app.server.base import SERVERS

# They wait for longer than a server does.
pytestmark = pytest.mark.slow

# Twenty pauses are three times as long as the server below waits for anything. A busy machine makes a pause longer, but
# not as long as that.
IDLE_SECONDS, PAUSE_SECONDS = 2.0, 0.3
# It answers once it has all of a request, and says again what a WebSocket says.
IMPATIENT = """
import asyncio
import sys
from django.utils.module_loading import import_string
from tools_app.server import base

base.IDLE_SECONDS = A_SHORT_TIME
Server = import_string(sys.argv[1])

is_over = asyncio.Event()

async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (said := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": said["text"]})
        return
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/large":
        is_over.clear()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"52428800")]})
        for left in reversed(range(50)):
            await send({"type": "http.response.body", "body": b"x" * 1048576, "more_body": left > 0})
        is_over.set()
        return
    if scope["path"] == "/over":
        await is_over.wait()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"done"})

listener = base.bind("127.0.0.1", 0)
server = Server(application, listener, 1000)
server.run(lambda: print(listener.getsockname()[1], flush=True))
"""


@pytest.fixture(scope="module", params=SERVERS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects to such a server."""
    with listening(IMPATIENT.replace("A_SHORT_TIME", str(IDLE_SECONDS)), request.param) as connect:
        yield connect


@pytest.mark.parametrize(
    "sent_bytes", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12"]
)
def test_a_request_that_does_not_come_to_its_end_is_not_waited_for(connect: Connect, sent_bytes: bytes) -> None:
    with connect() as client:
        client.sendall(sent_bytes)
        assert client.recv(1000) == b""


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
        assert client.recv(1000).endswith(b"done")


def test_a_client_that_does_not_read_its_response_is_cut_off(connect: Connect) -> None:
    with connect() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        received = len(client.recv(1000))
        with connect() as other:
            other.sendall(b"GET /over HTTP/1.1\r\nHost: x\r\n\r\n")
            assert other.recv(1000).endswith(b"done")
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(262_144):
                received += len(piece)
        assert received < 50 * 1024 * 1024


def test_a_client_that_reads_its_response_slowly_gets_all_of_it(connect: Connect) -> None:
    with connect() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        received, pauses, never = 0, 20, threading.Event()
        while received < 50 * 1024 * 1024:
            received += len(client.recv(2 * 1024 * 1024, socket.MSG_WAITALL if pauses else 0))
            if pauses:
                pauses -= 1
                never.wait(PAUSE_SECONDS)


def test_a_websocket_is_no_connection_that_waits_for_a_request(connect: Connect) -> None:
    with connect() as client:
        address = f"ws://127.0.0.1:{client.getpeername()[1]}/"
        with websockets.sync.client.connect(address, sock=client, open_timeout=WAIT_SECONDS) as channel:
            for _ in range(20):
                channel.send("x")
                assert channel.recv(WAIT_SECONDS) == "x"
                with pytest.raises(TimeoutError):
                    channel.recv(PAUSE_SECONDS)


def test_a_connection_is_closed_when_nothing_follows_an_answer(connect: Connect) -> None:
    with connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(1000).endswith(b"done")
        assert client.recv(1000) == b""


def test_a_head_without_end_is_refused(connect: Connect) -> None:
    # Whether its 400 comes through is a matter of chance: a connection that is closed on what it has not read is reset.
    with connect() as client, contextlib.suppress(ConnectionError):
        client.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"X-More: more\r\n" * 10_000)
        while received := client.recv(1024):
            assert received.startswith(b"HTTP/1.1 400 ")
