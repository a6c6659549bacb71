"""The admin's overview page: statistics of the accessible calls, running calls and next steps.

Calls are read from aggregated statistics, so the duration does not depend on the number of calls.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Count, QuerySet, Window
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tools_app.audit.stats.overview import PERIODS, CallStatistics, Overview, OverviewQuery, Period, Row, overview
from tools_app.models import ApiKey, RunningCall, Tenant
from tools_app.tenants import keys, permissions
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.links import ANONYMOUS
from tools_app.web.admin.scoping import MAX_CHOICES, narrow
from tools_app.web.dashboard import charts
from tools_app.web.dashboard.first_steps import first_steps_of, has_steps_left, with_steps

USUAL_PERIOD: Final = "24h"
MAX_RUNNING: Final = 5
MAX_KEYS: Final = 5
MILLISECOND: Final = 1000
SECOND: Final = 1_000_000
NOTHING: Final = "-"
NO_DATA: Final = "before: no data"


@dataclass(frozen=True)
class Choice:
    """The selected period and tenant, the tenants that can be selected, and those of them with steps left."""

    period: Period
    tenant: Tenant | None
    tenants: list[Tenant]
    incomplete: list[Tenant]

    def query(self, **other: str) -> str:
        """Return the query string of this selection with other values."""
        chosen = {"period": self.period.name, "tenant": self.tenant.slug if self.tenant else ""} | other
        return urlencode({name: value for name, value in chosen.items() if value})


@dataclass(frozen=True)
class Card:
    """A figure and its value in the previous period."""

    label: str
    figure: str
    before: str
    link: str = ""


@dataclass(frozen=True)
class Running:
    """The number of calls that have not finished, and the oldest of them."""

    count: int
    oldest: list[dict[str, Any]]


def context_of(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the page's template."""
    person, now = request.user, timezone.now()
    choice = _choice(request)
    permitted = tenant_permissions_of(request)
    within: Iterable[UUID] | QuerySet[Tenant] | None
    if choice.tenant:
        within = [choice.tenant.pk]
    elif permitted.is_superuser:
        within = None
    elif len(choice.tenants) == MAX_CHOICES:
        within = permissions.tenants_seen_by(person)
    else:
        within = [tenant.pk for tenant in choice.tenants]
    seen = overview(OverviewQuery(choice.period, within), now, timezone.get_current_timezone())
    calls = _Calls(choice, seen.points[0].begins_at)
    reachable = _of_choice(person, choice, ApiKey.objects.select_related("tenant"))
    named = {str(key.pk): key for key in reachable.filter(pk__in=[row.name for row in seen.keys if row.name])}
    about = (one for one in choice.incomplete if choice.tenant in {None, one})
    # The selected tenant, or the first that the user administers, if it has steps left.
    chosen = next((one for one in about if permitted.changes(one.pk)), None)
    return {
        "choice": choice,
        "periods": [(period, choice.query(period=period.name)) for period in PERIODS.values()],
        "zone": timezone.get_current_timezone_name(),
        "overview": seen,
        "cards": _cards(seen, calls),
        "calls_chart": charts.calls_chart(seen),
        "latency_chart": charts.latency_chart(seen),
        "charts_table": _charts_table(seen),
        "tables": _tables(seen, calls, named),
        "running": _running(person, choice),
        "expiring_keys": list(keys.expiring_soon(reachable)[:MAX_KEYS]),
        "first_steps": first_steps_of(chosen) if chosen else None,
        "shows_health": permitted.is_superuser,
    }


def _choice(request: HttpRequest) -> Choice:
    """Return the selection in the query string, with defaults for values that are invalid or not accessible."""
    period = PERIODS.get(request.GET.get("period", ""), PERIODS[USUAL_PERIOD])
    reachable = permissions.tenants_seen_by(request.user)
    found: list[Any] = list(with_steps(reachable)[:MAX_CHOICES])
    tenants: list[Tenant] = found
    slug = request.GET.get("tenant", "")
    tenant = next((tenant for tenant in tenants if tenant.slug == slug), None)
    if tenant is None and slug and len(tenants) == MAX_CHOICES:
        tenant = reachable.filter(slug=slug).first()
    return Choice(period, tenant, tenants, [one for one in found if has_steps_left(one)])


class _Calls:
    """Links from figures to the matching calls in the audit log."""

    def __init__(self, choice: Choice, since: datetime) -> None:
        self._list = reverse("admin:tools_app_call_changelist")
        self._always = {"since": since.isoformat()} | ({"tenant": choice.tenant.slug} if choice.tenant else {})

    def link(self, **wanted: str | Sequence[str]) -> str:
        """Return the URL of the list of calls filtered by `wanted`."""
        return f"{self._list}?{urlencode({**self._always, **wanted}, doseq=True)}"


