"""Fair scheduling of requests between tenants on one event loop: by slots, and in turn.

A tenant that is alone may run many requests at a time. Several tenants share a smaller number of slots equally, and
those with waiting requests are served in turn, one request per loop iteration. Requests without a tenant (a wrong key,
a page) go behind all tenants, round-robin by client address.

A request that waits for something outside this process releases its slot and continues without one. Time is not
metered: where one process is too slow for its tenants, several are the answer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from tools_app.protocol.errors import OVER_LIMIT, RpcError

T = TypeVar("T")

# How long a tenant counts as busy after its last request.
IDLE_SECONDS: Final = 0.25
# How often it is tried to start what waits: nothing tells that time has passed.
RETRY_SECONDS: Final = 0.005
# What is larger is processed in a thread (`large_work`), in memory that is counted (`request_memory`).
LARGE_BYTES: Final = 64 * 1024


class Group(NamedTuple):
    """Requests without a tenant: at most `slots` run at a time, and `max_waiting` wait.

    While a tenant is busy, one of them starts in `interval` seconds.
    """

    name: str
    slots: int
    max_waiting: int
    interval: float


class Slot(msgspec.Struct, eq=False):
    """A slot of `owner` that is in use."""

    scheduler: "FairScheduler"
    owner: "Owner"


class Owner:
    """A busy tenant or group: its running requests, oldest first, with the times of their start by the scheduler's
    clock, and those that wait, by caller.
    """

    def __init__(self, id: Hashable) -> None:
        self.id = id
        self.group = id if isinstance(id, Group) else None
        self.running: dict[Slot, float] = {}
        self.waiting: dict[Hashable, deque[asyncio.Future[Slot]]] = {}
        self.count = 0
        # When its last request came or ended, and when the last one started.
        self.seen = self.started = 0.0

    def add(self, caller: Hashable, waiter: asyncio.Future[Slot]) -> None:
        """Append a caller's waiter."""
        self.waiting.setdefault(caller, deque()).append(waiter)
        self.count += 1

    def next(self) -> asyncio.Future[Slot]:
        """Remove and return the first waiter of the next caller, who moves to the end."""
        caller = next(iter(self.waiting))
        line = self.waiting.pop(caller)
        if len(line) > 1:
            self.waiting[caller] = line
        self.count -= 1
        return line.popleft()

    def displace(self, caller: Hashable, error: Exception) -> bool:
        """Refuse the newest waiter of the caller that has most, unless `caller` has about as many. Return whether."""
        crowd = max(self.waiting.values(), key=len)
        if len(crowd) <= len(self.waiting.get(caller, ())) + 1:
            return False
        waiter = crowd.pop()
        self.count -= 1
        if not waiter.done():
            waiter.set_exception(error)
        return True

    def remove(self, caller: Hashable, waiter: asyncio.Future[Slot]) -> None:
        """Remove a caller's waiter that gave up, unless it was next meanwhile."""
        line = self.waiting.get(caller, deque())
        if waiter in line:
            line.remove(waiter)
            self.count -= 1
            if not line:
                del self.waiting[caller]


_current_slot: ContextVar[Slot | None] = ContextVar("slot", default=None)


def release_slot() -> None:
    """Release the current request's slot while it waits for something else. May be called twice."""
    if (slot := _current_slot.get()) is not None:
        slot.scheduler.release(slot)


def current_owner() -> Hashable | None:
    """Return the tenant or the group of the current request, None without one."""
    slot = _current_slot.get()
    return None if slot is None else slot.owner.id


