"""Instructions for connecting a client with a key: snippets and a connection test in the browser.

The hub does not store keys in plain text: a key pasted into the page stays in the browser.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_GET

from tools_app.models import ApiKey, Tenant
from tools_app.tenants import keys
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.tenants.snippets import clients


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL pattern of the page."""
    return [path("keys/<uuid:key_id>/connect/", site.admin_view(_page(site)), name="connect")]


def offer(request: HttpRequest, tenant: Tenant, key: str = clients.PLACEHOLDER) -> dict[str, Any]:
    """Return the context of the templates in `connect/`: how to connect to a tenant's endpoint with a key."""
    url = clients.endpoint(request.build_absolute_uri("/"), tenant.slug)
    return {
        "url": url,
        "snippets": clients.for_key(tenant.slug, url, key),
        "cursor_link": clients.cursor_link(tenant.slug, url, key),
        "placeholder": clients.PLACEHOLDER,
    }


def _page(site: AdminSite) -> Callable[[HttpRequest, UUID], HttpResponse]:
    @require_GET
    def page(request: HttpRequest, key_id: UUID) -> HttpResponse:
        key = keys.without_connections(ApiKey.objects.select_related("tenant").filter(pk=key_id)).first()
        permitted = tenant_permissions_of(request)
        if key is None or not permitted.sees(key.tenant_id):
            raise Http404("API key not found.")
        connect = offer(request, key.tenant)
        context = {
            **site.each_context(request),
            "title": f"Connect with {key.name}",
            "key": key,
            "is_valid": key.tenant.is_active and keys.valid_keys(ApiKey.objects.filter(pk=key.pk)).exists(),
            "runs": permitted.changes(key.tenant_id),
            "connect": connect,
            "start": {
                "key": str(key.pk),
                "url": f"/t/{key.tenant.slug}/mcp",
                "passUrl": reverse("admin:playground_pass") if permitted.changes(key.tenant_id) else "",
                "placeholder": clients.PLACEHOLDER,
            },
        }
        return TemplateResponse(request, "tenants/connect.html", context)

    return page
