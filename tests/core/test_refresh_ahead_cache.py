"""The cache of rows that requests need: never older than a second, and never what was just invalidated."""

import asyncio
import gc
import threading
from collections.abc import Mapping, Sequence

import pytest
from django.db import OperationalError

from tests.clock import Clock
from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.core.telemetry.registry import metrics_registry

# A thread of the pool that reads rows may hold a connection of an earlier test, and checks it.
pytestmark = pytest.mark.django_db
WAIT_SECONDS = 30.0


class Store:
    """A table whose queries return when a test releases them."""

    def __init__(self) -> None:
        self.row = "old"
        self.reads = 0
        self.started = threading.Event()
        self.released = threading.Event()

    def load(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.reads += 1
        read = dict.fromkeys(keys, self.row)
        self.started.set()
        assert self.released.wait(WAIT_SECONDS)
        return read


@pytest.mark.parametrize("forget_all", [False, True])
def test_what_was_forgotten_while_it_was_read_is_read_anew(forget_all: bool) -> None:
    async def scenario() -> tuple[str | None, str | None]:
        store = Store()
        cache = RefreshAheadCache(store.load)
        early = asyncio.create_task(cache.get("key"))
        assert await asyncio.to_thread(store.started.wait, WAIT_SECONDS)
        store.row = "new"
        cache.forget_all() if forget_all else cache.forget("key")
        store.released.set()
        return await early, await cache.get("key")

    assert asyncio.run(scenario()) == ("old", "new")


def test_what_is_in_memory_is_not_read_again(clock: Clock) -> None:
    async def scenario() -> int:
        store = Store()
        store.released.set()
        cache = RefreshAheadCache(store.load)
        assert [await cache.get("key") for _ in range(3)] == ["old"] * 3
        return store.reads

    assert asyncio.run(scenario()) == 1


def test_for_a_store_that_hangs_nobody_waits_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.core.refresh_ahead_cache.HANGS_AFTER", 0.0)
    started, released, queries = threading.Event(), threading.Event(), []

    def load(keys: Sequence[str]) -> dict[str, str]:
        queries.append(list(keys))
        started.set()
        assert released.wait(WAIT_SECONDS)
        raise OperationalError("the database does not answer")

    async def scenario() -> list[object]:
        cache: RefreshAheadCache[str, str] = RefreshAheadCache(load)
        early = asyncio.create_task(cache.get("early"))
        assert await asyncio.to_thread(started.wait, WAIT_SECONDS)
        late = asyncio.create_task(cache.get("late"))
        await asyncio.sleep(0)
        released.set()
        return await asyncio.gather(early, late, return_exceptions=True)

    assert [type(problem) for problem in asyncio.run(scenario())] == [OperationalError, OperationalError]
    assert queries == [["early"]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    # From zero, ages are exact.
    clock = Clock(0.0)
    monkeypatch.setattr("tools_app.core.refresh_ahead_cache.monotonic", clock)
    return clock


@pytest.fixture
def store() -> Store:
    """A table whose queries return at once."""
    store = Store()
    store.released.set()
    return store


@pytest.mark.parametrize(("age", "found"), [(0.5, "old"), (0.89, "old"), (0.9, "new"), (5.0, "new")])
def test_a_row_that_is_nearly_a_second_old_is_read_again_before_it_is_used(
    clock: Clock, store: Store, age: float, found: str
) -> None:
    async def scenario() -> str | None:
        cache = RefreshAheadCache(store.load)
        await cache.get("key")
        store.row = "new"
        clock.now += age
        return await cache.get("key")

    assert asyncio.run(scenario()) == found


async def background_ends() -> None:
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))


@pytest.mark.parametrize(("age", "found"), [(0.3, "old"), (0.5, "new")])
def test_a_row_in_use_is_read_again_in_the_background(clock: Clock, store: Store, age: float, found: str) -> None:
    async def scenario() -> str | None:
        cache = RefreshAheadCache(store.load)
        await cache.get("key")
        store.row = "new"
        clock.now += age
        assert await cache.get("key") == "old"
        await background_ends()
        return await cache.get("key")

    assert asyncio.run(scenario()) == found


@pytest.mark.parametrize(("forget_all", "other"), [(False, "old"), (True, "new")])
def test_a_row_that_was_forgotten_is_read_again(clock: Clock, store: Store, forget_all: bool, other: str) -> None:
    async def scenario() -> list[str | None]:
        cache = RefreshAheadCache(store.load)
        await cache.renew(["key", "other"])
        store.row = "new"
        cache.forget_all() if forget_all else cache.forget("key")
        return [await cache.get("key"), await cache.get("other")]

    assert asyncio.run(scenario()) == ["new", other]


