"""Conditions of alert rules: what each kind reads, and what it finds.

Rates, durations and denials come from the statistics that the recorder keeps; the other kinds read a bounded number of
rows by their index. Nothing here runs on the path of a call.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from django.db.models import QuerySet, Sum

from tools_app.alerts.models import Alert, AlertKind, AlertRule
from tools_app.audit.stats import counters, storage
from tools_app.audit.stats.overview import CallStatistics
from tools_app.models import ApiKey, Call, CallFigures, CallStatus, Outcome, ProcessDeath, RunningCall
from tools_app.tenants.keys import without_connections

MAX_SUBJECTS: Final = 20
# Tools that failed recently, whose last calls are read.
RECENT_PERIOD: Final = timedelta(hours=1)
# Calls that say nothing about the tool, such as cancelled ones, are skipped: among so many rows for each that counts.
ROWS_PER_OUTCOME: Final = 3
NEUTRAL_OUTCOMES: Final = frozenset({Outcome.CANCELLED.value, Outcome.DENIED.value, Outcome.INPUT_REQUIRED.value})
# Statistics of a process whose clock is a little ahead count, too.
CLOCK_TOLERANCE: Final = timedelta(hours=1)
SUMS: Final = {f"sum_{name}": Sum(name) for name in counters.NUMBER_COLUMNS}


class Finding(NamedTuple):
    """One cause for which a rule's condition is met. `subject` tells causes apart: a tool, a key, a process.

    `summary` begins with the figure: lists cut its end.
    """

    subject: str
    value: float
    summary: str


Condition = Callable[[AlertRule, datetime], Iterable[Finding]]


def findings(rule: AlertRule, now: datetime) -> list[Finding]:
    """Return why the condition of `rule` is met now; nothing if it is not."""
    return list(CONDITIONS[AlertKind(rule.kind)](rule, now))[:MAX_SUBJECTS]


def _error_rate(rule: AlertRule, now: datetime) -> list[Finding]:
    statistics = _statistics(rule, now)
    percent = 100 * (statistics.error_rate or 0)
    if statistics.calls < rule.min_calls or percent < rule.threshold:
        return []
    text = f"{percent:.1f}% of {statistics.calls} calls failed{_within(rule)} (threshold {rule.threshold:g}%)"
    return [Finding("", round(percent, 3), text)]


def _p95(rule: AlertRule, now: datetime) -> list[Finding]:
    statistics = _statistics(rule, now)
    milliseconds = (statistics.p95_us or 0) / 1000
    if statistics.calls < rule.min_calls or milliseconds < rule.threshold:
        return []
    text = f"{milliseconds:.0f} ms at p95 of {statistics.calls} calls{_within(rule)} (threshold {rule.threshold:g} ms)"
    return [Finding("", round(milliseconds, 3), text)]


def _denials(rule: AlertRule, now: datetime) -> list[Finding]:
    denials = _statistics(rule, now).denials
    if denials < rule.threshold:
        return []
    return [Finding("", denials, f"{denials} requests were denied{_within(rule)} (threshold {rule.threshold:g})")]


def _failures(rule: AlertRule, now: datetime) -> Iterable[Finding]:
    failing = _figures(rule, now - RECENT_PERIOD, now).filter(errors__gt=0).exclude(tool_name="")
    names = failing.order_by().values("tool_name").annotate(sum_errors=Sum("errors")).order_by("-sum_errors")
    # Open alerts are checked until a call succeeds, even if the tool is no longer called.
    open_subjects = Alert.objects.filter(rule=rule, resolved_at=None).values_list("subject", flat=True)
    recent_names = [name for name in names.values_list("tool_name", flat=True)[:500] if _matches(rule, name)]
    for name in dict.fromkeys([*open_subjects, *recent_names[:MAX_SUBJECTS]]):
        count = int(rule.threshold)
        outcomes = _last_outcomes(rule, name, count)
        if len(outcomes) == count and counters.FAILED.issuperset(outcomes):
            yield Finding(name, count, f"{count} calls in a row failed: {name}")


def _last_outcomes(rule: AlertRule, tool_name: str, count: int) -> list[str]:
    calls = Call.objects.filter(tenant=rule.tenant_id, tool_name=tool_name).order_by("-started_at")
    outcomes = calls.values_list("outcome", flat=True)[: count * ROWS_PER_OUTCOME]
    return [outcome for outcome in outcomes if outcome not in NEUTRAL_OUTCOMES][:count]


def _key_expires(rule: AlertRule, now: datetime) -> Iterable[Finding]:
    # The overlap of a rotated key ends as planned, as does a connection.
    keys = without_connections(ApiKey.objects.all()).filter(
        tenant=rule.tenant_id,
        revoked_at=None,
        replaced_by=None,
        expires_at__gt=now,
        expires_at__lte=now + timedelta(days=rule.threshold),
    )
    for key in keys.order_by("expires_at")[:MAX_SUBJECTS]:
        days = (key.expires_at - now) / timedelta(days=1)  # type: ignore[operator]
        yield Finding(str(key.pk), round(days, 3), f"{key.expires_at:%Y-%m-%d %H:%M} UTC: the API key {key} expires")


def _queue_age(rule: AlertRule, now: datetime) -> list[Finding]:
    rows = RunningCall.objects.filter(status=CallStatus.QUEUED, background=True)
    if rule.tenant_id is not None:
        rows = rows.filter(tenant=rule.tenant_id)
    oldest = rows.order_by("started_at").values_list("started_at", flat=True).first()
    seconds = (now - oldest).total_seconds() if oldest else 0
    if not oldest or seconds < rule.threshold:
        return []
    text = f"{seconds:.0f} s is how long the oldest background call has waited (threshold {rule.threshold:g} s)"
    return [Finding("", round(seconds, 3), text)]


def _process_died(rule: AlertRule, now: datetime) -> Iterable[Finding]:
    deaths = ProcessDeath.objects.filter(died_at__gte=now - timedelta(minutes=rule.window_minutes))
    for death in deaths.order_by("-died_at")[:MAX_SUBJECTS]:
        yield Finding(str(death.pk), 1, f"A {death.kind} process died: {death.pid} on {death.host}"[:300])


CONDITIONS: Final[dict[AlertKind, Condition]] = {
    AlertKind.ERROR_RATE: _error_rate,
    AlertKind.P95: _p95,
    AlertKind.FAILURES: _failures,
    AlertKind.DENIALS: _denials,
    AlertKind.KEY_EXPIRES: _key_expires,
    AlertKind.QUEUE_AGE: _queue_age,
    AlertKind.PROCESS_DIED: _process_died,
}


def _statistics(rule: AlertRule, now: datetime) -> CallStatistics:
    """Return the sums of the periods of the rule's window. The oldest period counts as a whole."""
    begin = counters.period_of(now - timedelta(minutes=rule.window_minutes))
    rows = _figures(rule, begin, now)
    if rule.tool_pattern and rule.measure.has_pattern:
        names = rows.order_by().values_list("tool_name", flat=True).distinct()
        rows = rows.filter(tool_name__in=[name for name in names if _matches(rule, name)])
    return CallStatistics([number or 0 for number in rows.order_by().aggregate(**SUMS).values()])


def _figures(rule: AlertRule, begin: datetime, now: datetime) -> "QuerySet[CallFigures, Any]":
    rows = storage.within(begin, now + CLOCK_TOLERANCE)
    return rows if rule.tenant_id is None else rows.filter(tenant_id=rule.tenant_id)


def _matches(rule: AlertRule, name: str) -> bool:
    return not rule.tool_pattern or fnmatchcase(name, rule.tool_pattern)


def _within(rule: AlertRule) -> str:
    tools = f" of {rule.tool_pattern}" if rule.tool_pattern and rule.measure.has_pattern else ""
    return f"{tools} in the last {rule.window_minutes} minutes"
