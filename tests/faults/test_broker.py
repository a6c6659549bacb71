"""The broker hangs, refuses and comes back, and the database rejects writes: only calls that need them fail."""

import os
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from django.conf import settings
from kombu import Connection

from tests.faults.hub import PROCESS_TIMEOUT, Hub
from tests.faults.ledger import check_records
from tests.faults.load import CallAttempt, Load, loading
from tests.faults.proxy import Proxy
from tests.services.stack import THREADS, Running, eventually

AMQP_URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672//")
AWAY_SECONDS = 5.0
# The longest latency of calls that do not need the broker: they do not wait until it is back.
NOTICEABLE_SECONDS = AWAY_SECONDS
# Of a background call: two seconds until the broker is given up, and two records.
REFUSED_SECONDS = 5.0
SETTLED_SECONDS = 2 * PROCESS_TIMEOUT + 8.0
ANSWERED_SECONDS = AWAY_SECONDS + SETTLED_SECONDS
BACKGROUND = "toil"


def assert_only_background_calls_failed(attempts: list[CallAttempt]) -> None:
    """No other call failed or waited, and those that failed name the broker, soon."""
    inline = [attempt for attempt in attempts if attempt.tool != BACKGROUND]
    assert {attempt.outcome for attempt in inline} == {"result"}
    assert max(attempt.seconds for attempt in inline) < NOTICEABLE_SECONDS
    refused = [attempt for attempt in attempts if attempt.outcome == "refused"]
    assert {attempt.tool for attempt in refused} == {BACKGROUND}
    assert all("The broker is unavailable" in attempt.detail[2] for attempt in refused)
    assert max(attempt.seconds for attempt in refused) < REFUSED_SECONDS


def while_away(load: Load, leave: Callable[[], None], come_back: Callable[[], None]) -> list[CallAttempt]:
    """The calls that started while a service was away for AWAY_SECONDS. Returns when all tools give results again."""
    load.wait_for_results()
    began = time.monotonic()
    leave()
    try:
        time.sleep(AWAY_SECONDS)
    finally:
        ended = time.monotonic()
        come_back()
    load.wait_for_results()
    return [attempt for attempt in load.attempts if began < attempt.started_at < ended]


def test_a_redis_that_hangs_fails_background_calls_only(hub: Hub) -> None:
    with loading(hub.urls, hub.stack.key, request_timeout=ANSWERED_SECONDS) as load:
        assert_only_background_calls_failed(while_away(load, hub.redis.freeze, hub.redis.thaw))
    check_records(hub.stack, load, settled_within=SETTLED_SECONDS)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy to RabbitMQ."""
    url = urlsplit(AMQP_URL)
    proxy_to_broker = Proxy(url.hostname or "127.0.0.1", url.port or 5672)
    proxy_to_broker.start()
    yield proxy_to_broker
    proxy_to_broker.resume()
    proxy_to_broker.refuse()


@pytest.fixture
def over_rabbitmq(hub: Hub, proxy: Proxy) -> Iterator[Running]:
    """A web process and a worker whose broker is RabbitMQ, over the proxy."""
    url = urlsplit(AMQP_URL)
    broker = url._replace(netloc=f"{url.username}:{url.password}@127.0.0.1:{proxy.listening_port}").geturl()
    settings_of_broker = {"CELERY_BROKER_URL": broker, "MCPHUB_PREFIX": f"test-{os.getpid()}"}
    hub.stack.environment, shared = hub.stack.environment | settings_of_broker, hub.stack.environment
    try:
        worker, web = hub.stack.worker(*THREADS), hub.stack.web("uvicorn")
    finally:
        hub.stack.environment = shared
    yield web
    web.kill()
    worker.kill()
    _forget_queues(settings_of_broker["MCPHUB_PREFIX"])


def _forget_queues(base: str) -> None:
    with Connection(AMQP_URL) as connection:
        for name in (base, *(f"{base}.{shard}" for shard in range(settings.MCPHUB_QUEUE_SHARDS))):
            connection.channel().queue_delete(name)


def test_a_rabbitmq_that_refuses_or_hangs_fails_background_calls_only(
    hub: Hub, over_rabbitmq: Running, proxy: Proxy
) -> None:
    url = f"{over_rabbitmq.url}/mcp"
    with loading([url], hub.stack.key, clients=8, request_timeout=ANSWERED_SECONDS) as load:
        assert_only_background_calls_failed(while_away(load, proxy.refuse, proxy.start))
        assert_only_background_calls_failed(while_away(load, proxy.hang, proxy.resume))
    check_records(hub.stack, load, settled_within=SETTLED_SECONDS)
    assert over_rabbitmq.process.poll() is None


def test_a_database_that_takes_no_write_has_calls_refused_and_the_hub_says_that_it_is_not_ready(hub: Hub) -> None:
    def parts() -> tuple[int, dict[str, str]]:
        answer = httpx.get(f"{hub.webs[0].url}/readyz", timeout=10, trust_env=False)
        return answer.status_code, answer.json()["parts"]

    with loading(hub.urls, hub.stack.key, request_timeout=ANSWERED_SECONDS) as load:
        load.wait_for_results()
        hub.postgres.set_read_only(True)
        try:
            status, parts_found = eventually(lambda: (response := parts())[0] == 503 and response, REFUSED_SECONDS)
        finally:
            hub.postgres.set_read_only(False)
        assert (status, parts_found) == (
            503,
            {"database": "ok", "recorder": "unavailable", "broker": "ok", "channel_layer": "ok"},
        )
        load.wait_for_results()
        assert eventually(lambda: parts()[0] == 200, REFUSED_SECONDS)
    check_records(hub.stack, load, settled_within=SETTLED_SECONDS)
    assert load.except_outcomes("result", "refused", "tool_error", "no session") == []
