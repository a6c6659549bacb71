"""The limit on connections of a client address to a process: WebSockets count, closed connections do not."""

import contextlib
import socket
from collections.abc import Iterator

import pytest
import websockets.sync.client

from tests.processes.hub import Connect, listening
from tools_app.server.address_limit import RECOUNT_SECONDS, AddressLimit
from tools_app.server.base import SERVERS

MOST = 3
MANY = 64
SERVING = """
import sys
from django.utils.module_loading import import_string
from tools_app.server import address_limit, base

address_limit.MAX_CONNECTIONS, address_limit.RECOUNT_SECONDS = MOST, 0.0

async def application(scope, receive, send):
    await receive()
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        await receive()
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"done"})

listener = base.bind("127.0.0.1", 0)
server = import_string(sys.argv[1])(application, listener, 1000)
server.limit_addresses(str)
server.run(lambda: print(listener.getsockname()[1], flush=True))
"""


@pytest.fixture(params=SERVERS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects to such a server."""
    with listening(SERVING.replace("MOST", str(MOST)), request.param) as connect:
        yield connect


def is_served(client: socket.socket) -> bool:
    """Whether a request on the connection gets a response. Connections beyond the limit are closed instead."""
    with contextlib.suppress(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while not answer.endswith(b"done"):
            piece = client.recv(1000)
            if not piece:
                return False
            answer += piece
        return True
    return False


def test_so_many_connections_and_no_more(connect: Connect) -> None:
    with contextlib.ExitStack() as open_ones:
        clients = [open_ones.enter_context(connect()) for _ in range(MOST)]
        assert all(map(is_served, clients))
        assert not is_served(open_ones.enter_context(connect()))
        assert is_served(clients[0])


def test_a_connection_that_is_closed_makes_room(connect: Connect) -> None:
    for _ in range(3 * MOST):
        with connect() as client:
            assert is_served(client)


def test_a_websocket_counts(connect: Connect) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(MOST):
            client = open_ones.enter_context(connect())
            open_ones.enter_context(websockets.sync.client.connect("ws://x/", sock=client, compression=None))
        assert not is_served(open_ones.enter_context(connect()))


def test_addresses_of_one_caller_share_a_bound_and_others_have_their_own() -> None:
    now = [0.0]
    standing: list[str] = []
    limit = AddressLimit(lambda: standing, lambda address: address[:3], max_per_address=2, clock=lambda: now[0])

    def connects(address: str) -> bool:
        admitted = limit.admits(address)
        standing.extend([address] * admitted)
        return admitted

    assert [connects(address) for address in ("a::1", "a::2", "a::3", "b::1")] == [True, True, False, True]
    standing.remove("a::1")
    assert [connects("a::2") for _ in range(2)] == [True, False]


def test_connections_that_come_and_go_quickly_are_all_let_in() -> None:
    limit = AddressLimit(list, str, max_per_address=MANY, clock=lambda: 0.0)
    assert all(limit.admits("a") for _ in range(10 * MANY))


def test_refused_connections_cause_one_recount_a_second() -> None:
    now = [0.0]
    recounts: list[float] = []

    def connected() -> list[str]:
        recounts.append(now[0])
        return ["a"] * MANY

    limit = AddressLimit(connected, str, max_per_address=MANY, clock=lambda: now[0])
    for _ in range(MANY):
        limit.admits("a")
    assert not any(limit.admits("a") for _ in range(100))
    assert len(recounts) == 1
    now[0] += RECOUNT_SECONDS
    assert not any(limit.admits("a") for _ in range(100))
    assert len(recounts) == 2
