"""uvicorn as an ASGI server of the hub: the default of `up`.

Its protocols run under a life cycle of the hub's own. `uvicorn.Server` closes idle connections as the first step of its
shutdown, so that a request that a client has just sent is lost, and each of its processes accepts all connections that
wait. These parts are not public API, and `tests/server/test_contracts.py` fails with the reason when a version changes
one of them:

- `HttpToolsProtocol`: `cycle`, `scope`, `headers`, `url`, `transport`, `client`, `expect_100_continue`,
  `on_headers_complete`, `on_body`, `send_400_response` and `shutdown` bound the head of a request and the rest of a
  body after its response; `pipeline` holds the requests that wait for an earlier response.
- `RequestResponseCycle`: `response_complete`, `more_body` and `keep_alive` tell what a connection waits for and end it
  after a response; `transport` lets the head and the body of a response leave together.
- `ServerState`: `connections`, `tasks` and `default_headers`, which `Connection: close` is added to.
- `Config`: `load`, `get_loop_factory` and the arguments of the protocol's constructor.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from tools_app.server.base import (
    IDLE_SECONDS,
    MAX_HEAD_BYTES,
    MAX_PIPELINED,
    Application,
    AsgiServer,
    IdleCounter,
    authority_of,
)
from tools_app.server.uvicorn_websocket import WebSocketConnection

CLOSE = (b"connection", b"close")
# The scope of a request has its method once the head is complete; before the first request there is no scope.
COMPLETE = {"method": ""}
# The maximum size of a body that continues after the response.
MAX_LATE_BODY_BYTES = 1024 * 1024
LAST_WRITES_SECONDS = 0.5


class PipelineFullError(Exception):
    """Too many requests were sent without waiting for responses; the parser stops and uvicorn responds with 400."""


class _ResponseTransport:
    """Holds the head of a response back until its body begins, as ASGI allows.

    Both leave in one packet and by one system call; uvicorn makes two.
    """

    __slots__ = ("_body_started", "_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self._body_started = False

    def write(self, data: bytes) -> None:
        if self._body_started:
            self._transport.write(data)
        elif self._head is None:
            self._head = data
        else:
            self._body_started = True
            self._transport.write(self._head + data)

    def close(self) -> None:
        if self._head is not None and not self._body_started:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class _Connection(HttpToolsProtocol):
    """A connection with limits on the size of a request's head and on idle time, which can be drained."""

    _head_bytes = 0
    _late_bytes = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pieces = 0
        self._idle = IdleCounter()

    @property
    def _current(self) -> RequestResponseCycle | None:
        """The request whose response is not complete."""
        cycle: Any = self.cycle  # None before the first request, in spite of its annotation
        return None if cycle is None or cycle.response_complete else cycle

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request of which no byte has arrived."""
        return self._current is None and "method" in (self.scope or COMPLETE)

    @property
    def is_responding(self) -> bool:
        """Whether the application is handling a request."""
        return self._current is not None

    def disable_keep_alive(self) -> None:
        """Send `Connection: close` with the current response. Later ones have it from the default headers."""
        cycle = self._current
        if cycle is not None:
            cycle.keep_alive = False

    def close(self) -> None:
        """Close the connection after everything is sent."""
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Receive bytes. A head that is too large is refused: the parser would buffer all of it."""
        super().data_received(data)
        if "method" in (self.scope or COMPLETE):
            self._head_bytes = 0
            self._pieces += 1
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_body(self, body: bytes) -> None:
        """Receive a piece of a body. One that continues after the response is read only up to a limit."""
        super().on_body(body)
        self._late_bytes = self._late_bytes + len(body) if self.cycle.response_complete else 0
        if self._late_bytes > MAX_LATE_BODY_BYTES:
            self.close()

    def on_headers_complete(self) -> None:
        """Start the application.

        The host of a target in absolute form counts as a Host header: if the two differ, the application refuses both.
        """
        before = self.cycle
        authority = authority_of(self.url)
        if authority is not None and (b"host", authority) not in self.headers:
            self.headers.append((b"host", authority))
        if len(self.pipeline) >= MAX_PIPELINED:
            raise PipelineFullError
        super().on_headers_complete()
        # "100 Continue" is sent before the head, at once; the response to HEAD has no body to wait for.
        if self.cycle is not before and not self.expect_100_continue and self.scope["method"] != "HEAD":
            cycle: Any = self.cycle
            cycle.transport = _ResponseTransport(self.transport)

    def check_idle(self) -> None:
        """Close the connection if several checks in a row find it waiting for a request, or for the rest of one.

        A client that does not read its response is cut off.
        """
        cycle = self._current
        unread = self.transport.get_write_buffer_size()
        if self._idle.is_idle(self._pieces, unread, is_waiting=cycle is None or cycle.more_body):
            if unread:
                self.transport.abort()
            else:
                self.close()


class UvicornServer(AsgiServer):
    """uvicorn with httptools, and with uvloop where the platform has it."""

    def __init__(self, application: Application, listener: socket.socket, max_message_bytes: int) -> None:
        self._config = Config(
            application,
            interface="asgi3",
            http=_Connection,
            ws=WebSocketConnection,
            ws_max_size=max_message_bytes,
            ws_per_message_deflate=False,
            ws_ping_interval=settings.MCPHUB_KEEPALIVE_INTERVAL,
            lifespan="off",
            log_config=None,
            # Its warnings are about malformed requests, which any client can send.
            log_level=logging.ERROR,
            access_log=False,
            # MCPHUB_TRUSTED_PROXIES decides instead.
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=int(IDLE_SECONDS),
        )
        self._config.load()
        super().__init__(listener, (self._config.get_loop_factory() or asyncio.new_event_loop)())
        self._state = ServerState()
        self._stopped = asyncio.Event()

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`."""
        try:
            self._loop.run_until_complete(self._serve(ready))
        finally:
            # Does not wait for threads: a tool that never ends must not keep the process alive.
            self._loop.close()

    async def end_keep_alive(self, seconds: float) -> None:
        """Serve one last request on each connection."""
        self._state.default_headers = [CLOSE]
        await super().end_keep_alive(seconds)

    def stop(self) -> None:
        """Close every connection and let `run` return."""
        self._stopped.set()

    async def _serve_connection(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> _Connection:
        return _Connection(self._config, self._state, {}, self._loop)

    def _connections(self) -> Iterator[_Connection]:
        return (each for each in list(self._state.connections) if isinstance(each, _Connection))

    def _websockets(self) -> Iterator[WebSocketConnection]:
        return (each for each in list(self._state.connections) if isinstance(each, WebSocketConnection))

    def _addresses(self) -> Iterator[str]:
        # Its annotation includes protocols that are not used here and have no `client`.
        clients = (getattr(each, "client", None) for each in list(self._state.connections))
        return (client[0] for client in clients if client)

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._listen()
        ready()
        await self._stopped.wait()
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._end_tasks()

    async def _end_tasks(self) -> None:
        """Wait briefly for the last writes, and cancel the remaining tasks."""
        tasks = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=LAST_WRITES_SECONDS)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WRITES_SECONDS)
