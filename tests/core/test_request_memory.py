"""The memory budget of large bodies and responses: tenants leave room for others, and all of it is released."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from tests.web_services import WAIT_SECONDS
from tools_app.core import fair_scheduler, request_memory
from tools_app.core.request_memory import MemoryBudget, TooMuchMemory


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(lambda: (100, 150))


async def soon(work: Awaitable[None]) -> None:
    await asyncio.wait_for(work, WAIT_SECONDS)


async def waiting(budget: MemoryBudget, *wanted: tuple[str, int]) -> list[asyncio.Task[None]]:
    """Requests that wait, in this order."""
    tasks = [asyncio.create_task(budget.hold(tenant, size)) for tenant, size in wanted]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


def test_a_tenant_holds_up_to_its_bound_and_one_thing_of_any_size(budget: MemoryBudget) -> None:
    assert budget.try_hold("acme", 60)
    assert budget.try_hold("acme", 40)
    assert not budget.try_hold("acme", 1)
    assert budget.try_hold("rival", 500)


def test_all_tenants_together_hold_up_to_a_bound(budget: MemoryBudget) -> None:
    assert budget.try_hold("acme", 90)
    assert budget.try_hold("rival", 50)
    assert not budget.try_hold("rival", 11)
    assert budget.try_hold("rival", 10)
    # One that holds nothing yet is not kept waiting by others.
    assert budget.try_hold("third", 20)


def test_who_waits_for_what_is_there_gets_it_at_once(budget: MemoryBudget) -> None:
    asyncio.run(soon(budget.hold("acme", 100)))
    assert not budget.try_hold("acme", 1)


def test_a_body_has_the_more_time_the_larger_it_may_be() -> None:
    assert [request_memory.seconds_for(size) for size in (0, 65_536, 655_360)] == [30, 31, 40]


def test_who_waits_gets_room_in_turn_when_something_is_given_back(budget: MemoryBudget) -> None:
    async def scenario() -> None:
        assert budget.try_hold("acme", 100)
        first, second, third = await waiting(budget, ("acme", 60), ("acme", 60), ("acme", 10))
        # Who comes later does not pass those that wait.
        assert not budget.try_hold("acme", 1)
        budget.free("acme", 100)
        await soon(first)
        assert not second.done()
        assert not third.done()
        budget.free("acme", 60)
        await soon(second)
        await soon(third)

    asyncio.run(scenario())


def test_room_that_one_tenant_gives_back_is_for_others_too(budget: MemoryBudget) -> None:
    async def scenario() -> None:
        assert budget.try_hold("acme", 90)
        assert budget.try_hold("rival", 50)
        (waits,) = await waiting(budget, ("rival", 50))
        budget.free("acme", 90)
        await soon(waits)

    asyncio.run(scenario())


def test_who_gives_up_leaves_nothing_behind(budget: MemoryBudget) -> None:
    async def scenario() -> None:
        assert budget.try_hold("acme", 100)
        first, second = await waiting(budget, ("acme", 80), ("acme", 20))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        budget.free("acme", 100)
        await soon(second)
        assert budget.try_hold("acme", 80)

    asyncio.run(scenario())


def test_what_is_granted_to_who_gives_up_at_that_moment_is_given_back(budget: MemoryBudget) -> None:
    async def scenario() -> None:
        assert budget.try_hold("acme", 100)
        (waits,) = await waiting(budget, ("acme", 100))
        budget.free("acme", 100)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert budget.try_hold("acme", 100)

    asyncio.run(scenario())


def test_waiting_ends_after_a_time_and_has_a_bound(budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_memory, "MAX_WAITING", 1)

    async def scenario() -> None:
        assert budget.try_hold("acme", 100)
        (waits,) = await waiting(budget, ("acme", 1))
        with pytest.raises(TooMuchMemory):
            await budget.hold("acme", 1)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        monkeypatch.setattr(request_memory, "WAIT_SECONDS", 0.01)
        with pytest.raises(TooMuchMemory):
            await soon(budget.hold("acme", 1))
        budget.free("acme", 100)
        assert budget.try_hold("acme", 100)

    asyncio.run(scenario())


def test_another_thread_can_give_back_what_somebody_waits_for(budget: MemoryBudget) -> None:
    async def scenario() -> None:
        assert budget.try_hold("acme", 100)
        (waits,) = await waiting(budget, ("acme", 100))
        threading.Thread(target=budget.free, args=("acme", 100)).start()
        await soon(waits)

    asyncio.run(scenario())


# --- Requests -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[None]]:
    """Run the request of a tenant, whose results may take 100 bytes."""
    monkeypatch.setattr(request_memory, "_results", MemoryBudget(lambda: (100, 1000)))

    async def run(work: Callable[[], Awaitable[None]], tenant: str = "acme") -> None:
        scheduler = fair_scheduler.FairScheduler(alone=1, together=1)
        await asyncio.create_task(request_memory.run_in_turn(scheduler, tenant, work))  # type: ignore[arg-type]

    return run


def test_a_request_gives_back_what_it_holds_when_it_is_over(run: Callable[..., Awaitable[None]]) -> None:
    async def large() -> None:
        await request_memory.hold_result(60)
        await request_memory.cover_result(90)

    async def scenario() -> None:
        for _ in range(3):
            await soon(run(large))

    asyncio.run(scenario())


def test_a_request_may_give_back_what_it_holds_before_it_is_over(run: Callable[..., Awaitable[None]]) -> None:
    async def twice() -> None:
        for _ in range(2):
            await request_memory.hold_result(100)
            request_memory.give_back()

    asyncio.run(soon(run(twice)))


def test_a_request_that_waits_for_memory_for_its_body_lets_another_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = MemoryBudget(lambda: (100, 1000))
    monkeypatch.setattr(request_memory, "_bodies", bodies)

    async def scenario() -> None:
        scheduler = fair_scheduler.FairScheduler(alone=1, together=1)
        others = asyncio.Event()

        async def with_body() -> None:
            await request_memory.hold_body(60)
            assert not bodies.try_hold("acme", 41)

        async def without_body() -> None:
            others.set()

        assert bodies.try_hold("acme", 100)
        first = asyncio.create_task(request_memory.run_in_turn(scheduler, "acme", with_body))
        await asyncio.sleep(0)
        second = asyncio.create_task(scheduler.run("acme", without_body))
        await asyncio.wait_for(others.wait(), WAIT_SECONDS)
        assert not first.done()
        bodies.free("acme", 100)
        await asyncio.wait_for(asyncio.gather(first, second), WAIT_SECONDS)
        assert bodies.try_hold("acme", 100)

    asyncio.run(scenario())


def test_a_request_that_is_nobodys_holds_nothing(run: Callable[..., Awaitable[None]]) -> None:
    async def large() -> None:
        for _ in range(2):
            await request_memory.hold_result(100)

    asyncio.run(soon(large()))


def test_a_request_that_holds_something_does_not_wait_for_more(run: Callable[..., Awaitable[None]]) -> None:
    async def two() -> None:
        await request_memory.hold_result(60)
        with pytest.raises(TooMuchMemory):
            await request_memory.hold_result(60)

    asyncio.run(soon(run(two)))


def test_what_comes_after_the_end_of_its_request_holds_nothing(run: Callable[..., Awaitable[None]]) -> None:
    async def scenario() -> None:
        is_over = asyncio.Event()
        late: list[asyncio.Task[None]] = []

        async def hold_late() -> None:
            await is_over.wait()
            await request_memory.hold_result(100)

        async def leave() -> None:
            late.append(asyncio.create_task(hold_late()))

        async def large() -> None:
            await request_memory.hold_result(100)

        await soon(run(leave))
        is_over.set()
        await soon(late[0])
        await soon(run(large))

    asyncio.run(scenario())


def test_without_a_request_nothing_is_held() -> None:
    async def scenario() -> None:
        for _ in range(1000):
            await request_memory.hold_body(2**40)

    asyncio.run(scenario())


def test_each_large_answer_of_a_batch_is_counted_once(run: Callable[..., Awaitable[None]]) -> None:
    async def one(size: int, *, from_upstream: bool = False) -> None:
        request_memory.begin_batch_answer()
        if from_upstream:
            await request_memory.hold_result(size)
        await request_memory.cover_result(size)
        await request_memory.cover_result(size)

    async def batch() -> None:
        outcomes = await asyncio.gather(one(30, from_upstream=True), one(30), one(30), one(30), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None)] * 3 + [TooMuchMemory]

    async def all_of_it() -> None:
        assert request_memory._results.try_hold("acme", 1)
        request_memory._results.free("acme", 1)
        await request_memory.hold_result(100)

    asyncio.run(soon(run(batch)))
    asyncio.run(soon(run(all_of_it)))
