"""What waits for a slot, and the slot: background groups, busy tenants, and their waiters, round-robin by caller."""

import asyncio
import math
from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tools_app.protocol.errors import OVER_LIMIT, RpcError

if TYPE_CHECKING:
    from tools_app.core.fair_scheduler import FairScheduler

T = TypeVar("T")

# How many times the time of a tenant with a long queue counts. Beside an active tenant that has used less, its next
# request also waits so many times as long as the last one took: each step of the other's requests would wait for it,
# and the recorder's thread for the interpreter.
QUEUE_WEIGHT: Final = 8
# The maximum of that wait, and the wait of a tenant with a shorter queue.
MAX_DEFERRAL_SECONDS: Final = 0.02
SHORT_DEFERRAL_SECONDS: Final = 0.002
# How long a running request makes its tenant active. Most have ended by then; one that waits for its client must delay
# nobody.
RECENT_SECONDS: Final = 0.02
# How long a tenant is active after the end of a request: a client needs a moment for its next one.
LINGER_SECONDS: Final = 0.002


class WaitQueue(Generic[T]):
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

    def displace(self, caller: Hashable, refusal: Exception) -> bool:
        """Refuse the newest waiter of the caller that has most, unless `caller` has about as many. Return whether."""
        crowded = max(self._by_caller, key=lambda one: len(self._by_caller[one]))
        if len(self._by_caller[crowded]) <= len(self._by_caller.get(caller, ())) + 1:
            return False
        waiter = self._by_caller[crowded].pop()
        self.count -= 1
        if not waiter.done():
            waiter.set_exception(refusal)
        return True

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
    most `max_waiting`. While a tenant is busy, its next request starts when the last one has ended, or `turn` seconds
    after that one started.
    """

    name: str
    part: float
    slots: int
    max_waiting: int
    turn: float = 0.0


class BusyTenant:
    """The state of a busy tenant or a background group.

    `used` is its time in seconds, weighted, and `spent` its time since its last request started.
    """

    __slots__ = (
        "background",
        "deferred_until",
        "id",
        "long_steps",
        "running",
        "seen",
        "skips",
        "slots",
        "spent",
        "starts_at",
        "used",
        "waiting",
    )

    def __init__(self, id: Hashable, background: Background | None, used: float) -> None:
        self.id = id
        self.background = background
        # How many requests may run at a time.
        self.slots = 0 if background is None else background.slots
        # In the order of their start.
        self.running: dict[Any, None] = {}
        self.waiting: WaitQueue[Any] = WaitQueue()
        # When its last request came or ended.
        self.seen = 0.0
        self.used = used
        self.spent = 0.0
        # How many times it was next without a free slot.
        self.skips = 0
        # Until when its next request waits for active tenants; None if it was not deferred yet.
        self.deferred_until: float | None = None
        # When a background group may start its next request.
        self.starts_at = 0.0
        self.long_steps = asyncio.Lock()

    def charge(self, seconds: float) -> None:
        """Add to the time that was used, weighted by the queue. A background group pauses in proportion."""
        self.used += seconds * QUEUE_WEIGHT if self.has_long_queue else seconds
        self.spent += seconds
        if self.background is not None:
            self.starts_at += seconds / self.background.part

    @property
    def has_long_queue(self) -> bool:
        """Whether more of a tenant's requests wait than may run."""
        return self.background is None and self.waiting.count > self.slots

    def deferral(self, now: float) -> float:
        """Return how many seconds its next request still waits for active tenants."""
        if self.deferred_until is None:
            long = min(self.spent * QUEUE_WEIGHT, MAX_DEFERRAL_SECONDS)
            self.deferred_until = now + (long if self.has_long_queue else SHORT_DEFERRAL_SECONDS)
        return self.deferred_until - now

    def is_active(self, now: float) -> bool:
        """Return whether requests wait, or one came or ended a moment ago, or runs and began only recently."""
        return self.waiting.count > 0 or now - self.seen < LINGER_SECONDS or now - self.newest_since() < RECENT_SECONDS

    def newest_since(self) -> float:
        """Return when the newest running request began; minus infinity if none runs."""
        return next(reversed(self.running)).since if self.running else -math.inf


class Budget(Protocol):
    """What requests hold in bytes, by tenant."""

    def free(self, tenant: Hashable, size: int) -> None:
        """Give back what was held."""


class Slot(msgspec.Struct, eq=False):
    """One slot in use, since a time of the scheduler's clock, and what its request holds until it is over."""

    scheduler: "FairScheduler"
    tenant: BusyTenant
    since: float
    # Appended to and taken from by several threads.
    held: list[tuple[Budget, int]] = []
    is_over: bool = False

    def hold(self, budget: Budget, size: int) -> None:
        """Note what the request holds. Safe from other threads than the loop's."""
        self.held.append((budget, size))
        if self.is_over:
            self.give_back()

    def holds(self, budget: Budget) -> bool:
        """Return whether the request holds some of a budget."""
        return any(held is budget for held, _ in self.held)

    def give_back(self) -> None:
        """Give back what the request holds."""
        with suppress(IndexError):
            while self.held:
                budget, size = self.held.pop()
                budget.free(self.tenant.id, size)


def too_many_waiting(scope: str, most: int) -> RpcError:
    """Return the error of a request that may not wait: a tenant's ("tenant"), or that of a background group."""
    if scope == "tenant":
        message = "Too many waiting requests of this tenant. Try again in 1 second."
    else:
        message = "Too many waiting requests. Try again in 1 second."
    data = {"scope": scope, "what": "waiting requests", "limit": most, "retryAfterSeconds": 1}
    return RpcError(OVER_LIMIT, message, data, retry_after=1)
