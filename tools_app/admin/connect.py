"""How to connect a client with a key: what to paste, and a test of the connection from the browser.

Nobody but the client knows a key: what a person pastes into the page stays in the browser.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_GET

from tools_app.admin.dashboard import active_keys
from tools_app.admin.reach import reach_of
from tools_app.auth import snippets
from tools_app.models import ApiKey, Tenant


def urls(site: AdminSite) -> list[URLPattern]:
    """The address of the page."""
    return [path("keys/<uuid:key_id>/connect/", site.admin_view(_page(site)), name="connect")]


def offer(request: HttpRequest, tenant: Tenant, key: str = snippets.PLACEHOLDER) -> dict[str, Any]:
    """What the templates below `connect/` show: how to connect to a tenant's endpoint with a key."""
    url = snippets.endpoint(request.build_absolute_uri("/"), tenant.slug)
    return {
        "url": url,
        "snippets": snippets.for_key(tenant.slug, url, key),
        "cursor_link": snippets.cursor_link(tenant.slug, url, key),
        "placeholder": snippets.PLACEHOLDER,
    }


def _page(site: AdminSite) -> Callable[[HttpRequest, UUID], HttpResponse]:
    @require_GET
    def page(request: HttpRequest, key_id: UUID) -> HttpResponse:
        key = ApiKey.objects.select_related("tenant").filter(pk=key_id).first()
        reach = reach_of(request)
        if key is None or not reach.sees(key.tenant_id):
            raise Http404("There is no such key.")
        connect = offer(request, key.tenant)
        context = {
            **site.each_context(request),
            "title": f"Connect with {key.name}",
            "key": key,
            "is_good": ApiKey.objects.filter(active_keys(), pk=key.pk, tenant__is_active=True).exists(),
            "runs": reach.changes(key.tenant_id),
            "connect": connect,
            "start": {
                "key": str(key.pk),
                "url": f"/t/{key.tenant.slug}/mcp",
                "passUrl": reverse("admin:playground_pass") if reach.changes(key.tenant_id) else "",
                "placeholder": snippets.PLACEHOLDER,
            },
        }
        return TemplateResponse(request, "admin/tools_app/connect.html", context)

    return page
