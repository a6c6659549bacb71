"""Tenants: made by superusers, set up by their own admins."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from tools_app.admin import limit_fields
from tools_app.admin.configuration import ConfigurationAdmin
from tools_app.admin.decorators import column
from tools_app.admin.lines_field import LinesField, check_anything
from tools_app.admin.offers import Fieldsets
from tools_app.admin.public_offers import described
from tools_app.admin.reach import reach_of
from tools_app.admin.site import site
from tools_app.auth.access import PUBLIC, SUPERUSERS_ONLY
from tools_app.methods.scopes import check_network, check_pattern
from tools_app.models import ApiKey, Session, Tenant

SETTINGS = (
    "slug",
    "name",
    "is_active",
    "allow_query_key",
    "allowed_networks",
    "redacted_keys",
    "keep_days",
)


class TenantForm(forms.ModelForm):  # type: ignore[type-arg]
    """A tenant's settings."""

    allowed_networks = LinesField(
        check=check_network,
        required=False,
        rows=3,
        help_text="Private networks that HTTP tools may reach, one a line, such as 10.1.0.0/16.",
    )
    redacted_keys = LinesField(
        check=check_anything,
        required=False,
        rows=3,
        help_text="More key names whose values the audit log hides, one a line, such as ssn.",
    )
    public_tools = LinesField(
        check=check_pattern,
        required=False,
        rows=6,
        help_text="What anonymous callers get, one a line: names or URIs, * for anything, such as echo or search_*.",
    )

    class Meta:
        model = Tenant
        fields = (*SETTINGS, *limit_fields.OF_TENANT, *PUBLIC)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "keep_days" in self.fields:
            self.fields["keep_days"].help_text = _how_long_records_are_kept()
        if "most_sessions" in self.fields:
            self.fields["most_sessions"].help_text = _how_many_sessions()


@admin.register(Tenant, site=site)
class TenantAdmin(ConfigurationAdmin):
    """Tenants within reach."""

    tenant_field = "pk"
    actions_detail = ("export_configuration", "import_configuration")
    form = TenantForm
    list_display = ("name", "slug", "endpoint", "is_active", "is_public", "created_at")
    search_fields = ("name", "slug")
    list_filter = ("is_active", "is_public")
    readonly_fields = ("anonymous_callers_get",)
    change_form_before_template = "admin/tools_app/tenant/public.html"

    def tenant_id_of(self, row: Any) -> Any:
        return row.pk

    def has_add_permission(self, request: HttpRequest) -> bool:
        return reach_of(request).everything

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return reach_of(request).everything

    def get_fieldsets(self, request: HttpRequest, obj: Tenant | None = None) -> Fieldsets:
        """The settings, and what is open to everybody; a tenant that is not there yet offers nothing."""
        public = PUBLIC if obj is None else (*PUBLIC, "anonymous_callers_get")
        limits = limit_fields.limits(limit_fields.OF_TENANT)
        return [(None, {"fields": SETTINGS}), limits, ("Open to everybody", {"fields": public})]

    def save_model(self, request: HttpRequest, obj: Tenant, form: Any, change: bool) -> None:
        """Save, and tell whoever opens a tenant to everybody what that means."""
        super().save_model(request, obj, form, change)
        if obj.is_public:
            self.message_user(request, _public_warning(obj), messages.WARNING)

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

    @column("anonymous callers get")
    def anonymous_callers_get(self, tenant: Tenant) -> str:
        """What the patterns name now, whether the tenant is open or not."""
        return f"{described(tenant)}."

    @column("endpoint")
    def endpoint(self, tenant: Tenant) -> str:
        """Where clients of this tenant connect."""
        return f"/t/{tenant.slug}/mcp"


def _how_long_records_are_kept() -> str:
    days = settings.MCPHUB_KEEP_DAYS
    otherwise = f"for {days} days" if days else "for ever"
    return (
        "Older calls are pruned, with their arguments, results and events. 0: never. "
        f"Empty: as the hub is set (MCPHUB_KEEP_DAYS), now {otherwise}."
    )


def _how_many_sessions() -> str:
    return (
        "Of clients up to revision 2025-11-25. "
        f"Empty: as the hub is set (MCPHUB_MOST_SESSIONS), now {settings.MCPHUB_MOST_SESSIONS}."
    )


def _public_warning(tenant: Tenant) -> str:
    return (
        f"{tenant} is open to everybody: anybody who knows the address /t/{tenant.slug}/mcp can call what its patterns"
        f" name, recorded as anonymous. They name now: {described(tenant)}."
    )
