"""How long the servers wait for a request, or for the rest of one: for as long as something comes."""

import contextlib
from collections.abc import Iterator

import pytest
import websockets.sync.client

from tests.processes.hub import WAIT_SECONDS, Connect, listening
from tools_app.server.base import SERVERS

# Twenty pauses are three times as long as the server below waits for anything.
IDLE_SECONDS, PAUSE_SECONDS = 0.5, 0.075
# It answers once it has all of a request, and says again what a WebSocket says.
IMPATIENT = """
import sys
from django.utils.module_loading import import_string
from tools_app.server import base

base.IDLE_SECONDS = HALF_A_SECOND
Server = import_string(sys.argv[1])

async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (said := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": said["text"]})
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"done"})

listener = base.bind("127.0.0.1", 0)
server = Server(application, listener, 1000)
server.run(lambda: print(listener.getsockname()[1], flush=True))
"""


@pytest.fixture(scope="module", params=SERVERS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects to such a server."""
    with listening(IMPATIENT.replace("HALF_A_SECOND", str(IDLE_SECONDS)), request.param) as connect:
        yield connect


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12"]
)
def test_a_request_that_does_not_come_to_its_end_is_not_waited_for(connect: Connect, said: bytes) -> None:
    with connect() as client:
        client.sendall(said)
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
        while said := client.recv(1024):
            assert said.startswith(b"HTTP/1.1 400 ")
