"""Fairness between tenants in one process: equal shares while several are busy, no waiting for one that is alone."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from tools_app.execution import turnstile
from tools_app.execution.turnstile import Turn, Turnstile
from tools_app.protocol.errors import RpcError

A, B = UUID(int=1), UUID(int=2)
WAIT_SECONDS = 10.0


def running(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run an `async` test on a loop of its own, for a bounded time."""

    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), WAIT_SECONDS))

    run.__name__ = test.__name__
    return run


def entered(gate: Turnstile, tenant: UUID, times: int) -> list[Turn]:
    return [turn for turn in (gate.enter(tenant) for _ in range(times)) if turn is not None]


async def until(question: Callable[[], object]) -> None:
    while not question():  # noqa: ASYNC110 - asked for what tells nobody
        await asyncio.sleep(0.001)


@running
async def test_a_tenant_that_is_alone_gets_more_than_a_share() -> None:
    gate = Turnstile(alone=6, together=4)
    assert len(entered(gate, A, 10)) == 6


@running
async def test_tenants_that_are_busy_at_once_get_equal_shares() -> None:
    gate = Turnstile(alone=6, together=4)
    first = entered(gate, A, 1)
    assert len(entered(gate, B, 10)) == 2
    assert len(first + entered(gate, A, 10)) == 2


@running
async def test_who_has_more_than_its_share_by_now_waits_until_it_has_less() -> None:
    gate = Turnstile(alone=6, together=4)
    many = entered(gate, A, 6)
    assert len(entered(gate, B, 10)) == 2
    waiting = asyncio.create_task(gate.wait(A))
    for turn in many[:4]:
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.leave(turn)
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.leave(many[4])
    gate.leave(await waiting)


@running
async def test_each_tenant_has_one_place_however_many_there_are() -> None:
    gate = Turnstile(alone=6, together=2)
    assert [len(entered(gate, UUID(int=number), 3)) for number in range(10, 20)][1:] == [1] * 9


@running
async def test_a_tenant_is_served_in_the_order_in_which_it_came() -> None:
    gate = Turnstile(alone=1, together=1)
    order: list[int] = []

    async def work(number: int) -> None:
        order.append(number)
        await asyncio.sleep(0)

    await asyncio.gather(*(gate.through(A, work, number) for number in range(20)))
    assert order == list(range(20))


@pytest.mark.parametrize("waits", [True, False], ids=["what-waits", "what-never-waits"])
def test_a_flood_leaves_a_neighbour_its_share(waits: bool) -> None:
    asyncio.run(asyncio.wait_for(flooded(waits=waits), WAIT_SECONDS))


async def flooded(*, waits: bool) -> None:
    gate = Turnstile(alone=8, together=2)
    served: Counter[str] = Counter()

    async def work(name: str) -> None:
        served[name] += 1
        if waits:
            await asyncio.sleep(0)

    gate.leave(entered(gate, B, 1)[0])
    flood = [asyncio.create_task(gate.through(A, work, "flood")) for _ in range(500)]
    await asyncio.sleep(0)
    for _ in range(20):
        await gate.through(B, work, "neighbour")
    assert served["neighbour"] == 20
    assert served["flood"] < 60
    await asyncio.gather(*flood)


@running
async def test_a_tenant_that_was_not_seen_for_a_while_takes_no_share() -> None:
    gate = Turnstile(alone=6, together=4)
    gate.leave(entered(gate, B, 1)[0])
    kept = entered(gate, A, 10)
    assert len(kept) == 2
    kept.append(await gate.wait(A))
    assert len([*kept, *entered(gate, A, 10)]) == 6


@running
async def test_a_tenant_that_only_waits_for_something_takes_no_share() -> None:
    gate = Turnstile(alone=6, together=4, patience=0.01)
    stream = entered(gate, B, 1)
    assert len(stream) == 1
    assert len(entered(gate, A, 10)) == 2
    await until(lambda: len(gate._tenants) <= 1)
    assert len(entered(gate, A, 10)) == 6


@running
async def test_what_takes_long_makes_room_for_those_who_wait() -> None:
    gate = Turnstile(alone=2, together=2, patience=0.01)
    slow = entered(gate, A, 2)
    late = await gate.wait(A)
    # They have lost their places and go on; to give one back is no matter.
    for turn in slow:
        gate.leave(turn)
    assert len(entered(gate, A, 5)) == 1
    gate.leave(late)


@running
async def test_what_takes_long_keeps_its_place_where_there_is_no_hurry() -> None:
    gate = Turnstile(alone=1, together=1)
    (slow,) = entered(gate, A, 1)
    waiting = asyncio.create_task(gate.wait(A))
    await asyncio.sleep(5 * turnstile.LOOK_SECONDS)
    assert not waiting.done()
    gate.leave(slow)
    await waiting


@running
async def test_so_many_wait_and_no_more() -> None:
    gate = Turnstile(alone=1, together=1, most_waiting=2)
    (turn,) = entered(gate, A, 1)
    waiting = [asyncio.create_task(gate.wait(A)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(RpcError) as refused:
        await gate.wait(A)
    assert (refused.value.code, refused.value.retry_after) == (-32004, 1)
    gate.leave(turn)
    gate.leave(await waiting[0])
    await waiting[1]


@running
async def test_who_gives_up_waiting_is_in_nobodys_way() -> None:
    gate = Turnstile(alone=1, together=1)
    (turn,) = entered(gate, A, 1)
    first, second = (asyncio.create_task(gate.wait(A)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.leave(turn)
    # One that is cancelled in the moment in which it gets its place gives it back.
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert len(entered(gate, A, 3)) == 1


@running
async def test_work_that_fails_gives_its_place_back() -> None:
    gate = Turnstile(alone=1, together=1)

    async def fails() -> None:
        raise ValueError("no")

    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            await gate.through(A, fails)


@running
async def test_tenants_that_are_gone_leave_nothing_behind() -> None:
    gate = Turnstile(alone=1, together=1)
    for number in range(100):
        for turn in entered(gate, UUID(int=number), 1):
            gate.leave(turn)
    await until(lambda: len(gate._tenants) <= 1)


@running
async def test_what_waits_for_something_else_steps_aside() -> None:
    gate = Turnstile(alone=1, together=1)
    aside, on = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        turnstile.step_aside()
        turnstile.step_aside()
        aside.set()
        await on.wait()

    slow = asyncio.create_task(gate.through(A, waits))
    await aside.wait()
    (turn,) = entered(gate, A, 5)
    on.set()
    await slow
    assert entered(gate, A, 1) == []
    gate.leave(turn)
