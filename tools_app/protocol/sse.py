"""Server-sent events, as bytes (WHATWG HTML, §9.2). Messages are one line of JSON, so they need no folding."""

from typing import Final, NamedTuple

KEEPALIVE: Final = b": keep-alive\n\n"
# How long clients wait before they come back to a stream that the hub left (2025-11-25, transports, §Sending).
RETRY_MS: Final = 500


class Frame(NamedTuple):
    """A message on its way into a stream; `id` is where the stream can be taken up again after it, "" for nowhere."""

    message: bytes
    id: str = ""


def event(frame: Frame) -> bytes:
    """One `message` event around a JSON-RPC message."""
    if frame.id:
        return b"id: %b\nevent: message\ndata: %b\n\n" % (frame.id.encode(), frame.message)
    return b"event: message\ndata: %b\n\n" % frame.message


def endpoint(address: str) -> bytes:
    """The event that says where to POST messages to (2024-11-05, transports, §HTTP with SSE)."""
    return b"event: endpoint\ndata: %b\n\n" % address.encode()


def priming(id: str) -> bytes:
    """An event without a message, by which a client learns where to come back before there is anything to say."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (id.encode(), RETRY_MS)
