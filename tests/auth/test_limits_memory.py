"""Limits in the memory of one process."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.auth.limit_stores import *  # noqa: F403 - the tests of every store
from tests.auth.limit_stores import Stores, rate
from tools_app.auth import limits_memory
from tools_app.auth.allowance import Places
from tools_app.auth.limits_memory import GRAINS, MemoryStore


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(stores: Stores) -> MemoryStore:
    own: MemoryStore = stores(MemoryStore())
    return own


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
        refused = store.take_here([rate("a", most, seconds)], count)
        recent = [hit for hit in hits if hit > clock.now - seconds]
        if refused is None:
            hits += [clock.now] * count
            assert len(recent) + count <= most
        else:
            # Refused only if there is no room, give or take one grain.
            long_ago = clock.now - seconds * (1 + 1 / GRAINS)
            assert len([hit for hit in hits if hit > long_ago]) + count > most


@given(most=st.integers(1, 8), pauses=st.lists(st.floats(0, 30), min_size=1, max_size=40))
def test_after_the_wait_that_was_told_there_is_room(most: int, pauses: list[float]) -> None:
    clock = Clock()
    store = MemoryStore(clock)
    for pause in pauses:
        clock.now += pause
        refused = store.take_here([rate("a", most, 60)], 1)
        if refused is not None:
            assert 0 < refused[1] <= 60
            clock.now += refused[1] + 1e-6
            assert store.take_here([rate("a", most, 60)], 1) is None


def test_one_call_a_second_is_one_call_a_second() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    for _ in range(5):
        assert store.take_here([rate("a", 1)], 1) is None
        clock.now += 0.99
        _, wait = store.take_here([rate("a", 1)], 1) or (0, 0.0)
        assert wait == pytest.approx(0.01)
        clock.now += 0.01001


def test_a_flood_of_names_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_memory, "MOST_NAMES", 2000)
    clock = Clock()
    store = MemoryStore(clock)
    for number in range(10_000):
        store.take_here([rate(f"address {number}", 5, 60)], 1)
    assert len(store._windows) <= 2000


def test_names_that_count_no_more_are_forgotten() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    for number in range(1000):
        store.take_here([rate(f"old {number}", 5)], 1)
    clock.now += 5
    store.take_here([rate("new", 5)], 1)
    assert list(store._windows) == ["new"]


def test_threads_that_take_at_once_get_no_more_than_there_is() -> None:
    store, got = MemoryStore(), []

    def work() -> None:
        got.extend(store.take_here([rate("a", 100, 60)], 1) is None for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count(True) == 100


def test_places_that_nobody_holds_any_more_are_forgotten_and_none_that_is_held() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    held = Places("address", "tries", 1, "held")
    store.hold_here([held], "one", 1000.0)
    for number in range(5000):
        clock.now += 0.1
        store.hold_here([Places("address", "tries", 1, f"address {number}")], "one", 1.0)
    assert len(store._held) < 2 * limits_memory.FEW_NAMES
    assert store.hold_here([held], "another", 1.0) == 0
