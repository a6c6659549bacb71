"""Failed calls by tool and cause, with first and last occurrence, and how they are spread over a period."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from tools_app.audit.search import failures
from tools_app.audit.search.failures import BUCKETS, MAX_TENANTS, Failures
from tools_app.calls.admin.columns import OUTCOME_COLOURS
from tools_app.models import Call, Tenant
from tools_app.tenants import permissions
from tools_app.tenants.permissions import TenantPermissions, tenant_permissions_of
from tools_app.web.admin.scoping import MAX_CHOICES, badge

PERIODS: Final = {
    "1h": ("Last hour", timedelta(hours=1)),
    "24h": ("Last 24 hours", timedelta(days=1)),
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
}
USUAL: Final = "24h"
SORTS: Final = {"last": "Last seen", "count": "Number of calls"}
MAX_NAME: Final = 128
# The size of a sparkline.
WIDTH, HEIGHT = 120, 24


class Row(NamedTuple):
    """A group as the page shows it."""

    group: Failures
    tenant: Tenant
    outcome: SafeString
    points: str
    calls_url: str
    call_url: str


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL pattern of the page."""
    return [path("failures/", site.admin_view(_page(site)), name="failures")]


def address_of(call: Call, permitted: TenantPermissions) -> str:
    """Return the address of the group of a failed call; "" for any other call, and for one before all periods."""
    group = failures.group_of(call, audited=permitted.audits(call.tenant_id))
    age = timezone.now() - call.started_at
    period = next((name for name, (_, length) in PERIODS.items() if age < length and name != "1h"), "")
    if group is None or not period:
        return ""
    query = urlencode({"period": period, "tenant": str(call.tenant_id), "tool": call.tool_name})
    return f"{reverse('admin:failures')}?{query}#group-{group.digest}"


def _page(site: AdminSite) -> Callable[[HttpRequest], HttpResponse]:
    @require_GET
    def page(request: HttpRequest) -> HttpResponse:
        permitted = tenant_permissions_of(request)
        period = request.GET.get("period", USUAL) if request.GET.get("period") in PERIODS else USUAL
        sort = request.GET.get("sort") if request.GET.get("sort") in SORTS else "last"
        tool_name = request.GET.get("tool", "")[:MAX_NAME]
        seen = list(permissions.tenants_seen_by(request.user).order_by("name")[: MAX_CHOICES + 1])
        chosen = _chosen(seen, request.GET.get("tenant", ""))
        tenants = [chosen] if chosen else seen[:MAX_TENANTS]
        until = timezone.now()
        audited = {tenant.pk: permitted.audits(tenant.pk) for tenant in tenants}
        report = failures.failures(tenants, audited, until - PERIODS[period][1], until, tool_name)
        groups = sorted(report.groups, key=lambda one: -one.count) if sort == "count" else report.groups
        by_id = {tenant.pk: tenant for tenant in tenants}
        context = {
            **site.each_context(request),
            "title": "Failures",
            "rows": [_row(group, by_id[group.tenant_id], period) for group in groups],
            "report": report,
            "periods": {name: text for name, (text, _) in PERIODS.items()},
            "period": period,
            "sorts": SORTS,
            "sort": sort,
            "tool": tool_name,
            "tenants": seen[:MAX_CHOICES] if permitted.sees_several_tenants else [],
            "chosen": chosen,
            "leaves_out": not chosen and len(seen) > MAX_TENANTS,
            "most_tenants": MAX_TENANTS,
            "hides_causes": not all(audited.values()),
            "box": f"0 0 {WIDTH} {HEIGHT}",
        }
        return TemplateResponse(request, "calls/failures.html", context)

    return page


def _chosen(seen: list[Tenant], wanted: str) -> Tenant | None:
    try:
        id = UUID(wanted)
    except ValueError:
        return None
    return next((tenant for tenant in seen if tenant.pk == id), None)


def _row(group: Failures, tenant: Tenant, period: str) -> Row:
    # A sparkline, as the points of an SVG polyline.
    most, step = max(group.buckets) or 1, WIDTH / (BUCKETS - 1)
    heights = [HEIGHT - 2 - (HEIGHT - 4) * count / most for count in group.buckets]
    query: dict[str, Any] = {"tenant": tenant.slug, "outcome": group.outcome.value, "period": period}
    query |= {"tool" if group.is_tool else "method": group.name}
    query |= {"text": group.words} if group.words else {}
    return Row(
        group=group,
        tenant=tenant,
        outcome=badge(str(group.outcome.label), OUTCOME_COLOURS[group.outcome]),
        points=" ".join(f"{at * step:.1f},{height:.1f}" for at, height in enumerate(heights)),
        calls_url=f"{reverse('admin:tools_app_call_changelist')}?{urlencode(query)}",
        call_url=reverse("admin:tools_app_call_change", args=[group.example_id]),
    )