def _cards(seen: Overview, calls: _Calls) -> list[Card]:
    total, before = seen.total, seen.before
    failed = ("tool_error", "rejected", "timeout", "not_started", "lost", "interrupted")
    cards = [
        Card("Calls", _count(total.calls), _versus(total.calls, before.calls, _count), calls.link()),
        Card("Errors", _share(total), f"before: {_share(before)}", calls.link(outcome=failed)),
        Card(
            "Denials",
            _count(total.denials),
            _versus(total.denials, before.denials, _count),
            calls.link(outcome="denied"),
        ),
        Card("Median", _took(total.p50_us), _versus(total.p50_us, before.p50_us, _took)),
        Card("p95", _took(total.p95_us), _versus(total.p95_us, before.p95_us, _took)),
    ]
    return cards if before.calls or before.denials else [replace(card, before=NO_DATA) for card in cards]


def _versus(now: float | None, before: float | None, text: Callable[[float | None], str]) -> str:
    """Format the value in the previous period and the relative change."""
    if not before or now is None:
        return f"before: {text(before)}"
    return f"before: {text(before)} ({(now - before) / before:+.0%})"


def _count(number: float | None) -> str:
    return f"{number or 0:,.0f}"


def _share(statistics: CallStatistics) -> str:
    return NOTHING if statistics.error_rate is None else f"{statistics.error_rate:.1%}"


def _took(microseconds: float | None) -> str:
    if microseconds is None:
        return NOTHING
    if microseconds < SECOND:
        milliseconds = microseconds / MILLISECOND
        return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds:.0f} ms"  # noqa: PLR2004
    return f"{microseconds / SECOND:.1f} s"


def _charts_table(seen: Overview) -> dict[str, Any]:
    """Return the data of the charts as an accessible table."""
    rows = [(charts.label(point.begins_at, seen.period), point.statistics) for point in seen.points]
    return {
        "title": "Charts as a table",
        "headers": ["From", "Calls", "Errors", "Denials", "p50", "p95"],
        "rows": [
            [
                label,
                *map(_count, (statistics.calls, statistics.errors, statistics.denials)),
                _took(statistics.p50_us),
                _took(statistics.p95_us),
            ]
            for label, statistics in rows
        ],
    }


def _tables(seen: Overview, calls: _Calls, named: dict[str, ApiKey]) -> list[dict[str, Any]]:
    def tool(name: str) -> SafeString:
        return _linked(name, calls.link(tool=name)) if name else format_html("{}", "Unknown names")

    def key(id: str) -> SafeString:
        if not id:
            return _linked("No API key", calls.link(key=ANONYMOUS))
        return _linked(str(named.get(id, f"{id} (deleted)")), calls.link(key=id))

    def client(name: str) -> SafeString:
        return _linked(name, calls.link(client=name)) if name else format_html("{}", "Other")

    return [
        _table("By tool", "Tool, prompt or resource", seen.tools, tool),
        _table("By key", "Key", seen.keys, key),
        _table("By client", "Client", seen.clients, client),
    ]


def _linked(text: str, address: str) -> SafeString:
    return format_html('<a class="text-link" href="{}">{}</a>', address, narrow(text))


def _table(title: str, first: str, rows: list[Row], name: Callable[[str], SafeString]) -> dict[str, Any]:
    return {
        "title": title,
        "headers": [first, "Calls", "Errors", "Denials", "p95"],
        "rows": [
            [
                name(row.name),
                _count(row.statistics.calls),
                _share(row.statistics),
                _count(row.statistics.denials),
                _took(row.statistics.p95_us),
            ]
            for row in rows
        ],
    }


def _of_choice(person: permissions.Person, choice: Choice, rows: Any) -> Any:
    """Return those of `rows` that belong to the selection."""
    return rows.filter(tenant=choice.tenant) if choice.tenant else permissions.rows_seen_by(person, rows)


def _running(person: permissions.Person, choice: Choice) -> Running:
    rows = _of_choice(person, choice, RunningCall.objects.annotate(all=Window(Count("pk"))))
    columns = ("pk", "tool_name", "method", "status", "started_at", "client_name", "tenant_id", "all")
    oldest = list(rows.order_by("started_at").values(*columns)[:MAX_RUNNING])
    names = {tenant.pk: tenant.name for tenant in choice.tenants}
    return Running(
        oldest[0]["all"] if oldest else 0, [{**row, "tenant": names.get(row["tenant_id"], "")} for row in oldest]
    )
