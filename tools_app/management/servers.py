"""The ASGI server of the embedded hub, behind an interface that another server can take. Knows nothing of the hub."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from daphne.endpoints import build_endpoint_description_strings
from daphne.server import Server as Daphne
from daphne.ws_protocol import WebSocketProtocol
from twisted.internet import reactor

Application = Callable[..., Any]


class AsgiServer(Protocol):
    """Serves one application on a bound socket, once."""

    def run(self, ready: Callable[[], None]) -> None:
        """Serve in the calling thread until `stop`. `ready` is called once, when connections are accepted."""

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work()` in the server's event loop. Safe from any thread and from a signal handler."""

    async def stop_listening(self) -> None:
        """Accept no more connections; those that stand go on."""

    def stop(self) -> None:
        """Close every connection and let `run` return. Called in the event loop."""


class _Socket(WebSocketProtocol):
    """A WebSocket whose bound is one for the client alone: autobahn holds what a server sends to it as well."""

    maxMessagePayloadSize: int  # noqa: N815 - autobahn's name

    def sendMessage(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802 - autobahn's name
        bound, self.maxMessagePayloadSize = self.maxMessagePayloadSize, 0
        try:
            super().sendMessage(*args, **kwargs)
        finally:
            self.maxMessagePayloadSize = bound


class _Daphne(Daphne):
    """Daphne that remembers its listening port, to close it before the connections, and bounds WebSocket messages."""

    port: Any = None
    most_bytes: int = 0

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self.port = port
        self.ws_factory.protocol = _Socket
        # A client that sends too much is told so; a dropped connection would look like an accident.
        self.ws_factory.setProtocolOptions(
            maxMessagePayloadSize=self.most_bytes, maxFramePayloadSize=self.most_bytes, failByDrop=False
        )


class DaphneServer:
    """Daphne on the Twisted reactor, of which a process has one and can run it once."""

    def __init__(self, application: Application, listener: socket.socket, most_bytes: int) -> None:
        """`most_bytes`: how large a WebSocket message may be."""
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop  # noqa: SLF001 (as Daphne itself does)
        self._work: set[asyncio.Task[None]] = set()
        self._daphne = _Daphne(
            application=application,
            endpoints=build_endpoint_description_strings(*listener.getsockname()[:2]),
            signal_handlers=False,
            server_name="mcphub",
        )
        self._daphne.most_bytes = most_bytes

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`. Raises OSError if somebody took the port in the last moment."""
        # Twisted adopts IPv4 sockets only, so it binds again what was bound to learn whether the port is free.
        self._listener.close()
        reactor.callWhenRunning(ready)
        self._daphne.run()
        if self._daphne.port is None:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work()` in the reactor's event loop."""
        self._loop.call_soon_threadsafe(self._start, work)

    async def stop_listening(self) -> None:
        """Close the listening port; connections that stand go on."""
        if self._daphne.port is not None:
            await self._daphne.port.stopListening().asFuture(self._loop)

    def stop(self) -> None:
        """Stop the reactor, which closes what is still open."""
        self._daphne.stop()

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(work())
        self._work.add(task)
        task.add_done_callback(self._work.discard)
