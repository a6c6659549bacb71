"""Server-sent events as bytes (WHATWG HTML, §9.2). Messages are one line of JSON, so they need no folding."""

from typing import Final, NamedTuple

KEEPALIVE: Final = b": keep-alive\n\n"
# The delay before clients reconnect to a stream that the hub closed (2025-11-25, transports, §Sending).
RETRY_MS: Final = 500


class Frame(NamedTuple):
    """A message for a stream; `id` is the event id from which the stream resumes, "" if it does not."""

    message: bytes
    id: str = ""


def event(frame: Frame) -> bytes:
    """Return one `message` event with a JSON-RPC message."""
    if frame.id:
        return b"id: %b\nevent: message\ndata: %b\n\n" % (frame.id.encode(), frame.message)
    return b"event: message\ndata: %b\n\n" % frame.message


def endpoint(address: str) -> bytes:
    """Return the event that names the URL for POST requests (2024-11-05, transports, §HTTP with SSE)."""
    return b"event: endpoint\ndata: %b\n\n" % address.encode()


def priming(id: str) -> bytes:
    """Return an event without a message, which gives clients an event id before the first message."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (id.encode(), RETRY_MS)
