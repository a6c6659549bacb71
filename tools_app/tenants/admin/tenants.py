"""Tenants: created by superusers, configured by their own admins."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils.safestring import SafeString

from tools_app.calls.sessions import DEFAULT_MAX_SESSIONS
from tools_app.catalog.admin.base import Fieldsets
from tools_app.identity.patterns import PermittedNames
from tools_app.models import Alert, AlertDelivery, ApiKey, Connection, Invitation, Session, Tenant
from tools_app.tenants.admin.key_forms import KINDS
from tools_app.tenants.admin.tenant_config import ConfigurationAdmin
from tools_app.tenants.permissions import PUBLIC, SUPERUSERS_ONLY, tenant_permissions_of
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import column
from tools_app.web.admin.fields import TENANT_LIMITS, form_field, limits_fieldset
from tools_app.web.admin.scoping import narrow
from tools_app.web.admin.site import site

MAX_NAMES = 50
SETTINGS = (
    "slug",
    "name",
    "is_active",
    "allow_query_key",
    "allowed_networks",
    "redacted_keys",
    "requires_second_factor",
    "keep_days",
)
LISTING = ("presentation", "search_above_tokens")


class TenantForm(forms.ModelForm):  # type: ignore[type-arg]
    """The settings of a tenant."""

    class Meta:
        model = Tenant
        fields = (*SETTINGS, *LISTING, *TENANT_LIMITS, *PUBLIC)
        formfield_callback = form_field

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "keep_days" in self.fields:
            days = settings.MCPHUB_KEEP_DAYS
            self.fields["keep_days"].help_text += f" Currently: {f'{days} days' if days else 'forever'}."
        if "most_sessions" in self.fields:
            self.fields["most_sessions"].help_text += f" Currently: {DEFAULT_MAX_SESSIONS:,}."


@admin.register(Tenant, site=site)
class TenantAdmin(ConfigurationAdmin):
    """The user's tenants."""

    tenant_field = "pk"
    actions_detail = ("export_configuration", "import_configuration")
    deleted_with_it = (ApiKey, Connection, Session, Invitation, Alert, AlertDelivery)
    form = TenantForm
    empty_hint = "Tools, keys, people and recorded calls belong to a tenant. It has an endpoint of its own."
    added_by = "Superusers"
    list_display = (
        cut_column("name", "name"),
        cut_column("slug", "slug"),
        "endpoint",
        "is_active",
        "is_public",
        moment_column("created_at", "created"),
    )
    search_fields = ("name", "slug")
    list_filter = ("is_active", "is_public")
    readonly_fields = ("anonymous_callers_get",)
    change_form_before_template = "tenants/public.html"

    def tenant_id_of(self, row: Any) -> Any:
        return row.pk

    def has_add_permission(self, request: HttpRequest) -> bool:
        return tenant_permissions_of(request).is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return tenant_permissions_of(request).is_superuser

    def get_fieldsets(self, request: HttpRequest, obj: Tenant | None = None) -> Fieldsets:
        """Return the fieldsets, with public access only for tenants that exist."""
        public = PUBLIC if obj is None else (*PUBLIC, "anonymous_callers_get")
        limits = limits_fieldset(TENANT_LIMITS)
        listing = ("List of tools", {"fields": LISTING})
        return [(None, {"fields": SETTINGS}), listing, limits, ("Public access", {"fields": public})]

    def save_model(self, request: HttpRequest, obj: Tenant, form: Any, change: bool) -> None:
        """Save the tenant, with a warning if it is public."""
        super().save_model(request, obj, form, change)
        if obj.is_public:
            warning = (
                f"{obj} is public: anyone who knows the URL /t/{obj.slug}/mcp can call what its patterns match, and is"
                f" recorded as anonymous. They currently match: {described(obj)}."
            )
            self.message_user(request, warning, messages.WARNING)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Make fields for superusers read-only, and the slug of an existing tenant, which its clients use."""
        fixed = super().get_readonly_fields(request, obj)
        if not tenant_permissions_of(request).is_superuser:
            return [*fixed, *SUPERUSERS_ONLY]
        return [*fixed, "slug"] if obj else fixed

    @column("anonymous callers can use")
    def anonymous_callers_get(self, tenant: Tenant) -> str:
        """What the patterns match now, whether or not the tenant is public."""
        return f"{described(tenant)}."

    @column("endpoint")
    def endpoint(self, tenant: Tenant) -> SafeString:
        """The URL of this tenant's MCP endpoint."""
        return narrow(f"/t/{tenant.slug}/mcp")


def described(tenant: Tenant) -> str:
    """Return on one line the enabled tools, resources and prompts that match the tenant's patterns."""
    permitted = PermittedNames(tenant.public_tools)
    names = [
        name
        for kind, model, field in KINDS
        for name in model._default_manager.filter(tenant=tenant, enabled=True)
        .order_by(field)
        .values_list(field, flat=True)
        if permitted.have(kind, name)
    ]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more if names else "nothing"
