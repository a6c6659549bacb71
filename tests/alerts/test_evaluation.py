"""Alert rules: when each kind fires, how often it notifies, and when it is resolved."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from tools_app.alerts import conditions, evaluation
from tools_app.alerts.models import Alert, AlertDelivery, AlertDestination, AlertEvent, AlertKind, AlertRule
from tools_app.audit.stats import counters
from tools_app.calls import sweeper
from tools_app.models import Call, CallFigures, Process, ProcessDeath, RunningCall, Tenant
from tools_app.tenants import keys

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    return Tenant.objects.create(slug="acme", name="Acme")


def add_rule(tenant: Tenant | None, kind: AlertKind, threshold: float, **more: Any) -> AlertRule:
    destination = AlertDestination.objects.create(
        tenant=tenant, name=f"ops {uuid4().hex}", kind="email", email="ops@example.com"
    )
    rule = AlertRule(tenant=tenant, name=f"{kind}", kind=kind, threshold=threshold, **more)
    rule.full_clean()
    rule.save()
    rule.destinations.set([destination])
    return rule


def add_figures(tenant: Tenant, tool: str = "find", **numbers: int) -> None:
    CallFigures.objects.create(
        tenant_id=tenant.pk,
        begins_at=counters.period_of(timezone.now()),
        seconds=counters.SECONDS,
        writer=uuid4(),
        tool_name=tool,
        api_key_id=counters.NIL,
        **numbers,
    )


def add_calls(tenant: Tenant, *outcomes: str, tool: str = "find") -> None:
    now = timezone.now()
    for position, outcome in enumerate(outcomes):
        at = now - timedelta(seconds=len(outcomes) - position)
        Call.objects.create(
            tenant=tenant, tool_name=tool, started_at=at, finished_at=at, duration_us=1, outcome=outcome, writer=uuid4()
        )


def summaries(rule: AlertRule, later: timedelta = timedelta()) -> list[str]:
    """Evaluate the rule and return what fires now."""
    evaluation.evaluate_rule(rule.pk, timezone.now() + later)
    return [alert.summary for alert in Alert.objects.filter(rule=rule, resolved_at=None)]


def events(rule: AlertRule) -> list[str]:
    return list(AlertDelivery.objects.filter(alert__rule=rule).order_by("created_at").values_list("event", flat=True))


def test_the_error_rate_is_of_enough_calls_of_the_tools_that_it_names(tenant: Tenant) -> None:
    rule = add_rule(tenant, AlertKind.ERROR_RATE, 10, min_calls=10, tool_pattern="find*")
    other = Tenant.objects.create(slug="globex", name="Globex")
    add_figures(tenant, calls=9, errors=9)
    add_figures(tenant, tool="other", calls=100, errors=100)
    add_figures(other, calls=100, errors=100)
    assert summaries(rule) == []
    add_figures(tenant, calls=11)
    assert summaries(rule) == ["45.0% of 20 calls failed of find* in the last 15 minutes (threshold 10%)"]


def test_slow_calls_and_denials_are_read_from_the_statistics(tenant: Tenant) -> None:
    slow = add_rule(tenant, AlertKind.P95, 1000, min_calls=1)
    denied = add_rule(tenant, AlertKind.DENIALS, 5)
    add_figures(tenant, calls=10, denials=4, took_10=10)
    assert summaries(slow) == summaries(denied) == []
    add_figures(tenant, calls=10, denials=1, took_15=10)
    assert summaries(slow)[0].endswith(" ms at p95 of 20 calls in the last 15 minutes (threshold 1000 ms)")
    assert summaries(denied) == ["5 requests were denied in the last 15 minutes (threshold 5)"]


def test_a_tool_that_fails_several_times_in_a_row_is_named_until_a_call_succeeds(tenant: Tenant) -> None:
    rule = add_rule(tenant, AlertKind.FAILURES, 3)
    add_figures(tenant, calls=3, errors=3)
    add_calls(tenant, "ok", "tool_error", "timeout")
    assert summaries(rule) == []
    add_calls(tenant, "cancelled", "lost")
    assert summaries(rule) == ["3 calls in a row failed: find"]
    CallFigures.objects.all().delete()
    assert summaries(rule) == ["3 calls in a row failed: find"]
    add_calls(tenant, "ok")
    assert summaries(rule) == []
    assert events(rule) == [AlertEvent.FIRED, AlertEvent.RESOLVED]


def test_a_key_that_expires_soon_is_named(tenant: Tenant) -> None:
    rule = add_rule(tenant, AlertKind.KEY_EXPIRES, 7, quiet_minutes=5)
    key, _ = keys.issue(tenant, "laptop", expires_at=timezone.now() + timedelta(days=6))
    keys.issue(tenant, "server", expires_at=timezone.now() + timedelta(days=9))
    assert len(summaries(rule)) == 1
    assert summaries(rule)[0].partition(": ")[2].startswith("the API key laptop")
    summaries(rule, timedelta(hours=23))
    assert events(rule) == [AlertEvent.FIRED], "repeated once a day at most"
    keys.revoke(key)
    assert summaries(rule) == []


def test_background_calls_that_wait_are_those_of_the_rules_tenant(tenant: Tenant) -> None:
    own, whole_hub = add_rule(tenant, AlertKind.QUEUE_AGE, 30), add_rule(None, AlertKind.QUEUE_AGE, 30)
    other = Tenant.objects.create(slug="globex", name="Globex")
    RunningCall.objects.create(
        tenant=other,
        status="queued",
        background=True,
        owner=uuid4(),
        timeout_seconds=60,
        arguments="{}",
        started_at=timezone.now() - timedelta(seconds=90),
    )
    assert summaries(own) == []
    assert len(summaries(whole_hub)) == 1


def test_a_process_that_died_is_told_once(settings: Any) -> None:
    rule = add_rule(None, AlertKind.PROCESS_DIED, 1)
    dead = Process.objects.create(kind="web", host="one", pid=7)
    sweeper._record_deaths({dead.pk, uuid4()})
    assert not Process.objects.filter(pk=dead.pk).exists()
    assert summaries(rule) == ["A web process died: 7 on one"]
    summaries(rule, timedelta(hours=12))
    summaries(rule)
    assert events(rule) == [AlertEvent.FIRED]


def test_an_alert_is_repeated_after_the_quiet_time_and_fires_again_only_after_it(tenant: Tenant) -> None:
    rule = add_rule(tenant, AlertKind.DENIALS, 1, quiet_minutes=30, window_minutes=360)
    add_figures(tenant, denials=1)
    for minutes in (0, 0, 29, 31, 59):
        evaluation.evaluate_rule(rule.pk, timezone.now() + timedelta(minutes=minutes))
    assert events(rule) == [AlertEvent.FIRED, AlertEvent.REMINDER]
    CallFigures.objects.all().delete()
    summaries(rule, timedelta(minutes=40))
    add_figures(tenant, denials=1)
    assert summaries(rule, timedelta(minutes=45)) == []
    assert len(summaries(rule, timedelta(minutes=62))) == 1
    assert events(rule) == [AlertEvent.FIRED, AlertEvent.REMINDER, AlertEvent.RESOLVED, AlertEvent.FIRED]


@pytest.mark.django_db(transaction=True)
def test_two_processes_that_found_the_same_notify_once(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = add_rule(tenant, AlertKind.DENIALS, 1)
    add_figures(tenant, denials=5)
    both_found, find = Barrier(2, timeout=20), conditions.findings

    def found(rule: AlertRule, now: datetime) -> list[conditions.Finding]:
        findings = find(rule, now)
        both_found.wait()
        return findings

    def evaluate(_process: int) -> None:
        try:
            evaluation.evaluate_rule(rule.pk, timezone.now())
        finally:
            connection.close()

    monkeypatch.setattr(conditions, "findings", found)
    with ThreadPoolExecutor(2) as processes:
        list(processes.map(evaluate, range(2)))
    assert events(rule) == ["alert.fired"]
    assert Alert.objects.filter(rule=rule).count() == 1


def test_a_process_that_fails_between_alert_and_delivery_leaves_neither(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = add_rule(tenant, AlertKind.DENIALS, 1)
    add_figures(tenant, denials=1)

    def die(*_arguments: Any) -> None:
        raise OSError("died")

    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "insert_deliveries", die)
        with pytest.raises(OSError, match="died"):
            summaries(rule)
    assert not Alert.objects.exists()
    assert len(summaries(rule)) == 1
    assert events(rule) == [AlertEvent.FIRED]


def test_disabled_rules_and_those_of_inactive_tenants_are_not_checked(tenant: Tenant) -> None:
    rule = add_rule(tenant, AlertKind.DENIALS, 1)
    add_figures(tenant, denials=1)
    Tenant.objects.update(is_active=False)
    evaluation.evaluate()
    assert not Alert.objects.exists()
    Tenant.objects.update(is_active=True)
    evaluation.evaluate()
    AlertRule.objects.update(enabled=False)
    evaluation.resolve_disabled()
    evaluation.evaluate()
    assert Alert.objects.get(rule=rule).resolved_at is not None


def test_the_oldest_worker_evaluates_or_without_one_the_oldest_process() -> None:
    web = Process.objects.create(kind="web", host="one", pid=1)
    assert evaluation.is_evaluator(web.pk)
    worker = Process.objects.create(kind="worker", host="one", pid=2)
    assert evaluation.is_evaluator(worker.pk)
    assert not evaluation.is_evaluator(web.pk)


def test_old_alerts_and_messages_are_deleted_a_bounded_number_at_once(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = add_rule(tenant, AlertKind.DENIALS, 1)
    now = timezone.now()
    ancient = now - evaluation.RETENTION - timedelta(days=1)

    def alert(subject: str, fired_at: datetime, resolved_at: datetime | None) -> Alert:
        facts = {"rule": rule, "tenant": tenant, "summary": subject, "value": 1, "threshold": 1}
        row = Alert.objects.create(**facts, subject=subject, fired_at=fired_at, resolved_at=resolved_at)
        evaluation.notify(rule, row, AlertEvent.FIRED, fired_at)
        return row

    old, older = alert("old", ancient, ancient), alert("older", ancient - timedelta(days=1), ancient)
    firing, new = alert("firing", ancient, None), alert("new", now, now)
    test = evaluation.send_test(rule.destinations.get())
    AlertDelivery.objects.filter(pk=test.pk).update(created_at=ancient)
    for died_at in (now, now - evaluation.DEATH_RETENTION - timedelta(minutes=1)):
        ProcessDeath.objects.create(id=uuid4(), kind="web", host="one", pid=1, died_at=died_at)
    monkeypatch.setattr(evaluation, "PRUNE_BATCH", 1)
    evaluation.prune()
    assert set(Alert.objects.all()) == {old, firing, new}, "the oldest first"
    monkeypatch.undo()
    evaluation.prune()
    assert set(Alert.objects.all()) == {firing, new}, "an alert that is firing stays"
    assert list(AlertDelivery.objects.values_list("alert", flat=True)) == [new.pk]
    assert ProcessDeath.objects.count() == 1
    assert not Alert.objects.filter(pk=older.pk).exists()
