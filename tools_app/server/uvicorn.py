"""uvicorn as an ASGI server of the hub: the default of `up`.

These parts of it are not in its documentation, and `tests/server/test_contracts.py` fails with the reason when a
version changes one of them:

- `Server`: `startup` tells when it listens, and `capture_signals` would replace the hub's own signal handlers.
- `servers` and `server_state` of a `Server`, `connections` of that, and `shutdown` of `HttpToolsProtocol` drain
  connections: `Server.shutdown` closes idle ones at once, and loses what clients have just sent on them.
- `Config`: `get_loop_factory` makes an event loop that a hub in a thread can use.

`WebSocketsSansIOProtocol` is what its option `ws="websockets-sansio"` names. Only what asyncio calls is called.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from django.conf import settings
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tools_app.protocol.close_codes import TOO_MANY_FRAMES
from tools_app.server.base import BACKLOG, AsyncFunction
from tools_app.server.boundary import IDLE_SECONDS, POLL_SECONDS, Boundary
from tools_app.server.websocket_frames import READ_BYTES, FrameLimit

LAST_WRITES_SECONDS = 1
# A client that is refused is still read for so long: its connection would be reset before it has read why.
REFUSED_SECONDS = 1
# A frame with opcode 8 (RFC 6455, §5.5.1).
TOO_MANY_FRAMES_CLOSE = bytes([0x88, 2]) + TOO_MANY_FRAMES.to_bytes(2)


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, which calls `on_startup` when it listens."""

    on_startup: Callable[[], None]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_startup()


class _WebSocket(asyncio.BufferedProtocol):
    """uvicorn's WebSocket, which reads little at once and refuses clients that send many small frames.

    Other protocols of asyncio have no say in how much is read: up to 256 KiB, which uvicorn parses at once.
    """

    _transport: asyncio.Transport

    def __init__(self, **options: Any) -> None:
        self._websocket = WebSocketsSansIOProtocol(**options)
        self._limit = FrameLimit(self._websocket.data_received, self._refuse)
        self._buffer = bytearray(READ_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._websocket.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Receive the head of the handshake, which uvicorn has read."""
        self._websocket.data_received(data)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._limit.receive(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> None:
        self._websocket.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._websocket.connection_lost(exc)

    def pause_writing(self) -> None:
        self._websocket.pause_writing()

    def resume_writing(self) -> None:
        self._websocket.resume_writing()

    def _refuse(self) -> None:
        self._transport.write(TOO_MANY_FRAMES_CLOSE)
        asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._transport.abort)


class UvicornServer:
    """uvicorn with httptools, and with uvloop where the platform has it."""

    def __init__(self, boundary: Boundary, listener: socket.socket, max_message_bytes: int) -> None:
        self._boundary = boundary
        self._listener = listener
        config = uvicorn.Config(
            boundary,
            interface="asgi3",
            http="httptools",
            ws=_WebSocket,  # type: ignore[arg-type]
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
            backlog=BACKLOG,
            timeout_keep_alive=int(IDLE_SECONDS),
            timeout_graceful_shutdown=LAST_WRITES_SECONDS,
        )
        self._server = _Uvicorn(config)
        self._loop = (config.get_loop_factory() or asyncio.new_event_loop)()
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`."""
        self._server.on_startup = ready
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            # Does not wait for threads: a tool that never ends must not keep the process alive.
            self._loop.close()

    def spawn(self, work: AsyncFunction) -> None:
        """Run `work()` in the server's event loop."""
        self._loop.call_soon_threadsafe(self._start, work)

    async def stop_listening(self) -> None:
        """Accept no more connections."""
        if self._server.started:
            for server in self._server.servers:
                server.close()

    async def end_keep_alive(self, seconds: float) -> None:
        """Let each connection have one last request."""
        connections = self._server.server_state.connections
        deadline = self._loop.time() + seconds
        # Polled: it happens only once in the lifetime of a process.
        while len(connections) > self._boundary.open_requests and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        for connection in list(connections):
            # WebSockets are closed by the application.
            if isinstance(connection, HttpToolsProtocol):
                connection.shutdown()
        # The application has received the last requests before it is told to accept no more.
        await asyncio.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Close every connection and let `run` return."""
        self._server.should_exit = True

    def _start(self, work: AsyncFunction) -> None:
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self) -> None:
        await self._server.serve([self._listener])
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WRITES_SECONDS)
