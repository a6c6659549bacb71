"""Caches with a bound in bytes."""

import asyncio
from collections.abc import Sequence

import pytest

from tools_app.core import refresh_ahead_cache
from tools_app.core.bounded_cache import MAX_NAME, BoundedCache, cached_for_short_names
from tools_app.core.refresh_ahead_cache import RefreshAheadCache


def test_the_oldest_gives_way_where_there_are_too_many_bytes_or_entries() -> None:
    cache: BoundedCache[str, str] = BoundedCache(3, 100)
    for name in "abc":
        cache.put(name, name, 10)
    cache.put("d", "d", 10)
    assert [cache.get(name) for name in "abcd"] == [None, "b", "c", "d"]
    cache.put("e", "e", 90)
    assert [cache.get(name) for name in "bcde"] == [None, None, "d", "e"]
    assert (cache.size, len(cache)) == (100, 2)


def test_what_is_larger_than_the_whole_cache_pushes_nothing_out() -> None:
    cache: BoundedCache[str, str] = BoundedCache(3, 100)
    cache.put("a", "a", 10)
    cache.put("b", "b", 101)
    assert (cache.get("a"), cache.get("b"), cache.size) == ("a", None, 10)


def test_a_value_that_is_put_again_counts_once_and_one_that_is_forgotten_not_at_all() -> None:
    cache: BoundedCache[str, str] = BoundedCache(3, 100)
    for size in (10, 20):
        cache.put("a", "a", size)
    assert cache.size == 20
    assert (cache.pop("a"), cache.pop("a"), cache.size) == ("a", None, 0)


def test_long_names_are_not_remembered() -> None:
    computed: list[str] = []

    @cached_for_short_names(maxsize=10)
    def length(name: str) -> int:
        computed.append(name)
        return len(name)

    for name in ("a" * MAX_NAME, "a" * (MAX_NAME + 1)) * 2:
        assert length(name) == len(name)
    assert [len(name) for name in computed] == [MAX_NAME, MAX_NAME + 1, MAX_NAME + 1]


@pytest.mark.django_db(transaction=True)
def test_rows_in_memory_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh_ahead_cache, "MAX_BYTES", 10 * (1000 + refresh_ahead_cache.KEY_BYTES))
    loaded: list[str] = []

    def load(keys: Sequence[str]) -> dict[str, str]:
        loaded.extend(keys)
        return dict.fromkeys(keys, "x" * 1000)

    async def fill() -> None:
        rows = RefreshAheadCache(load, len)
        for number in range(30):
            await rows.get(str(number))
        assert len(rows._entries) == 10
        before = len(loaded)
        await rows.get("29")
        assert len(loaded) == before

    asyncio.run(fill())
