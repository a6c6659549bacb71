"""How a server accepts connections: one in each iteration of the event loop, several if iterations are long."""

import asyncio
import socket
from collections.abc import Callable, Iterable

import pytest

from tools_app.server.base import MAX_ACCEPTED, SECONDS_PER_ACCEPT, AsgiServer, Connection, WebSocket

CLIENTS = 40
WAIT_SECONDS = 30.0


class Server(AsgiServer):
    """Accepts connections and does nothing with them."""

    def __init__(self, listener: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(listener, loop)
        self.taken: list[socket.socket] = []

    def run(self, ready: Callable[[], None]) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def _connections(self) -> Iterable[Connection]:
        return ()

    def _websockets(self) -> Iterable[WebSocket]:
        return []

    def _addresses(self) -> Iterable[str]:
        return ()

    async def _serve_connection(self, connection: socket.socket) -> None:
        self.taken.append(connection)


@pytest.mark.parametrize(
    ("turn_seconds", "accepted"),
    [(0.0, 1), (SECONDS_PER_ACCEPT / 2, 1), (5.5 * SECONDS_PER_ACCEPT, 5), (10.0, MAX_ACCEPTED)],
)
def test_the_longer_a_turn_of_the_loop_the_more_connections_are_accepted_in_the_next(
    turn_seconds: float, accepted: int
) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=CLIENTS) as listener:
            listener.setblocking(False)
            server = Server(listener, asyncio.get_running_loop())
            clients = [socket.create_connection(listener.getsockname()) for _ in range(CLIENTS)]
            try:
                server._turn_seconds = turn_seconds
                server._accept()
                await asyncio.gather(*server._tasks)
                assert len(server.taken) == accepted
            finally:
                for connection in (*clients, *server.taken):
                    connection.close()

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))


def test_the_length_of_a_turn_is_seen() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            server = Server(listener, asyncio.get_running_loop())
            server._measure_turn(asyncio.get_running_loop().time() - 1.0)
            assert server._turn_seconds >= 1.0

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))