def test_a_background_read_that_failed_is_no_error_that_nobody_handled(clock: Clock) -> None:
    answers, unhandled = [{"key": "old"}], []

    async def scenario() -> str | None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
        cache: RefreshAheadCache[str, str] = RefreshAheadCache(lambda _keys: answers.pop())
        await cache.get("key")
        clock.now += 0.5
        found = await cache.get("key")
        await background_ends()
        del cache
        gc.collect()
        return found

    assert asyncio.run(scenario()) == "old"
    assert not unhandled


def test_who_asks_for_a_row_as_it_is_now_does_not_get_an_earlier_one(clock: Clock, store: Store) -> None:
    async def scenario() -> list[str | None]:
        cache = RefreshAheadCache(store.load)
        await cache.get("key")
        store.row = "new"
        return [await cache.get("key"), await cache.fresh("key"), await cache.get("key")]

    assert asyncio.run(scenario()) == ["old", "new", "new"]


def test_several_rows_are_renewed_by_one_query_and_waited_for(clock: Clock, store: Store) -> None:
    async def scenario() -> list[str | None]:
        cache = RefreshAheadCache(store.load)
        await cache.renew(["one", "two"])
        assert store.reads == 1
        return [await cache.get("one"), await cache.get("two")]

    assert asyncio.run(scenario()) == ["old", "old"]
    assert store.reads == 1


