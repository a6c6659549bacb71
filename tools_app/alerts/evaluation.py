"""Evaluation of alert rules: alerts fire once, are repeated after the quiet time, and are resolved.

An alert and its deliveries are inserted in one transaction that locks the rule, so that processes that evaluate at once
notify once, and a crash neither loses nor doubles a notification.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import orjson
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tools_app.alerts import conditions
from tools_app.alerts.conditions import Finding
from tools_app.alerts.models import Alert, AlertDelivery, AlertDestination, AlertEvent, AlertKind, AlertRule
from tools_app.core.telemetry.logs import first_of
from tools_app.models import Process, ProcessDeath, Tenant

log = logging.getLogger(__name__)

FORMAT_VERSION: Final = 1
DAY: Final = timedelta(days=1)
MINUTE: Final = timedelta(minutes=1)
MAX_TESTS_PER_MINUTE: Final = 30
# A key expires for days: once a day is enough. The death of a process is over when it is known.
MIN_QUIET_TIMES: Final = {AlertKind.KEY_EXPIRES: DAY}
ONE_TIME_KINDS: Final = frozenset({AlertKind.PROCESS_DIED})
RETENTION: Final = timedelta(days=90)
DEATH_RETENTION: Final = DAY
PRUNE_BATCH: Final = 1000


def evaluate() -> None:
    """Check every enabled rule. A rule that cannot be checked is logged, and checked again the next time."""
    active = Q(tenant=None) | Q(tenant__is_active=True)
    unchecked: list[str] = []
    for rule_id in list(AlertRule.objects.filter(active, enabled=True).order_by("pk").values_list("pk", flat=True)):
        try:
            evaluate_rule(rule_id, timezone.now())
        except Exception as error:  # noqa: BLE001 - the others are checked all the same
            unchecked.append(f"{rule_id}: {error}")
    if unchecked:
        log.warning("%d alert rules are not checked: %s", len(unchecked), first_of(unchecked))


def evaluate_rule(rule_id: Any, now: datetime) -> None:
    """Fire, repeat and resolve the alerts of a rule."""
    rule = AlertRule.objects.select_related("tenant").filter(pk=rule_id).first()
    if rule is None:
        return
    findings = {finding.subject: finding for finding in conditions.findings(rule, now)}
    if not findings and not Alert.objects.filter(rule=rule, resolved_at=None).exists():
        return
    with transaction.atomic():
        # It may have been disabled or deleted meanwhile.
        rule = AlertRule.objects.select_for_update(of=("self",)).filter(pk=rule_id, enabled=True).first()
        if rule is None:
            return
        open_alerts = {alert.subject: alert for alert in Alert.objects.filter(rule=rule, resolved_at=None)}
        for subject, alert in open_alerts.items():
            if subject not in findings:
                _resolve(rule, alert, now)
            elif _may_repeat(rule, alert, now):
                _repeat(rule, alert, findings[subject], now)
        for subject, finding in findings.items():
            if subject not in open_alerts and not _is_quiet(rule, subject, now):
                _fire(rule, finding, now)


def resolve_disabled() -> None:
    """Resolve the open alerts of disabled rules, without a notification."""
    Alert.objects.filter(resolved_at=None, rule__enabled=False).update(resolved_at=timezone.now())


def _fire(rule: AlertRule, finding: Finding, now: datetime) -> None:
    alert = Alert.objects.create(
        rule=rule,
        tenant_id=rule.tenant_id,
        subject=finding.subject,
        summary=finding.summary[:300],
        value=finding.value,
        threshold=rule.threshold,
        fired_at=now,
        notified_at=now,
    )
    notify(rule, alert, AlertEvent.FIRED, now)


def _repeat(rule: AlertRule, alert: Alert, finding: Finding, now: datetime) -> None:
    alert.value, alert.summary, alert.notified_at = finding.value, finding.summary[:300], now
    alert.save(update_fields=["value", "summary", "notified_at"])
    notify(rule, alert, AlertEvent.REMINDER, now)


def _resolve(rule: AlertRule, alert: Alert, now: datetime) -> None:
    alert.resolved_at = now
    alert.save(update_fields=["resolved_at"])
    if rule.notify_resolved and rule.kind not in ONE_TIME_KINDS:
        notify(rule, alert, AlertEvent.RESOLVED, now)


def _quiet_time(rule: AlertRule) -> timedelta:
    quiet = timedelta(minutes=rule.quiet_minutes)
    return max(quiet, MIN_QUIET_TIMES.get(AlertKind(rule.kind), quiet))


def _may_repeat(rule: AlertRule, alert: Alert, now: datetime) -> bool:
    return rule.kind not in ONE_TIME_KINDS and now - alert.notified_at >= _quiet_time(rule)


def _is_quiet(rule: AlertRule, subject: str, now: datetime) -> bool:
    """Whether the same cause was notified within the quiet time; what happens once never fires again."""
    earlier = Alert.objects.filter(rule=rule, subject=subject)
    if rule.kind not in ONE_TIME_KINDS:
        earlier = earlier.filter(notified_at__gt=now - _quiet_time(rule))
    return earlier.exists()


def notify(rule: AlertRule, alert: Alert, event: AlertEvent, now: datetime) -> None:
    """Insert a delivery for each enabled destination of the rule. Call it in the transaction of the alert."""
    data = {
        "alert_id": str(alert.pk),
        "rule": {"id": str(rule.pk), "name": rule.name, "kind": rule.kind},
        "tenant": tenant_name(rule.tenant),
        "subject": alert.subject,
        "summary": alert.summary,
        "value": alert.value,
        "threshold": alert.threshold,
        "unit": rule.measure.unit,
        "fired_at": alert.fired_at,
        "resolved_at": alert.resolved_at,
    }
    insert_deliveries(rule.destinations.filter(enabled=True), event, data, now, alert)


class TooManyTests(Exception):
    """The tenant, or the whole hub, has sent MAX_TESTS_PER_MINUTE test messages within the last minute."""

    def __init__(self) -> None:
        super().__init__(f"At most {MAX_TESTS_PER_MINUTE} test messages are sent per minute. Try again in a minute.")


def send_test(destination: AlertDestination, rule: AlertRule | None = None) -> AlertDelivery:
    """Insert a test message to one destination, and return its delivery. Raises TooManyTests."""
    since = timezone.now() - MINUTE
    tests = AlertDelivery.objects.filter(event=AlertEvent.TEST, created_at__gte=since, tenant=destination.tenant_id)
    if tests[:MAX_TESTS_PER_MINUTE].count() >= MAX_TESTS_PER_MINUTE:
        raise TooManyTests
    rule_data = {"id": str(rule.pk), "name": rule.name, "kind": rule.kind} if rule else None
    data = {"summary": "This is a test message.", "rule": rule_data, "tenant": tenant_name(destination.tenant)}
    return insert_deliveries([destination], AlertEvent.TEST, data, timezone.now())[0]


def insert_deliveries(
    destinations: Iterable[AlertDestination],
    event: AlertEvent,
    data: dict[str, Any],
    now: datetime,
    alert: Alert | None = None,
) -> list[AlertDelivery]:
    """Insert one delivery of a message to each destination."""
    body = orjson.dumps({"type": event.value, "version": FORMAT_VERSION, "timestamp": now, "data": data}).decode()
    rows = [
        AlertDelivery(
            alert=alert,
            destination=destination,
            tenant_id=destination.tenant_id,
            event=event,
            body=body,
            created_at=now,
            next_attempt_at=now,
        )
        for destination in destinations
    ]
    return AlertDelivery.objects.bulk_create(rows)


def tenant_name(tenant: Tenant | None) -> str | None:
    """Return the slug of a tenant; None for the whole hub."""
    return tenant.slug if tenant else None


def is_evaluator(process_id: Any) -> bool:
    """Whether this process evaluates and delivers: the oldest worker, or the oldest process without any worker."""
    rows = sorted(Process.objects.values_list("kind", "pk"), key=lambda row: (row[0] != "worker", row[1]))
    return bool(rows) and rows[0][1] == process_id


def prune() -> None:
    """Delete old alerts with their deliveries, test messages, and deaths of processes, a bounded number at once."""
    now = timezone.now()
    old_alerts = Alert.objects.filter(fired_at__lt=now - RETENTION).exclude(resolved_at=None).order_by("fired_at")
    old_deliveries = AlertDelivery.objects.filter(created_at__lt=now - RETENTION).order_by("created_at")
    Alert.objects.filter(pk__in=list(old_alerts.values_list("pk", flat=True)[:PRUNE_BATCH])).delete()
    AlertDelivery.objects.filter(pk__in=list(old_deliveries.values_list("pk", flat=True)[:PRUNE_BATCH])).delete()
    ProcessDeath.objects.filter(died_at__lt=now - DEATH_RETENTION).delete()
