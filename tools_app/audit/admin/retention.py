"""Retention page: how long each tenant's calls are kept, and a dry run of pruning.

The dry run shows what would be pruned with the current or another number of days; it deletes and changes nothing.
Superusers see all tenants, other users the tenants that they administer.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET
from unfold.widgets import BASE_INPUT_CLASSES

from tools_app.audit.retention import MAX_DAYS, days_kept, preview
from tools_app.models import Tenant
from tools_app.tenants import permissions
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.scoping import MAX_CHOICES, by_id, only

WRONG_DAYS: Final = f"Enter a whole number of days up to {MAX_DAYS}. 0 keeps calls forever."


@dataclass(frozen=True)
class Kept:
    """The retention period of a tenant's calls. 0 days means forever."""

    tenant: Tenant
    days: int
    is_own: bool


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL pattern of the page."""
    return [path("retention/", site.admin_view(require_GET(_page(site))), name="retention")]


def _page(site: AdminSite) -> Any:
    def page(request: HttpRequest) -> HttpResponse:
        if not tenant_permissions_of(request).is_admin_anywhere:
            raise PermissionDenied
        tenants = permissions.tenants_run_by(request.user).order_by("name")
        tenant = _chosen(request, tenants)
        days = _days(request, tenant) if tenant else None
        tried = preview(tenant, days) if tenant and days is not None else None
        context = {
            **site.each_context(request),
            "title": "Retention",
            "kept": [Kept(each, days_kept(each), each.keep_days is not None) for each in tenants[:MAX_CHOICES]],
            "tenant": tenant,
            "present": days_kept(tenant) if tenant else None,
            "tried": request.GET.get("keep_days", ""),
            "error": WRONG_DAYS if tenant and days is None else "",
            "trial": tried,
            "calls": f"{tried.calls:,}" if tried and tried.calls else "",
            "estimated": f"{tried.estimated:,}" if tried and tried.estimated else "",
            "hub_days": settings.MCPHUB_KEEP_DAYS,
            "sets_it": tenant_permissions_of(request).is_superuser,
            "input_classes": " ".join(BASE_INPUT_CLASSES),
        }
        return TemplateResponse(request, "audit/retention.html", context)

    return page


def _chosen(request: HttpRequest, tenants: Any) -> Tenant | None:
    """Return the selected tenant. Raises Http404 alike for a missing tenant and for one the user cannot access."""
    wanted = request.GET.get("tenant")
    if not wanted:
        found: Tenant | None = only(tenants)
        return found
    tenant: Tenant | None = by_id(tenants, "pk", wanted).first()
    if tenant is None:
        raise Http404("Tenant not found.")
    return tenant


def _days(request: HttpRequest, tenant: Tenant) -> int | None:
    """Return the number of days to try, or the current setting; None if the input is not a valid number of days."""
    text = request.GET.get("keep_days", "").strip()
    if not text:
        return days_kept(tenant)
    return int(text) if re.fullmatch("[0-9]{1,6}", text) and int(text) <= MAX_DAYS else None
