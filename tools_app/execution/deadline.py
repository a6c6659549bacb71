"""How long a function may run: what it waits for its client does not count."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class TimeIsUp(Exception):
    """The hub's own timeout, which a function's TimeoutError is not."""


class Deadline:
    """Belongs to one run on one event loop."""

    __slots__ = ("_began", "_left", "_limit", "_pauses")

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._began = 0.0
        self._limit: asyncio.Timeout | None = None
        self._pauses = 0

    async def keep(self, work: Awaitable[T]) -> T:
        """What `work` returns, if it does so in time. Raises TimeIsUp."""
        self._began = asyncio.get_running_loop().time()
        self._limit = asyncio.timeout(None if self._pauses else self._left)
        try:
            async with self._limit:
                return await work
        except TimeoutError as problem:
            if self._limit.expired():
                raise TimeIsUp from problem
            raise
        finally:
            self._limit = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the time stand still for as long as the block lasts, or the last of several blocks at once."""
        loop = asyncio.get_running_loop()
        self._pauses += 1
        if self._pauses == 1 and self._limit is not None:
            self._left -= loop.time() - self._began
            self._limit.reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and self._limit is not None:
                self._began = loop.time()
                self._limit.reschedule(self._began + self._left)
