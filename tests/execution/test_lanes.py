"""The lanes of the queue: one for each tenant, as long as there are enough."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as configured

from tools_app.auth import limits
from tools_app.execution import lanes


@pytest.fixture(autouse=True)
def fresh(settings: Any) -> Iterator[None]:
    settings.MCPHUB_LANES = 4
    limits.forget_all()
    yield
    limits.forget_all()


def tenant(number: int) -> UUID:
    return UUID(int=number)


def test_workers_take_from_all_lanes_and_from_the_queue_for_all_else() -> None:
    named = [queue.name for queue in configured.CELERY_TASK_QUEUES]
    base = configured.CELERY_TASK_DEFAULT_QUEUE
    assert named[0] == base
    assert set(lanes.names()) < set(named)
    assert len({queue.routing_key for queue in configured.CELERY_TASK_QUEUES}) == len(named)


def test_a_tenant_keeps_its_lane() -> None:
    assert len({lanes.lane_of(tenant(7)) for _ in range(3)}) == 1


def test_tenants_that_would_meet_in_a_lane_get_one_each() -> None:
    taken = [lanes.lane_of(tenant(number)) for number in (1, 5, 9, 13)]
    assert sorted(taken) == lanes.names()[1:]
    assert [lanes.lane_of(tenant(number)) for number in (1, 5, 9, 13)] == taken


def test_with_more_tenants_than_lanes_some_share_one() -> None:
    taken = [lanes.lane_of(tenant(number)) for number in range(6)]
    assert set(taken) == set(lanes.names()[1:])


def test_a_lane_that_nobody_uses_any_more_is_anybodys(settings: Any) -> None:
    settings.MCPHUB_LANES = 1
    settings.MCPHUB_QUEUE_SECONDS = 0.001
    store = limits._store()
    lanes.lane_of(tenant(1))
    store._clock = lambda: float("inf")  # type: ignore[union-attr]
    assert lanes.lane_of(tenant(2)) == lanes.names()[1]
    assert next(iter(store._held.values())).keys() == {str(tenant(2))}  # type: ignore[union-attr]
