"""Deadline of a running function, paused while it waits for its client."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

T = TypeVar("T")


class DeadlineExceeded(Exception):
    """The hub's timeout, distinct from a TimeoutError of the function."""


class Deadline(msgspec.Struct):
    """The deadline of one run on one event loop, in one or more parts; `left` is the remaining time in seconds."""

    left: float
    _began: float = 0.0
    _limit: asyncio.Timeout | None = None
    _pauses: int = 0

    async def keep(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raises DeadlineExceeded."""
        self._began = asyncio.get_running_loop().time()
        self._limit = asyncio.timeout(None if self._pauses else self.left)
        try:
            async with self._limit:
                return await work
        except TimeoutError as problem:
            if self._limit.expired():
                raise DeadlineExceeded from problem
            raise
        finally:
            self._limit = None
            if not self._pauses:
                self.left -= asyncio.get_running_loop().time() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the deadline until the end of the block, or of the last of several concurrent blocks."""
        loop = asyncio.get_running_loop()
        self._pauses += 1
        if self._pauses == 1 and self._limit is not None:
            self.left -= loop.time() - self._began
            self._limit.reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and self._limit is not None:
                self._began = loop.time()
                self._limit.reschedule(self._began + self.left)
