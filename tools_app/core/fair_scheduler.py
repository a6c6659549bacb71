"""Fair scheduling of requests between tenants, by their time on one event loop.

While several tenants are busy, each gets an equal share of the loop's time (start-time fair queueing): of those that
have requests waiting, the tenant that has used the least is next, with one request per loop iteration and a limited
number at a time, after a pause beside an active tenant that has used less. The time of a tenant with a long
queue counts several times, and its pauses are longer. A tenant that is alone in the process is neither measured nor
queued. Requests without a tenant (a wrong key, a page) go behind all tenants and get a fixed part of the time while one
is busy, round-robin by client address.

A request that waits for something outside this process releases its slot and continues without one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final, ParamSpec, TypeVar

from tools_app.core.loop_time import RequestOverhead, measured_by
from tools_app.core.wait_queue import LINGER_SECONDS, Background, BusyTenant, Slot, too_many_waiting

P = ParamSpec("P")
T = TypeVar("T")

# How long a tenant counts as busy after its last request.
IDLE_SECONDS: Final = 0.25
# The interval of checks for waiting and idle tenants.
REBALANCE_SECONDS: Final = 0.01
# How many times the tenants behind wait for the next tenant while all its slots are in use.
MAX_SKIPS: Final = 5
# How much unused time a tenant can catch up at once.
CREDIT_SECONDS: Final = 0.02
# How much of its part a background group can use in a burst.
BURST_SECONDS: Final = 0.002
# The maximum pause of a background group after a long request.
MAX_PAUSE_SECONDS: Final = 1.0
# How many background requests start in one loop iteration, also while no tenant is busy: a new request is read only
# after the iteration ends.
MAX_STARTS: Final = 8
# From this size on, each step of a request runs in a separate loop iteration.
LARGE_BYTES: Final = 64 * 1024
# How long a large step waits for the requests of tenants that have used less.
MAX_YIELD_SECONDS: Final = 0.05
# The overhead of a usual request is one unit. Beyond it, a server needs as long for these bytes of a body, and so many
# times as long to accept and close a connection.
UNIT_BYTES: Final = 64 * 1024
CONNECTION_UNITS: Final = 3
# The minimum delay of a loop timer.
TIMER_SECONDS: Final = 0.001


_current_slot: ContextVar[Slot | None] = ContextVar("slot", default=None)


def current_slot() -> Slot | None:
    """Return the slot of the current request, which it may have released."""
    return _current_slot.get()


def release_slot() -> None:
    """Release the current request's slot while it waits for something else. May be called twice."""
    slot = _current_slot.get()
    if slot is not None:
        slot.scheduler.release(slot)


async def long_step(size: int) -> None:
    """Wait before a step whose time grows with `size` in bytes.

    Each loop iteration runs one large step, and a tenant's next one waits for the requests of tenants with less usage.
    """
    slot = _current_slot.get()
    if size >= LARGE_BYTES and slot is not None:
        await slot.scheduler.long_step(slot.tenant)


def charge(seconds: float) -> None:
    """Charge time that the current request used outside the loop, such as in a thread."""
    slot = _current_slot.get()
    if slot is not None:
        slot.tenant.charge(seconds)


def charge_transfer(size: int) -> None:
    """Charge the server's own work of receiving or sending `size` bytes for the current request."""
    _charge_overhead(size / UNIT_BYTES)


def charge_connection() -> None:
    """Charge the server's own work of a connection that serves the current request alone."""
    _charge_overhead(CONNECTION_UNITS)


def _charge_overhead(units: float) -> None:
    slot = _current_slot.get()
    if slot is not None:
        slot.scheduler.charge_overhead(slot.tenant, units)