def test_a_query_that_failed_is_asked_again_by_the_next_request() -> None:
    answers: list[dict[str, str] | Exception] = [OperationalError("gone"), {"key": "row"}]

    def load(keys: Sequence[str]) -> dict[str, str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario() -> str | None:
        cache: RefreshAheadCache[str, str] = RefreshAheadCache(load)
        with pytest.raises(OperationalError):
            await cache.get("key")
        return await cache.get("key")

    assert asyncio.run(scenario()) == "row"


def test_no_more_rows_are_kept_than_the_bound_and_the_newest_stay(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, store: Store
) -> None:
    monkeypatch.setattr("tools_app.core.refresh_ahead_cache.MAX_ENTRIES", 2)

    async def scenario() -> int:
        cache = RefreshAheadCache(store.load)
        for key in ("one", "two", "three", "three", "two"):
            await cache.get(key)
        reads_before = store.reads
        await cache.get("one")
        return reads_before

    assert asyncio.run(scenario()) == 3
    assert store.reads == 4


def test_an_unknown_key_is_looked_for_though_the_timer_of_those_before_it_fired_early() -> None:
    async def scenario() -> tuple[str | None, str | None]:
        store = Store()
        store.released.set()
        cache = RefreshAheadCache(store.load, gather_seconds=30.0)
        first = await cache.get("first")
        cache._load_what_is_gathered(asyncio.get_running_loop())
        async with asyncio.timeout(WAIT_SECONDS):
            return first, await cache.get("second")

    assert asyncio.run(scenario()) == ("old", "old")


def test_unknown_keys_that_are_gathered_are_looked_for_after_a_moment(store: Store) -> None:
    async def scenario() -> list[str | None]:
        cache = RefreshAheadCache(store.load, gather_seconds=0.01)
        async with asyncio.timeout(WAIT_SECONDS):
            found = await asyncio.gather(*(cache.get(key) for key in ("first", "second", "third")))
            found.append(await cache.get("fourth"))
            store.row = "new"
            cache.forget("second")
            return [*found, await cache.get("second")]

    assert asyncio.run(scenario()) == ["old", "old", "old", "old", "new"]


def test_a_request_that_has_to_wait_for_the_database_is_counted(
    clock: Clock, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[object, ...]] = []
    monkeypatch.setattr(metrics_registry, "add", lambda *measured: counted.append(measured))

    async def scenario() -> None:
        cache = RefreshAheadCache(store.load)
        for key in ("one", "one", "two"):
            await cache.get(key)

    asyncio.run(scenario())
    assert counted == [("mcphub_cache_misses_total", 1, ("test_refresh_ahead_cache",))] * 2


def test_a_query_that_fails_at_once_fails_nobody_else(clock: Clock) -> None:
    clock.now = 8.0
    started, released, queries = threading.Event(), threading.Event(), []

    def load(keys: Sequence[str]) -> dict[str, str]:
        queries.append(list(keys))
        if keys == ["late"]:
            return {"late": "row"}
        started.set()
        assert released.wait(WAIT_SECONDS)
        raise OperationalError("the query is wrong")

    async def scenario() -> list[object]:
        cache: RefreshAheadCache[str, str] = RefreshAheadCache(load)
        early = asyncio.create_task(cache.get("early"))
        assert await asyncio.to_thread(started.wait, WAIT_SECONDS)
        late = asyncio.create_task(cache.get("late"))
        await asyncio.sleep(0)
        released.set()
        return await asyncio.gather(early, late, return_exceptions=True)

    problem, found = asyncio.run(scenario())
    assert (type(problem), found) == (OperationalError, "row")
    assert queries == [["early"], ["late"]]


# --- Keys without a row -----------------------------------------------------------------------------------------------


class Rows:
    """Rows that tests add, and the keys of each query."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.queries: list[list[str]] = []

    def load(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.queries.append(sorted(keys))
        return {key: self.rows[key] for key in keys if key in self.rows}


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.mark.parametrize(("age", "found"), [(0.0, None), (0.89, None), (0.9, "row"), (5.0, "row")])
def test_a_row_that_was_not_there_is_found_within_a_second(
    clock: Clock, rows: Rows, age: float, found: str | None
) -> None:
    # A power of two, from which ages are exact enough, and not zero.
    clock.now = 8.0

    async def scenario() -> str | None:
        cache = RefreshAheadCache(rows.load)
        assert await cache.get("key") is None
        rows.rows["key"] = "row"
        clock.now += age
        assert cache.is_absent("key") is (found is None)
        return await cache.get("key")

    assert asyncio.run(scenario()) == found
    assert rows.queries == [["key"]] * (1 if found is None else 2)


def test_a_row_that_comes_or_goes_is_known_to_be_there_or_not_from_then_on(clock: Clock, rows: Rows) -> None:
    async def scenario() -> None:
        cache = RefreshAheadCache(rows.load)
        assert await cache.get("key") is None
        rows.rows["key"] = "row"
        assert await cache.fresh("key") == "row"
        assert (cache.has_row("key"), cache.is_absent("key")) == (True, False)
        del rows.rows["key"]
        assert await cache.fresh("key") is None
        assert (cache.has_row("key"), cache.is_absent("key")) == (False, True)
        assert await cache.get("key") is None

    asyncio.run(scenario())


@pytest.mark.parametrize("forget_all", [False, True])
def test_that_there_was_no_row_is_forgotten_too(clock: Clock, rows: Rows, forget_all: bool) -> None:
    async def scenario() -> str | None:
        cache = RefreshAheadCache(rows.load)
        assert await cache.get("key") is None
        rows.rows["key"] = "row"
        cache.forget_all() if forget_all else cache.forget("key")
        return await cache.get("key")

    assert asyncio.run(scenario()) == "row"


def test_no_more_keys_without_a_row_are_remembered_than_the_bound(
    clock: Clock, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools_app.core.refresh_ahead_cache.MAX_ABSENT", 2)

    async def scenario() -> list[bool]:
        cache = RefreshAheadCache(rows.load)
        for key in ("one", "two", "three"):
            assert await cache.get(key) is None
        return [cache.is_absent(key) for key in ("one", "two", "three")]

    assert asyncio.run(scenario()) == [False, True, True]


def test_who_ask_for_one_row_at_once_share_a_query(rows: Rows) -> None:
    rows.rows["key"] = "row"

    async def scenario() -> list[str | None]:
        cache = RefreshAheadCache(rows.load)
        return await asyncio.gather(*(cache.get("key") for _ in range(20)))

    assert asyncio.run(scenario()) == ["row"] * 20
    assert rows.queries == [["key"]]


def test_unknown_keys_that_follow_one_another_share_a_query_and_known_ones_do_not_wait(
    clock: Clock, rows: Rows
) -> None:
    rows.rows["known"] = "row"

    async def scenario() -> None:
        cache = RefreshAheadCache(rows.load, gather_seconds=30.0)
        assert await cache.get("known") == "row"
        clock.now += 2.0
        waiting = [asyncio.create_task(cache.get(key)) for key in ("one", "two", "one", "two")]
        async with asyncio.timeout(WAIT_SECONDS):
            assert await cache.get("known") == "row"
        assert not any(task.done() for task in waiting)
        cache._load_what_is_gathered(asyncio.get_running_loop())
        async with asyncio.timeout(WAIT_SECONDS):
            assert await asyncio.gather(*waiting) == [None] * 4
        # The next ones are gathered, too.
        waiting = [asyncio.create_task(cache.get("three"))]
        clock.now += 2.0
        async with asyncio.timeout(WAIT_SECONDS):
            assert await cache.get("known") == "row"
        assert not waiting[0].done()
        cache._load_what_is_gathered(asyncio.get_running_loop())
        async with asyncio.timeout(WAIT_SECONDS):
            assert await waiting[0] is None

    asyncio.run(scenario())
    assert rows.queries == [["known"], ["known"], ["one", "two"], ["known"], ["three"]]


def test_rows_take_no_more_memory_than_the_bound(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools_app.core.refresh_ahead_cache.MAX_BYTES", 1000)
    rows.rows = {"small": "x", "large": "x" * 600}

    async def scenario() -> list[bool]:
        cache = RefreshAheadCache(rows.load, len)
        for key in ("small", "large"):
            await cache.get(key)
        return [cache.has_row(key) for key in ("small", "large")]

    # Each key takes 256 bytes beside its row.
    assert asyncio.run(scenario()) == [False, True]
