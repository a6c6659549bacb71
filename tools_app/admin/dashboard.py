"""What the admin's first page says: how the calls within a person's reach went, what runs, and what is to be done.

Calls are read from their figures, so the page is as quick with ten million of them as with ten.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Window
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tools_app.admin import charts
from tools_app.admin.links import ANONYMOUS
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import MOST_CHOICES, narrow
from tools_app.audit.overview import PERIODS, Asked, Overview, Period, Row, Went, overview
from tools_app.auth import access, keys
from tools_app.models import ApiKey, RunningCall, Tenant, Tool

USUAL_PERIOD: Final = "24h"
MOST_TENANTS: Final = 10
MOST_RUNNING: Final = 5
MOST_KEYS: Final = 5
MILLISECOND: Final = 1000
SECOND: Final = 1_000_000
NOTHING: Final = "-"


@dataclass(frozen=True)
class Choice:
    """What the page is about, and what else it may be about."""

    period: Period
    tenant: Tenant | None
    tenants: list[Tenant]
    lacking: "list[FirstSteps]"

    def query(self, **other: str) -> str:
        """The query string of this choice with something else in it."""
        chosen = {"period": self.period.name, "tenant": self.tenant.slug if self.tenant else ""} | other
        return urlencode({name: value for name, value in chosen.items() if value})


@dataclass(frozen=True)
class Card:
    """One number, and how it was in the period before."""

    label: str
    figure: str
    before: str
    link: str = ""


@dataclass(frozen=True)
class FirstSteps:
    """What a tenant needs before a client can do anything with it."""

    tenant: Tenant
    needs_tool: bool
    needs_key: bool


@dataclass(frozen=True)
class Running:
    """Calls that have not ended: how many, and the oldest of them."""

    count: int
    oldest: list[dict[str, Any]]


def active_keys() -> Q:
    """Keys that open the door now."""
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=timezone.now()))


def context_of(request: HttpRequest) -> dict[str, Any]:
    """What the page's template shows."""
    person, now = request.user, timezone.now()
    choice = _choice(request)
    seen = overview(Asked(choice.period, _within(request, choice)), now, timezone.get_current_timezone())
    expiring, named = _keys(person, choice, seen.keys)
    calls = _Calls(choice, seen.points[0].begins_at)
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
        "expiring_keys": expiring,
        "first_steps": _first_steps(request, choice),
        "shows_health": reach_of(request).everything,
        "runs_any": reach_of(request).runs_any,
    }


def _choice(request: HttpRequest) -> Choice:
    """What was asked for by the query string; what makes no sense, or is beyond reach, is not asked for."""
    period = PERIODS.get(request.GET.get("period", ""), PERIODS[USUAL_PERIOD])
    reachable = access.tenants_seen_by(request.user)
    found: list[Any] = list(_with_what_they_have(reachable)[:MOST_CHOICES])
    tenants: list[Tenant] = found
    slug = request.GET.get("tenant", "")
    tenant = next((tenant for tenant in tenants if tenant.slug == slug), None)
    if tenant is None and slug and len(tenants) == MOST_CHOICES:
        tenant = reachable.filter(slug=slug).first()
    lacking = [
        FirstSteps(row, not row.has_tool, not row.has_key) for row in found if not (row.has_tool and row.has_key)
    ]
    return Choice(period, tenant, tenants, lacking)


def _with_what_they_have(tenants: "QuerySet[Tenant]") -> "QuerySet[Any]":
    """Tenants, and whether they have what a first call needs."""
    tools = Exists(Tool.objects.filter(tenant=OuterRef("pk")))
    good = Exists(ApiKey.objects.filter(tenant=OuterRef("pk"), revoked_at=None))
    return tenants.annotate(has_tool=tools, has_key=good)


def _within(request: HttpRequest, choice: Choice) -> Iterable[UUID] | QuerySet[Tenant] | None:
    if choice.tenant:
        return [choice.tenant.pk]
    if reach_of(request).everything:
        return None
    if len(choice.tenants) == MOST_CHOICES:
        return access.tenants_seen_by(request.user)
    return [tenant.pk for tenant in choice.tenants]


class _Calls:
    """Links to the calls behind a number, in the audit log."""

    def __init__(self, choice: Choice, since: datetime) -> None:
        self._list = reverse("admin:tools_app_call_changelist")
        self._always = {"since": since.isoformat()} | ({"tenant": choice.tenant.slug} if choice.tenant else {})

    def link(self, **wanted: str | Sequence[str]) -> str:
        """The address of the list of calls that are `wanted`."""
        return f"{self._list}?{urlencode({**self._always, **wanted}, doseq=True)}"


