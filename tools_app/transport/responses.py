"""Bytes on the wire: one JSON body, or an event stream."""

from collections.abc import Iterable

import msgspec

from tools_app.protocol import sse
from tools_app.protocol.errors import RpcError
from tools_app.protocol.jsonrpc import RequestId, error_message
from tools_app.protocol.sse import Frame
from tools_app.transport.incoming import Send

Header = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")
NO_STORE: Header = (b"cache-control", b"no-store")
STREAM_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    # nginx would gather the events otherwise (2026-07-28, Streamable HTTP, §Receiving Messages).
    (b"x-accel-buffering", b"no"),
)


class Reply(msgspec.Struct, frozen=True):
    """What answers a request: a JSON-RPC message, or none; the status counts as long as no stream has begun."""

    message: bytes | None
    status: int = 200
    headers: tuple[Header, ...] = ()


def refusal(error: RpcError, id: RequestId | None = None, *, modern: bool = False) -> Reply:
    """The reply that carries an error."""
    headers: tuple[Header, ...] = ()
    if error.retry_after is not None:
        headers = ((b"retry-after", str(error.retry_after).encode()),)
    return Reply(error_message(id, error), error.http_status(modern=modern), headers)


async def send_reply(send: Send, reply: Reply, more_headers: Iterable[Header] = ()) -> None:
    """Send a reply as one body: JSON, or nothing at all."""
    body = reply.message or b""
    kind = (JSON, NO_STORE) if body else (NO_STORE,)
    length = (b"content-length", str(len(body)).encode())
    headers = [*kind, length, *reply.headers, *more_headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class EventStream:
    """An event stream that has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def begin(self, more_headers: Iterable[Header] = ()) -> None:
        """Send the head, and a comment so that proxies and clients see life at once."""
        await self._send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *more_headers]})
        await self.keep_alive()

    async def prime(self, id: str) -> None:
        """Say where to come back to this stream (2025-11-25, transports, §Sending Messages to the Server)."""
        await self.say(sse.priming(id))

    async def say(self, event: bytes) -> None:
        """Send an event that is no message."""
        await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def write_one(self, message: bytes) -> None:
        """Send one message as an event."""
        await self.say(sse.event(Frame(message)))

    async def write(self, frames: Iterable[Frame]) -> None:
        """Send messages, in their order, as events."""
        body = b"".join(map(sse.event, frames))
        if body:
            await self.say(body)

    async def keep_alive(self) -> None:
        """Send a comment that clients skip."""
        await self.say(sse.KEEPALIVE)

    async def end(self) -> None:
        """Close the stream."""
        await self._send({"type": "http.response.body", "body": b""})
