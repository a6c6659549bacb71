"""Samples to try the catalog with: one click on an empty list, without a network.

A sample belongs to one tenant, which the form names: the only one that the user administers, or one of a selection.
"""

from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path, reverse
from django.views.decorators.http import require_POST

from tools_app.models import Tenant
from tools_app.tenants import permissions
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.scoping import ScopedAdmin, by_id

# As many tenants are offered in the selection.
MAX_TENANTS: Final = 100


class SampleAdmin(ScopedAdmin):
    """A list that offers a sample while it is empty."""

    list_before_template = "catalog/sample.html"
    sample_label = ""
    sample_hint = ""

    def add_sample(self, request: HttpRequest, tenant: Tenant) -> HttpResponse:
        """Add the sample to a tenant that this user administers, and return where to go on."""
        raise NotImplementedError

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin, and that of the sample."""
        view = self.admin_site.admin_view(require_POST(self.sample_view))
        return [path("sample/", view, name=self._sample_name), *super().get_urls()]

    def sample_view(self, request: HttpRequest) -> HttpResponse:
        """Add the sample. Raises Http404 for a tenant that this user may not see, and PermissionDenied."""
        permitted = tenant_permissions_of(request)
        tenant = by_id(Tenant.objects.filter(is_active=True), "pk", request.POST.get("tenant") or "-").first()
        if tenant is None or not permitted.sees(tenant.pk):
            raise Http404("Tenant not found.")
        if not permitted.changes(tenant.pk):
            raise PermissionDenied
        return self.add_sample(request, tenant)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the list, with the sample for those who may add it."""
        tenants = permissions.tenants_run_by(request.user).filter(is_active=True).order_by("name")
        offered = list(tenants.values_list("pk", "name")[:MAX_TENANTS]) if self.has_add_permission(request) else []
        sample = {
            "label": self.sample_label,
            "hint": self.sample_hint,
            "url": reverse(f"admin:{self._sample_name}"),
            "tenants": offered,
        }
        more = {"sample": sample} if offered else {}
        return super().changelist_view(request, {**more, **(extra_context or {})})

    @property
    def _sample_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_sample"


def origin_of(request: HttpRequest) -> str:
    """Return the hub's own address, as this user reaches it: `http://127.0.0.1:8000`."""
    return request.build_absolute_uri("/").rstrip("/")
