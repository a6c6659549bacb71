"""The live tail: calls as they come. It shows facts only, which everybody in the admin may see of its tenants."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from tools_app.admin import live_calls
from tools_app.admin.call_facts import duration_text, moment_text
from tools_app.admin.call_page import OUTCOME_COLOURS
from tools_app.admin.links import key_name
from tools_app.admin.live_calls import Wanted
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import MOST_CHOICES
from tools_app.auth import access
from tools_app.models import ApiKey, Call, Outcome, RunningCall, Tenant, Tool
from tools_app.models.reading import related

LONGEST_FILTER: Final = 500
FAILURES: Final = frozenset(Outcome) - {Outcome.OK, Outcome.INPUT_REQUIRED, Outcome.CANCELLED}


def urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of the page and of what it asks for."""
    return [
        path("live/", site.admin_view(_page(site)), name="live_tail"),
        path("live/calls/", site.admin_view(require_GET(look)), name="live_tail_calls"),
    ]


def _page(site: AdminSite) -> Callable[[HttpRequest], HttpResponse]:
    @require_GET
    def page(request: HttpRequest) -> HttpResponse:
        seen = access.tenants_seen_by(request.user).order_by("name")
        wanted(request)
        context = {
            **site.each_context(request),
            "title": "Live",
            "is_fullwidth": "1",
            "tenants": list(seen[:MOST_CHOICES]) if reach_of(request).sees_several else [],
            "tools": _names(access.rows_seen_by(request.user, Tool.objects.order_by("name"))),
            "keys": access.rows_seen_by(request.user, ApiKey.objects.order_by("name"))[:MOST_CHOICES],
            "outcomes": Outcome.choices,
            "chosen": request.GET,
            "runs_any": reach_of(request).runs_any,
            "anonymous": live_calls.ANONYMOUS,
            "most_shown": live_calls.MOST_SHOWN,
        }
        return TemplateResponse(request, "admin/tools_app/live_tail.html", context)

    return page


def look(request: HttpRequest) -> JsonResponse:
    """What is new since a look: `after` is the cursor it was given, `known` what it saw running."""
    now = timezone.now()
    since = live_calls.lately(live_calls.moment_of(request.GET.get("after", "")))
    known = live_calls.known_of(request.GET.get("known", ""))
    news = live_calls.news(wanted(request), since, known)
    body = {
        "cursor": live_calls.cursor_of(now),
        "anew": since is None,
        "today": f"{timezone.localtime(now):%Y-%m-%d} ",
        "partial": news.is_partial,
        "over": [str(call_id) for call_id in news.over],
        "calls": [*map(_settled, news.settled), *map(_running, news.running)],
    }
    return JsonResponse(body, headers={"Cache-Control": "no-store"})


def wanted(request: HttpRequest) -> Wanted:
    """Which calls are asked for. Raises Http404 for a tenant that is foreign or missing, which looks the same."""
    texts = {name: request.GET.get(name, "")[:LONGEST_FILTER] for name in ("tool", "key", "outcome", "client")}
    return Wanted(_tenants(request), **texts)


def _tenants(request: HttpRequest) -> frozenset[UUID] | None:
    reach = reach_of(request)
    asked = request.GET.get("tenant", "")
    if not asked:
        return None if reach.everything else reach.seen
    try:
        tenant = UUID(asked)
    except ValueError:
        raise Http404("There is no such tenant.") from None
    if not reach.sees(tenant) or not Tenant.objects.filter(pk=tenant).exists():
        raise Http404("There is no such tenant.")
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
        "mark": live_calls.mark_of(call),
    }


def _facts(call: Call | RunningCall, page: str) -> dict[str, Any]:
    tenant = related(call, "tenant")
    return {
        "id": str(call.pk),
        "at": moment_text(call.started_at),
        "name": call.tool_name or call.method or "-",
        "tenant": tenant.name if tenant else "-",
        "key": key_name(call),
        "client": f"{call.client_name} {call.client_version}".strip() or call.remote_address or "-",
        "url": reverse(f"admin:{page}_change", args=[call.pk]),
    }


def _names(tools: Any) -> list[str]:
    return list(tools.values_list("name", flat=True).distinct()[:MOST_CHOICES])
