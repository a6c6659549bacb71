"""Daphne, the server that comes with the hub."""

import socket
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import Server as Daphne
from daphne.ws_protocol import WebSocketProtocol
from twisted.internet import reactor

from tools_app.management.back_pressure import room
from tools_app.management.servers import IDLE_SECONDS, Application, AsgiServer

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


class _Channel:
    """One HTTP connection, which Twisted calls a channel."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    @property
    def is_idle(self) -> bool:
        return not self._channel.requests

    @property
    def is_answering(self) -> bool:
        # A request has a queue once the application has it.
        return any(request.application_queue is not None for request in self._channel.requests)

    def answer_last(self) -> None:
        self._channel.checkPersistence = _may_go_on
        for request in self._channel.requests[-1:]:
            self._channel.persistent = _may_go_on(request, b"")

    def close(self) -> None:
        self._channel.loseConnection()


def _may_go_on(request: Any, _version: bytes) -> bool:
    """What Twisted asks when it has read a request's head: whether there may be another one after it. No."""
    request.responseHeaders.setRawHeaders(CONNECTION, [CLOSE])
    return False


class _Request(WebRequest):
    """A request whose body Twisted does not look into: what is in a form is the application's to find out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "parsePOSTFormSubmission": False})


class _Factory(HTTPFactory):
    """Remembers the connections that it makes."""

    def __init__(self, server: Daphne) -> None:
        super().__init__(server)
        self.timeOut = IDLE_SECONDS
        self.is_closing = False
        self._channels: WeakSet[Any] = WeakSet()

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 - Twisted's name
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = _Request
        self._channels.add(protocol._channel)  # noqa: SLF001 - what tells whether it is idle
        if self.is_closing:
            _Channel(protocol._channel).answer_last()  # noqa: SLF001 - the same
        return protocol

    def log(self, request: Any) -> None:
        """Nobody reads Twisted's access log, and to write it took a sixth of a request's time."""

    def standing(self) -> Iterator[_Channel]:
        """The connections that stand."""
        for channel in self._channels:
            if channel.transport is not None and channel.transport.connected:
                yield _Channel(channel)


class _Daphne(Daphne):
    """Daphne that is handed its connections, and bounds WebSocket messages."""

    def __init__(self, application: Application, most_bytes: int) -> None:
        super().__init__(application, endpoints=["ours"], signal_handlers=False, server_name="mcphub")
        # It refuses to be made without an endpoint, but would bind one.
        self.endpoints: list[str] = []
        self._most_bytes = most_bytes

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
