"""Tests of every limit store, in memory or in Redis.

Modules that import them define the fixtures `store` and `outlast`. The latter returns when a lease or a window of SHORT
seconds has passed.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools_app.tenants.limits.quotas import ConcurrencyLimit, Rate

SECONDS = 1
LEASE = 30.0
# In Redis, whose clock is real, a test takes its next steps within this time.
SHORT = 2
Outlast = Callable[[], None]


def rate(name: str, most: int, seconds: int = SECONDS) -> Rate:
    return Rate("key", "calls", most, seconds, name)


def places(name: str, most: int) -> ConcurrencyLimit:
    return ConcurrencyLimit("tenant", "calls", most, name)


class Stores:
    """Calls stores from one event loop, as a process of the hub does."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self._stores: list[Any] = []

    def __call__(self, store: Any) -> Any:
        """Use this store, too."""
        self._stores.append(store)
        return store

    def close(self) -> None:
        for store in self._stores:
            self.runner.run(store.close())
        self.runner.close()

    def taken(self, store: Any, *rates: Rate, count: int = 1) -> Any:
        return self.runner.run(store.take(rates, count))

    def held(self, store: Any, id: str, *places: ConcurrencyLimit, seconds: float = LEASE) -> Any:
        return self.runner.run(store.acquire(places, id, seconds))


@pytest.fixture
def stores() -> Iterator[Stores]:
    runner = Stores()
    yield runner
    runner.close()


def test_so_many_are_let_through_and_then_it_is_said_which_and_how_long(store: Any, stores: Stores) -> None:
    wide, narrow = rate("wide", 100, 60), rate("narrow", 3, 60)
    assert [stores.taken(store, wide, narrow) for _ in range(3)] == [None] * 3
    which, wait = stores.taken(store, wide, narrow)
    assert which == 1
    assert 50 < wait <= 60


def test_what_is_refused_counts_nowhere(store: Any, stores: Stores) -> None:
    free, full = rate("free", 2, 60), rate("full", 0, 60)
    for _ in range(5):
        assert stores.taken(store, free, full) is not None
    assert [stores.taken(store, free) is None for _ in range(3)] == [True, True, False]


def test_several_count_as_several_or_not_at_all(store: Any, stores: Stores) -> None:
    assert stores.taken(store, rate("many", 5, 60), count=3) is None
    assert stores.taken(store, rate("many", 5, 60), count=3) is not None
    assert stores.taken(store, rate("many", 5, 60), count=2) is None


def test_where_nothing_is_let_through_the_wait_is_the_whole_window(store: Any, stores: Stores) -> None:
    assert stores.taken(store, rate("none", 0, 60)) == (0, 60.0)
    assert stores.taken(store, rate("few", 2, 60), count=3) == (0, 60.0)


def test_after_the_window_there_is_room_again(store: Any, stores: Stores, outlast: Outlast) -> None:
    assert stores.taken(store, rate("short", 1, SHORT)) is None
    assert stores.taken(store, rate("short", 1, SHORT)) is not None
    outlast()
    assert stores.taken(store, rate("short", 1, SHORT)) is None


def test_so_many_places_are_held_and_then_it_is_said_which_is_full(store: Any, stores: Stores) -> None:
    wide, narrow = places("w", 9), places("n", 2)
    assert [stores.held(store, id, wide, narrow) for id in ("a", "b", "c")] == [None, None, 1]
    store.release([wide.key, narrow.key], "a")
    assert stores.held(store, "c", wide, narrow) is None


def test_of_several_places_all_are_held_or_none(store: Any, stores: Stores) -> None:
    free, full = places("free", 1), places("full", 0)
    assert stores.held(store, "a", free, full) == 1
    assert stores.held(store, "b", free) is None


def test_who_holds_a_place_holds_it_once(store: Any, stores: Stores) -> None:
    assert [stores.held(store, "a", places("one", 1)) for _ in range(2)] == [None, None]
    store.release(["one"], "a")
    store.release(["one", "never"], "a")
    assert stores.held(store, "b", places("one", 1)) is None


def test_a_place_that_nobody_renews_is_lost(store: Any, stores: Stores, outlast: Outlast) -> None:
    assert stores.held(store, "dead", places("one", 1), seconds=SHORT) is None
    assert stores.held(store, "alive", places("one", 1)) == 0
    outlast()
    assert stores.held(store, "alive", places("one", 1)) is None


def test_a_lost_place_is_free_though_the_one_beside_it_is_held_and_nobody_renews_it(
    store: Any, stores: Stores, outlast: Outlast
) -> None:
    two = places("two", 2)
    assert stores.held(store, "dead", two, seconds=SHORT) is None
    assert stores.held(store, "alive", two) is None
    assert stores.held(store, "late", two) == 0
    outlast()
    assert stores.held(store, "late", two) is None
    assert stores.held(store, "later", two) == 0


def test_a_lost_place_is_free_while_others_are_held_and_comes_back_to_nobody_who_does_not_ask(
    store: Any, stores: Stores, outlast: Outlast
) -> None:
    two = places("two", 2)
    assert stores.held(store, "dead", two, seconds=SHORT) is None
    assert stores.held(store, "alive", two) is None
    assert stores.held(store, "late", two) == 0
    outlast()
    store.renew("two", ["dead", "alive"], LEASE, again=False)
    assert stores.held(store, "late", two) is None
    assert stores.held(store, "later", two) == 0


def test_a_place_that_is_renewed_is_kept(store: Any, stores: Stores, outlast: Outlast) -> None:
    one = places("one", 1)
    assert stores.held(store, "a", one, seconds=SHORT) is None
    store.renew("one", ["a"], LEASE, again=False)
    outlast()
    assert stores.held(store, "b", one) == 0


def test_only_who_says_so_gets_a_lost_place_again(store: Any, stores: Stores) -> None:
    one = places("one", 1)
    store.renew("one", ["lost"], LEASE, again=False)
    assert stores.held(store, "a", one) is None
    store.release(["one"], "a")
    store.renew("one", ["lost"], LEASE, again=True)
    assert stores.held(store, "a", one) == 0


def test_a_thread_takes_from_the_same_rates(store: Any, stores: Stores) -> None:
    wide, narrow = rate("wide", 100, 60), rate("narrow", 3, 60)
    assert store.take_blocking([wide, narrow], 2) is None
    assert store.take_blocking([wide, narrow], 2) is not None
    assert stores.taken(store, narrow) is None
    which, wait = store.take_blocking([wide, narrow], 1)
    assert which == 1
    assert 50 < wait <= 60
    assert stores.taken(store, narrow) is not None
