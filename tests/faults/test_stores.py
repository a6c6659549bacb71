"""PostgreSQL and Redis go away and come back under load: nothing is answered unrecorded, nothing needs a restart."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.hub import PROCESS_TIMEOUT, Hub
from tests.faults.ledger import check
from tests.faults.load import Asked, Load, loading
from tests.services.stack import eventually

# A store that is away is noticed at once, one that hangs in about six seconds. A call that a worker runs goes on, and
# is answered when the database is back.
REFUSED_SECONDS = 3.0
HANGS_SECONDS = 8.0
AWAY_SECONDS = 10.0
FROZEN_SECONDS = 18.0
SETTLED_SECONDS = 2 * PROCESS_TIMEOUT + 8.0
ANSWERED_SECONDS = FROZEN_SECONDS + SETTLED_SECONDS


@contextmanager
def loaded(hub: Hub) -> Iterator[Load]:
    """Load before the block, in it and after it, and at last all of it held against the records."""
    with loading(hub.urls, hub.stack.key, bound=ANSWERED_SECONDS) as load:
        load.goes_on()
        yield load
        load.goes_on(40)
    check(hub.stack, load, settled_within=SETTLED_SECONDS)


def between(load: Load, began: float, ended: float) -> list[Asked]:
    """The calls that were made and answered while a store was away, but for a second at either end."""
    return [asked for asked in load.asked if asked.began > began + 1 and 0 < asked.ended < ended - 1]


def test_a_stopped_postgresql_has_calls_refused_and_nothing_has_to_be_restarted(hub: Hub) -> None:
    with loaded(hub) as load:
        hub.postgres.stop()
        began = time.monotonic()
        time.sleep(AWAY_SECONDS)
        ended = time.monotonic()
        hub.postgres.start()
    meanwhile = between(load, began, ended)
    assert {asked.how for asked in meanwhile} == {"refused"}
    assert max(asked.seconds for asked in meanwhile) < REFUSED_SECONDS
    assert load.but("result", "refused", "tool_error", "no session") == []
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
    inline = [asked for asked in between(load, began, ended) if asked.tool in {"quick", "change"}]
    assert {asked.how for asked in inline} == {"refused"}
    assert max(asked.seconds for asked in inline) < HANGS_SECONDS
    processes_are_the_same(hub)


def test_a_redis_that_comes_back_empty_loses_no_call_and_every_stream_finishes(hub: Hub) -> None:
    with loaded(hub) as load:
        began = time.monotonic()
        hub.redis.restart(away_seconds=4)
        listening = eventually(lambda: hub.redis.client.pubsub_numsub(*hub.redis.client.pubsub_channels()))
        assert listening
    in_the_web = [asked for asked in load.asked if asked.tool != "toil" and asked.began > began]
    assert {asked.how for asked in in_the_web} == {"result"}
    refused = [asked for asked in load.asked if asked.how == "refused"]
    assert {asked.tool for asked in refused} <= {"toil"}
    assert all(asked.seconds < HANGS_SECONDS for asked in refused)
    assert load.but("result", "refused") == []
    processes_are_the_same(hub)


def processes_are_the_same(hub: Hub) -> None:
    """Nobody ended, and nobody was started."""
    assert [running.process.poll() for running in (*hub.webs, *hub.workers)] == [None] * 4
