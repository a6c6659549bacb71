"""The in-memory limit store."""

import threading
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clock import Clock
from tests.tenants.limit_stores import *  # noqa: F403 - the tests of every store
from tests.tenants.limit_stores import SHORT, Outlast, Stores, rate
from tools_app.tenants.limits import memory as limits_memory
from tools_app.tenants.limits.memory import BUCKETS, MemoryStore
from tools_app.tenants.limits.quotas import ConcurrencyLimit


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(stores: Stores, clock: Clock) -> MemoryStore:
    own: MemoryStore = stores(MemoryStore(clock))
    return own


@pytest.fixture
def outlast(clock: Clock) -> Outlast:
    def outlast() -> None:
        clock.now += SHORT

    return outlast


# A busy machine must not fail the test.
@settings(deadline=None)
@given(
    most=st.integers(1, 12),
    steps=st.lists(st.tuples(st.floats(0, 25), st.integers(1, 5)), max_size=80),
)
def test_no_span_of_the_windows_length_sees_more_than_is_allowed(most: int, steps: list[tuple[float, int]]) -> None:
    clock, seconds = Clock(), 60
    store = MemoryStore(clock)
    hits: list[float] = []
    for pause, count in steps:
        clock.now += pause
        refused = store.take_blocking([rate("a", most, seconds)], count)
        recent = [hit for hit in hits if hit > clock.now - seconds]
        if refused is None:
            hits += [clock.now] * count
            assert len(recent) + count <= most
        else:
            # Rejected only if the limit is reached, within one bucket.
            long_ago = clock.now - seconds * (1 + 1 / BUCKETS)
            assert len([hit for hit in hits if hit > long_ago]) + count > most


@settings(deadline=None)
@given(most=st.integers(1, 8), pauses=st.lists(st.floats(0, 30), min_size=1, max_size=40))
def test_after_the_wait_that_was_told_there_is_room(most: int, pauses: list[float]) -> None:
    clock = Clock()
    store = MemoryStore(clock)
    for pause in pauses:
        clock.now += pause
        refused = store.take_blocking([rate("a", most, 60)], 1)
        if refused is not None:
            assert 0 < refused[1] <= 60
            clock.now += refused[1] + 1e-6
            assert store.take_blocking([rate("a", most, 60)], 1) is None


def test_a_hit_counts_until_its_window_has_passed_and_no_longer() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    assert store.take_blocking([rate("a", 1, 60)], 1) is None
    clock.now += 59.999
    assert store.take_blocking([rate("a", 1, 60)], 1) is not None
    clock.now = 1060.0
    assert store.take_blocking([rate("a", 1, 60)], 1) is None


def test_hits_that_come_close_together_leave_together_with_the_last_of_them() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    for moment in (1000.0, 1002.9):
        clock.now = moment
        assert store.take_blocking([rate("a", 2, 60)], 1) is None
    clock.now = 1062.8
    assert store.take_blocking([rate("a", 2, 60)], 1) is not None
    clock.now = 1062.91
    assert store.take_blocking([rate("a", 2, 60)], 2) is None


def test_a_steady_caller_below_its_rate_is_never_refused() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    for _ in range(300):
        clock.now += 2.5
        assert store.take_blocking([rate("a", 30, 60)], 1) is None
    assert len(store._windows["a"].buckets) <= BUCKETS + 1


def test_several_wait_until_there_is_room_for_all_of_them() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    for pause, count in ((0, 2), (10, 2), (10, 1)):
        clock.now += pause
        assert store.take_blocking([rate("a", 5, 60)], count) is None
    clock.now += 10
    assert [store.take_blocking([rate("a", 5, 60)], count) for count in (1, 2, 3, 4, 5)] == [
        (0, 30.0),
        (0, 30.0),
        (0, 40.0),
        (0, 40.0),
        (0, 50.0),
    ]


def test_a_flood_of_names_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_memory, "MAX_NAMES", 2000)
    store = MemoryStore(Clock())
    tidied = Mock(wraps=store._prune)
    monkeypatch.setattr(store, "_prune", tidied)
    for number in range(10_000):
        store.take_blocking([rate(f"address {number}", 5, 60)], 1)
        assert len(store._windows) <= 2000
    # The newest nine tenths are kept.
    assert list(store._windows) == [f"address {number}" for number in range(10_000 - len(store._windows), 10_000)]
    assert len(store._windows) >= 1800
    assert tidied.call_count < 50, "each new name looks through all the others"


def test_names_that_count_no_more_are_forgotten() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    for number in range(998):
        store.take_blocking([rate(f"old {number}", 5)], 1)
    store.take_blocking([rate("nothing is let through", 0)], 1)
    store.take_blocking([rate("long", 1, 60)], 1)
    clock.now += 5
    store.take_blocking([rate("new", 5)], 1)
    assert list(store._windows) == ["long", "new"]
    assert store.take_blocking([rate("long", 1, 60)], 1) is not None


def test_threads_that_take_at_once_get_no_more_than_there_is() -> None:
    store, got = MemoryStore(), []

    def work() -> None:
        got.extend(store.take_blocking([rate("a", 100, 60)], 1) is None for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count(True) == 100


def test_many_that_hold_places_do_not_make_each_one_more_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(Clock())
    tidied = Mock(wraps=store._prune_held)
    monkeypatch.setattr(store, "_prune_held", tidied)
    for number in range(5000):
        store.acquire_blocking([ConcurrencyLimit("address", "tries", 1, f"address {number}")], "one", 1000.0)
    assert 0 < tidied.call_count < 10, "each new place looks through all the others"


def test_places_that_nobody_holds_any_more_are_forgotten_and_none_that_is_held() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    held = ConcurrencyLimit("address", "tries", 1, "held")
    store.acquire_blocking([held], "one", 1000.0)
    for number in range(5000):
        clock.now += 0.1
        store.acquire_blocking([ConcurrencyLimit("address", "tries", 1, f"address {number}")], "one", 1.0)
    assert len(store._held) < 2 * limits_memory.FEW_NAMES
    store.release(list(store._held), "nobody")
    for key in set(store._held) - {"held"}:
        store.release([key], "one")
    assert set(store._held) == {"held"}
    assert store.acquire_blocking([held], "another", 1.0) == 0
