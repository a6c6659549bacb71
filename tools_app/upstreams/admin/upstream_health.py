"""The health of upstreams: whether the hub reaches them, what is wrong with their credentials, and what to review.

For the admins of their tenants. What it shows is stored, so that it is the same in every process.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from tools_app.models import ItemState, Upstream, UpstreamStatus
from tools_app.tenants import permissions
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.upstreams import service
from tools_app.upstreams.credentials import store
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.web.admin.scoping import badge, by_id

MAX_SHOWN: Final = 200
ADDRESS: Final = "admin:tools_app_upstream_show_health"


@dataclass(frozen=True)
class HealthRow:
    """One upstream on the page. `refused_until` is set while calls are refused after failures."""

    upstream: Upstream
    status: UpstreamStatus | None
    state: SafeString
    refused_until: datetime | None
    credential_problems: list[str]
    waiting: int
    credential_page: str


def page(admin: "ModelAdmin[Any]", request: HttpRequest) -> HttpResponse:
    """Show the upstreams of the tenants that this user administers. A POST with the id of one connects to it."""
    permitted = tenant_permissions_of(request)
    if not permitted.is_admin_anywhere:
        raise PermissionDenied
    rows = Upstream.objects.filter(tenant__in=permissions.tenants_run_by(request.user))
    if request.method == "POST":
        upstream = by_id(rows.select_related("tenant"), "pk", request.POST.get("check") or "-").first()
        if upstream is None:
            raise Http404("Upstream not found.")
        try:
            offered = service.discover(upstream, request.user.pk)
        except UpstreamFailed as error:
            admin.message_user(request, f"Cannot connect to {upstream}: {error.message}", messages.ERROR)
        else:
            admin.message_user(request, f"Connected to {upstream}. It offers {offered.summary}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse(ADDRESS))
    waiting = Count("items", filter=Q(items__state__in=[ItemState.NEW, ItemState.CHANGED]))
    counted = rows.annotate(waiting_items=waiting).select_related("tenant", "status").order_by("tenant__name", "name")
    upstreams = list(counted[: MAX_SHOWN + 1])
    shown = upstreams[:MAX_SHOWN]
    problems = store.problems_of(shown)
    context = {
        **admin.admin_site.each_context(request),
        "title": "Health of upstreams",
        "rows": [_row(upstream, problems.get(upstream.pk, [])) for upstream in shown],
        "has_more": len(upstreams) > MAX_SHOWN,
        "shows_tenants": permitted.sees_several_tenants,
        "opts": admin.opts,
    }
    return TemplateResponse(request, "upstreams/health.html", context)


def _row(upstream: Any, problems: list[str]) -> HealthRow:
    status: UpstreamStatus | None = getattr(upstream, "status", None)
    until = status.refused_until if status is not None else None
    refused_until = until if until is not None and until > timezone.now() else None
    if not upstream.enabled:
        state = badge("Disabled", "info")
    elif refused_until is not None:
        state = badge("Paused after failures", "danger")
    elif status is not None and status.problem:
        state = badge("Failing", "danger")
    elif problems:
        state = badge("Credentials needed", "warning")
    else:
        state = badge("OK", "success") if status is not None else badge("Not connected yet", "info")
    return HealthRow(
        upstream=upstream,
        status=status,
        state=state,
        refused_until=refused_until,
        credential_problems=problems,
        waiting=upstream.waiting_items,
        credential_page=f"{store.PATH}/{upstream.pk}" if problems else "",
    )