class FairScheduler:
    """The scheduler of one event loop.

    `alone` is the number of slots of a tenant while no other is busy, `together` the number that several share. A slot
    that is not released for `reclaim_after` seconds is reclaimed. At most `max_waiting` requests of one tenant wait.
    """

    def __init__(
        self,
        *,
        alone: int,
        together: int,
        reclaim_after: float = float("inf"),
        max_waiting: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._alone, self._together = alone, together
        self._reclaim_after, self._max_waiting = reclaim_after, max_waiting
        self._clock = clock
        self._owners: dict[Hashable, Owner] = {}
        # Those of them with waiting requests, the next one first.
        self._turns: dict[Hashable, Owner] = {}
        self._busy_tenants = 0
        self._admission: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None

    async def run(self, id: Hashable, work: Callable[[], Coroutine[Any, Any, T]], caller: Hashable = None) -> T:
        """Run `work` of a tenant or a group in a slot, which it may release. The task must serve only this work.

        Raises RpcError if too many requests wait, and what `work` raises.
        """
        slot = self.try_acquire(id) or await self.acquire(id, caller)
        _current_slot.set(slot)
        try:
            return await work()
        finally:
            asyncio.get_running_loop().call_soon(self._free, slot)  # as `release` does

    def try_acquire(self, id: Hashable) -> Slot | None:
        """Return a slot if a tenant has one free at once, else None. Release it with `release`."""
        owner = self._owners.get(id) or self._add_owner(id)
        owner.seen = self._clock()
        if owner.group is not None or owner.count or not self._has_free(owner):
            return None
        slot = Slot(self, owner)
        owner.running[slot] = owner.started = owner.seen
        return slot

    async def acquire(self, id: Hashable, caller: Hashable = None) -> Slot:
        """Wait for a slot, in turn with the owner's other callers.

        Raises RpcError if too many requests wait, and most of them are not another caller's.
        """
        owner = self._owners.get(id) or self._add_owner(id)
        owner.seen = self._clock()
        most = self._max_waiting if owner.group is None else owner.group.max_waiting
        if most is not None and owner.count >= most:
            scope, whose = ("tenant", " of this tenant") if owner.group is None else (owner.group.name, "")
            message = f"Too many waiting requests{whose}. Try again in 1 second."
            data = {"scope": scope, "what": "waiting requests", "limit": most, "retryAfterSeconds": 1}
            error = RpcError(OVER_LIMIT, message, data, retry_after=1)
            if not owner.displace(caller, error):
                raise error
        waiter: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        owner.add(caller, waiter)
        self._turns.setdefault(id, owner)
        self._admit_soon()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                owner.remove(caller, waiter)
            elif waiter.exception() is None:
                self.release(waiter.result())
            raise

    def release(self, slot: Slot) -> None:
        """Release a slot; one that was released or reclaimed before is ignored.

        It is free only in the next loop iteration, so that work that never waits alternates with that of others.
        """
        asyncio.get_running_loop().call_soon(self._free, slot)

    def _free(self, slot: Slot) -> None:
        slot.owner.running.pop(slot, None)
        slot.owner.seen = self._clock()
        if self._turns:
            self._admit_soon()

    def _admit_soon(self) -> None:
        if self._turns and self._admission is None:
            self._admission = asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        """Start the next request: of a group that is due, else of the next tenant with a free slot.

        Groups come first, because the turn of a tenant may never end. One of theirs starts in each interval.
        """
        self._admission = None
        for owner in sorted(self._turns.values(), key=lambda owner: owner.group is None):
            if owner.count and not self._has_free(owner):
                continue
            del self._turns[owner.id]
            if owner.count and not (waiter := owner.next()).done():
                slot = Slot(self, owner)
                owner.running[slot] = owner.started = self._clock()
                waiter.set_result(slot)
            if owner.count:
                self._turns[owner.id] = owner
            self._admit_soon()
            return
        if self._turns and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self._admit_soon()

    def _has_free(self, owner: Owner) -> bool:
        """Return whether a request may start now."""
        now, running = self._clock(), owner.running
        while running and running[oldest := next(iter(running))] <= now - self._reclaim_after:
            del running[oldest]
        if owner.group is None:
            share = self._alone if self._busy_tenants <= 1 else max(1, self._together // self._busy_tenants)
            return len(running) < share
        is_due = not self._busy_tenants or now >= owner.started + owner.group.interval
        return is_due and len(running) < owner.group.slots

    def _add_owner(self, id: Hashable) -> Owner:
        owner = self._owners[id] = Owner(id)
        self._busy_tenants += owner.group is None
        if len(self._owners) == 1:
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._forget_idle)
        return owner

    def _forget_idle(self) -> None:
        now = self._clock()
        for owner in [*self._owners.values()]:
            # Slots of an owner that was not seen for so long are reclaimed.
            is_idle = now - owner.seen > (self._reclaim_after if owner.running else IDLE_SECONDS)
            if is_idle and owner.id not in self._turns:
                del self._owners[owner.id]
                self._busy_tenants -= owner.group is None
        if self._owners:
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._forget_idle)
