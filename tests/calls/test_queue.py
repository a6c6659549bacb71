"""The shards of the queue: one for each tenant, as long as there are enough."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as configured

from tools_app.calls.background import queue
from tools_app.tenants.limits import limits


@pytest.fixture(autouse=True)
def fresh(settings: Any) -> Iterator[None]:
    settings.MCPHUB_QUEUE_SHARDS = 4
    limits.forget_all()
    queue.forget_shards()
    yield
    queue.forget_shards()
    limits.forget_all()


def tenant(number: int) -> UUID:
    return UUID(int=number)


def test_workers_take_from_all_shards_and_from_the_queue_for_all_else() -> None:
    named = [one.name for one in configured.CELERY_TASK_QUEUES]
    base = configured.CELERY_TASK_DEFAULT_QUEUE
    assert named[0] == base
    assert set(queue.queue_names()) < set(named)
    assert len({one.routing_key for one in configured.CELERY_TASK_QUEUES}) == len(named)


def test_a_tenant_keeps_its_shard() -> None:
    assert len({queue.shard_of(tenant(7)) for _ in range(3)}) == 1


def test_a_busy_tenant_asks_for_its_shard_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    acquired: list[str] = []
    monkeypatch.setattr(limits, "acquire_blocking", lambda _limits, id, _seconds: acquired.append(id))
    now = 100.0
    monkeypatch.setattr(queue, "monotonic", lambda: now)
    assert len({queue.shard_of(tenant(7)) for _ in range(3)}) == 1
    assert len(acquired) == 1
    now += queue.REMEMBER_SECONDS
    queue.shard_of(tenant(7))
    assert len(acquired) == 2


def test_tenants_that_would_meet_in_a_shard_get_one_each() -> None:
    taken = [queue.shard_of(tenant(number)) for number in (1, 5, 9, 13)]
    assert sorted(taken) == queue.queue_names()[1:]
    assert [queue.shard_of(tenant(number)) for number in (1, 5, 9, 13)] == taken


def test_with_more_tenants_than_shards_some_share_one() -> None:
    taken = [queue.shard_of(tenant(number)) for number in range(6)]
    assert set(taken) == set(queue.queue_names()[1:])


def test_a_shard_that_nobody_uses_any_more_is_anybodys(settings: Any) -> None:
    settings.MCPHUB_QUEUE_SHARDS = 1
    settings.MCPHUB_QUEUE_TIMEOUT = 0.001
    store = limits._store()
    queue.shard_of(tenant(1))
    queue.forget_shards()
    store._clock = lambda: float("inf")  # type: ignore[union-attr]
    assert queue.shard_of(tenant(2)) == queue.queue_names()[1]
    assert next(iter(store._held.values())).keys() == {str(tenant(2))}  # type: ignore[union-attr]
