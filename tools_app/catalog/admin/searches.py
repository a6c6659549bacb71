"""The page of searches for tools that led to no call, for the admins and auditors of their tenants."""

from collections.abc import Callable
from typing import Any, Final

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET

from tools_app.audit.search.unanswered import MAX_SEARCHES, PERIOD, unanswered_searches
from tools_app.tenants import permissions
from tools_app.tenants.permissions import tenant_permissions_of

MAX_TENANTS: Final = 100


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL pattern of the page."""
    return [path("searches/", site.admin_view(_page(site)), name="searches")]


def _page(site: AdminSite) -> Callable[[HttpRequest], HttpResponse]:
    @require_GET
    def page(request: HttpRequest) -> HttpResponse:
        permitted = tenant_permissions_of(request)
        seen = permissions.tenants_seen_by(request.user).order_by("name")
        tenants = {tenant.pk: tenant for tenant in seen[:MAX_TENANTS] if permitted.audits(tenant.pk)}
        if not tenants and not permitted.is_superuser:
            raise PermissionDenied
        report = unanswered_searches(tenants.keys())
        rows: list[dict[str, Any]] = [
            {"search": search, "tenant": tenants[search.tenant_id]} for search in report.searches
        ]
        context = {
            **site.each_context(request),
            "title": "Searches without a call",
            "rows": rows,
            "is_partial": report.is_partial,
            "is_late": report.is_late,
            "most": MAX_SEARCHES,
            "days": PERIOD.days,
            "shows_tenants": permitted.sees_several_tenants,
        }
        return TemplateResponse(request, "catalog/searches.html", context)

    return page
