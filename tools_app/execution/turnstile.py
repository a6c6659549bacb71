"""Fairness between tenants in one process: while several are busy, each gets an equal share of the places.

A tenant that has the process to itself gets more than it needs, so that nothing waits. What only waits for something
else than this process steps aside, and goes on without a place. Knows nothing of what a place is for.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from time import monotonic
from typing import Final, ParamSpec, TypeVar
from uuid import UUID

from tools_app.protocol.errors import OVER_LIMIT, RpcError

P = ParamSpec("P")
T = TypeVar("T")

# How long a tenant counts as busy after it was seen.
IDLE_SECONDS: Final = 0.25
# How often it is looked who has waited, or who is idle.
LOOK_SECONDS: Final = 0.01


class Turn:
    """One place in use."""

    __slots__ = ("gate", "since", "tenant")

    def __init__(self, gate: "Turnstile", tenant: "_Tenant", since: float) -> None:
        self.gate = gate
        self.tenant = tenant
        self.since = since


_own: ContextVar[Turn | None] = ContextVar("turn", default=None)


def step_aside() -> None:
    """Give back the place of the request that is worked on: it waits for something else. Twice is no matter."""
    turn = _own.get()
    if turn is not None:
        turn.gate.leave(turn)


class _Tenant:
    __slots__ = ("running", "seen", "waiting")

    def __init__(self) -> None:
        # In the order in which they began.
        self.running: dict[Turn, None] = {}
        self.waiting: deque[asyncio.Future[Turn]] = deque()
        self.seen = 0.0


class Turnstile:
    """Belongs to one event loop.

    `alone` is how many places a tenant has that nobody else is beside, `together` how many several share. Whoever has
    one for `patience` seconds without stepping aside loses it to those who wait. At most `most_waiting` of one tenant
    wait.
    """

    def __init__(
        self, *, alone: int, together: int, patience: float | None = None, most_waiting: int | None = None
    ) -> None:
        self._alone = alone
        self._together = together
        self._patience = patience
        self._most_waiting = most_waiting
        self._share = alone
        self._tenants: dict[UUID, _Tenant] = {}
        self._look_at: asyncio.TimerHandle | None = None

    def enter(self, tenant_id: UUID) -> Turn | None:
        """A place, if there is one at once; to be given back with `leave`."""
        tenant = self._tenants.get(tenant_id) or self._arrived(tenant_id)
        tenant.seen = now = monotonic()
        running = tenant.running
        if tenant.waiting or (len(running) >= self._share and not self._makes_room(running, now)):
            return None
        turn = Turn(self, tenant, now)
        running[turn] = None
        return turn

    async def through(self, tenant_id: UUID, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do some work of a tenant when it is its turn, in a task of its own, which may step aside.

        Raises RpcError as `wait` does, and what `work` raises.
        """
        turn = self.enter(tenant_id) or await self.wait(tenant_id)
        _own.set(turn)
        try:
            return await work(*args, **kwargs)
        finally:
            self.leave(turn)

    async def wait(self, tenant_id: UUID) -> Turn:
        """The same for one that was not there at once. Raises RpcError if too many wait already."""
        tenant = self._tenants.get(tenant_id) or self._arrived(tenant_id)
        if self._most_waiting is not None and len(tenant.waiting) >= self._most_waiting:
            message = "Too many requests of this tenant wait already. Try again in 1 second."
            data = {"scope": "tenant", "what": "waiting requests", "limit": self._most_waiting, "retryAfterSeconds": 1}
            raise RpcError(OVER_LIMIT, message, data, retry_after=1)
        waiter: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        tenant.waiting.append(waiter)
        self._look_soon()
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.leave(waiter.result())
            elif waiter in tenant.waiting:
                tenant.waiting.remove(waiter)
            raise

    def leave(self, turn: Turn) -> None:
        """Give a place back. One that was lost meanwhile is no matter.

        Between tenants it is free only once the loop has come round: what never waits is worked on by turns, too.
        """
        if len(self._tenants) > 1:
            asyncio.get_running_loop().call_soon(self._free, turn)
        else:
            self._free(turn)

    def _free(self, turn: Turn) -> None:
        tenant = turn.tenant
        tenant.running.pop(turn, None)
        if tenant.waiting:
            self._let_in(tenant)

    def _let_in(self, tenant: _Tenant) -> None:
        while tenant.waiting and len(tenant.running) < self._share:
            waiter = tenant.waiting.popleft()
            if waiter.done():
                continue
            turn = Turn(self, tenant, monotonic())
            tenant.running[turn] = None
            waiter.set_result(turn)

    def _arrived(self, tenant_id: UUID) -> _Tenant:
        tenant = self._tenants[tenant_id] = _Tenant()
        tenant.seen = monotonic()
        self._share_out()
        return tenant

    def _share_out(self) -> None:
        """Give each tenant the same. Who has more than that by now keeps it until it is given back."""
        busy = len(self._tenants)
        self._share = self._alone if busy <= 1 else max(1, self._together // busy)
        if busy > 1:
            self._look_soon()

    def _look_soon(self) -> None:
        if self._look_at is None:
            self._look_at = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Take their places from those that had them for long, and see which tenants are still busy."""
        self._look_at = None
        now = monotonic()
        waiting = [tenant for tenant in self._tenants.values() if tenant.waiting]
        for id, tenant in list(self._tenants.items()):
            self._makes_room(tenant.running, now)
            if not (tenant.running or tenant.waiting) and now - tenant.seen > IDLE_SECONDS:
                del self._tenants[id]
        self._share_out()
        for tenant in waiting:
            self._let_in(tenant)
        if waiting:
            self._look_soon()

    def _makes_room(self, running: dict[Turn, None], now: float) -> bool:
        """Take their places from those that had them for long: whether there is one now."""
        if self._patience is not None:
            while running and (oldest := next(iter(running))).since <= now - self._patience:
                del running[oldest]
        return len(running) < self._share
