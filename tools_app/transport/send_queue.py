"""The queue of messages to a client on a bidirectional connection, and the sender of each of its requests."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from uuid import UUID

from tools_app.core import fair_scheduler
from tools_app.transport.responses import Reply

Write = Callable[[bytes], Awaitable[None]]
Written = asyncio.Future[None]

# The maximum size of messages that a client has not read. Above it, no messages are accepted from the client.
MAX_UNWRITTEN_BYTES = 1024 * 1024


class SendQueue:
    """Messages to the client, sent in order."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[tuple[ResponseSender | None, bytes, asyncio.Future[None] | None]] = (
            asyncio.Queue()
        )
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(
        self,
        message: bytes,
        response_sender: "ResponseSender | None" = None,
        written: "Written | None" = None,
    ) -> None:
        """Add a message. If `response_sender` is silent by the time of sending, it is dropped.

        `written` gets a result when it was sent or dropped.
        """
        self._messages.put_nowait((response_sender, message, written))
        self._bytes += len(message)
        if self._bytes > MAX_UNWRITTEN_BYTES:
            self._has_room.clear()

    async def send(self, message: bytes, response_sender: "ResponseSender | None" = None) -> None:
        """Add the last message of the current request, and wait without a slot until a large one was sent."""
        if len(message) <= fair_scheduler.LARGE_BYTES:
            self.put(message, response_sender)
            return
        fair_scheduler.release_slot()
        written = asyncio.get_running_loop().create_future()
        self.put(message, response_sender, written)
        await written

    async def room(self) -> None:
        """Wait until at most MAX_UNWRITTEN_BYTES are unread: further requests would add to them."""
        await self._has_room.wait()

    async def write_to(self, write: Write) -> None:
        """Write messages as they come, until cancelled or `write` fails."""
        while True:
            response_sender, message, written = await self._messages.get()
            if response_sender is None or not response_sender.silent:
                await write(message)
            if written is not None and not written.done():
                written.set_result(None)
            self._bytes -= len(message)
            if self._bytes <= MAX_UNWRITTEN_BYTES:
                self._has_room.set()
            self._messages.task_done()

    async def flush(self) -> None:
        """Wait until everything is written."""
        await self._messages.join()


class ResponseSender:
    """The sender of one request, which cannot be resumed. Once `silent`, its unsent messages are dropped."""

    accepts_messages = True

    def __init__(self, send_queue: SendQueue, *, is_batch: bool = False) -> None:
        self._send_queue = send_queue
        self._is_batch = is_batch
        self.silent = False
        self.calls: set[UUID] = set()

    def put(self, message: bytes, id: str = "") -> None:  # noqa: ARG002 - a closed connection cannot be resumed
        """Send a message that belongs to the request."""
        self._send_queue.put(message, self)

    async def send(self, message: bytes) -> None:
        """Send the response, and wait until a large one was sent."""
        await self._send_queue.send(message, self)

    def pause(self) -> None:
        """Do nothing: a closed connection cannot be resumed."""

    def call_started(self, call_id: UUID, *, is_resumable: bool) -> None:  # noqa: ARG002 - as for `put`
        """Note a call that the request starts, so that it can be stopped by its id."""
        self.calls.add(call_id)

    def respond_early(self, message: bytes | None) -> None:
        """Answer now, unless the request is part of a batch, and send nothing more for the request."""
        if not self._is_batch:
            self.silent = True
            if message is not None:
                self._send_queue.put(message)

    def can_resume(self) -> bool:
        """Return False: clients cannot resume."""
        return False


async def send_answer(
    answer: Callable[[], Coroutine[Any, Any, Reply]], send: Callable[[bytes], Coroutine[Any, Any, None]]
) -> None:
    """Send an answer in the slot of its request, which holds the memory of a large one until the client reads it."""
    reply = await answer()
    if reply.message is not None:
        await send(reply.message)
