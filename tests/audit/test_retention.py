"""Retention: expired calls are deleted with their payloads and events, and nothing else is."""

from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from celery import current_app
from django.conf import settings as configured
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from tests.audit import chained
from tests.audit.aged import days_ago, write_at
from tools_app.audit import retention
from tools_app.audit.checkpoints import signer
from tools_app.audit.retention import PruneStep
from tools_app.models import Call, CallEvent, CallPayload, Checkpoint, Session, Tenant
from tools_app.runtime import tasks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _new_chains() -> Iterator[None]:
    """Those of this test alone."""
    chained.forget()
    yield
    chained.forget()


def keep(tenant: Tenant, days: int | None) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(keep_days=days)


def prune(tenant: Tenant | None = None, batch: int = 500) -> list[PruneStep]:
    return list(retention.prune(tenant, batch=batch))


def remaining_calls() -> set[Any]:
    """The remaining calls, each checked to have its payload and events."""
    ids = set(Call.objects.values_list("pk", flat=True))
    assert set(CallPayload.objects.values_list("pk", flat=True)) == ids
    assert sorted(CallEvent.objects.values_list("call_id", "sequence")) == sorted((id, n) for id in ids for n in (1, 2))
    return ids


def verified() -> str:
    """The output of `verify_audit`. Raises CommandError if it has findings."""
    out = StringIO()
    call_command("verify_audit", stdout=out)
    return out.getvalue()


def ids(*groups: list[Call]) -> set[Any]:
    return {call.pk for calls in groups for call in calls}


def session(tenant: Tenant, began: datetime, ended: datetime | None) -> Session:
    return Session.objects.create(tenant=tenant, digest=uuid4().hex, created_at=began, ended_at=ended)


def test_calls_go_with_their_payloads_and_events_when_their_tenant_keeps_them_no_longer(tenant: Tenant) -> None:
    keep(tenant, 30)
    write_at(tenant, days_ago(400), days_ago(31))
    young = write_at(tenant, days_ago(29), days_ago(0))
    prune()
    assert remaining_calls() == ids(young)


def test_each_tenant_keeps_its_own_time(tenant: Tenant, other_tenant: Tenant, settings: Any) -> None:
    settings.MCPHUB_KEEP_DAYS = 100
    keep(tenant, 10)
    kept_of_one = write_at(tenant, days_ago(11), days_ago(9))[1:]
    kept_of_other = write_at(other_tenant, days_ago(101), days_ago(99))[1:]
    prune()
    assert remaining_calls() == ids(kept_of_one, kept_of_other)


def test_nothing_goes_unless_somebody_says_so(tenant: Tenant) -> None:
    calls = write_at(tenant, days_ago(4000)) + write_at(None, days_ago(4000))
    assert {step.what for step in prune()} == {"figures"}
    assert remaining_calls() == ids(calls)


def test_a_tenant_keeps_for_ever_by_zero_whatever_the_hub_does(tenant: Tenant, settings: Any) -> None:
    settings.MCPHUB_KEEP_DAYS = 1
    keep(tenant, 0)
    calls = write_at(tenant, days_ago(4000))
    prune()
    assert remaining_calls() == ids(calls)


def test_a_time_longer_than_any_calendar_is_for_ever(tenant: Tenant) -> None:
    keep(tenant, 2_147_483_647)
    calls = write_at(tenant, days_ago(4000))
    prune()
    assert remaining_calls() == ids(calls)


def test_what_belongs_to_no_tenant_any_more_follows_the_hub(tenant: Tenant, settings: Any) -> None:
    settings.MCPHUB_KEEP_DAYS = 10
    keep(tenant, 1)
    young = write_at(None, days_ago(9)) + write_at(uuid4(), days_ago(9))
    write_at(None, days_ago(11))
    write_at(uuid4(), days_ago(11))
    prune()
    assert remaining_calls() == ids(young)


def test_it_goes_by_small_batches_from_the_oldest_on(tenant: Tenant) -> None:
    keep(tenant, 30)
    calls = write_at(tenant, *(days_ago(40 - number) for number in range(5)))
    steps = retention.prune(batch=2)
    assert next(steps) == PruneStep("acme", "calls", 2, calls[1].started_at)
    assert remaining_calls() == ids(calls[2:])
    assert [step.rows for step in steps] == [2, 1]


