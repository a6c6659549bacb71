"""Daphne as an ASGI server of the hub: `up --server daphne`.

Twisted would gather a whole body, in a temporary file if need be, before the application receives the request. Here the
application receives the head at once and the body piece by piece, so that the hub's bounds hold while a body arrives.
Neither Daphne nor Twisted has a documented way to do this, or to drain connections. These parts are not public API, and
`tests/server/test_contracts.py` fails with the reason when a version changes one of them:

- `HTTPChannel`: `requests`, `persistent`, `length`, `_command`, `_path`, `_version`, `allHeadersReceived`,
  `checkPersistence`, `rawDataReceived` and `_send100Continue` start a request with its head and end a connection after
  a response; `_respondToBadRequestAndDisconnect` and `lineLengthExceeded` refuse a request; `_waitingForTransport` is
  the only sign that a client does not read; `MAX_LENGTH` and `totalHeadersSize` are bounds; `timeOut` and
  `timeoutConnection` are replaced and used by the check for idle connections.
- `WebRequest`: `application_queue`, `_response_started`, `finished`, `gotLength`, `handleContentChunk`,
  `requestReceived` and the argument `parsePOSTFormSubmission` pass a body on without storing it.
- Daphne's `Server`: `create_application` makes the queue of an application (`application_instance`), which has no
  bound; `handle_reply` does not wait for a slow client; `connections` keeps what is `disconnected` longer than needed;
  `http_factory`, `ws_factory` and `endpoints` let it serve accepted sockets.
- The reactor's `_asyncioEventloop`, as Daphne itself uses it.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import BytesIO
from typing import Any
from weakref import WeakSet, ref

from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import Server as Daphne
from django.conf import settings
from twisted.internet import reactor
from twisted.web.http import HTTPChannel

from tools_app.server.base import MAX_HEAD_BYTES, Application, AsgiServer, IdleCounter, authority_of
from tools_app.server.daphne_websocket import WebSocketConnection, unread_bytes

CONNECTION, CLOSE = b"connection", b"close"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Buffered bytes of a body that the application has not received; above this its connection is not read.
MAX_QUEUED_BYTES = 64 * 1024
# What a message of a WebSocket counts beside its text, so that few are queued.
MESSAGE_OVERHEAD_BYTES = 4 * 1024


class _ReceiveQueue:
    """The receive queue of one request or WebSocket. The connection is not read while the queue is large.

    It refers weakly to what it belongs to, which refers to it: a reference cycle for each request is garbage that only
    a full collection frees, and such a collection pauses all calls (0.2 to 0.4 s under load).
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = ref(protocol)
        self._messages: asyncio.Queue[tuple[Mapping[str, Any], int]] = asyncio.Queue()
        self._bytes = 0
        self._paused_transport: Any = None
        self._is_body_pending = isinstance(protocol, _Request) and protocol.is_body_pending

    def put_nowait(self, message: Mapping[str, Any]) -> None:
        """Called by Daphne. A body that is still arriving is put by `put_body`."""
        if message["type"] == "http.request" and self._is_body_pending:
            return
        self._put(message, len(message.get("text") or message.get("bytes") or b"") + MESSAGE_OVERHEAD_BYTES)

    def put_body(self, piece: bytes, *, is_last: bool) -> None:
        self._put({"type": "http.request", "body": piece, "more_body": not is_last}, len(piece))

    async def get(self) -> Mapping[str, Any]:
        """Called by the application."""
        protocol = self._protocol()
        if isinstance(protocol, _Request):
            protocol.send_continue()
        del protocol
        message, size = await self._messages.get()
        self._bytes -= size
        if self._paused_transport is not None and self._bytes <= MAX_QUEUED_BYTES:
            # Cleared first: what was read before may fill the queue at once.
            paused, self._paused_transport = self._paused_transport, None
            paused.resumeProducing()
        return message

    def _put(self, message: Mapping[str, Any], size: int) -> None:
        self._bytes += size
        self._messages.put_nowait((message, size))
        if self._bytes > MAX_QUEUED_BYTES and self._paused_transport is None:
            protocol = self._protocol()
            transport = protocol if isinstance(protocol, WebSocketConnection) else getattr(protocol, "transport", None)
            if transport is not None:
                transport.pauseProducing()
                self._paused_transport = transport


