"""Tenants: made by superusers, set up by their own admins."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from tools_app.admin.decorators import column
from tools_app.admin.json_field import JsonTextField
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import ScopedAdmin
from tools_app.admin.site import site
from tools_app.models import ApiKey, Session, Tenant

# What only the people who run the hub decide: who is on it, and what of its own network it opens.
SUPERUSERS_ONLY = ("slug", "is_active", "allowed_networks")


class TenantForm(forms.ModelForm):  # type: ignore[type-arg]
    """A tenant's settings."""

    allowed_networks = JsonTextField(
        kind=list, empty=list, required=False, rows=3, help_text=Tenant._meta.get_field("allowed_networks").help_text
    )
    redacted_keys = JsonTextField(
        kind=list, empty=list, required=False, rows=3, help_text=Tenant._meta.get_field("redacted_keys").help_text
    )

    class Meta:
        model = Tenant
        fields = (
            "slug",
            "name",
            "is_active",
            "calls_per_minute",
            "allow_query_key",
            "allowed_networks",
            "redacted_keys",
        )


@admin.register(Tenant, site=site)
class TenantAdmin(ScopedAdmin):
    """Tenants within reach."""

    tenant_field = "pk"
    form = TenantForm
    fields = TenantForm.Meta.fields
    list_display = ("name", "slug", "endpoint", "is_active", "created_at")
    search_fields = ("name", "slug")
    list_filter = ("is_active",)

    def tenant_id_of(self, row: Any) -> Any:
        return row.pk

    def has_add_permission(self, request: HttpRequest) -> bool:
        return reach_of(request).everything

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return reach_of(request).everything

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Fix what only superusers decide, and the slug of a tenant whose clients know it."""
        fixed = super().get_readonly_fields(request, obj)
        if not reach_of(request).everything:
            return [*fixed, *SUPERUSERS_ONLY]
        return [*fixed, "slug"] if obj else fixed

    def get_deleted_objects(
        self, objs: QuerySet[Any] | list[Any], request: HttpRequest
    ) -> tuple[list[Model], dict[str, int], set[str], list[str]]:
        """A tenant takes its keys and sessions with it, though neither may be deleted by itself."""
        deleted, counts, lacking, protected = super().get_deleted_objects(objs, request)
        return deleted, counts, lacking - {model._meta.verbose_name for model in (ApiKey, Session)}, protected

    @column("endpoint")
    def endpoint(self, tenant: Tenant) -> str:
        """Where clients of this tenant connect."""
        return f"/t/{tenant.slug}/mcp"
