"""The live tail: calls as they arrive. It shows facts only, which all members may see of their tenants."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from tools_app.calls.admin import live_rows
from tools_app.calls.admin.columns import OUTCOME_COLOURS, duration_text, moment_text, name_of
from tools_app.calls.admin.live_rows import Wanted
from tools_app.core.relations import related
from tools_app.models import ApiKey, Call, Outcome, RunningCall, Tenant, Tool
from tools_app.tenants import permissions
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.links import key_name
from tools_app.web.admin.scoping import MAX_CHOICES

MAX_FILTER: Final = 500
FAILURES: Final = frozenset(Outcome) - {Outcome.OK, Outcome.INPUT_REQUIRED, Outcome.CANCELLED}


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL patterns of the page and its JSON endpoints."""
    return [
        path("live/", site.admin_view(_page(site)), name="live_tail"),
        path("live/calls/", site.admin_view(require_GET(poll)), name="live_tail_calls"),
    ]


def _page(site: AdminSite) -> Callable[[HttpRequest], HttpResponse]:
    @require_GET
    def page(request: HttpRequest) -> HttpResponse:
        seen = permissions.tenants_seen_by(request.user).order_by("name")
        wanted(request)
        context = {
            **site.each_context(request),
            "title": "Live",
            "is_fullwidth": "1",
            "tenants": list(seen[:MAX_CHOICES]) if tenant_permissions_of(request).sees_several_tenants else [],
            "tools": _names(permissions.rows_seen_by(request.user, Tool.objects.order_by("name"))),
            "keys": permissions.rows_seen_by(request.user, ApiKey.objects.order_by("name"))[:MAX_CHOICES],
            "outcomes": Outcome.choices,
            "chosen": request.GET,
            "anonymous": live_rows.ANONYMOUS,
            "most_shown": live_rows.MAX_SHOWN,
        }
        return TemplateResponse(request, "calls/live_tail.html", context)

    return page


def poll(request: HttpRequest) -> JsonResponse:
    """Return changes since the last poll: `after` is the previous cursor, `known` are the calls known as running."""
    now = timezone.now()
    since = live_rows.recent_since(live_rows.moment_of(request.GET.get("after", "")))
    known = live_rows.known_rows(request.GET.get("known", ""))
    news = live_rows.news(wanted(request), since, known)
    body = {
        "cursor": live_rows.cursor_of(now),
        "reset": since is None,
        "today": f"{timezone.localtime(now):%Y-%m-%d} ",
        "partial": news.is_partial,
        "over": [str(call_id) for call_id in news.over],
        "calls": [*map(_settled, news.settled), *map(_running, news.running)],
    }
    return JsonResponse(body, headers={"Cache-Control": "no-store"})


def wanted(request: HttpRequest) -> Wanted:
    """Return the requested filter. Raises Http404 alike for a missing tenant and for one the user cannot access."""
    texts = {name: request.GET.get(name, "")[:MAX_FILTER] for name in ("tool", "key", "outcome", "client")}
    return Wanted(_tenants(request), **texts)


def _tenants(request: HttpRequest) -> frozenset[UUID] | None:
    permitted = tenant_permissions_of(request)
    tenant_id = request.GET.get("tenant", "")
    if not tenant_id:
        return None if permitted.everything else permitted.seen
    try:
        tenant = UUID(tenant_id)
    except ValueError:
        raise Http404("Tenant not found.") from None
    if not permitted.sees(tenant) or not Tenant.objects.filter(pk=tenant).exists():
        raise Http404("Tenant not found.")
    return frozenset({tenant})


def _settled(call: Call) -> dict[str, Any]:
    outcome = Outcome(call.outcome)
    return {
        **_facts(call, "tools_app_call"),
        "state": call.outcome,
        "says": outcome.label if call.repeated == 1 else f"{outcome.label} x {call.repeated}",
        "colour": OUTCOME_COLOURS[outcome],
        "took": duration_text(call.duration_us),
        "bad": outcome in FAILURES,
        "mark": "",
    }


def _running(call: RunningCall) -> dict[str, Any]:
    return {
        **_facts(call, "tools_app_runningcall"),
        "state": call.status,
        "says": call.get_status_display(),
        "colour": "primary",
        "took": "",
        "bad": False,
        "mark": live_rows.row_mark(call),
    }


def _facts(call: Call | RunningCall, page: str) -> dict[str, Any]:
    tenant = related(call, "tenant")
    return {
        "id": str(call.pk),
        "at": moment_text(call.started_at),
        "name": name_of(call),
        "tenant": tenant.name if tenant else "-",
        "key": key_name(call),
        "client": f"{call.client_name} {call.client_version}".strip() or call.remote_address or "-",
        "url": reverse(f"admin:{page}_change", args=[call.pk]),
    }


def _names(tools: Any) -> list[str]:
    return list(tools.values_list("name", flat=True).distinct()[:MAX_CHOICES])
