"""Fair scheduling of requests: equal slots for busy tenants, turns, and no waiting for a single one."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tools_app.core import fair_scheduler
from tools_app.core.fair_scheduler import FairScheduler, Group, Slot
from tools_app.protocol.errors import RpcError

A, B = UUID(int=1), UUID(int=2)
WAIT_SECONDS = 30.0
STRANGERS = Group("strangers", slots=2, max_waiting=5, interval=10.0)


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def running(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run an `async` test on a loop of its own, for a bounded time."""

    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), WAIT_SECONDS))

    run.__name__ = test.__name__
    return run


def acquired(scheduler: FairScheduler, tenant: UUID, times: int) -> list[Slot]:
    return [slot for slot in (scheduler.try_acquire(tenant) for _ in range(times)) if slot is not None]


async def until(is_true: Callable[[], object], seconds: float = 0.001) -> None:
    while not is_true():  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(seconds)


async def iterations(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@running
async def test_a_tenant_that_is_alone_has_more_slots_than_tenants_that_share_them_equally() -> None:
    scheduler = FairScheduler(alone=6, together=4)
    assert len(acquired(scheduler, A, 10)) == 6
    assert len(acquired(scheduler, B, 10)) == 2


@running
async def test_each_tenant_has_a_slot_however_many_there_are() -> None:
    scheduler = FairScheduler(alone=6, together=2)
    slots = [len(acquired(scheduler, UUID(int=number), 3)) for number in range(10, 20)]
    assert slots[1:] == [1] * 9


@running
async def test_a_tenant_that_holds_more_than_its_share_waits_until_it_holds_less() -> None:
    scheduler = FairScheduler(alone=6, together=4)
    many = acquired(scheduler, A, 6)
    assert len(acquired(scheduler, B, 10)) == 2
    waiting = asyncio.create_task(scheduler.acquire(A))
    for slot in many[:4]:
        scheduler.release(slot)
        await iterations()
        assert not waiting.done()
    scheduler.release(many[4])
    await waiting


@running
async def test_a_tenants_requests_are_served_in_the_order_in_which_they_came() -> None:
    scheduler = FairScheduler(alone=1, together=1)
    order: list[int] = []

    async def work(number: int) -> None:
        order.append(number)
        await asyncio.sleep(0)

    await asyncio.gather(*(scheduler.run(A, partial(work, number)) for number in range(20)))
    assert order == list(range(20))


@pytest.mark.parametrize("waits", [True, False], ids=["requests-that-wait", "requests-that-never-wait"])
def test_a_flood_leaves_a_neighbour_its_share(waits: bool) -> None:
    async def scenario() -> None:
        scheduler = FairScheduler(alone=8, together=2)
        served: Counter[str] = Counter()

        async def work(name: str) -> None:
            served[name] += 1
            if waits:
                await asyncio.sleep(0)

        scheduler.release(acquired(scheduler, B, 1)[0])
        flood = [asyncio.create_task(scheduler.run(A, partial(work, "flood"))) for _ in range(500)]
        await asyncio.sleep(0)
        for _ in range(20):
            await scheduler.run(B, partial(work, "neighbour"))
        assert served["neighbour"] == 20
        assert served["flood"] < 100
        await asyncio.gather(*flood)

    asyncio.run(asyncio.wait_for(scenario(), WAIT_SECONDS))


@running
async def test_tenants_with_waiting_requests_are_served_in_turn() -> None:
    scheduler = FairScheduler(alone=8, together=3)
    order: list[int] = []

    async def work(number: int) -> None:
        order.append(number)
        await asyncio.sleep(0)

    tenants = [UUID(int=number) for number in range(3)]
    held = [acquired(scheduler, tenant, 1)[0] for tenant in tenants]
    # The first tenant's requests have all come before those of the others.
    tasks = [
        asyncio.create_task(scheduler.run(tenant, partial(work, tenant.int))) for tenant in tenants for _ in range(4)
    ]
    await iterations()
    for slot in held:
        scheduler.release(slot)
    await asyncio.gather(*tasks)
    assert all(set(order[start : start + 3]) == {0, 1, 2} for start in range(0, 12, 3))


@running
async def test_a_bounded_number_of_a_tenants_requests_waits() -> None:
    scheduler = FairScheduler(alone=1, together=1, max_waiting=2)
    (slot,) = acquired(scheduler, A, 1)
    waiting = [asyncio.create_task(scheduler.acquire(A)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(RpcError) as error:
        await scheduler.acquire(A)
    assert (error.value.code, error.value.retry_after) == (-32004, 1)
    # A cancelled request leaves its place.
    waiting.pop().cancel()
    await iterations()
    waiting.append(asyncio.create_task(scheduler.acquire(A)))
    for task in waiting:
        scheduler.release(slot)
        slot = await task


@running
async def test_a_cancelled_request_keeps_no_slot() -> None:
    scheduler = FairScheduler(alone=1, together=1)
    (slot,) = acquired(scheduler, A, 1)
    first, second = (asyncio.create_task(scheduler.acquire(A)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    scheduler.release(slot)
    # Cancelled in the moment in which it gets its slot.
    await until(lambda: scheduler._owners[A].running and slot not in scheduler._owners[A].running, seconds=0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await iterations()
    assert len(acquired(scheduler, A, 3)) == 1


@running
async def test_work_that_fails_releases_its_slot() -> None:
    scheduler = FairScheduler(alone=1, together=1)

    async def fails() -> None:
        raise ValueError("no")

    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            await scheduler.run(A, fails)


@running
async def test_idle_tenants_are_forgotten_and_leave_their_slots() -> None:
    clock = Clock()
    scheduler = FairScheduler(alone=6, together=2, clock=clock)
    for number in range(100):
        for slot in acquired(scheduler, UUID(int=number), 1):
            scheduler.release(slot)
    await iterations()
    clock.now += 1.0
    await until(lambda: not scheduler._owners)
    assert len(acquired(scheduler, A, 10)) == 6


@running
async def test_a_request_that_waits_for_something_else_releases_its_slot_once() -> None:
    scheduler = FairScheduler(alone=1, together=1)
    aside, on = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        fair_scheduler.release_slot()
        fair_scheduler.release_slot()
        aside.set()
        await on.wait()

    slow = asyncio.create_task(scheduler.run(A, waits))
    await aside.wait()
    await iterations()
    (slot,) = acquired(scheduler, A, 5)
    on.set()
    await slow
    await iterations()
    assert acquired(scheduler, A, 1) == []
    scheduler.release(slot)


@running
async def test_a_slot_that_is_held_for_too_long_is_reclaimed() -> None:
    clock = Clock()
    scheduler = FairScheduler(alone=1, together=1, reclaim_after=1.0, clock=clock)
    (slot,) = acquired(scheduler, A, 1)
    waiting = asyncio.create_task(scheduler.acquire(A))
    await iterations()
    clock.now += 1.0
    next_slot = await waiting
    # The late release is not that of another request.
    scheduler.release(slot)
    await iterations()
    assert acquired(scheduler, A, 1) == []
    scheduler.release(next_slot)


# --- Groups: requests without a tenant ----------------------------------------------------------------------------


@running
async def test_while_a_tenant_is_busy_a_group_starts_one_request_in_an_interval() -> None:
    clock = Clock()
    scheduler = FairScheduler(alone=8, together=4, clock=clock)
    held = acquired(scheduler, A, 1)
    slots = [asyncio.create_task(scheduler.acquire(STRANGERS)) for _ in range(3)]
    first = await slots[0]
    await iterations()
    assert not slots[1].done()
    clock.now += STRANGERS.interval
    # The first one still runs: one that takes long does not stop the others.
    await slots[1]
    scheduler.release(first)
    await iterations()
    assert not slots[2].done()
    clock.now += STRANGERS.interval
    await slots[2]
    scheduler.release(held[0])


@running
async def test_a_tenant_that_always_has_waiting_requests_leaves_a_group_its_intervals() -> None:
    scheduler = FairScheduler(alone=4, together=4)
    group = Group("strangers", slots=2, max_waiting=100, interval=0.001)
    is_over = False

    async def work() -> None:
        await asyncio.sleep(0)

    async def client() -> None:
        while not is_over:
            await scheduler.run(A, work)

    flood = [asyncio.create_task(client()) for _ in range(20)]
    await iterations()
    for _ in range(3):
        await scheduler.run(group, work)
    is_over = True
    await asyncio.gather(*flood)


@running
async def test_a_caller_that_left_takes_no_later_one_with_it() -> None:
    clock = Clock()
    scheduler = FairScheduler(alone=4, together=4, clock=clock)
    (held,) = acquired(scheduler, A, 1)
    scheduler.release(await scheduler.acquire(STRANGERS))
    left = asyncio.create_task(scheduler.acquire(STRANGERS, "left"))
    await iterations()
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    clock.now += 1.0
    await until(lambda: scheduler._owners[A].seen < clock.now - fair_scheduler.IDLE_SECONDS)
    scheduler._forget_idle()
    later = asyncio.create_task(scheduler.acquire(STRANGERS, "later"))
    await iterations()
    clock.now += STRANGERS.interval
    await later
    scheduler.release(held)


@running
async def test_where_no_tenant_is_busy_a_group_has_its_slots_at_once() -> None:
    scheduler = FairScheduler(alone=8, together=4)
    slots = [asyncio.create_task(scheduler.acquire(STRANGERS)) for _ in range(3)]
    await asyncio.gather(*slots[:2])
    await iterations()
    assert not slots[2].done()
    scheduler.release(slots[0].result())
    await slots[2]


@running
async def test_a_groups_callers_take_turns() -> None:
    scheduler = FairScheduler(alone=8, together=4)
    group = Group("strangers", slots=1, max_waiting=100, interval=0.0)
    order: list[str] = []

    async def work(name: str) -> None:
        order.append(name)
        await asyncio.sleep(0)

    flood = [asyncio.create_task(scheduler.run(group, partial(work, "flood"), "flood")) for _ in range(20)]
    await asyncio.sleep(0)
    await scheduler.run(group, partial(work, "other"), "other")
    assert order.index("other") <= 2
    await asyncio.gather(*flood)


@running
async def test_a_bounded_number_of_a_groups_requests_waits() -> None:
    scheduler = FairScheduler(alone=8, together=4)
    on = asyncio.Event()

    async def slow() -> None:
        await on.wait()

    tasks = [asyncio.create_task(scheduler.run(STRANGERS, slow, number)) for number in range(2)]
    await iterations()
    tasks += [asyncio.create_task(scheduler.run(STRANGERS, slow, number)) for number in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(RpcError) as error:
        await scheduler.run(STRANGERS, slow, "late")
    assert (error.value.code, error.value.data["scope"]) == (-32004, "strangers")
    on.set()
    await asyncio.gather(*tasks)


@running
async def test_a_caller_fills_the_room_of_a_group_for_itself_only() -> None:
    scheduler = FairScheduler(alone=2, together=2)
    slots = [asyncio.create_task(scheduler.acquire(STRANGERS)) for _ in range(STRANGERS.slots)]
    await asyncio.gather(*slots)
    crowd = [asyncio.create_task(scheduler.acquire(STRANGERS, "crowd")) for _ in range(STRANGERS.max_waiting)]
    await asyncio.sleep(0)
    others = [asyncio.create_task(scheduler.acquire(STRANGERS, name)) for name in ("one", "two", "crowd", "three")]
    await asyncio.wait(crowd[2:])
    # The newest of those that have most make room.
    assert [type(task.exception()) for task in crowd[2:]] == [RpcError] * 3
    with pytest.raises(RpcError):
        await others[2]
    for task in slots:
        scheduler.release(task.result())
    for task in (crowd[0], others[0], others[1], others[3], crowd[1]):
        scheduler.release(await task)
