"""The interface of the ASGI servers that the hub runs in, and the sockets that they listen on."""

import asyncio
import logging
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from tools_app.server.address_limit import AddressLimit

logger = logging.getLogger(__name__)

Application = Callable[..., Any]
AsyncFunction = Callable[[], Coroutine[Any, Any, None]]

UVICORN, DAPHNE = "uvicorn", "daphne"
SERVERS = (UVICORN, DAPHNE)

BACKLOG = 2048
# How long a connection may wait for a request, or a request for its rest. Longer than the keepalive_timeout of
# deploy/nginx.conf: the proxy must be the one that closes an idle connection, or it may send a request on a closed one.
IDLE_SECONDS = 75.0
# The number of checks of a connection within this time.
IDLE_CHECKS = 5
POLL_SECONDS = 0.02
# The pause after accept() failed, usually because no file descriptor is left.
ACCEPT_RETRY_SECONDS = 1.0
# Connections accepted in one turn of the event loop: one for each of these intervals that the last turn took. So a
# client that connects during a flood does not wait for one long turn per connection, and where turns are short the
# next connection is left to another process.
SECONDS_PER_ACCEPT = 0.002
MAX_ACCEPTED = 16
# The request line and the headers: the default of nginx.
MAX_HEAD_BYTES = 32 * 1024
# The maximum of pipelined requests of a connection: uvicorn parses all that arrive in one piece at once.
MAX_PIPELINED = 32
ABSOLUTE_FORM = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")


class NotListening(Exception):
    """The file descriptor is not a listening TCP socket."""


