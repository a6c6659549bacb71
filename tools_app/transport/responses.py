"""HTTP responses: one JSON body or an event stream, and the queue of messages for a stream."""

import asyncio
from collections import deque
from collections.abc import Iterable
from uuid import UUID

import msgspec

from tools_app.core import fair_scheduler
from tools_app.protocol import sse
from tools_app.protocol.errors import RpcError
from tools_app.protocol.jsonrpc import RequestId, error_message
from tools_app.protocol.sse import Frame
from tools_app.transport.request import CLOSE, AsgiRequest, Send

Header = tuple[bytes, bytes]

# A client that reads too slowly loses its oldest progress first: newer progress supersedes it, and the database has it.
MAX_MESSAGES = 1000
MAX_BYTES = 1024 * 1024
NO_STORE: Header = (b"cache-control", b"no-store")
STREAM_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    # Otherwise nginx would buffer the events (2026-07-28, Streamable HTTP, §Receiving Messages).
    (b"x-accel-buffering", b"no"),
)


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request: a JSON-RPC message or none. The status is used unless a stream has started."""

    message: bytes | None
    status: int = 200
    headers: tuple[Header, ...] = ()
    content_type: bytes = b"application/json"


def refusal(error: RpcError, id: RequestId | None = None, *, modern: bool = False) -> Reply:
    """Return the reply for an error."""
    headers: tuple[Header, ...] = ()
    if error.retry_after is not None:
        headers = ((b"retry-after", str(error.retry_after).encode()),)
    return Reply(error_message(id, error), error.http_status(modern=modern), headers)


async def send_reply(http_request: AsgiRequest, send: Send, reply: Reply, more_headers: Iterable[Header] = ()) -> None:
    """Send a reply as one body, whether or not the body of the request was read."""
    body = reply.message or b""
    kind = ((b"content-type", reply.content_type), NO_STORE) if body else (NO_STORE,)
    headers = [*kind, (b"content-length", str(len(body)).encode()), *reply.headers, *more_headers]
    if not http_request.is_complete and http_request.closes:
        headers.append(CLOSE)
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if not http_request.is_complete or len(body) > fair_scheduler.LARGE_BYTES:
        # The next message waits until the client has read most of this one: its memory is held so long.
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await http_request.skip()
        body = b""
    await send({"type": "http.response.body", "body": body})


class EventStream:
    """The event stream (SSE) of one response."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def begin(self, more_headers: Iterable[Header] = (), frames: Iterable[Frame] = ()) -> None:
        """Send the head, a comment so that proxies and clients receive data at once, and the first messages."""
        await self._send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *more_headers]})
        await self.send(b"".join((sse.KEEPALIVE, *map(sse.event, frames))))

    async def prime(self, id: str) -> None:
        """Send the event id to resume this stream from (2025-11-25, transports, §Sending Messages to the Server)."""
        await self.send(sse.priming(id))

    async def send(self, event: bytes) -> None:
        """Send encoded events or a comment."""
        await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def write_one(self, message: bytes) -> None:
        """Send one message as an event."""
        await self.send(sse.event(Frame(message)))

    async def write(self, frames: Iterable[Frame]) -> None:
        """Send messages in order, as events."""
        body = b"".join(map(sse.event, frames))
        if body:
            await self.send(body)

    async def keep_alive(self) -> None:
        """Send a comment that clients ignore."""
        await self.send(sse.KEEPALIVE)

    async def end(self) -> None:
        """Close the stream."""
        await self._send({"type": "http.response.body", "body": b""})


class ResponseBuffer:
    """The sender of one request on one event loop, which buffers messages until they are written.

    `accepts_messages`: the client accepts messages before its response. `call_id`: the
    call under which a broken stream can be resumed (never that of a batch). `has_stream`: the stream has started.
    `paused`: the stream should end for now.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, accepts_messages: bool = True, is_batch: bool = False
    ) -> None:
        self._loop = loop
        self.messages: deque[Frame] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._full: asyncio.Future[None] | None = None
        self.accepts_messages = accepts_messages
        self._is_batch = is_batch
        self.call_id: UUID | None = None
        self.has_stream = False
        self.paused = False
        self.has_responded = False
        self.answer: bytes | None = None
        self._keep_alive = False

    def put(self, message: bytes, id: str = "") -> None:
        """Add a message for the client, without an event id in the response to a batch, which cannot be resumed."""
        while self.messages and self._is_full(len(message)):
            self._bytes -= len(self.messages.popleft().message)
        self.messages.append(Frame(message, "" if self._is_batch else id))
        self._bytes += len(message)
        self.wake()

    def pause(self) -> None:
        """End the stream for now, if its client can resume it."""
        self.paused = self.call_id is not None and self.accepts_messages
        self.wake()

    def call_started(self, call_id: UUID, *, is_resumable: bool) -> None:
        """Let the client resume the stream of this call, unless the response is that of a batch."""
        if is_resumable and not self._is_batch:
            self.call_id = call_id

    def respond_early(self, message: bytes | None) -> None:
        """Answer now, unless the response is that of a batch."""
        if not self._is_batch:
            self.has_responded, self.answer = True, message
            self.wake()

    def can_resume(self) -> bool:
        """Return whether the client was told how to resume."""
        return self.has_stream and self.call_id is not None

    def wake(self, *_: object) -> None:
        """Let `wait` return, because something happened."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def drain(self) -> list[Frame]:
        """Remove and return the messages so far."""
        messages = list(self.messages)
        self.messages.clear()
        self._bytes = 0
        if self._full is not None:
            self._full.set_result(None)
            self._full = None
        return messages

    def _is_full(self, more: int) -> bool:
        """Return whether there is no room for another message of `more` bytes."""
        return len(self.messages) >= MAX_MESSAGES or self._bytes + more > MAX_BYTES

    async def wait_for_room(self, size: int) -> None:
        """Wait until a message of `size` bytes fits without dropping another."""
        while self.messages and self._is_full(size):
            self._full = self._full or self._loop.create_future()
            await asyncio.shield(self._full)

    def request_keep_alive(self) -> None:
        """Ask the writer for a keep-alive, unless it has messages to write by then."""
        self._keep_alive = True
        self.wake()

    def take_keep_alive_request(self) -> bool:
        """Return whether a keep-alive was requested, and reset the request."""
        was_requested, self._keep_alive = self._keep_alive, False
        return was_requested

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for the next `wake`, at most `seconds`. Check the state first: earlier wakes are not stored."""
        self._waiter = self._loop.create_future()
        timeout = None if seconds is None else self._loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        finally:
            if timeout is not None:
                timeout.cancel()
            self._waiter = None