def test_calls_of_one_moment_fit_into_no_batch_and_still_go(tenant: Tenant) -> None:
    keep(tenant, 30)
    write_at(tenant, *[days_ago(40)] * 5)
    assert sum(step.rows for step in prune(batch=2)) == 5
    assert remaining_calls() == set()


def test_a_pruning_that_was_broken_off_is_taken_up_by_the_next(tenant: Tenant) -> None:
    keep(tenant, 30)
    write_at(tenant, *(days_ago(40 - number) for number in range(5)))
    broken_off = retention.prune(batch=2)
    next(broken_off)
    broken_off.close()
    assert sum(step.rows for step in prune()) == 3


def test_a_batch_goes_as_a_whole_or_not_at_all(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tenant, 30)
    calls = write_at(tenant, days_ago(40))

    def away(*_: Any, **__: Any) -> None:
        raise RuntimeError("away")

    monkeypatch.setattr(CallPayload.objects, "filter", away)
    with pytest.raises(RuntimeError):
        prune()
    monkeypatch.undo()
    assert remaining_calls() == ids(calls)


def test_what_is_left_still_verifies_and_what_somebody_takes_away_beside_shows(
    tenant: Tenant, other_tenant: Tenant, settings: Any
) -> None:
    settings.MCPHUB_KEEP_DAYS = 30
    keep(other_tenant, 0)
    # Chains are in the order of ending: long calls are pruned at another time than their neighbours.
    for days in (35, 50, 29, 40, 28, 31, 1):
        write_at(tenant, days_ago(days))
        write_at(None, days_ago(days))
        write_at(other_tenant, days_ago(days))
        signer.sign()
    steps = retention.prune(batch=3)
    next(steps)
    assert "No problems found." in verified()
    steps.close()
    prune(tenant)
    prune()
    assert Call.objects.count() == 3 + 3 + 7
    assert "13 records in 3 chains" in verified()

    Call.objects.filter(tenant=tenant).order_by("started_at").first().delete()
    with pytest.raises(CommandError):
        verified()


def test_checkpoints_that_no_record_needs_go_too(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tenant, 30)
    for days in (50, 40, 1):
        write_at(tenant, days_ago(days))
        monkeypatch.setattr(signer, "timezone", SimpleNamespace(now=lambda days=days: days_ago(days)))
        signer.sign()
    assert Checkpoint.objects.count() == 3
    prune()
    assert Checkpoint.objects.count() == 1
    assert "No problems found." in verified()


def test_sessions_that_ended_before_that_time_go_and_others_stay(tenant: Tenant, other_tenant: Tenant) -> None:
    keep(tenant, 30)
    old, young = days_ago(31), days_ago(29)
    session(tenant, old, old)
    staying = [session(tenant, old, young), session(tenant, old, None), session(other_tenant, old, old)]
    assert [step[:3] for step in prune(batch=1)] == [("acme", "sessions", 1)]
    assert set(Session.objects.all()) == set(staying)


def test_what_is_due_is_counted_by_tenant_and_stays(tenant: Tenant, other_tenant: Tenant, settings: Any) -> None:
    settings.MCPHUB_KEEP_DAYS = 20
    keep(tenant, 30)
    keep(other_tenant, 0)
    calls = write_at(tenant, days_ago(40), days_ago(35), days_ago(25)) + write_at(None, days_ago(21))
    calls += write_at(other_tenant, days_ago(400))
    assert [due[:2] for due in retention.due()] == [("no tenant", 1), ("acme", 2)]
    assert [due[:2] for due in retention.due(tenant)] == [("acme", 2)]
    assert remaining_calls() == ids(calls)


def test_what_is_due_is_found_by_the_index(tenant: Tenant) -> None:
    oldest = retention.calls_before(tenant.pk, days_ago(30)).order_by("started_at")[:500]
    if connection.vendor == "sqlite":
        assert "USING INDEX call_by_tenant" in oldest.explain()
        return
    with transaction.atomic(), connection.cursor() as cursor:
        # For an empty table, the planner prefers a sequential scan.
        cursor.execute("SET LOCAL enable_seqscan = off")
        assert "Seq Scan" not in oldest.explain()


def test_the_beat_schedules_a_task_that_prunes(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAUSE_SECONDS", 0.0)
    keep(tenant, 30)
    write_at(tenant, days_ago(40))
    scheduled = configured.CELERY_BEAT_SCHEDULE["prune"]["task"]
    assert current_app.tasks[scheduled].name == tasks.prune.name
    tasks.prune()
    assert remaining_calls() == set()