def bind(host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to `host` and `port` (0: any free one). Raises OSError if, say, the port is in use."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def inherited_socket(descriptor: int) -> socket.socket:
    """Return the socket of a file descriptor that this process inherited. Raises NotListening."""
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError as problem:
        raise NotListening(f"File descriptor {descriptor} is not a socket: {problem.strerror}.") from problem
    if listener.family not in (socket.AF_INET, socket.AF_INET6) or listener.type != socket.SOCK_STREAM:
        listener.detach()
        raise NotListening(f"File descriptor {descriptor} is not a TCP socket.")
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket, without a trailing slash."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Connection(Protocol):
    """An HTTP connection, as far as draining and idle checks need it."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request of which no byte has arrived."""

    @property
    def is_responding(self) -> bool:
        """Whether the application is handling a request."""

    def disable_keep_alive(self) -> None:
        """Send `Connection: close` with the current response, or else with the next one."""

    def close(self) -> None:
        """Close the connection after everything is sent."""

    def check_idle(self) -> None:
        """Close the connection if it, or its client, has waited for IDLE_SECONDS. Called IDLE_CHECKS times in them."""


class WebSocket(Protocol):
    """A WebSocket, as far as checks of its client need it."""

    def check_idle(self) -> None:
        """Cut off a client that has read nothing for IDLE_SECONDS. Called IDLE_CHECKS times in them."""


class IdleCounter:
    """Counts the checks in a row that found a connection waiting, with nothing received or read in between."""

    def __init__(self) -> None:
        self._state = (0, 0)
        self._checks = 0

    def is_idle(self, received_count: int, unread_bytes: int, *, is_waiting: bool) -> bool:
        """Return whether it has waited for IDLE_SECONDS.

        `pieces` is what it has received so far, in any unit, and `unread` what its client has not read yet, in bytes.
        """
        state = (received_count, unread_bytes)
        self._checks = self._checks + 1 if (is_waiting or unread_bytes) and state == self._state else 0
        self._state = state
        return self._checks >= IDLE_CHECKS


class AsgiServer(ABC):
    """Serves one application on a bound socket, once. Other processes may serve on the same socket.

    It accepts connections itself, a few at a time: asyncio, uvloop and Twisted accept all waiting connections, so that
    of several processes the first to wake up would take them all.
    """

    def __init__(self, listener: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        self._limit: AddressLimit | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn_seconds = 0.0

    @abstractmethod
    def run(self, ready: Callable[[], None]) -> None:
        """Serve in the calling thread until `stop`. `ready` is called once connections are accepted."""

    @abstractmethod
    def stop(self) -> None:
        """Close every connection and let `run` return. Called in the event loop."""

    @abstractmethod
    def _connections(self) -> Iterable[Connection]:
        """The open HTTP connections."""

    @abstractmethod
    def _websockets(self) -> Iterable[WebSocket]:
        """The open WebSockets."""

    @abstractmethod
    def _addresses(self) -> Iterable[str]:
        """The client address of each open connection, WebSockets included."""

    def limit_addresses(self, key: Callable[[str], str]) -> None:
        """Limit the connections of each client address; addresses with the same `key` are counted together."""
        self._limit = AddressLimit(self._addresses, key)

    @abstractmethod
    async def _serve_connection(self, connection: socket.socket) -> None:
        """Serve an accepted connection. Raises OSError if it was closed meanwhile."""

    def spawn(self, work: AsyncFunction) -> None:
        """Run `work()` in the server's event loop. Safe from any thread and from a signal handler."""
        self._loop.call_soon_threadsafe(self._start, work)

    async def stop_listening(self) -> None:
        """Accept the waiting connections, and no more. Open connections stay open."""
        if self._listener.fileno() < 0:
            return
        self._loop.remove_reader(self._listener)
        # Closing the last descriptor of a listening socket resets the connections that wait to be accepted.
        for _ in range(BACKLOG):
            if (connection := self._accept_one()) is None:
                break
            await self._serve_if_open(connection)
        self._listener.close()

    async def end_keep_alive(self, seconds: float) -> None:
        """Serve one last request on each connection, and close those on which none arrives within `seconds`.

        A client may have sent a request on an idle connection already: closing at once would lose it. A client that
        reads `Connection: close` opens another connection.
        """
        for connection in self._connections():
            connection.disable_keep_alive()
        await self._wait_until(lambda: all(connection.is_responding for connection in self._connections()), seconds)
        self._close_idle()
        # The application has received the last requests before it is told to accept no more.
        await asyncio.sleep(POLL_SECONDS)

    async def finish_responses(self, seconds: float) -> None:
        """Close each connection as soon as it is idle, and wait at most `seconds` for responses to complete."""

        def is_over() -> bool:
            self._close_idle()
            return not any(connection.is_responding for connection in self._connections())

        await self._wait_until(is_over, seconds)

    def _close_idle(self) -> None:
        for connection in list(self._connections()):
            if connection.is_idle:
                connection.close()

    async def _wait_until(self, is_over: Callable[[], bool], seconds: float) -> None:
        deadline = self._loop.time() + seconds
        # Polled: it happens only once in the lifetime of a process.
        while not is_over() and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)

    def _listen(self) -> None:
        """Accept connections from now on. Called in the event loop."""
        self._listener.listen(BACKLOG)
        self._loop.add_reader(self._listener, self._accept)
        self._check_later()

    def _check_later(self) -> None:
        self._loop.call_later(IDLE_SECONDS / IDLE_CHECKS, self._check)

    def _check(self) -> None:
        """Check all connections with one timer: a timer for each request would be expensive."""
        for connection in (*self._connections(), *self._websockets()):
            connection.check_idle()
        if self._limit is not None:
            self._limit.recount()
        self._check_later()

    def _accept(self) -> None:
        self._loop.call_soon(self._measure_turn, self._loop.time())
        for _ in range(min(max(1, int(self._turn_seconds / SECONDS_PER_ACCEPT)), MAX_ACCEPTED)):
            connection = self._accept_one()
            if connection is None:
                return
            self._start(partial(self._serve_if_open, connection))

    def _measure_turn(self, started_at: float) -> None:
        self._turn_seconds = self._loop.time() - started_at

    async def _serve_if_open(self, connection: socket.socket) -> None:
        with suppress(OSError):
            await self._serve_connection(connection)

    def _accept_one(self) -> socket.socket | None:
        """Return a connection, unless another process took it. Those above the limit of their address are closed."""
        for _ in range(MAX_ACCEPTED):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return None
            except OSError as problem:
                logger.error("Cannot accept connections: %s. Retrying.", problem)
                self._loop.remove_reader(self._listener)
                self._loop.call_later(ACCEPT_RETRY_SECONDS, self._resume_listening)
                return None
            if self._limit is None or not isinstance(address, tuple) or self._limit.admits(address[0]):
                connection.setblocking(False)
                return connection
            connection.close()
        return None

    def _resume_listening(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _start(self, work: AsyncFunction) -> None:
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def authority_of(target: bytes) -> bytes | None:
    """Return the authority of a request target in absolute form (RFC 9112, section 3.2.2); None for other forms."""
    absolute = None if target.startswith(b"/") else ABSOLUTE_FORM.match(target)
    return absolute[1] if absolute else None
