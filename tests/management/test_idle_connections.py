"""How long the servers wait for a request, or for the rest of one: for as long as something comes."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import websockets.sync.client

from tests.management.conftest import ROOT, WAIT_SECONDS
from tools_app.management.servers import SERVERS

# Twenty pauses are three times as long as the server below waits for anything.
IDLE_SECONDS, PAUSE_SECONDS = 0.5, 0.075
# It answers once it has all of a request, and says again what a WebSocket says.
IMPATIENT = """
import sys
from tools_app.management import listening, servers

servers.IDLE_SECONDS = HALF_A_SECOND

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

listener = listening.bind("127.0.0.1", 0)
server = servers.make(sys.argv[1], application, listener, 1000)
server.run(lambda: print(listener.getsockname()[1], flush=True))
"""
Connect = Callable[[], socket.socket]


@pytest.fixture(scope="module", params=SERVERS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects to such a server, a process of its own: Twisted's reactor runs once in a process."""
    command = [sys.executable, "-c", IMPATIENT.replace("HALF_A_SECOND", str(IDLE_SECONDS)), request.param]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        yield lambda: socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
        server.kill()


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
