"""Limits in Redis: shared by all processes, released when a process dies, and local while Redis is down."""

import asyncio
import gc
import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.clock import Clock
from tests.faults.servers import OwnRedis
from tests.services.caller import Caller
from tests.services.conftest import REDIS_URL, Hub, started
from tests.services.stack import Stack
from tests.services.stack import eventually as eventually_true
from tests.tenants.limit_stores import *  # noqa: F403 - the tests of every store
from tests.tenants.limit_stores import LEASE, SHORT, Outlast, Stores, places, rate
from tools_app.core import circuit_breaker
from tools_app.tenants.limits import limits
from tools_app.tenants.limits import redis as limits_redis
from tools_app.tenants.limits.memory import MemoryStore
from tools_app.tenants.limits.redis import TIMEOUT_SECONDS, RedisStore

# Two checks of Redis, with time for a busy machine.
BOUND_SECONDS = 2 * TIMEOUT_SECONDS + 1.0
UNLIMITED = "calls_per_minute=None, calls_per_day=None, calls_in_flight=None, open_streams=None"


@pytest.fixture
def store(stores: Stores) -> Iterator[RedisStore]:
    redis_store: RedisStore = stores(RedisStore(REDIS_URL, f"test-{uuid.uuid4().hex}"))
    yield redis_store
    # Otherwise this process has counted locally.
    assert not redis_store.circuit.is_open


@pytest.fixture
def outlast(store: RedisStore, stores: Stores) -> Outlast:
    def outlast() -> None:
        later = places("later than what the test holds", 1)
        assert stores.held(store, "this", later, seconds=SHORT) is None
        eventually_true(lambda: stores.held(store, "next", later) is None)

    return outlast


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    """A separate Redis that a test can stop."""
    server = OwnRedis(tmp_path)
    server.start()
    yield server
    server.stop()


# --- The store ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_batch", "rounds"), [(limits_redis.MAX_BATCH, 2), (7, 7)])
def test_what_waits_on_one_loop_goes_out_together(
    store: RedisStore, stores: Stores, monkeypatch: pytest.MonkeyPatch, max_batch: int, rounds: int
) -> None:
    batches: list[int] = []
    encode = limits_redis.msgspec.msgpack.encode
    monkeypatch.setattr(limits_redis, "MAX_BATCH", max_batch)
    monkeypatch.setattr(
        limits_redis.msgspec.msgpack, "encode", lambda wishes: batches.append(len(wishes)) or encode(wishes)
    )

    async def many() -> list[Any]:
        async with asyncio.timeout(10):
            return await asyncio.gather(*(store.take([rate("together", 30, 60)], 1) for _ in range(40)))

    assert [result is None for result in stores.runner.run(many())] == [True] * 30 + [False] * 10
    assert len(batches) <= rounds
    assert max(batches) <= max_batch
    assert sum(batches) == 40


def test_a_connection_that_redis_has_closed_is_opened_again(stores: Stores, own_redis: OwnRedis) -> None:
    mine = stores(RedisStore(own_redis.url, "closed"))
    for acquire in (
        lambda: stores.taken(mine, rate("one", 9, 60)),
        lambda: mine.take_blocking([rate("one", 9, 60)], 1),
    ):
        assert acquire() is None
        own_redis.client.client_kill_filter(_type="normal", skipme=True)
        assert acquire() is None
    assert not mine.circuit.is_open
    assert sum(count for *_, count in stored_hits(own_redis, "closed:limits:one")) == 4


