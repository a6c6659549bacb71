"""Between whoever answers a request and whoever writes to its client: messages, and a way to wait for them."""

import asyncio
from collections import deque

# A client that reads too slowly loses its oldest progress first: newer progress says more, and the store has it all.
MOST_MESSAGES = 1000


class Outbox:
    """Belongs to one request on one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._messages: deque[bytes] = deque(maxlen=MOST_MESSAGES)
        self._waiter: asyncio.Future[None] | None = None

    def put(self, message: bytes) -> None:
        """Add a message for the client."""
        self._messages.append(message)
        self.wake()

    def wake(self, *_: object) -> None:
        """Something happened: let `wait` return."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> list[bytes]:
        """The messages so far, which are the caller's now."""
        messages = list(self._messages)
        self._messages.clear()
        return messages

    @property
    def has_messages(self) -> bool:
        """Whether there is something to write."""
        return bool(self._messages)

    async def wait(self, seconds: float) -> None:
        """Wait for the next thing to happen, at most `seconds`. Whoever calls looks first: there is no memory."""
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