def _cards(seen: Overview, calls: _Calls) -> list[Card]:
    total, before = seen.total, seen.before
    failed = ("tool_error", "rejected", "timeout", "lost", "interrupted")
    return [
        Card("Calls", _count(total.calls), _versus(total.calls, before.calls, _count), calls.link()),
        Card("Errors", _share(total), f"before: {_share(before)}", calls.link(outcome=failed)),
        Card(
            "Denials",
            _count(total.denials),
            _versus(total.denials, before.denials, _count),
            calls.link(outcome="denied"),
        ),
        Card("Half took at most", _took(total.p50_us), _versus(total.p50_us, before.p50_us, _took)),
        Card("95% took at most", _took(total.p95_us), _versus(total.p95_us, before.p95_us, _took)),
    ]


def _versus(now: float | None, before: float | None, text: Callable[[float | None], str]) -> str:
    """How a number was in the period before, and by how much it has changed."""
    if not before or now is None:
        return f"before: {text(before)}"
    return f"before: {text(before)} ({(now - before) / before:+.0%})"


def _count(number: float | None) -> str:
    return f"{number or 0:,.0f}"


def _share(went: Went) -> str:
    return NOTHING if went.error_rate is None else f"{went.error_rate:.1%}"


def _took(microseconds: float | None) -> str:
    if microseconds is None:
        return NOTHING
    if microseconds < SECOND:
        milliseconds = microseconds / MILLISECOND
        return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds:.0f} ms"  # noqa: PLR2004
    return f"{microseconds / SECOND:.1f} s"


def _charts_table(seen: Overview) -> dict[str, Any]:
    """What the charts show, for those who do not see them."""
    rows = [(charts.label(point.begins_at, seen.period), point.went) for point in seen.points]
    return {
        "title": "The charts as a table",
        "headers": ["From", "Calls", "Errors", "Denials", "p50", "p95"],
        "rows": [
            [label, *map(_count, (went.calls, went.errors, went.denials)), _took(went.p50_us), _took(went.p95_us)]
            for label, went in rows
        ],
    }


def _tables(seen: Overview, calls: _Calls, named: dict[str, ApiKey]) -> list[dict[str, Any]]:
    def tool(name: str) -> SafeString:
        return _linked(name, calls.link(tool=name)) if name else format_html("{}", "Unknown names")

    def key(id: str) -> SafeString:
        if not id:
            return _linked("No key", calls.link(key=ANONYMOUS))
        return _linked(str(named.get(id, f"{id} (gone)")), calls.link(key=id))

    def client(name: str) -> SafeString:
        return _linked(name, calls.link(client=name)) if name else format_html("{}", "No name, or one of very many")

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
                _count(row.went.calls),
                _share(row.went),
                _count(row.went.denials),
                _took(row.went.p95_us),
            ]
            for row in rows
        ],
    }


def _of_choice(person: access.Person, choice: Choice, rows: Any) -> Any:
    """Those of `rows` that the page is about."""
    return rows.filter(tenant=choice.tenant) if choice.tenant else access.rows_seen_by(person, rows)


def _running(person: access.Person, choice: Choice) -> Running:
    rows = _of_choice(person, choice, RunningCall.objects.annotate(all=Window(Count("pk"))))
    columns = ("pk", "tool_name", "method", "status", "started_at", "client_name", "tenant_id", "all")
    oldest = list(rows.order_by("started_at").values(*columns)[:MOST_RUNNING])
    names = {tenant.pk: tenant.name for tenant in choice.tenants}
    return Running(
        oldest[0]["all"] if oldest else 0, [{**row, "tenant": names.get(row["tenant_id"], "")} for row in oldest]
    )


def _keys(person: access.Person, choice: Choice, rows: list[Row]) -> tuple[list[ApiKey], dict[str, ApiKey]]:
    """Keys that expire soon, and those that the table tells of, by their ids."""
    reachable = _of_choice(person, choice, ApiKey.objects.select_related("tenant"))
    expiring = list(keys.expiring_soon(reachable)[:MOST_KEYS])
    named = {str(key.pk): key for key in reachable.filter(pk__in=[row.name for row in rows if row.name])}
    return expiring, named


def _first_steps(request: HttpRequest, choice: Choice) -> list[FirstSteps]:
    """What those tenants lack that the person runs."""
    reach = reach_of(request)
    about = [steps for steps in choice.lacking if choice.tenant in {None, steps.tenant}]
    return [steps for steps in about if reach.changes(steps.tenant.pk)][:MOST_TENANTS]
