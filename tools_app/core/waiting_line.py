"""What waits for a slot: background groups, the state of a busy tenant, and its waiters, round-robin by caller."""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class WaitingLine(Generic[T]):
    """`count` waiters for a slot: round-robin between callers, first in, first out within a caller."""

    def __init__(self) -> None:
        self._by_caller: dict[Hashable, deque[asyncio.Future[T]]] = {}
        self.count = 0

    def add(self, caller: Hashable, waiter: asyncio.Future[T]) -> None:
        """Append `waiter` to the caller's queue."""
        self._by_caller.setdefault(caller, deque()).append(waiter)
        self.count += 1

    def pop(self) -> asyncio.Future[T]:
        """Remove and return the next waiter. Its caller moves to the end."""
        caller = next(iter(self._by_caller))
        line = self._by_caller.pop(caller)
        waiter = line.popleft()
        if line:
            self._by_caller[caller] = line
        self.count -= 1
        return waiter

    def remove(self, caller: Hashable, waiter: asyncio.Future[T]) -> None:
        """Remove a waiter that gave up."""
        line = self._by_caller.get(caller)
        if line is not None and waiter in line:
            line.remove(waiter)
            self.count -= 1
            if not line:
                del self._by_caller[caller]


class Background(NamedTuple):
    """A group of requests that go behind all tenants.

    It gets `part` of the loop's time while a tenant is busy, runs at most `slots` requests at a time and queues at
    most `max_waiting`.
    """

    name: str
    part: float
    slots: int
    max_waiting: int


class BusyTenant:
    """The state of a busy tenant or a background group. `used` is its time in seconds."""

    __slots__ = ("background", "long_steps", "running", "seen", "skips", "slots", "starts_at", "used", "waiting")

    def __init__(self, background: Background | None, used: float) -> None:
        self.background = background
        # How many requests may run at a time.
        self.slots = 0 if background is None else background.slots
        # In the order of their start.
        self.running: dict[Any, None] = {}
        self.waiting: WaitingLine[Any] = WaitingLine()
        self.seen = 0.0
        self.used = used
        # How many times it was next without a free slot.
        self.skips = 0
        # When a background group may start its next request.
        self.starts_at = 0.0
        self.long_steps = asyncio.Lock()

    def charge(self, seconds: float) -> None:
        """Add to the time that was used. A background group pauses in proportion."""
        self.used += seconds
        if self.background is not None:
            self.starts_at += seconds / self.background.part
