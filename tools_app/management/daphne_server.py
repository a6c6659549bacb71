"""Daphne, the server that comes with the hub."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakSet

from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import Server as Daphne
from daphne.ws_protocol import WebSocketProtocol
from twisted.internet import reactor
from twisted.web.http import HTTPChannel

from tools_app.management.back_pressure import room
from tools_app.management.servers import Application, AsgiServer, Patience

CONNECTION, CLOSE = b"connection", b"close"


class _Socket(WebSocketProtocol):
    """A WebSocket whose bound is one for the client alone: autobahn holds what a server sends to it as well."""

    maxMessagePayloadSize: int  # noqa: N815 - autobahn's name

    def sendMessage(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - autobahn's name
        bound, self.maxMessagePayloadSize = self.maxMessagePayloadSize, 0
        try:
            super().sendMessage(*args, **kwargs)
        finally:
            self.maxMessagePayloadSize = bound


class _Channel(HTTPChannel):
    """One HTTP connection, which Twisted calls a channel. `heard` counts requests, and pieces of their bodies."""

    # Twisted would set a timer before and after each request.
    timeOut = None  # noqa: N815 - Twisted's name

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heard = 0
        self._ends = False
        self._patience = Patience()
        self._host: Any = None

    @property
    def is_idle(self) -> bool:
        return not self.requests

    @property
    def is_answering(self) -> bool:
        # A request has a queue once the application has it.
        return any(request.application_queue is not None for request in self.requests)

    def answer_last(self) -> None:
        self._ends = True
        for request in self.requests[-1:]:
            self.persistent = self.checkPersistence(request, b"")

    def checkPersistence(self, request: Any, version: bytes) -> bool:  # noqa: N802 - Twisted's name
        """What Twisted asks when it has read a request's head: whether there may be another one after it."""
        if not self._ends:
            return bool(super().checkPersistence(request, version))  # type: ignore[no-untyped-call]
        request.responseHeaders.setRawHeaders(CONNECTION, [CLOSE])
        return False

    def close(self) -> None:
        self.loseConnection()  # type: ignore[no-untyped-call]

    def look(self) -> None:
        if self._patience.is_over(self.heard, waits=not self.is_answering):
            self.timeoutConnection()  # type: ignore[no-untyped-call]

    def rawDataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Take a piece of a body."""
        self.heard += 1
        super().rawDataReceived(data)

    def getHost(self) -> Any:  # noqa: N802 - Twisted's name
        """Where it was accepted: each request asks, and the system is asked once."""
        if self._host is None:
            self._host = super().getHost()  # type: ignore[no-untyped-call]
        return self._host


class _Request(WebRequest):
    """A request whose body Twisted does not look into: what is in a form is the application's to find out."""

    def __init__(self, channel: _Channel, *args: Any, **kwargs: Any) -> None:
        super().__init__(channel, *args, **{**kwargs, "parsePOSTFormSubmission": False})
        channel.heard += 1


class _Factory(HTTPFactory):
    """Remembers the connections that it makes."""

    protocol = _Channel

    def __init__(self, server: Daphne) -> None:
        super().__init__(server)
        self.timeOut = None
        self.is_closing = False
        self._channels: WeakSet[_Channel] = WeakSet()

    def buildProtocol(self, addr: Any) -> _Channel:  # noqa: N802 - Twisted's name
        channel: _Channel = super().buildProtocol(addr)
        channel.requestFactory = _Request  # type: ignore[assignment]
        self._channels.add(channel)
        if self.is_closing:
            channel.answer_last()
        return channel

    def log(self, request: Any) -> None:
        """Nobody reads Twisted's access log, and to write it took a sixth of a request's time."""

    def standing(self) -> Iterator[_Channel]:
        """The connections that stand, but for those that are WebSockets by now."""
        for channel in self._channels:
            transport = channel.transport
            if transport is not None and transport.connected and transport.protocol is channel:
                yield channel


class _Daphne(Daphne):
    """Daphne that is handed its connections, and bounds WebSocket messages."""

    def __init__(self, application: Application, most_bytes: int) -> None:
        super().__init__(application, endpoints=["ours"], signal_handlers=False, server_name="mcphub")
        # It refuses to be made without an endpoint, but would bind one.
        self.endpoints: list[str] = []
        self._most_bytes = most_bytes

    def create_application(self, protocol: Any, scope: Any) -> Any:
        queue = super().create_application(protocol, scope)
        if queue is not None:
            answering = self.connections[protocol]["application_instance"]
            answering.add_done_callback(partial(self._forget, protocol))
        return queue

    def _forget(self, protocol: Any, answering: "asyncio.Task[None]") -> None:
        """Forget a request that is over: Daphne would keep it for up to a second, and then look at thousands at once.

        An application that failed is left to Daphne.
        """
        went_well = not answering.cancelled() and answering.exception() is None
        if went_well and isinstance(protocol, _Request) and "disconnected" in self.connections.get(protocol, ()):
            del self.connections[protocol]

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        await super().handle_reply(protocol, message)
        await room(protocol)

    def begin(self) -> None:
        """Be ready for connections."""
        # A client that sends too much is told so; a dropped connection would look like an accident.
        self.ws_factory.setProtocolOptions(
            maxMessagePayloadSize=self._most_bytes, maxFramePayloadSize=self._most_bytes, failByDrop=False
        )
        self.ws_factory.protocol = _Socket
        self.http_factory = _Factory(self)
        self.http_factory.doStart()


class DaphneServer(AsgiServer):
    """Daphne on the Twisted reactor, of which a process has one and can run it once."""

    def __init__(self, application: Application, listener: socket.socket, most_bytes: int) -> None:
        super().__init__(listener, reactor._asyncioEventloop)  # noqa: SLF001 - as Daphne itself does
        self._daphne = _Daphne(application, most_bytes)

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`."""
        for step in (self._daphne.begin, self._listen, ready):
            reactor.callWhenRunning(step)
        self._daphne.run()

    async def let_go(self, seconds: float) -> None:
        """Answer once more on each connection, and close those on which nothing is asked."""
        self._daphne.http_factory.is_closing = True
        await super().let_go(seconds)

    def stop(self) -> None:
        """Stop the reactor, which closes what is still open."""
        self._daphne.stop()

    async def _take(self, connection: socket.socket) -> None:
        # Twisted makes a socket of its own of the descriptor.
        with connection:
            reactor.adoptStreamConnection(connection.fileno(), connection.family, self._daphne.http_factory)

    def _connections(self) -> Iterator[_Channel]:
        return self._daphne.http_factory.standing()
