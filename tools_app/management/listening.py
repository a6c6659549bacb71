"""The listening socket: bound here, or inherited from whoever holds it for us."""

import socket


class NotListening(Exception):
    """The file descriptor is no TCP socket to listen on."""


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket on `host` and `port` (0: any free one). Raises OSError, above all when the port is taken."""
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


def inherited(number: int) -> socket.socket:
    """The socket behind a file descriptor that was there when this process started. Raises NotListening."""
    try:
        listener = socket.socket(fileno=number)
    except OSError as problem:
        raise NotListening(f"File descriptor {number} is no socket: {problem.strerror}.") from problem
    if listener.family not in (socket.AF_INET, socket.AF_INET6) or listener.type != socket.SOCK_STREAM:
        listener.detach()
        raise NotListening(f"File descriptor {number} is no TCP socket.")
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where it listens, without a slash at the end."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
