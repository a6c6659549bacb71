"""Daphne as an ASGI server of the hub: `up --server daphne`.

It receives a whole body, in a temporary file if it is large, before the application gets the request, so it needs a
proxy that bounds bodies: see `docs/deployment.md`.

One part of it is not in its documentation or Twisted's, and `tests/server/test_contracts.py` fails with the reason when
a version changes it: `persistent` of `HTTPChannel` ends a connection after its response.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from daphne.server import Server
from django.conf import settings
from twisted.internet import reactor

from tools_app.protocol.close_codes import TOO_MANY_FRAMES
from tools_app.server.base import BACKLOG, AsyncFunction
from tools_app.server.boundary import IDLE_SECONDS, POLL_SECONDS, Boundary
from tools_app.server.websocket_frames import READ_BYTES, FrameLimit
from tools_app.transport.request import CLOSE

# Messages of a WebSocket, and the size of one, that wait for the application; above them the client is not read.
MAX_QUEUED: Final = 32
MAX_QUEUED_BYTES: Final = 64 * 1024


class _Writer:
    """Whether a connection can be written to. Told by Twisted (`IPushProducer`)."""

    def __init__(self) -> None:
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self.wait = self._is_writable.wait

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        self._is_writable.clear()

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        self._is_writable.set()

    stopProducing = resumeProducing  # noqa: N815 - Twisted's name


class _WebSocketQueue:
    """The events of a WebSocket for the application, which Daphne puts. While many wait, its client is not read."""

    def __init__(self, events: asyncio.Queue[Mapping[str, Any]], transport: Any) -> None:
        self._events = events
        self._transport = transport
        self._is_paused = False
        # Until now it told the HTTP channel, which needs it no more.
        self.writer = _Writer()
        transport.unregisterProducer()
        transport.registerProducer(self.writer, True)

    def put_nowait(self, event: Mapping[str, Any]) -> None:
        """Called by Daphne."""
        self._events.put_nowait(event)
        if event["type"] == "websocket.disconnect":
            self.writer.stopProducing()
        is_large = len(event.get("text") or event.get("bytes") or "") > MAX_QUEUED_BYTES
        if not self._is_paused and (is_large or self._events.qsize() > MAX_QUEUED):
            self._is_paused = True
            self._transport.pauseProducing()
            self._resume_when_empty()

    def _resume_when_empty(self) -> None:
        if self._events.empty():
            self._is_paused = False
            self._transport.resumeProducing()
        else:
            # Polled: nothing tells when the application has received an event.
            asyncio.get_running_loop().call_later(POLL_SECONDS, self._resume_when_empty)


class _Daphne(Server):
    """Daphne that waits for its clients, and can be told to listen no more."""

    def __init__(self, boundary: Boundary, endpoint: str, max_message_bytes: int) -> None:
        # It counts for what is sent, too, such as results. The application bounds what is received as well.
        max_message_bytes = max(max_message_bytes, 2 * settings.MCPHUB_MAX_RESULT_BYTES)
        super().__init__(
            boundary,
            endpoints=[endpoint],
            signal_handlers=False,
            server_name="mcphub",
            # Checked every two seconds.
            ping_interval=settings.MCPHUB_KEEPALIVE_INTERVAL,
            websocket_max_message_size=max_message_bytes,
            websocket_max_frame_size=max_message_bytes,
        )
        self.ports: list[Any] = []
        self._boundary = boundary

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self.ports.append(port)

    def create_application(self, protocol: Any, scope: Any) -> Any:
        """Start the application, and return the queue of its events."""
        events = super().create_application(protocol, scope)
        if scope["type"] == "http":
            return events
        # Twisted's names. Each of its reads, up to 64 KiB by default, is parsed at once.
        protocol.transport.bufferSize = READ_BYTES
        protocol.dataReceived = FrameLimit(protocol.dataReceived, partial(protocol.sendClose, TOO_MANY_FRAMES)).receive
        return _WebSocketQueue(events, protocol.transport)

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Send a message, and wait until its client has read what was sent before: Daphne would buffer all of it."""
        if message["type"].startswith("websocket."):
            await super().handle_reply(protocol, message)
            await self._wait(protocol.application_queue.writer, protocol)
            return
        more_body = message.get("more_body", False)
        if protocol.channel is not None and not protocol.finished:
            # Not with a head that did not say so: its client may send the next request on this connection.
            if CLOSE in message.get("headers", ()):
                protocol.channel.persistent = False
            if more_body and protocol.producer is None:
                protocol.registerProducer(_Writer(), True)
            elif not more_body and protocol.producer is not None:
                protocol.unregisterProducer()
        await super().handle_reply(protocol, message)
        if more_body and protocol.producer is not None:
            await self._wait(protocol.producer, protocol)

    async def _wait(self, writer: _Writer, protocol: Any) -> None:
        began = asyncio.get_running_loop().time()
        try:
            await writer.wait()
        except asyncio.CancelledError:
            if asyncio.get_running_loop().time() - began >= IDLE_SECONDS:
                protocol.transport.abortConnection()
            raise


class DaphneServer:
    """Daphne on the Twisted reactor. A process has one reactor, which runs only once."""

    def __init__(self, boundary: Boundary, listener: socket.socket, max_message_bytes: int) -> None:
        listener.listen(BACKLOG)
        # Twisted closes the descriptor.
        self._daphne = _Daphne(boundary, f"fd:fileno={listener.detach()}", max_message_bytes)
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`."""
        self._daphne.ready_callable = ready
        self._daphne.run()

    def spawn(self, work: AsyncFunction) -> None:
        """Run `work()` in the event loop."""
        reactor.callFromThread(self._start, work)

    async def stop_listening(self) -> None:
        """Accept no more connections."""
        for port in self._daphne.ports:
            port.stopListening()

    async def end_keep_alive(self, seconds: float) -> None:
        """Let connections have one last request: each response closes its own."""
        await asyncio.sleep(seconds)

    def stop(self) -> None:
        """Close every connection and let `run` return."""
        self._daphne.stop()

    def _start(self, work: AsyncFunction) -> None:
        task = asyncio.ensure_future(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
