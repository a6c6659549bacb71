"""Clients on the event loop of a web process, for calls that need none of the thread of the connections.

A modern upstream over HTTP has no session, so that any loop can send a call to it. To hand each one to another thread
and back took a quarter of what forwarding takes. The connection still says whether the call is made, by the definitions
that it has listed and by its circuit breaker, and is told of failures and notifications.
"""

import asyncio
from functools import partial
from time import monotonic
from typing import Final

from tools_app.catalog.kinds.upstream.runner import Endpoint, Pin
from tools_app.upstreams.client import Client, Message
from tools_app.upstreams.connections import Connection, Connections
from tools_app.upstreams.sessions import NO_CAPABILITIES, close_client

# How often clients are closed whose connection has been closed.
SWEEP_SECONDS: Final = 5.0


class DirectClients:
    """The clients of one event loop, which runs as long as its process serves requests. Used on that loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._clients: dict[Endpoint, tuple[Connection, Client]] = {}
        self._connections: Connections | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def client(self, connections: Connections, endpoint: Endpoint, pin: Pin) -> Client | None:
        """Return the client for a call, if it can be made without the connection. Raises UpstreamFailed."""
        connection = connections.known(endpoint)
        if connection is None or (server := connection.server_for(pin)) is None:
            return None
        known_connection, client = self._clients.get(endpoint, (None, None))
        if client is None or known_connection is not connection:
            self._connections = connections
            self._drop_closed()

            def on_notification(message: Message) -> None:
                connections.call_soon(partial(connection.handle_notification, message))

            client = connection.open_client(endpoint, on_notification, NO_CAPABILITIES)
            self._clients[endpoint] = (connection, client)
            if self._timer is None:
                self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        client.server = server
        client.transport.keeps_connections &= connection.keeps_connections
        connection.used_at = monotonic()
        return client

    async def close(self) -> None:
        """Close all clients, because the loop ends."""
        if self._timer is not None:
            self._timer.cancel()
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*self._closing, *(close_client(client) for _, client in clients))

    def _sweep(self) -> None:
        self._drop_closed()
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep) if self._clients else None

    def _drop_closed(self) -> None:
        """Drop the clients whose connection was closed: idle, or replaced by one with other credentials or rules."""
        for endpoint, (connection, client) in list(self._clients.items()):
            if self._connections is None or self._connections.known(endpoint) is not connection:
                del self._clients[endpoint]
                task = self._loop.create_task(client.transport.retire())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


_clients: dict[asyncio.AbstractEventLoop, DirectClients] = {}


def open_here() -> None:
    """Send calls from the running loop, which runs until `close_here`."""
    loop = asyncio.get_running_loop()
    _clients[loop] = DirectClients(loop)


async def close_here() -> None:
    """Close the clients of the running loop."""
    clients = _clients.pop(asyncio.get_running_loop(), None)
    if clients is not None:
        await clients.close()


def client_for(connections: Connections, endpoint: Endpoint, pin: Pin) -> Client | None:
    """Return a client of the running loop for a call; None if the connection has to make it. Raises UpstreamFailed."""
    clients = _clients.get(asyncio.get_running_loop())
    return None if clients is None else clients.client(connections, endpoint, pin)
