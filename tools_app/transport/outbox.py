"""Between whoever answers a request and whoever writes to its client: messages, and a way to wait for them."""

import asyncio
from collections import deque
from uuid import UUID

from tools_app.protocol.sse import Frame

# A client that reads too slowly loses its oldest progress first: newer progress says more, and the store has it all.
MOST_MESSAGES = 1000
MOST_BYTES = 1024 * 1024


class Moments:
    """Ends waits of `seconds` each, by one timer for all of them: most are over before, and each one's own is dear.

    Belongs to one event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._waits: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def end(self, wait: asyncio.Future[None]) -> None:
        """Let `wait` be over in a moment, unless it is by then."""
        self._waits.append((self._loop.time() + self._seconds, wait))
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        while self._waits and self._waits[0][0] <= now:
            _, wait = self._waits.popleft()
            if not wait.done():
                wait.set_result(None)
        self._timer = self._loop.call_at(self._waits[0][0], self._look) if self._waits else None


class Outbox:
    """Belongs to one request on one event loop: the sender of its exchange.

    `takes_messages` says whether the client accepts anything before its answer, `call_id` under which call a broken
    stream can be taken up again (never with `many` calls on it), `begun` whether there is a stream, `paused` whether it
    should end for now.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, takes_messages: bool = True, many: bool = False) -> None:
        self._loop = loop
        self._messages: deque[Frame] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._full: asyncio.Future[None] | None = None
        self.takes_messages = takes_messages
        self._many = many
        self.call_id: UUID | None = None
        self.begun = False
        self.paused = False

    def put(self, message: bytes, id: str = "") -> None:
        """Add a message for the client; on a stream of `many` calls there is nothing to come back to."""
        while self._messages and self._is_full(len(message)):
            self._bytes -= len(self._messages.popleft().message)
        self._messages.append(Frame(message, "" if self._many else id))
        self._bytes += len(message)
        self.wake()

    def pause(self) -> None:
        """End the stream for now, if its client can come back."""
        self.paused = self.call_id is not None and self.takes_messages
        self.wake()

    def resumable(self, call_id: UUID) -> None:
        """Let the client come back to the stream of this call, if it is the only one on it."""
        self.call_id = None if self._many else call_id

    def may_return(self) -> bool:
        """Whether the client was told how to come back."""
        return self.begun and self.call_id is not None

    def wake(self, *_: object) -> None:
        """Something happened: let `wait` return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> list[Frame]:
        """The messages so far, which are the caller's now."""
        messages = list(self._messages)
        self._messages.clear()
        self._bytes = 0
        if self._full is not None:
            self._full.set_result(None)
            self._full = None
        return messages

    def _is_full(self, more: int) -> bool:
        """Whether there is no room for another message of so many bytes."""
        return len(self._messages) >= MOST_MESSAGES or self._bytes + more > MOST_BYTES

    async def room(self, size: int) -> None:
        """Wait until no message would be pushed out by another one of so many bytes."""
        while self._messages and self._is_full(size):
            self._full = self._full or self._loop.create_future()
            await asyncio.shield(self._full)

    @property
    def has_messages(self) -> bool:
        """Whether there is something to write."""
        return bool(self._messages)

    async def wait_a_moment(self, moments: Moments) -> None:
        """The same as `wait`, for as long as one of these moments lasts."""
        self._waiter = self._loop.create_future()
        moments.end(self._waiter)
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def wait(self, seconds: float) -> None:
        """Wait for the next thing to happen, at most `seconds`. Whoever calls looks first: there is no memory."""
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
