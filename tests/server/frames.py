"""A WebSocket client that sends arbitrary frames (RFC 6455, §5.2), and reads only on request."""

import socket
import struct
from typing import NamedTuple

CONTINUATION, TEXT, PING = 0, 1, 9


class Frame(NamedTuple):
    opcode: int
    payload: bytes


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """A frame of a client. Its mask is zero, which leaves the payload as it is."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65_536:
        length = struct.pack("!BH", 0x80 | 126, size)
    else:
        length = struct.pack("!BQ", 0x80 | 127, size)
    return bytes([fin << 7 | opcode]) + length + bytes(4) + payload


def handshake(connection: socket.socket, path: str = "/", *headers: str) -> None:
    """Open a WebSocket on a connection."""
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {connection.getpeername()[0]}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *headers,
    ]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        received = connection.recv(1)
        assert received, head
        head += received
    assert head.startswith(b"HTTP/1.1 101 "), head


def read_frame(connection: socket.socket) -> Frame | None:
    """The next frame of the server, or None if the connection ended."""
    try:
        first, length = _exactly(connection, 2)
        if length == 126:
            (length,) = struct.unpack("!H", _exactly(connection, 2))
        elif length == 127:
            (length,) = struct.unpack("!Q", _exactly(connection, 8))
        return Frame(first & 15, _exactly(connection, length))
    except (EOFError, ConnectionError):
        return None


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
