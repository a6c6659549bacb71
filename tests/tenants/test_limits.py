"""Limits: rates, concurrency, and leases that are renewed while they are held."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.clock import Clock
from tests.tenants.limit_stores import places, rate
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.limits import LEASE_SECONDS
from tools_app.tenants.limits.memory import MemoryStore

ONE = places("one", 1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    """The store of this process, with a clock that the test controls."""
    yield use(MemoryStore(clock), monkeypatch)
    limits._held.clear()


def use(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.setattr(limits, "_store", lambda: store)
    limits._held.clear()
    return store


def held(id: str, *places: Any) -> Any:
    return asyncio.run(limits.acquire(places or (ONE,), id))


def is_free(store: MemoryStore) -> bool:
    """Whether the place can be acquired; it is released again."""
    full = store.acquire_blocking([ONE], "somebody else", 1.0)
    store.release([ONE.key], "somebody else")
    return full is None


def test_a_rate_that_is_used_up_is_named_with_whole_seconds_to_wait(store: MemoryStore, clock: Clock) -> None:
    wide, narrow = rate("wide", 9, 60), rate("narrow", 2, 60)
    assert asyncio.run(limits.take([wide, narrow])) is None
    assert asyncio.run(limits.take([wide, narrow])) is None
    clock.now += 0.5
    over = asyncio.run(limits.take([wide, narrow]))
    assert over is not None
    assert (over.rate, over.retry_after) == (narrow, 60)
    clock.now += 59.4
    over = asyncio.run(limits.take([narrow]))
    assert over is not None
    assert over.retry_after == 1


def test_one_is_taken_unless_more_are_asked_for(store: MemoryStore) -> None:
    assert asyncio.run(limits.take([rate("two", 2, 60)])) is None
    assert asyncio.run(limits.take([rate("two", 2, 60)], 2)) is not None
    assert asyncio.run(limits.take([rate("two", 2, 60)], 1)) is None
    assert asyncio.run(limits.take([rate("two", 2, 60)])) is not None


def test_a_place_is_held_until_it_is_let_go(store: MemoryStore) -> None:
    free = places("free", 9)
    assert held("a", free, ONE) is None
    assert held("b", free, ONE) == ONE
    limits.release("b")
    assert not is_free(store)
    limits.release("a")
    assert is_free(store)
    limits.release("a")
    assert held("b", free, ONE) is None


def test_what_is_held_is_renewed_and_what_is_not_is_lost_with_its_lease(store: MemoryStore, clock: Clock) -> None:
    assert held("a") is None
    for _ in range(3):
        clock.now += LEASE_SECONDS - 1
        limits.renew()
    assert not is_free(store)
    clock.now += LEASE_SECONDS - 1
    assert not is_free(store)
    clock.now += 1
    assert is_free(store)
    # A process that was paused for longer than that keeps what it holds.
    limits.renew()
    assert not is_free(store)


def test_who_got_no_place_renews_none(store: MemoryStore, clock: Clock) -> None:
    assert held("a") is None
    assert held("b") == ONE
    limits.release("a")
    limits.renew()
    assert is_free(store)


def test_a_place_that_was_let_go_is_not_renewed(store: MemoryStore, clock: Clock) -> None:
    assert held("a") is None
    limits.release("a")
    limits.renew()
    assert is_free(store)


def test_a_place_that_was_handed_on_is_somebody_elses_to_renew_and_to_let_go(store: MemoryStore, clock: Clock) -> None:
    assert held("a") is None
    limits.transfer("a")
    limits.release("a")
    assert not is_free(store)
    clock.now += LEASE_SECONDS - 1
    limits.renew()
    limits.renew_for(ONE.key, ["a"])
    clock.now += LEASE_SECONDS - 1
    assert not is_free(store)
    clock.now += 1
    assert is_free(store)
    # The lease has ended, and a late renewal does not take it from others.
    limits.renew_for(ONE.key, ["a"])
    assert is_free(store)


def test_a_place_is_not_renewed_for_whoever_lets_it_go_meanwhile(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(MemoryStore):
        """A store in which a request ends during a renewal."""

        def renew(self, key: str, ids: Iterable[str], seconds: float, *, again: bool) -> None:
            limits.release("a")
            super().renew(key, ids, seconds, again=again)

    store = use(Slow(clock), monkeypatch)
    two = places("two", 2)
    assert [held(id, two) for id in ("a", "b")] == [None, None]
    limits.renew()
    assert [store.acquire_blocking([two], id, 1.0) for id in ("c", "d")] == [None, 0]


def test_a_request_that_is_given_up_while_it_waits_for_a_place_leaves_none_behind(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(MemoryStore):
        """A store that acquires the place before its response arrives."""

        async def acquire(self, places: Any, id: str, seconds: float) -> int | None:
            full = self.acquire_blocking(places, id, seconds)
            await asyncio.sleep(3600)
            return full

    store = use(Slow(clock), monkeypatch)

    async def give_up() -> None:
        waiting = asyncio.create_task(limits.acquire([ONE], "a"))
        await asyncio.sleep(0)
        assert store.acquire_blocking([ONE], "b", 1.0) == 0
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    asyncio.run(give_up())
    assert is_free(store)
    limits.renew()
    assert is_free(store)


def test_a_place_for_a_while_needs_nobody_to_renew_it_or_to_let_it_go(store: MemoryStore, clock: Clock) -> None:
    free = places("free", 9)
    assert limits.acquire_blocking([free, ONE], "a", 300.0) is None
    assert limits.acquire_blocking([free, ONE], "b", 300.0) == ONE
    clock.now += 299
    limits.renew()
    assert limits.acquire_blocking([ONE], "b", 300.0) == ONE
    clock.now += 1
    assert limits.acquire_blocking([ONE], "b", 300.0) is None
    limits.release_of([ONE.key], "b")
    assert is_free(store)


def test_a_thread_that_may_block_is_told_the_same(store: MemoryStore, clock: Clock) -> None:
    wide, narrow = rate("wide", 9, 60), rate("narrow", 1, 60)
    assert limits.take_blocking([wide, narrow]) is None
    clock.now += 0.5
    assert limits.take_blocking([wide, narrow]) == (narrow, 60)