def measured(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Return `work`, with its time charged to the current request if other tenants are busy."""
    slot = _current_slot.get()
    return work if slot is None or not slot.scheduler.is_charged(slot.tenant) else slot.scheduler.measured(work, slot)


class FairScheduler:
    """The scheduler of one event loop.

    `alone` is the number of slots of a tenant while no other is busy, `together` the number that several share. A slot
    that is not released for `reclaim_after` seconds is reclaimed. At most `max_waiting` requests of one tenant wait.
    `give_way` is called before a request is admitted that a tenant with less usage could have to wait for, to let
    other threads run. `clock` returns the time in seconds and `meter` the CPU time of the loop's thread: tenants are
    not charged for other threads and processes. `share` is called when the loop becomes shared (True) or exclusive.
    """

    def __init__(
        self,
        *,
        alone: int,
        together: int,
        reclaim_after: float | None = None,
        max_waiting: int | None = None,
        give_way: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = perf_counter,
        meter: Callable[[], float] | None = None,
        share: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._alone = alone
        self._together = together
        self._reclaim_after = reclaim_after
        self._max_waiting = max_waiting
        self._give_way = give_way
        self._clock = clock
        self._overhead = RequestOverhead(meter or clock)
        self._long_steps = asyncio.Lock()
        self._on_share = share
        self._is_shared = False
        self._tenants: dict[Hashable, BusyTenant] = {}
        # How many of them are not background groups.
        self._busy = 0
        # The virtual time: the usage of the tenant admitted last, at that moment.
        self._time = 0.0
        self._rebalancing: asyncio.TimerHandle | None = None
        self._admission: asyncio.Handle | None = None
        self._retrying: asyncio.TimerHandle | None = None
        # How many background requests started in this loop iteration.
        self._starts = 0

    def is_charged(self, tenant: BusyTenant) -> bool:
        """Return whether a tenant's time is charged, because it can delay another busy tenant."""
        return self._busy > (1 if tenant.background is None else 0)

    async def long_step(self, tenant: BusyTenant) -> None:
        """Wait until a tenant may run a step that blocks the loop for long."""
        async with tenant.long_steps:
            end = self._clock() + MAX_YIELD_SECONDS
            # No event tells of a change: usage grows with each step of a request.
            while (now := self._clock()) < end and self._others_wait_for(tenant, now):  # noqa: ASYNC110
                await asyncio.sleep(TIMER_SECONDS)
            async with self._long_steps:
                await asyncio.sleep(0)

    def charge_overhead(self, tenant: BusyTenant, units: float) -> None:
        """Charge a tenant for unmeasured time, in units of that of a usual request, if it can delay another one."""
        if self.is_charged(tenant):
            tenant.charge(self._overhead.of(units))

    def try_acquire(self, tenant_id: Hashable) -> Slot | None:
        """Return a slot if one is free at once, else None. Release it with `release`."""
        tenant = self._tenants.get(tenant_id) or self._add_tenant(tenant_id)
        tenant.seen = now = self._clock()
        running = tenant.running
        if tenant.waiting.count or (len(running) >= tenant.slots and not self._reclaim_slots(tenant, now)):
            return None
        if len(self._tenants) > 1 and self._must_wait(tenant, now):
            return None
        if tenant.background is not None and not self._may_start():
            return None
        if tenant.background is None:
            self._time = max(self._time, tenant.used)
        return self._start(tenant, now)

    async def run(
        self, tenant_id: Hashable, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a tenant's `work` when it gets a slot, which it may release. The current task must serve only this work.

        Raises RpcError as `acquire` does, and what `work` raises.
        """
        slot = self.try_acquire(tenant_id) or await self.acquire(tenant_id)
        if self._busy > 1:
            return await self.run_in_slot(slot, work(*args, **kwargs))
        # A tenant that is alone is not charged.
        _current_slot.set(slot)
        try:
            return await work(*args, **kwargs)
        finally:
            self.release(slot, is_over=True)

    async def run_background(self, group: Background, caller: Hashable, work: Coroutine[Any, Any, T]) -> T:
        """Run a caller's `work` in a background group when it gets a slot. Raises as `run` does."""
        try:
            slot = self.try_acquire(group) or await self.acquire(group, caller)
        except BaseException:
            work.close()
            raise
        return await self.run_in_slot(slot, work)

    async def run_in_slot(self, slot: Slot, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in a slot, and release the slot."""
        _current_slot.set(slot)
        try:
            if not self.is_charged(slot.tenant):
                return await work
            slot.tenant.charge(self._overhead.of(1))
            return await self.measured(work, slot)
        finally:
            self.release(slot, is_over=True)

    def measured(self, work: Coroutine[Any, Any, T], slot: Slot) -> Coroutine[Any, Any, T]:
        """Return `work`, with its time on the loop charged to the slot's tenant."""
        return measured_by(self._overhead, work, slot.tenant.charge)

    async def acquire(self, tenant_id: Hashable, caller: Hashable = None) -> Slot:
        """Wait for a slot. Raises RpcError if too many requests already wait, and most of them are not another's."""
        tenant = self._tenants.get(tenant_id) or self._add_tenant(tenant_id)
        most = tenant.background.max_waiting if tenant.background else self._max_waiting
        if most is not None and tenant.waiting.count >= most:
            refusal = too_many_waiting("tenant" if tenant.background is None else tenant.background.name, most)
            if not tenant.waiting.displace(caller, refusal):
                raise refusal
        waiter: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        tenant.waiting.add(caller, waiter)
        self._rebalance_soon()
        self._admit_next_soon()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                tenant.waiting.remove(caller, waiter)
            elif waiter.exception() is None:
                self.release(waiter.result())
            raise

    def release(self, slot: Slot, *, is_over: bool = False) -> None:
        """Release a slot. One that was reclaimed meanwhile is ignored. `is_over`: so is its request.

        With several tenants the slot is free only in the next loop iteration, so that work that never waits alternates.
        """
        if is_over:
            slot.is_over = True
            if slot.held:
                slot.give_back()
        if len(self._tenants) > 1:
            asyncio.get_running_loop().call_soon(self._free, slot)
        else:
            self._free(slot)

    def _free(self, slot: Slot) -> None:
        tenant = slot.tenant
        tenant.running.pop(slot, None)
        tenant.seen = self._clock()
        if self._retrying is not None and tenant.background is None:
            # Those that waited for it may have used less by now.
            self._admit_next_soon()
        if not tenant.waiting.count:
            return
        if len(self._tenants) > 1 or tenant.background is not None:
            self._admit_next_soon()
        else:
            self._admit_up_to(tenant.slots, tenant)

    # --- Who is next ----------------------------------------------------------------------------------------------

    def _must_wait(self, tenant: BusyTenant, now: float) -> bool:
        """Return whether others go first, so that a tenant or group has to wait."""
        if not self.is_charged(tenant):
            tenant.starts_at = now
            return False
        if tenant.background is not None:
            return True
        # Unused time beyond the credit expires: the tenant has no waiting requests.
        tenant.used = max(tenant.used, self._time - CREDIT_SECONDS)
        return self._others_wait_for(tenant, now)

    def _may_start(self) -> bool:
        """Return whether another background request may start in this loop iteration, and count it if so."""
        if self._starts == 0:
            asyncio.get_running_loop().call_soon(self._reset_starts)
        may = self._starts < MAX_STARTS
        self._starts += may
        return may

    def _reset_starts(self) -> None:
        self._starts = 0

    def _admit_next_soon(self) -> None:
        if self._admission is None:
            self._admission = asyncio.get_running_loop().call_soon(self._admit_next)

    def _admit_next(self) -> None:
        """Admit what is next: one request, or those of a tenant with a few. Continue in the next loop iteration."""
        self._admission = None
        in_order = True
        for tenant in sorted((one for one in self._tenants.values() if one.waiting.count), key=self._order):
            if len(tenant.running) < tenant.slots:
                self._admit_if_due(tenant, in_order=in_order)
                return
            if tenant.background is not None:
                continue
            # It continues soon and has used less than those behind it, which would exceed their share.
            tenant.skips += 1
            if tenant.skips < MAX_SKIPS:
                self._retry_in(TIMER_SECONDS)
                return
            in_order = False

    def _admit_if_due(self, tenant: BusyTenant, *, in_order: bool) -> None:
        if self.is_charged(tenant):
            pause = self._pause(tenant)
            if pause > 0:
                self._retry_in(pause)
                return
            if self._others_wait_for(tenant, self._clock()):
                self._give_way()
                # By the clock of the timer.
                if tenant.background is None and (rest := tenant.deferral(asyncio.get_running_loop().time())) > 0:
                    self._retry_in(min(rest, LINGER_SECONDS))
                    return
        if in_order and tenant.background is None:
            self._time = max(self._time, tenant.used)
        if tenant.background is None and not tenant.has_long_queue:
            # What starts together is recorded together.
            self._admit_up_to(tenant.slots, tenant)
        else:
            self._admit_up_to(1 if self._busy else MAX_STARTS, tenant)
        self._admit_next_soon()

    def _others_wait_for(self, tenant: BusyTenant, now: float) -> bool:
        """Return whether a tenant that has used less is active, possibly in another thread."""
        return any(
            one is not tenant
            and one.background is None
            and (tenant.background is not None or one.used < tenant.used)
            and one.is_active(now)
            for one in self._tenants.values()
        )

    def _retry_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + max(seconds, TIMER_SECONDS)
        if self._retrying is not None:
            if self._retrying.when() <= at:
                return
            self._retrying.cancel()
        self._retrying = loop.call_at(at, self._retry)

    def _retry(self) -> None:
        self._retrying = None
        self._admit_next_soon()

    def _order(self, tenant: BusyTenant) -> tuple[int, float]:
        """Sort key: background groups that are due, which would otherwise wait while any tenant has waiting requests;
        then tenants by least usage; then the other groups.
        """
        if tenant.background is None:
            return (1, tenant.used)
        return (0 if self._pause(tenant) <= 0 else 2, tenant.starts_at)

    def _pause(self, tenant: BusyTenant) -> float:
        """Return how many seconds a background group has to leave the loop to tenants."""
        if tenant.background is None:
            return 0.0
        now = self._clock()
        tenant.starts_at = min(max(tenant.starts_at, now - BURST_SECONDS), now + MAX_PAUSE_SECONDS)
        return max(tenant.starts_at, tenant.newest_since() + tenant.background.turn) - now

    def _admit_one(self, tenant: BusyTenant) -> None:
        """Admit the first request that still waits."""
        tenant.skips, tenant.deferred_until = 0, None
        while tenant.waiting.count:
            waiter = tenant.waiting.pop()
            if waiter.done():
                continue
            waiter.set_result(self._start(tenant, self._clock()))
            return

    def _start(self, tenant: BusyTenant, now: float) -> Slot:
        tenant.spent = 0.0
        slot = Slot(self, tenant, now)
        tenant.running[slot] = None
        return slot

    def _admit_up_to(self, count: int, tenant: BusyTenant) -> None:
        for _ in range(count):
            if tenant.waiting.count and len(tenant.running) < tenant.slots:
                self._admit_one(tenant)

    # --- Who is busy ----------------------------------------------------------------------------------------------

    def _add_tenant(self, tenant_id: Hashable) -> BusyTenant:
        background = tenant_id if isinstance(tenant_id, Background) else None
        tenant = self._tenants[tenant_id] = BusyTenant(tenant_id, background, self._time)
        tenant.seen = self._clock()
        self._assign_slots()
        return tenant

    def _assign_slots(self) -> None:
        """Assign each tenant the same number of slots. Slots in use beyond it are kept until released."""
        self._busy = sum(one.background is None for one in self._tenants.values())
        share = self._alone if self._busy <= 1 else max(1, self._together // self._busy)
        for tenant in self._tenants.values():
            if tenant.background is None:
                tenant.slots = share
        is_shared = len(self._tenants) > 1
        if is_shared:
            self._rebalance_soon()
        if is_shared != self._is_shared:
            self._is_shared = is_shared
            self._on_share(is_shared)

    def _rebalance_soon(self) -> None:
        if self._rebalancing is None:
            self._rebalancing = asyncio.get_running_loop().call_later(REBALANCE_SECONDS, self._rebalance)

    def _rebalance(self) -> None:
        """Reclaim slots held for longer than `reclaim_after`, and remove idle tenants."""
        self._rebalancing = None
        now = self._clock()
        waiting = any(tenant.waiting.count for tenant in self._tenants.values())
        for id, tenant in list(self._tenants.items()):
            self._reclaim_slots(tenant, now)
            if not (tenant.running or tenant.waiting.count) and now - tenant.seen > IDLE_SECONDS:
                del self._tenants[id]
        self._assign_slots()
        self._overhead.estimate()
        if len(self._tenants) <= 1:
            self._overhead.pause()
        if len(self._tenants) == 1 and self._busy:
            for tenant in self._tenants.values():
                self._admit_up_to(tenant.slots, tenant)
        if waiting:
            self._admit_next_soon()
            self._rebalance_soon()

    def _reclaim_slots(self, tenant: BusyTenant, now: float) -> bool:
        """Reclaim slots held for longer than `reclaim_after`. Return whether one is free now."""
        running = tenant.running
        if self._reclaim_after is not None:
            while running and (oldest := next(iter(running))).since <= now - self._reclaim_after:
                del running[oldest]
        return len(running) < tenant.slots
