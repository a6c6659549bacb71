"""Memory for large bodies and answers of requests in this process, bounded for a tenant and in all, and their time.

A request holds its share until its response was sent. What has at most `fair_scheduler.LARGE_BYTES` is not counted:
the number of connections bounds it. Threads without a request of a tenant, such as those of workers, hold nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from tools_app.core import fair_scheduler
from tools_app.core.config import config
from tools_app.core.fair_scheduler import FairScheduler

T = TypeVar("T")

# How many of the largest bodies and results one tenant may hold, and all of them together.
BODIES, BODIES_IN_ALL = 16, 64
RESULTS, RESULTS_IN_ALL = 4, 16
# How long a request waits for memory, and how many requests of a tenant do.
WAIT_SECONDS: Final = 30.0
MAX_WAITING: Final = 64
# The time in which a body must arrive: so many seconds, plus one for each 64 KiB of its limit.
BODY_SECONDS: Final = 30.0
BYTES_PER_SECOND: Final = 64 * 1024
# A message of a WebSocket is kept as text, and then as what was parsed.
COPIES: Final = 2


def seconds_for(limit: int) -> float:
    """Return the timeout in seconds of a body of at most `limit` bytes."""
    return BODY_SECONDS + limit / BYTES_PER_SECOND


class TooMuchMemory(Exception):
    """A tenant's large bodies or answers leave no room for another one."""

    def __init__(self) -> None:
        super().__init__("Too many large requests or answers of this tenant are on their way. Try again.")


class _Waiter(NamedTuple):
    size: int
    granted: "Future[None]"


class MemoryBudget:
    """Bytes that tenants hold: `bounds` returns the most of one tenant, and of all.

    A tenant that holds nothing gets what it needs. Safe from any thread.
    """

    def __init__(self, bounds: Callable[[], tuple[int, int]]) -> None:
        self._bounds = bounds
        self._lock = Lock()
        self._held: dict[Hashable, int] = {}
        self._total = 0
        self._waiting: dict[Hashable, deque[_Waiter]] = {}

    def try_hold(self, tenant: Hashable, size: int) -> bool:
        """Hold `size` bytes if there is room now, and no other request of the tenant waits for it."""
        with self._lock:
            return tenant not in self._waiting and self._take(tenant, size)

    async def hold(self, tenant: Hashable, size: int) -> None:
        """Hold `size` bytes as soon as there is room. Raises TooMuchMemory after WAIT_SECONDS."""
        waiter = _Waiter(size, Future())
        with self._lock:
            line = self._waiting.setdefault(tenant, deque())
            if len(line) >= MAX_WAITING:
                raise TooMuchMemory
            line.append(waiter)
            self._grant()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.wrap_future(waiter.granted)
        except BaseException as problem:
            self._give_up(tenant, waiter)
            if isinstance(problem, TimeoutError):
                raise TooMuchMemory from None
            raise

    def free(self, tenant: Hashable, size: int) -> None:
        """Give back what was held."""
        with self._lock:
            self._give_back(tenant, size)
            self._grant()

    def _take(self, tenant: Hashable, size: int) -> bool:
        held = self._held.get(tenant, 0)
        of_tenant, in_all = self._bounds()
        if held and (held + size > of_tenant or self._total + size > in_all):
            return False
        self._held[tenant] = held + size
        self._total += size
        return True

    def _give_back(self, tenant: Hashable, size: int) -> None:
        self._total -= size
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]

    def _give_up(self, tenant: Hashable, waiter: _Waiter) -> None:
        with self._lock:
            line = self._waiting.get(tenant, ())
            if waiter in line:
                self._remove(tenant, waiter)
            else:
                self._give_back(tenant, waiter.size)
            self._grant()

    def _grant(self) -> None:
        """Let those go on for whom there is room now, of each tenant the first one first."""
        for tenant in list(self._waiting):
            while (line := self._waiting.get(tenant)) and self._take(tenant, line[0].size):
                first = line[0]
                self._remove(tenant, first)
                if first.granted.set_running_or_notify_cancel():
                    first.granted.set_result(None)
                # Else it was given up, which gives back what was taken.

    def _remove(self, tenant: Hashable, waiter: _Waiter) -> None:
        self._waiting[tenant].remove(waiter)
        if not self._waiting[tenant]:
            del self._waiting[tenant]