class _WritableWaiter:
    """Notified by Twisted when the connection is writable, or closed (`IPushProducer`)."""

    def __init__(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        await self._writable

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Do nothing: the response is waiting already."""

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        if not self._writable.done():
            self._writable.set_result(None)

    stopProducing = resumeProducing  # noqa: N815 - Twisted's name


async def _wait_until_writable(channel: Any) -> None:
    waiter = _WritableWaiter()
    channel.registerProducer(waiter, streaming=True)
    try:
        await waiter.wait()
    finally:
        channel.unregisterProducer()


class _Channel(HTTPChannel):
    """One HTTP connection, which Twisted calls a channel."""

    MAX_LENGTH = totalHeadersSize = MAX_HEAD_BYTES  # noqa: N815 - Twisted's names
    # Twisted would set a timer before and after each request.
    timeOut = None  # noqa: N815 - Twisted's name

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # The number of requests, and of pieces of their bodies.
        self.pieces = 0
        self._idle = IdleCounter()
        self._is_closing = False
        self._host: Any = None

    def makeConnection(self, transport: Any) -> None:  # noqa: N802 - Twisted's name
        self.factory.transports.add(transport)
        super().makeConnection(transport)  # type: ignore[no-untyped-call]

    @property
    def is_idle(self) -> bool:
        return not self.requests

    @property
    def is_responding(self) -> bool:
        # A request has a queue once the application has received it.
        return any(request.application_queue is not None for request in self.requests)

    def disable_keep_alive(self) -> None:
        self._is_closing = True
        for request in self.requests[-1:]:
            self.persistent = self.checkPersistence(request, b"")

    def checkPersistence(self, request: Any, version: bytes) -> bool:  # noqa: N802 - Twisted's name
        """Called by Twisted when a request's head is complete: whether another request may follow."""
        if not self._is_closing:
            return bool(super().checkPersistence(request, version))  # type: ignore[no-untyped-call]
        request.responseHeaders.setRawHeaders(CONNECTION, [CLOSE])
        return False

    def close(self) -> None:
        self.loseConnection()  # type: ignore[no-untyped-call]

    def check_idle(self) -> None:
        is_waiting = not self.is_responding or self.requests[-1].is_body_pending
        transport: Any = self.transport
        unread = unread_bytes(transport)
        if self._idle.is_idle(self.pieces, unread, is_waiting=is_waiting):
            if unread:
                transport.abortConnection()
            else:
                self.timeoutConnection()  # type: ignore[no-untyped-call]

    def getHost(self) -> Any:  # noqa: N802 - Twisted's name
        """Return the address that accepted it. Each request asks for it; the system is asked once."""
        if self._host is None:
            self._host = super().getHost()  # type: ignore[no-untyped-call]
        return self._host

    def allHeadersReceived(self) -> None:  # noqa: N802 - Twisted's name
        """Pass a request to the application before its body arrives."""
        super().allHeadersReceived()  # type: ignore[no-untyped-call]
        if self.length != 0:
            self.requests[-1].start(self._command, self._path, self._version)

    def rawDataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Receive a piece of a body, unless its request has its response already and the connection closes."""
        self.pieces += 1
        if self.requests or self.persistent:
            super().rawDataReceived(data)
        for request in self.requests[-1:]:
            request.flush_piece()

    def lineLengthExceeded(self, line: bytes) -> None:  # noqa: ARG002, N802 - Twisted's
        """Refuse a head with a line that is too long."""
        self._respondToBadRequestAndDisconnect()  # type: ignore[no-untyped-call]

    def _send100Continue(self) -> None:  # noqa: N802 - Twisted's name
        """Wait until the application asks for the body."""
        self.requests[-1].expects_continue = True


class _Request(WebRequest):
    """A request whose body is passed to the application as it arrives, and neither stored nor parsed here."""

    def __init__(self, channel: _Channel, *args: Any, **kwargs: Any) -> None:
        super().__init__(channel, *args, **{**kwargs, "parsePOSTFormSubmission": False})
        self.is_body_pending = False
        self.expects_continue = False
        # A piece of the body that is not passed on before it is known whether it is the last.
        self._piece: bytes | None = None
        channel.pieces += 1

    def gotLength(self, length: int | None) -> None:  # noqa: ARG002, N802 - Twisted's
        """Create no file for the body."""
        self.content = BytesIO()

    def start(self, command: bytes, target: bytes, version: bytes) -> None:
        """Start the application with the head alone."""
        self.is_body_pending = True
        if self.requestHeaders.hasHeader(b"Upgrade"):
            self.channel._respondToBadRequestAndDisconnect()  # noqa: SLF001 - a WebSocket has no body
            return
        self._start(command, target, version)

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Receive a piece of the body."""
        self.flush_piece()
        self._piece = data

    def flush_piece(self, *, is_last: bool = False) -> None:
        """Pass the piece that has arrived on to the application."""
        piece, self._piece = self._piece, None
        if (piece is not None or is_last) and self.application_queue is not None and not self.finished:
            self.application_queue.put_body(piece or b"", is_last=is_last)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:  # noqa: N802 - Twisted's name
        """Handle the end of the request."""
        if not self.is_body_pending:
            self._start(command, path, version)
            return
        self.is_body_pending = False
        self.flush_piece(is_last=True)

    def send_continue(self) -> None:
        """Send "100 Continue" to a client that waits for it."""
        expects, self.expects_continue = self.expects_continue, False
        if expects and not self._response_started and self.channel is not None:
            self.channel.transport.write(CONTINUE)

    def finish(self) -> None:
        """End the response, and with it the connection if a part of the body is still to come."""
        if self.is_body_pending and self.channel is not None:
            self.channel.persistent = False
        super().finish()

    def _start(self, command: bytes, target: bytes, version: bytes) -> None:
        """Let Daphne start the application.

        The host of a target in absolute form counts as a Host header: if the two differ, the application refuses both.
        """
        authority = authority_of(target)
        if authority is not None:
            if authority not in (self.requestHeaders.getRawHeaders(b"host") or []):
                self.requestHeaders.addRawHeader(b"host", authority)
            target = target.partition(b"://")[2][len(authority) :]
            target = target if target.startswith(b"/") else b"/" + target
        super().requestReceived(command, target, version)


class _Factory(HTTPFactory):
    """Keeps track of the connections that it makes.

    It is not started (`doStart`), so that Twisted formats no access log, which is not used.
    """

    protocol = _Channel

    def __init__(self, server: Daphne) -> None:
        super().__init__(server)
        self.timeOut = None
        self.is_closing = False
        self._channels: WeakSet[_Channel] = WeakSet()
        # A connection that becomes a WebSocket keeps its transport, and changes its protocol.
        self.transports: WeakSet[Any] = WeakSet()

    def buildProtocol(self, addr: Any) -> _Channel:  # noqa: N802 - Twisted's name
        channel: _Channel = super().buildProtocol(addr)
        channel.requestFactory = _Request  # type: ignore[assignment]
        self._channels.add(channel)
        if self.is_closing:
            channel.disable_keep_alive()
        return channel

    def connections(self) -> Iterator[_Channel]:
        """The open connections, without those that are WebSockets now."""
        for channel in self._channels:
            transport = channel.transport
            if transport is not None and transport.connected and transport.protocol is channel:
                yield channel


class _Daphne(Daphne):
    """Daphne with accepted sockets and bounded application queues."""

    def __init__(self, application: Application, max_message_bytes: int) -> None:
        super().__init__(
            application,
            endpoints=["none"],
            signal_handlers=False,
            server_name="mcphub",
            # Checked every two seconds.
            ping_interval=settings.MCPHUB_KEEPALIVE_INTERVAL,
        )
        # Daphne requires an endpoint, and would bind it.
        self.endpoints: list[str] = []
        self._max_message_bytes = max_message_bytes

    def create_application(self, protocol: Any, scope: Any) -> Any:
        """Start the application as Daphne does, but with a bounded queue."""
        queue = _ReceiveQueue(protocol)
        if isinstance(protocol, WebSocketConnection):
            protocol.announce(scope)
        scope.setdefault("asgi", {"version": "3.0"})
        coroutine = self.application(scope=scope, receive=queue.get, send=partial(self.handle_reply, protocol))
        task = asyncio.ensure_future(coroutine)
        self.connections[protocol]["application_instance"] = task
        task.add_done_callback(partial(self._forget, protocol))
        return queue

    def _forget(self, protocol: Any, task: "asyncio.Task[None]") -> None:
        """Forget a request that is complete: Daphne keeps each for up to a second, and then checks thousands at once.

        A request whose application failed is left to Daphne.
        """
        has_failed = task.cancelled() or task.exception() is not None
        if not has_failed and isinstance(protocol, _Request) and "disconnected" in self.connections.get(protocol, ()):
            del self.connections[protocol]

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Send a message, and wait until the client has read what was sent before: Daphne would buffer all of it."""
        is_websocket = isinstance(protocol, WebSocketConnection)
        if is_websocket and message["type"] == "websocket.send" and protocol.state != protocol.STATE_OPEN:
            raise ConnectionResetError("The client has disconnected.")
        await super().handle_reply(protocol, message)
        if is_websocket:
            await protocol.writable.wait()
            return
        channel = getattr(protocol, "channel", None)  # None once the response is complete
        if channel is not None and channel._waitingForTransport:  # noqa: SLF001 - nothing else tells
            await _wait_until_writable(channel)

    def prepare(self) -> None:
        """Set up the factories once Daphne has made its own."""
        # A client that exceeds the limit receives the reason; a dropped connection would look like a network error.
        self.ws_factory.setProtocolOptions(
            maxMessagePayloadSize=self._max_message_bytes,
            maxFramePayloadSize=self._max_message_bytes,
            failByDrop=False,
        )
        self.ws_factory.protocol = WebSocketConnection
        self.http_factory = _Factory(self)


class DaphneServer(AsgiServer):
    """Daphne on the Twisted reactor. A process has one reactor, which runs only once."""

    def __init__(self, application: Application, listener: socket.socket, max_message_bytes: int) -> None:
        super().__init__(listener, reactor._asyncioEventloop)  # noqa: SLF001 - as Daphne itself does
        self._daphne = _Daphne(application, max_message_bytes)

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`."""
        for step in (self._daphne.prepare, self._listen, ready):
            reactor.callWhenRunning(step)
        self._daphne.run()

    async def end_keep_alive(self, seconds: float) -> None:
        """Serve one last request on each connection."""
        self._daphne.http_factory.is_closing = True
        await super().end_keep_alive(seconds)

    def stop(self) -> None:
        """Stop the reactor, which closes what is still open."""
        self._daphne.stop()

    async def _serve_connection(self, connection: socket.socket) -> None:
        # Twisted duplicates the descriptor.
        with connection:
            reactor.adoptStreamConnection(connection.fileno(), connection.family, self._daphne.http_factory)

    def _addresses(self) -> Iterator[str]:
        return (each.getPeer().host for each in self._transports())

    def _websockets(self) -> Iterator[WebSocketConnection]:
        return (each.protocol for each in self._transports() if isinstance(each.protocol, WebSocketConnection))

    def _transports(self) -> Iterator[Any]:
        return (each for each in list(self._daphne.http_factory.transports) if each.connected)

    def _connections(self) -> Iterator[_Channel]:
        return self._daphne.http_factory.connections()
