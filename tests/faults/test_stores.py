"""PostgreSQL and Redis go away and come back under load: every response is recorded, and nothing needs a restart."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.hub import PROCESS_TIMEOUT, Hub
from tests.faults.ledger import check_records
from tests.faults.load import CallAttempt, Load, loading
from tests.services.stack import eventually

# The hub notices at once that a store is away, and within about six seconds that it hangs. A call in a worker
# continues, and its result is sent when the database is back.
REFUSED_SECONDS = 3.0
HANGS_SECONDS = 8.0
AWAY_SECONDS = 10.0
FROZEN_SECONDS = 18.0
SETTLED_SECONDS = 2 * PROCESS_TIMEOUT + 8.0
ANSWERED_SECONDS = FROZEN_SECONDS + SETTLED_SECONDS


@contextmanager
def loaded(hub: Hub) -> Iterator[Load]:
    """Run a load before, during and after the block, and then compare all responses with the records."""
    with loading(hub.urls, hub.stack.key, request_timeout=ANSWERED_SECONDS) as load:
        load.wait_for_results()
        yield load
        load.wait_for_results(40)
    check_records(hub.stack, load, settled_within=SETTLED_SECONDS)


def between(load: Load, began: float, ended: float) -> list[CallAttempt]:
    """The calls that started and ended while a store was away, except for a second at either end."""
    return [attempt for attempt in load.attempts if attempt.started_at > began + 1 and 0 < attempt.ended_at < ended - 1]


def test_a_stopped_postgresql_has_calls_refused_and_nothing_has_to_be_restarted(hub: Hub) -> None:
    with loaded(hub) as load:
        hub.postgres.stop()
        began = time.monotonic()
        time.sleep(AWAY_SECONDS)
        ended = time.monotonic()
        hub.postgres.start()
    meanwhile = between(load, began, ended)
    assert {attempt.outcome for attempt in meanwhile} == {"refused"}
    assert max(attempt.seconds for attempt in meanwhile) < REFUSED_SECONDS
    assert load.except_outcomes("result", "refused", "tool_error", "no session") == []
    processes_are_the_same(hub)


def test_a_postgresql_that_hangs_has_calls_refused_in_time(hub: Hub) -> None:
    with loaded(hub) as load:
        hub.postgres.freeze()
        began = time.monotonic()
        try:
            time.sleep(FROZEN_SECONDS)
        finally:
            ended = time.monotonic()
            hub.postgres.thaw()
    inline = [attempt for attempt in between(load, began, ended) if attempt.tool in {"quick", "change"}]
    assert {attempt.outcome for attempt in inline} == {"refused"}
    assert max(attempt.seconds for attempt in inline) < HANGS_SECONDS
    processes_are_the_same(hub)


def test_a_redis_that_comes_back_empty_loses_no_call_and_every_stream_finishes(hub: Hub) -> None:
    with loaded(hub) as load:
        began = time.monotonic()
        hub.redis.restart(away_seconds=4)
        listening = eventually(lambda: hub.redis.client.pubsub_numsub(*hub.redis.client.pubsub_channels()))
        assert listening
    in_the_web = [attempt for attempt in load.attempts if attempt.tool != "toil" and attempt.started_at > began]
    assert {attempt.outcome for attempt in in_the_web} == {"result"}
    refused = [attempt for attempt in load.attempts if attempt.outcome == "refused"]
    assert {attempt.tool for attempt in refused} <= {"toil"}
    assert all(attempt.seconds < HANGS_SECONDS for attempt in refused)
    assert load.except_outcomes("result", "refused") == []
    processes_are_the_same(hub)


def processes_are_the_same(hub: Hub) -> None:
    """No process ended."""
    assert [running.process.poll() for running in (*hub.webs, *hub.workers)] == [None] * 4
