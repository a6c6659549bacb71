"""Server-sent events, as bytes (WHATWG HTML, §9.2). Messages are one line of JSON, so they need no folding."""

from typing import Final

KEEPALIVE: Final = b": keep-alive\n\n"


def event(message: bytes) -> bytes:
    """One `message` event around a JSON-RPC message."""
    return b"event: message\ndata: %b\n\n" % message