_bodies = MemoryBudget(lambda: (BODIES * config.MCPHUB_MAX_BODY_BYTES, BODIES_IN_ALL * config.MCPHUB_MAX_BODY_BYTES))
_results = MemoryBudget(
    lambda: (RESULTS * config.MCPHUB_MAX_RESULT_BYTES, RESULTS_IN_ALL * config.MCPHUB_MAX_RESULT_BYTES)
)


async def hold_message(tenant: Hashable, size: int) -> Callable[[], None]:
    """Hold memory for a large message of a tenant, and return what gives it back. Raises TooMuchMemory."""
    needed = COPIES * size
    if not _bodies.try_hold(tenant, needed):
        await _bodies.hold(tenant, needed)
    return partial(_bodies.free, tenant, needed)


class _RequestMemory(msgspec.Struct, eq=False):
    """What one request of a tenant holds until it is over. `held` is appended to and taken from by several threads."""

    tenant: Hashable
    held: list[tuple[MemoryBudget, int]] = []
    is_over: bool = False

    def add(self, budget: MemoryBudget, size: int) -> None:
        self.held.append((budget, size))
        if self.is_over:
            self.give_back()

    def holds(self, budget: MemoryBudget) -> bool:
        return any(held is budget for held, _ in self.held)

    def give_back(self) -> None:
        with suppress(IndexError):
            while self.held:
                budget, size = self.held.pop()
                budget.free(self.tenant, size)


_request: ContextVar[_RequestMemory | None] = ContextVar("request_memory", default=None)


async def run_in_turn(scheduler: FairScheduler, tenant: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` for a tenant's request in its turn, and give back what it holds when it is over.

    The task serves only this. Raises RpcError if too many requests of the tenant wait, and what `work` raises.
    """
    memory = _RequestMemory(tenant)
    _request.set(memory)
    try:
        return await scheduler.run(tenant, work)
    finally:
        memory.is_over = True
        if memory.held:
            memory.give_back()


class _BatchAnswer:
    """Whether something is held for one answer of a batch, whose other answers hold memory of the same request."""

    is_held = False


_batch_answer: ContextVar[_BatchAnswer | None] = ContextVar("batch_answer", default=None)


def begin_batch_answer() -> None:
    """Count what this task holds for its answer by itself: it is one of several to the current request."""
    _batch_answer.set(_BatchAnswer())


async def hold_body(size: int) -> None:
    """Hold `size` bytes for the body of the current request until it is answered. Raises TooMuchMemory."""
    await _hold(_bodies, size, fair_scheduler.release_slot)


async def hold_result(size: int) -> None:
    """Hold `size` bytes for what an upstream or a service answers to the current request. Raises TooMuchMemory."""
    await _hold(_results, size)


async def cover_result(size: int) -> None:
    """Hold `size` bytes for the current answer's result, unless some are held already. Raises TooMuchMemory.

    What an answer of an upstream takes is about what the result takes that is made of it.
    """
    request, answer = _request.get(), _batch_answer.get()
    if request is None:
        return
    is_held = request.holds(_results) if answer is None else answer.is_held
    if not is_held:
        await _hold(_results, size)


def give_back() -> None:
    """Give back now what the current request holds."""
    if (request := _request.get()) is not None:
        request.give_back()


async def _hold(budget: MemoryBudget, size: int, before_waiting: Callable[[], None] = lambda: None) -> None:
    request = _request.get()
    if request is None:
        return
    if not budget.try_hold(request.tenant, size):
        if request.holds(budget):
            # Requests that hold some and wait for more would wait for each other.
            raise TooMuchMemory
        before_waiting()
        await budget.hold(request.tenant, size)
    request.add(budget, size)
    if budget is _results and (answer := _batch_answer.get()) is not None:
        answer.is_held = True
