"""The queue of messages to a client on a bidirectional connection, and the sender of each of its requests."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

Write = Callable[[bytes], Awaitable[None]]

# The maximum size of messages that a client has not read. Above it, no messages are accepted from the client.
MAX_UNWRITTEN_BYTES = 1024 * 1024


class SendQueue:
    """Messages to the client, sent in order."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[tuple[ResponseSender | None, bytes]] = asyncio.Queue()
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(self, message: bytes, response_sender: "ResponseSender | None" = None) -> None:
        """Add a message. If `response_sender` is silent by the time of sending, it is dropped."""
        self._messages.put_nowait((response_sender, message))
        self._bytes += len(message)
        if self._bytes > MAX_UNWRITTEN_BYTES:
            self._has_room.clear()

    async def room(self) -> None:
        """Wait until at most MAX_UNWRITTEN_BYTES are unread: further requests would add to them."""
        await self._has_room.wait()

    async def write_to(self, write: Write) -> None:
        """Write messages as they come, until cancelled or `write` fails."""
        while True:
            response_sender, message = await self._messages.get()
            if response_sender is None or not response_sender.silent:
                await write(message)
            self._bytes -= len(message)
            if self._bytes <= MAX_UNWRITTEN_BYTES:
                self._has_room.set()
            self._messages.task_done()

    async def flush(self) -> None:
        """Wait until everything is written."""
        await self._messages.join()


class ResponseSender:
    """The sender of one request, which cannot be resumed. Once `silent`, its unsent messages are dropped."""

    takes_messages = True

    def __init__(self, channel: SendQueue, *, many: bool = False) -> None:
        self._channel = channel
        self._many = many
        self.silent = False
        self.calls: set[UUID] = set()

    def put(self, message: bytes, id: str = "") -> None:  # noqa: ARG002 - a channel is not taken up again
        """Send a message that belongs to the request."""
        self._channel.put(message, self)

    def pause(self) -> None:
        """Do nothing: a closed connection cannot be resumed."""

    def started(self, call_id: UUID) -> None:
        """Note a call that the request starts, so that it can be stopped by its id."""
        self.calls.add(call_id)

    def settle(self, message: bytes | None) -> None:
        """Answer now, unless the request is part of a batch, and send nothing more for the request."""
        if not self._many:
            self.silent = True
            if message is not None:
                self._channel.put(message)

    def resumable(self, call_id: UUID) -> None:
        """Do nothing, for the same reason."""

    def may_return(self) -> bool:
        """Return False: clients cannot resume."""
        return False
