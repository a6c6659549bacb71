"""How long calls are kept, by tenant, and what would be pruned now, or if they were kept for another time.

A superuser sees all tenants, others those that they run. It is a dry run: nothing is deleted or changed here.
"""

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

from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import MOST_CHOICES, by_id, only
from tools_app.audit.retention import MOST_DAYS
from tools_app.audit.retention_trial import days_kept, trial
from tools_app.auth import access
from tools_app.models import Tenant

WRONG_DAYS: Final = f"Write a whole number of days, up to {MOST_DAYS}; 0 keeps calls for ever."


@dataclass(frozen=True)
class Kept:
    """How long the calls of a tenant are kept; 0 days is for ever."""

    tenant: Tenant
    days: int
    is_own: bool


def urls(site: AdminSite) -> list[URLPattern]:
    """The address of the page."""
    return [path("retention/", site.admin_view(require_GET(_page(site))), name="retention")]


def _page(site: AdminSite) -> Any:
    def page(request: HttpRequest) -> HttpResponse:
        if not reach_of(request).runs_any:
            raise PermissionDenied
        tenants = access.tenants_run_by(request.user).order_by("name")
        tenant = _chosen(request, tenants)
        days = _days(request, tenant) if tenant else None
        tried = trial(tenant, days) if tenant and days is not None else None
        context = {
            **site.each_context(request),
            "title": "Retention",
            "kept": [Kept(each, days_kept(each), each.keep_days is not None) for each in tenants[:MOST_CHOICES]],
            "tenant": tenant,
            "present": days_kept(tenant) if tenant else None,
            "tried": request.GET.get("keep_days", ""),
            "error": WRONG_DAYS if tenant and days is None else "",
            "trial": tried,
            "calls": f"{tried.calls:,}" if tried and tried.calls else "",
            "believed": f"{tried.believed:,}" if tried and tried.believed else "",
            "hub_days": settings.MCPHUB_KEEP_DAYS,
            "sets_it": reach_of(request).everything,
            "input_classes": " ".join(BASE_INPUT_CLASSES),
        }
        return TemplateResponse(request, "admin/tools_app/retention.html", context)

    return page


def _chosen(request: HttpRequest, tenants: Any) -> Tenant | None:
    """The tenant that the page is about. Raises Http404 for one that is foreign or missing, which looks the same."""
    wanted = request.GET.get("tenant")
    if not wanted:
        found: Tenant | None = only(tenants)
        return found
    tenant: Tenant | None = by_id(tenants, "pk", wanted).first()
    if tenant is None:
        raise Http404("There is no such tenant.")
    return tenant


def _days(request: HttpRequest, tenant: Tenant) -> int | None:
    """The days that are tried, or those that are set; None if what was written is no number of days."""
    text = request.GET.get("keep_days", "").strip()
    if not text:
        return days_kept(tenant)
    days = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_DAYS)) else -1
    return days if 0 <= days <= MOST_DAYS else None