def test_a_connection_that_breaks_while_a_thread_uses_it_is_tried_once_more(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.take_blocking([rate("one", 9, 60)], 1) is None
    read, broken = redis.Connection.read_response, [redis.ConnectionError("closed")]

    def once_broken(connection: Any, *args: Any, **options: Any) -> Any:
        if broken:
            raise broken.pop()
        return read(connection, *args, **options)

    monkeypatch.setattr(redis.Connection, "read_response", once_broken)
    assert store.take_blocking([rate("one", 9, 60)], 1) is None
    assert not broken
    assert not store.circuit.is_open


def test_two_stores_count_the_same(store: RedisStore, stores: Stores) -> None:
    other = stores(RedisStore(REDIS_URL, store._prefix.removesuffix(":limits:")))
    assert [stores.taken(one, rate("rate", 3, 60)) is None for one in (store, other, store, other)] == [
        True,
        True,
        True,
        False,
    ]
    assert stores.held(store, "a", places("place", 1)) is None
    assert stores.held(other, "b", places("place", 1)) == 0
    other.release(["place"], "a")
    assert stores.held(other, "b", places("place", 1)) is None


def test_what_counts_no_more_is_gone_from_redis(stores: Stores, own_redis: OwnRedis) -> None:
    mine = stores(RedisStore(own_redis.url, "gone"))
    assert stores.taken(mine, rate("short", 1)) is None
    assert stores.held(mine, "a", places("short-lived", 1), seconds=0.2) is None
    eventually_true(lambda: own_redis.client.dbsize() == 0)


def test_a_clock_of_redis_that_was_set_back_locks_nobody_out(stores: Stores, own_redis: OwnRedis) -> None:
    mine = stores(RedisStore(own_redis.url, "clock"))
    in_an_hour = (time.time() + 3600) * 1000
    grains = [[in_an_hour, in_an_hour, 5]]
    own_redis.client.set("clock:limits:narrow", limits_redis.msgspec.msgpack.encode(grains))
    own_redis.client.zadd("clock:limits:one", {"dead": in_an_hour})
    assert stores.taken(mine, rate("narrow", 1, 60)) is None
    assert stores.taken(mine, rate("narrow", 1, 60)) is not None
    assert stores.held(mine, "alive", places("one", 1)) is None


def stored_hits(server: OwnRedis, name: str) -> list[list[float]]:
    """The hits of a rate, oldest first: when the first and the last of a few were counted, and how many they are."""
    hits: list[list[float]] = limits_redis.msgspec.msgpack.decode(server.client.get(name) or b"\x90")
    return hits


def store_hits(server: OwnRedis, name: str, *hits: tuple[float, float, int]) -> None:
    """Store hits in the form that `kept` reads, this many seconds ago."""
    now = time.time() * 1000
    packed = [[int(now - first * 1000), int(now - last * 1000), count] for first, last, count in hits]
    server.client.set(name, limits_redis.msgspec.msgpack.encode(packed))


def test_several_wait_until_there_is_room_for_all_of_them(stores: Stores, own_redis: OwnRedis) -> None:
    mine = stores(RedisStore(own_redis.url, "wait"))
    store_hits(own_redis, "wait:limits:five", (30, 30, 2), (29, 15, 2), (5, 5, 1))
    for count, seconds in ((1, 30), (2, 30), (3, 45), (4, 45), (5, 55), (6, 60)):
        which, wait = stores.taken(mine, rate("five", 5, 60), count=count)
        assert which == 0
        # The machine may be busy.
        assert seconds - 9 < wait <= seconds, count


def test_hits_that_come_close_together_are_kept_as_one_until_the_first_is_a_while_ago(
    stores: Stores, own_redis: OwnRedis
) -> None:
    mine = stores(RedisStore(own_redis.url, "close"))
    store_hits(own_redis, "close:limits:hourly", (100, 100, 1))
    (first,) = stored_hits(own_redis, "close:limits:hourly")
    assert stores.taken(mine, rate("hourly", 9, 3600), count=2) is None
    (together,) = stored_hits(own_redis, "close:limits:hourly")
    assert (together[0], together[2]) == (first[0], 3)
    assert 90_000 < together[1] - first[1] < 130_000
    # A twentieth of an hour.
    store_hits(own_redis, "close:limits:hourly", (181, 100, 3))
    assert stores.taken(mine, rate("hourly", 9, 3600)) is None
    assert [count for *_, count in stored_hits(own_redis, "close:limits:hourly")] == [3, 1]


def test_hits_that_count_no_more_are_kept_no_longer(stores: Stores, own_redis: OwnRedis) -> None:
    mine = stores(RedisStore(own_redis.url, "old"))
    store_hits(own_redis, "old:limits:hourly", (3700, 3601, 5), (3700, 3500, 3))
    assert stores.taken(mine, rate("hourly", 9, 3600)) is None
    assert [count for *_, count in stored_hits(own_redis, "old:limits:hourly")] == [3, 1]


def test_threads_and_event_loops_hold_the_same_places(store: RedisStore, stores: Stores) -> None:
    wide, one = places("wide", 9), places("one", 1)

    async def leave() -> None:
        store.release_soon(["wide", "one"], "a")

    assert store.acquire_blocking([wide, one], "a", LEASE) is None
    assert stores.held(store, "b", one) == 0
    assert store.acquire_blocking([wide, one], "b", LEASE) == 1
    stores.runner.run(leave())
    assert stores.held(store, "b", wide, one) is None
    assert store.acquire_blocking([wide, one], "a", LEASE) == 1


def test_who_gives_up_waiting_keeps_no_answer_from_the_others(store: RedisStore, stores: Stores) -> None:
    async def scenario() -> Any:
        given_up, other = (asyncio.create_task(store.take([rate("one", 1, 60)], 1)) for _ in range(2))
        await asyncio.sleep(0)
        given_up.cancel()
        async with asyncio.timeout(10):
            return await other

    assert stores.runner.run(scenario()) is not None


@pytest.fixture
def away(stores: Stores) -> Iterator[RedisStore]:
    """A store whose Redis is down."""
    redis_store: RedisStore = stores(RedisStore("redis://127.0.0.1:1/0", "away"))
    yield redis_store
    redis_store.circuit.close()


def test_while_redis_is_away_a_place_is_renewed_and_let_go_where_it_is_held(away: RedisStore, stores: Stores) -> None:
    clock = Clock()
    away._local = MemoryStore(clock)
    wide, one = places("wide", 9), places("one", 1)

    async def leave() -> None:
        away.release_soon(["one"], "a")

    assert away.acquire_blocking([wide, one], "a", 10.0) is None
    assert away.acquire_blocking([wide, one], "b", 10.0) == 1
    clock.now += 9
    away.renew("one", ["a"], 10.0, again=True)
    clock.now += 9
    assert stores.held(away, "b", one) == 0
    stores.runner.run(leave())
    assert stores.held(away, "b", one) is None
    # What was acquired before is known to Redis only.
    away.renew("another", ["a"], 10.0, again=True)
    assert away.acquire_blocking([places("another", 1)], "b", 10.0) is None


def test_while_redis_is_away_threads_and_event_loops_count_together_in_this_process(
    away: RedisStore, stores: Stores
) -> None:
    wide, narrow = rate("wide", 100, 60), rate("narrow", 3, 60)
    assert away.take_blocking([wide, narrow], 2) is None
    assert stores.taken(away, narrow) is None
    for which, wait in (away.take_blocking([wide, narrow], 1), stores.taken(away, wide, narrow)):
        assert which == 1
        assert 50 < wait <= 60


@pytest.mark.parametrize("request_of", ["take", "take_blocking", "acquire", "acquire_blocking", "release", "renew"])
def test_whoever_finds_redis_away_spares_the_others_the_wait(
    away: RedisStore, stores: Stores, caplog: pytest.LogCaptureFixture, request_of: str
) -> None:
    requests: dict[str, Callable[[], object]] = {
        "take": lambda: stores.taken(away, rate("one", 1)),
        "take_blocking": lambda: away.take_blocking([rate("one", 1)], 1),
        "acquire": lambda: stores.held(away, "a", places("one", 1)),
        "acquire_blocking": lambda: away.acquire_blocking([places("one", 1)], "a", LEASE),
        "release": lambda: away.release(["one"], "a"),
        "renew": lambda: away.renew("one", ["a"], LEASE, again=True),
    }
    requests[request_of]()
    assert away.circuit.is_open
    assert "limits are counted by each process alone" in caplog.text


def test_while_redis_is_known_to_be_away_no_thread_asks_it(away: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    away.release(["one"], "a")
    assert away.circuit.is_open
    threads: list[threading.Thread] = []

    def script(**_options: Any) -> None:
        threads.append(threading.current_thread())
        raise redis.ConnectionError("away")

    monkeypatch.setattr(away, "_script", script)
    away.take_blocking([rate("one", 1)], 1)
    away.acquire_blocking([places("one", 1)], "a", LEASE)
    away.renew("one", ["a"], LEASE, again=True)
    away.release(["one"], "a")
    assert threading.current_thread() not in threads


def test_redis_is_asked_whether_it_is_back(
    away: RedisStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "PROBE_SECONDS", 0.01)
    caplog.set_level(logging.DEBUG)
    away.release(["one"], "a")
    eventually_true(lambda: "Redis is still unavailable" in caplog.text)
    assert away.circuit.is_open


def test_a_place_that_is_let_go_while_redis_is_away_is_no_error_that_nobody_handled(
    away: RedisStore, stores: Stores
) -> None:
    unhandled: list[Any] = []

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
        away.release_soon(["one"], "a")
        sending = away._post()._batches._task
        assert sending is not None
        async with asyncio.timeout(10):
            await sending
        gc.collect()

    stores.runner.run(leave())
    assert not unhandled


@pytest.mark.parametrize("way", ["killed", "frozen"])
def test_while_redis_is_away_each_process_counts_alone_and_nobody_waits_for_long(
    stores: Stores, own_redis: OwnRedis, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    caplog.set_level(logging.WARNING)
    mine = stores(RedisStore(own_redis.url, "away"))
    narrow, one = rate("narrow", 2, 60), places("one", 1)
    assert stores.taken(mine, narrow) is None
    assert stores.held(mine, "before", one) is None
    assert own_redis._process is not None
    if way == "killed":
        own_redis.stop()
    else:
        own_redis._process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    assert [stores.taken(mine, narrow) is None for _ in range(3)] == [True, True, False]
    assert stores.held(mine, "during", one) is None
    assert stores.held(mine, "too many", one) == 0
    mine.release(["one"], "during")
    assert stores.held(mine, "after", one) is None
    mine.renew("one", ["after"], 30.0, again=True)
    assert time.monotonic() - began < 2 * BOUND_SECONDS
    assert [record.message for record in caplog.records if "Redis is unavailable" in record.message] != []
    if way == "killed":
        own_redis.start()
    else:
        own_redis._process.send_signal(signal.SIGCONT)
    eventually_true(lambda: stores.taken(mine, rate("back", 10**6, 60)) is None and not mine.circuit.is_open)
    assert "Redis is available again" in caplog.text


# --- The hub --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(stack: Stack) -> Hub:
    """A hub of its own, where the calls of other tests are not counted."""
    return started(stack)


@pytest.fixture
def limit(hub: Hub) -> Iterator[Callable[..., None]]:
    """Set limits of the tenant or the key, and wait until every process knows them; remove them at the end."""

    def change(row: str, values: str) -> None:
        hub.stack.shell(f"from tools_app.models import *; {row}.objects.update({values})")
        # No process caches a key for longer than this.
        time.sleep(1.1)

    yield change
    change("Tenant", UNLIMITED)
    change("ApiKey", UNLIMITED.replace("calls_in_flight=None, ", ""))


def echoed(caller: Caller, url: str) -> int:
    return caller.call(url, "echo", {"message": "x"}).status_code


def test_a_rate_is_one_for_all_processes(hub: Hub, caller: Caller, limit: Callable[..., None]) -> None:
    limit("Tenant", "calls_per_day=4")
    assert [echoed(caller, url) for url in hub.urls * 3] == [200, 200, 200, 200, 429, 429]


def test_calls_at_once_are_counted_in_all_processes_until_they_end_in_a_worker(
    hub: Hub, caller: Caller, limit: Callable[..., None]
) -> None:
    limit("Tenant", "calls_in_flight=1")
    counting = caller.counting(hub.urls[0], 25, 1)
    eventually_true(lambda: counting.seen)
    assert [echoed(caller, url) for url in hub.urls] == [429, 429]
    counting.finished()
    # The worker releases the place a moment after recording.
    eventually_true(lambda: echoed(caller, hub.urls[1]) == 200, 3)
    assert echoed(caller, hub.urls[0]) == 200


def test_streams_are_counted_in_all_processes(hub: Hub, caller: Caller, limit: Callable[..., None]) -> None:
    limit("ApiKey", "open_streams=1")
    headers = caller.headers

    def status(url: str) -> int:
        with httpx.stream("GET", url, headers=headers, timeout=10) as response:
            return response.status_code

    with ExitStack() as stack:
        first = stack.enter_context(httpx.stream("GET", hub.urls[0], headers=headers, timeout=10))
        assert first.status_code == 200
        assert [status(url) for url in hub.urls] == [429, 429]
    eventually_true(lambda: status(hub.urls[1]) == 200)


def test_what_a_dead_process_held_is_free_after_a_while(hub: Hub, caller: Caller, limit: Callable[..., None]) -> None:
    limit("ApiKey", "open_streams=1")
    stream = caller.listening(hub.urls[1])
    assert stream.opened.wait(10)
    hub.webs[1].kill()

    def status() -> int:
        with httpx.stream("GET", hub.urls[0], headers=caller.headers, timeout=10) as response:
            return response.status_code

    assert status() == 429
    eventually_true(lambda: status() == 200)
    hub.restart_web(1)


def test_a_hub_whose_redis_dies_goes_on_and_limits_by_process(hub: Hub, own_redis: OwnRedis) -> None:
    hub.stack.environment, shared = {**hub.stack.environment, "REDIS_URL": own_redis.url}, hub.stack.environment
    try:
        web = hub.stack.web("uvicorn")
    finally:
        hub.stack.environment = shared
    hub.stack.shell(
        "from tools_app.tenants import keys; from tools_app.models import Tenant, ApiKey;"
        "keys.issue(Tenant.objects.get(slug='demo'), 'narrow', key='n' * 40);"
        "ApiKey.objects.filter(name='narrow').update(calls_per_day=3)"
    )
    url = f"{web.url}/mcp"
    caller = Caller("n" * 40).open(url)
    assert [echoed(caller, url) for _ in range(2)] == [200, 200]
    own_redis.stop()
    began = time.monotonic()
    # It starts counting locally, with the same limit.
    assert [echoed(caller, url) for _ in range(4)] == [200, 200, 200, 429]
    assert time.monotonic() - began < 4 * BOUND_SECONDS
    web.terminate()


def test_it_is_counted_in_redis_where_there_is_one_and_in_memory_where_not(settings: Any) -> None:
    settings.REDIS_URL = ""
    limits.forget_all()
    assert isinstance(limits._store(), MemoryStore)
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    limits.forget_all()
    assert isinstance(limits._store(), RedisStore)
    limits.forget_all()


def test_a_loop_that_ends_leaves_no_connection_to_redis(own_redis: OwnRedis, settings: Any) -> None:
    settings.REDIS_URL = own_redis.url
    limits.forget_all()

    client = own_redis.client

    def connections() -> set[str]:
        return {connection["id"] for connection in client.client_list()}

    async def scenario() -> None:
        # Those of earlier clients may end at any time.
        before = connections()
        try:
            async with asyncio.timeout(BOUND_SECONDS * 4):
                while not connections() - before:  # A busy Redis may be too late for the first.
                    assert await limits.take([rate("one", 1000)]) is None
        finally:
            await limits.close()
        eventually_true(lambda: not connections() - before)

    try:
        asyncio.run(scenario())
    finally:
        limits.forget_all()
