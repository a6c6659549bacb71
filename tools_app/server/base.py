"""The interface of the ASGI servers that the hub runs in, and the sockets that they listen on."""

import socket
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

AsyncFunction = Callable[[], Coroutine[Any, Any, None]]

UVICORN, DAPHNE = "uvicorn", "daphne"
SERVERS = (UVICORN, DAPHNE)

BACKLOG = 2048


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


class AsgiServer(Protocol):
    """Serves an application on a bound socket, once. Other processes may serve on the same socket."""

    def run(self, ready: Callable[[], None]) -> None:
        """Serve in the calling thread until `stop`. `ready` is called once connections are accepted."""

    def spawn(self, work: AsyncFunction) -> None:
        """Run `work()` in the server's event loop. Safe from any thread and from a signal handler."""

    async def stop_listening(self) -> None:
        """Accept no more connections. Open ones stay open."""

    async def end_keep_alive(self, seconds: float) -> None:
        """Serve one last request on each connection, and wait `seconds` for those on which none has arrived.

        A client may have sent a request on an idle connection already: closing at once would lose it. A client that
        reads `Connection: close` opens another connection.
        """

    def stop(self) -> None:
        """Close every connection and let `run` return. Called in the event loop."""
