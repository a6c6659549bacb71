"""Limits over Redis: shared by all processes, lost by those that die, and counted alone while Redis is away."""

import asyncio
import logging
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.auth.limit_stores import *  # noqa: F403 - the tests of every store
from tests.auth.limit_stores import Stores, places, rate
from tests.faults.servers import OwnRedis
from tests.services.caller import Caller
from tests.services.conftest import REDIS_URL, Hub
from tests.services.stack import eventually as eventually_true
from tools_app.auth import limits_redis
from tools_app.auth.limits_redis import PATIENCE_SECONDS, RedisStore

pytestmark = pytest.mark.timeout(120)

# Two looks at Redis, one after the other, with time for a busy machine.
BOUND_SECONDS = 2 * PATIENCE_SECONDS + 1.0
UNLIMITED = "calls_per_minute=None, calls_per_day=None, calls_in_flight=None, open_streams=None"


@pytest.fixture
def store(stores: Stores) -> RedisStore:
    own: RedisStore = stores(RedisStore(REDIS_URL, f"test-{uuid.uuid4().hex}"))
    return own


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    """A Redis that a test may stop."""
    server = OwnRedis(tmp_path)
    server.start()
    yield server
    server.stop()


# --- The store ------------------------------------------------------------------------------------------------


def test_what_waits_on_one_loop_goes_out_together(
    store: RedisStore, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    encode = limits_redis.msgspec.msgpack.encode
    monkeypatch.setattr(
        limits_redis.msgspec.msgpack, "encode", lambda wishes: batches.append(len(wishes)) or encode(wishes)
    )

    async def many() -> list[Any]:
        return await asyncio.gather(*(store.take([rate("together", 30, 60)], 1) for _ in range(40)))

    assert [answer is None for answer in stores.runner.run(many())] == [True] * 30 + [False] * 10
    assert len(batches) <= 2
    assert sum(batches) == 40


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
    other.let_go(["place"], "a")
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
    mine.let_go(["one"], "during")
    assert stores.held(mine, "after", one) is None
    mine.renew("one", ["after"], 30.0, again=True)
    assert time.monotonic() - began < 2 * BOUND_SECONDS
    assert [record.message for record in caplog.records if "away" in record.message] != []
    if way == "killed":
        own_redis.start()
    else:
        own_redis._process.send_signal(signal.SIGCONT)
    eventually_true(lambda: stores.taken(mine, rate("back", 10**6, 60)) is None and not mine._is_away)
    assert "Redis is back" in caplog.text


# --- The hub --------------------------------------------------------------------------------------------------


@pytest.fixture
def limit(hub: Hub) -> Iterator[Callable[..., None]]:
    """Sets limits of the tenant or of the key, and sees that every process knows them; in the end there are none."""

    def change(row: str, values: str) -> None:
        hub.stack.shell(f"from tools_app.models import *; {row}.objects.update({values})")
        # No process remembers a key for longer than this.
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
    # The worker gives the place back a moment after its record.
    eventually_true(lambda: echoed(caller, hub.urls[1]) == 200, 3)
    assert echoed(caller, hub.urls[0]) == 200


def test_streams_are_counted_in_all_processes(hub: Hub, caller: Caller, limit: Callable[..., None]) -> None:
    limit("ApiKey", "open_streams=1")
    headers = caller.headers

    def status(url: str) -> int:
        with httpx.stream("GET", url, headers=headers, timeout=10) as answer:
            return answer.status_code

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
        with httpx.stream("GET", hub.urls[0], headers=caller.headers, timeout=10) as answer:
            return answer.status_code

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
        "from tools_app.auth import keys; from tools_app.models import Tenant, ApiKey;"
        "keys.issue(Tenant.objects.get(slug='demo'), 'narrow', key='n' * 40);"
        "ApiKey.objects.filter(name='narrow').update(calls_per_day=3)"
    )
    url = f"{web.url}/mcp"
    caller = Caller("n" * 40).open(url)
    assert [echoed(caller, url) for _ in range(2)] == [200, 200]
    own_redis.stop()
    began = time.monotonic()
    # It begins to count anew by itself, and lets no more through than that.
    assert [echoed(caller, url) for _ in range(4)] == [200, 200, 200, 429]
    assert time.monotonic() - began < 4 * BOUND_SECONDS
    web.terminate()
