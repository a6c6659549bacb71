"""The broker hangs, refuses and comes back, and the database takes no write: only what needs the part fails."""

import os
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from django.conf import settings
from kombu import Connection

from tests.faults.hub import PROCESS_TIMEOUT, Hub
from tests.faults.ledger import check
from tests.faults.load import Asked, Load, loading
from tests.faults.proxy import Proxy
from tests.services.stack import THREADS, Running, eventually

AMQP_URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672//")
AWAY_SECONDS = 5.0
# What nobody may wait longer for who does not need the broker, on a busy machine.
NOTICEABLE_SECONDS = 2.0
# Of a background call: two seconds until the broker is given up, and two records.
REFUSED_SECONDS = 5.0
SETTLED_SECONDS = 2 * PROCESS_TIMEOUT + 8.0
ANSWERED_SECONDS = AWAY_SECONDS + SETTLED_SECONDS
BACKGROUND = "toil"


def assert_only_background_calls_failed(asked: list[Asked]) -> None:
    """Nobody else failed or waited, and those that failed were told what was away, soon."""
    inline = [one for one in asked if one.tool != BACKGROUND]
    assert {one.how for one in inline} == {"result"}
    assert max(one.seconds for one in inline) < NOTICEABLE_SECONDS
    refused = [one for one in asked if one.how == "refused"]
    assert {one.tool for one in refused} == {BACKGROUND}
    assert all("The broker is unavailable" in one.detail[2] for one in refused)
    assert max(one.seconds for one in refused) < REFUSED_SECONDS


def while_away(load: Load, leave: Callable[[], None], come_back: Callable[[], None]) -> list[Asked]:
    """The calls that were made while a part was away for AWAY_SECONDS, once all tools give results again."""
    load.goes_on()
    began = time.monotonic()
    leave()
    try:
        time.sleep(AWAY_SECONDS)
    finally:
        ended = time.monotonic()
        come_back()
    load.goes_on()
    return [one for one in load.asked if began < one.began < ended]


def test_a_redis_that_hangs_fails_background_calls_only(hub: Hub) -> None:
    with loading(hub.urls, hub.stack.key, bound=ANSWERED_SECONDS) as load:
        assert_only_background_calls_failed(while_away(load, hub.redis.freeze, hub.redis.thaw))
    check(hub.stack, load, settled_within=SETTLED_SECONDS)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A way to RabbitMQ that a test may close."""
    place = urlsplit(AMQP_URL)
    made = Proxy(place.hostname or "127.0.0.1", place.port or 5672)
    made.start()
    yield made
    made.go_on()
    made.refuse()


@pytest.fixture
def over_rabbitmq(hub: Hub, proxy: Proxy) -> Iterator[Running]:
    """A web process and a worker whose broker is RabbitMQ, over the proxy."""
    place = urlsplit(AMQP_URL)
    broker = place._replace(netloc=f"{place.username}:{place.password}@127.0.0.1:{proxy.listening}").geturl()
    own = {"CELERY_BROKER_URL": broker, "MCPHUB_PREFIX": f"test-{os.getpid()}"}
    hub.stack.environment, shared = hub.stack.environment | own, hub.stack.environment
    try:
        worker, web = hub.stack.worker(*THREADS), hub.stack.web("uvicorn")
    finally:
        hub.stack.environment = shared
    yield web
    web.kill()
    worker.kill()
    _forget_queues(own["MCPHUB_PREFIX"])


def _forget_queues(base: str) -> None:
    with Connection(AMQP_URL) as link:
        for name in (base, *(f"{base}.{shard}" for shard in range(settings.MCPHUB_QUEUE_SHARDS))):
            link.channel().queue_delete(name)


def test_a_rabbitmq_that_refuses_or_hangs_fails_background_calls_only(
    hub: Hub, over_rabbitmq: Running, proxy: Proxy
) -> None:
    url = f"{over_rabbitmq.url}/mcp"
    with loading([url], hub.stack.key, clients=8, bound=ANSWERED_SECONDS) as load:
        assert_only_background_calls_failed(while_away(load, proxy.refuse, proxy.start))
        assert_only_background_calls_failed(while_away(load, proxy.hang, proxy.go_on))
    check(hub.stack, load, settled_within=SETTLED_SECONDS)
    assert over_rabbitmq.process.poll() is None


def test_a_database_that_takes_no_write_has_calls_refused_and_the_hub_says_that_it_is_not_ready(hub: Hub) -> None:
    def parts() -> tuple[int, dict[str, str]]:
        answer = httpx.get(f"{hub.webs[0].url}/readyz", timeout=10, trust_env=False)
        return answer.status_code, answer.json()["parts"]

    with loading(hub.urls, hub.stack.key, bound=ANSWERED_SECONDS) as load:
        load.goes_on()
        hub.postgres.set_read_only(True)
        try:
            status, found = eventually(lambda: (told := parts())[0] == 503 and told, REFUSED_SECONDS)
        finally:
            hub.postgres.set_read_only(False)
        assert (status, found) == (
            503,
            {"database": "ok", "recorder": "unavailable", "broker": "ok", "channel_layer": "ok"},
        )
        load.goes_on()
        assert eventually(lambda: parts()[0] == 200, REFUSED_SECONDS)
    check(hub.stack, load, settled_within=SETTLED_SECONDS)
    assert load.but("result", "refused", "tool_error", "no session") == []
