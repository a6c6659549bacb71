"""How long the servers wait for a request, or for the rest of one."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.management.conftest import ROOT, WAIT_SECONDS
from tools_app.management.servers import SERVERS

# A server that waits for nothing longer than half a second, and answers once it has all of a request.
IMPATIENT = """
import sys
from tools_app.management import listening, servers

servers.IDLE_SECONDS = 0.5

async def application(scope, receive, send):
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
    command = [sys.executable, "-c", IMPATIENT, request.param]
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


def test_a_connection_is_closed_when_nothing_follows_an_answer(connect: Connect) -> None:
    with connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(1000).endswith(b"done")
        assert client.recv(1000) == b""
