"""Daily pruning without Celery beat: one process prunes once a day, without delaying calls."""

from collections.abc import Callable, Iterator
from time import monotonic, sleep
from uuid import UUID

import pytest
from django.db import OperationalError

from tests.audit.aged import days_ago, write_at
from tests.clock import Clock
from tools_app.audit import partitions, retention
from tools_app.audit.recorder import entries
from tools_app.audit.retention import DAY_SECONDS, Daily
from tools_app.models import Call, Process, Tenant

WAIT_SECONDS = 10.0
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(retention, "monotonic", fake_clock)
    return fake_clock


@pytest.fixture
def daily(clock: Clock, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daily]:
    """The daily pruning of the hub's oldest process; there is an expired call."""
    monkeypatch.setattr(retention, "PAUSE_SECONDS", 0.0)
    process_row = entries.process_row("web")
    # An earlier test may have left a running hub in this process.
    Process.objects.get_or_create(
        id=process_row.id, defaults={"kind": process_row.kind, "host": process_row.host, "pid": process_row.pid}
    )
    Tenant.objects.update(keep_days=30)
    write_at(tenant, days_ago(40))
    pruning = Daily()
    yield pruning
    pruning.job.stop(WAIT_SECONDS)


def wait_until_done(daily: Daily) -> None:
    """Wait until the pruning has finished."""
    deadline = monotonic() + WAIT_SECONDS
    while daily.job.is_running:
        assert monotonic() < deadline
        sleep(0.01)


def test_it_prunes_when_the_process_starts_and_a_day_later(daily: Daily, clock: Clock, tenant: Tenant) -> None:
    daily.prune_if_due()
    wait_until_done(daily)
    assert not Call.objects.exists()

    write_at(tenant, days_ago(40))
    clock.now += DAY_SECONDS - 1
    daily.prune_if_due()
    wait_until_done(daily)
    assert Call.objects.exists()

    clock.now += 1
    daily.prune_if_due()
    wait_until_done(daily)
    assert not Call.objects.exists()


def test_of_many_processes_only_the_oldest_prunes_until_it_is_gone(daily: Daily) -> None:
    older = Process.objects.create(id=UUID(int=1), kind="web", host="h", pid=1)
    daily.prune_if_due()
    assert not daily.job.is_running

    older.delete()
    daily.prune_if_due()
    wait_until_done(daily)
    assert not Call.objects.exists()


def test_it_stops_with_its_process_after_the_batch_at_hand(
    daily: Daily, tenant: Tenant, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., object]
) -> None:
    monkeypatch.setattr(retention, "PAUSE_SECONDS", 3600.0)
    daily.prune_if_due()
    eventually(lambda: not Call.objects.exists())
    daily.job.stop(WAIT_SECONDS)
    assert not daily.job.is_running


def test_a_database_that_is_away_is_logged_and_tried_again_another_day(
    daily: Daily, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> None:
        raise OperationalError("away")

    monkeypatch.setattr(partitions, "create_upcoming", away)
    daily.prune_if_due()
    wait_until_done(daily)
    assert "Postponed, pruning: away" in caplog.text

    monkeypatch.undo()
    daily._due = 0.0
    daily.prune_if_due()
    wait_until_done(daily)
    assert not Call.objects.exists()
