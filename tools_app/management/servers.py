"""What the hub wants of the ASGI server it runs in, and which servers there are. Knows nothing of the hub."""

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Protocol

logger = logging.getLogger(__name__)

Application = Callable[..., Any]
Work = Callable[[], Coroutine[Any, Any, None]]

DAPHNE, UVICORN = "daphne", "uvicorn"
SERVERS = (DAPHNE, UVICORN)
# What the extra `fast` brings; uvloop only makes it faster.
FAST = ("uvicorn", "httptools", "websockets")

BACKLOG = 2048
# How long a connection may wait for a request, or a request for its rest. Longer than nginx keeps what it does not
# use (deploy/nginx.conf): who sends on a connection has to be the one who closes it, or a request is lost on the way.
IDLE_SECONDS = 75.0
LOOKS = 5
TICK_SECONDS = 0.02
# After a failure to accept, which is above all for want of file descriptors.
RETRY_SECONDS = 1.0


class Connection(Protocol):
    """An HTTP connection, as far as the end of a server goes."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request of which nothing has come yet."""

    @property
    def is_answering(self) -> bool:
        """Whether the application has a request to answer."""

    def answer_last(self) -> None:
        """Let the answer that is being made, or else the next one, be the last, and say so in its head."""

    def close(self) -> None:
        """Close it when all is sent."""

    def look(self) -> None:
        """Close it if nothing has come for too long of what it waits for: a request's head, or more of its body.

        Called now and then.
        """


class Patience:
    """How long a connection may wait: until it was found waiting for the same thing LOOKS times in a row.

    One timer for all connections, because those that set one for each request spend much of its time on that.
    """

    def __init__(self) -> None:
        self._looks = 0
        self._seen: object = None

    def is_over(self, seen: object, *, waits: bool) -> bool:
        """Count a look at a connection on which `seen` is the newest thing that came."""
        self._looks = self._looks + 1 if waits and seen == self._seen else 0
        self._seen = seen
        return self._looks >= LOOKS


class AsgiServer(ABC):
    """Serves one application on a bound socket, once. Other processes may serve on the same socket.

    Its own way to accept, because asyncio, uvloop and Twisted take all connections that wait: of several processes
    the one that wakes first would have them all.
    """

    def __init__(self, listener: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        self._work: set[asyncio.Task[None]] = set()

    @abstractmethod
    def run(self, ready: Callable[[], None]) -> None:
        """Serve in the calling thread until `stop`. `ready` is called once, when connections are accepted."""

    @abstractmethod
    def stop(self) -> None:
        """Close every connection and let `run` return. Called in the event loop."""

    @abstractmethod
    def _connections(self) -> Iterable[Connection]:
        """The HTTP connections that stand."""

    @abstractmethod
    async def _take(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted. Raises OSError if it is none any more."""

    def spawn(self, work: Work) -> None:
        """Run `work()` in the server's event loop. Safe from any thread and from a signal handler."""
        self._loop.call_soon_threadsafe(self._start, work)

    async def stop_listening(self) -> None:
        """Take the connections that wait, and no more; those that stand go on."""
        if self._listener.fileno() < 0:
            return
        self._loop.remove_reader(self._listener)
        # Whoever closes a socket last resets what waits there.
        for _ in range(BACKLOG):
            if (connection := self._accepted()) is None:
                break
            await self._take_if_it_stands(connection)
        self._listener.close()

    async def let_go(self, seconds: float) -> None:
        """Answer once more on each connection, and close those on which nothing is asked within `seconds`.

        A client that has just sent a request gets its answer; closing at once would lose it. A client that reads
        that an answer is the last one connects anew.
        """
        for connection in self._connections():
            connection.answer_last()
        await self._until(lambda: all(connection.is_answering for connection in self._connections()), seconds)
        self._close_idle()
        # What came last is in the hands of the application, before that is told to take no more.
        await asyncio.sleep(TICK_SECONDS)

    async def finish(self, seconds: float) -> None:
        """Close each connection as soon as it is idle, and wait at most `seconds` for answers to be complete."""

        def is_over() -> bool:
            self._close_idle()
            return not any(connection.is_answering for connection in self._connections())

        await self._until(is_over, seconds)

    def _close_idle(self) -> None:
        for connection in list(self._connections()):
            if connection.is_idle:
                connection.close()

    async def _until(self, is_over: Callable[[], bool], seconds: float) -> None:
        end = self._loop.time() + seconds
        # Looked at once in a lifetime: not worth an event.
        while not is_over() and self._loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(TICK_SECONDS)

    def _listen(self) -> None:
        """Accept connections from now on, called in the event loop."""
        self._listener.listen(BACKLOG)
        self._loop.add_reader(self._listener, self._accept)
        self._look_later()

    def _look_later(self) -> None:
        self._loop.call_later(IDLE_SECONDS / LOOKS, self._look)

    def _look(self) -> None:
        for connection in list(self._connections()):
            connection.look()
        self._look_later()

    def _accept(self) -> None:
        connection = self._accepted()
        if connection is not None:
            self._start(lambda: self._take_if_it_stands(connection))

    async def _take_if_it_stands(self, connection: socket.socket) -> None:
        with suppress(OSError):
            await self._take(connection)

    def _accepted(self) -> socket.socket | None:
        """A connection, unless another process was faster."""
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return None
        except OSError as problem:
            logger.error("Connections cannot be accepted: %s. They wait.", problem)
            self._loop.remove_reader(self._listener)
            self._loop.call_later(RETRY_SECONDS, self._listen_again)
            return None
        connection.setblocking(False)
        return connection

    def _listen_again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _start(self, work: Work) -> None:
        task = self._loop.create_task(work())
        self._work.add(task)
        task.add_done_callback(self._work.discard)


def missing(name: str) -> list[str]:
    """The packages that a server needs and that are not installed."""
    return [package for package in FAST if find_spec(package) is None] if name == UVICORN else []


def default() -> str:
    """The faster server, where it is installed."""
    return DAPHNE if missing(UVICORN) else UVICORN


def make(name: str, application: Application, listener: socket.socket, most_bytes: int) -> AsgiServer:
    """A server by its name, none of whose packages is `missing`. `most_bytes`: how large a WebSocket message may be."""
    if name == DAPHNE:
        from tools_app.management.daphne_server import DaphneServer  # noqa: PLC0415 - only if it is wanted

        return DaphneServer(application, listener, most_bytes)
    from tools_app.management.uvicorn_server import UvicornServer  # noqa: PLC0415 - it may not be installed

    return UvicornServer(application, listener, most_bytes)
