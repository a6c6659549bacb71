"""Tenants: created by superusers, configured by their own admins."""

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils.safestring import SafeString

from tools_app.calls.sessions import DEFAULT_MAX_SESSIONS
from tools_app.catalog.admin.base import Fieldsets
from tools_app.identity.patterns import PermittedNames
from tools_app.methods.permissions import check_network
from tools_app.models import Alert, AlertDelivery, ApiKey, Connection, Invitation, Session, Tenant
from tools_app.tenants.admin.key_forms import KINDS
from tools_app.tenants.admin.tenant_config import ConfigurationAdmin
from tools_app.tenants.permissions import PUBLIC, SUPERUSERS_ONLY, tenant_permissions_of
from tools_app.web.admin.columns import cut_column, moment_column, yes_no_column, yes_no_filter
from tools_app.web.admin.decorators import column
from tools_app.web.admin.fields import TENANT_LIMITS, LinesField, NamesField, check_anything, limits_fieldset
from tools_app.web.admin.scoping import narrow
from tools_app.web.admin.site import site

PUBLIC_TOOLS = "Public tools, resources and prompts"
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

    allowed_networks = LinesField(
        check=check_network,
        required=False,
        rows=3,
        help_text="Private networks that HTTP tools can call, one per line, such as 10.1.0.0/16.",
    )
    redacted_keys = LinesField(
        check=check_anything,
        required=False,
        rows=3,
        help_text="Additional key names whose values the audit log redacts, one per line, such as ssn.",
    )
    public_tools = NamesField(
        label=PUBLIC_TOOLS,
        required=False,
        rows=6,
        help_text="Names or URIs that anonymous callers can use, one per line. * matches anything: search_*."
        " tool=echo is exactly the tool echo, and so are prompt= and resource=.",
    )

    class Meta:
        model = Tenant
        fields = (*SETTINGS, *LISTING, *TENANT_LIMITS, *PUBLIC)
        labels: ClassVar = {
            "is_active": "Active",
            "allow_query_key": "API keys in URLs",
            "keep_days": "Days to keep calls",
            "is_public": "Public",
            "public_tools": PUBLIC_TOOLS,
        }
        help_texts: ClassVar = {
            "slug": "Part of the URL of the tenant's endpoint: /t/SLUG/mcp.",
            "is_active": "If off, all API keys of this tenant are rejected.",
            # To those who may not change them: the fields of others have a help text of their own.
            "allowed_networks": "Private networks that HTTP tools can call. Only superusers change them.",
            "keep_days": "Older calls are deleted, with their arguments, results and events. Empty: the hub default"
            " (MCPHUB_KEEP_DAYS). Only superusers change it.",
            "allow_query_key": "Accept keys in ?api_key= too. URLs are stored in logs and histories: prefer a header.",
            "requests_per_second": "All requests, including lists and pings. Empty: no limit.",
            "calls_in_flight": "Calls that run at the same time. Empty: no limit.",
            "open_streams": "Event streams and WebSockets that are open at the same time. Empty: no limit.",
            "is_public": "Anyone can call this tenant at /t/SLUG/mcp without an API key. These calls are recorded as"
            " anonymous.",
            "public_tools": "Names or URIs that anonymous callers can use. Only superusers change them.",
            "public_calls_per_minute": "For each IP address.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "keep_days" in self.fields:
            self.fields["keep_days"].help_text = _how_long_records_are_kept()
        if "most_sessions" in self.fields:
            self.fields["most_sessions"].help_text = _how_many_sessions()
        for name in LISTING:
            if name in self.fields:
                self.fields[name].required = False

    def clean_presentation(self) -> str:
        """Return how tools are listed: as before if nothing is selected."""
        return str(self.cleaned_data["presentation"] or self.instance.presentation)

    def clean_search_above_tokens(self) -> int:
        """Return the number of tokens: the one before if none is entered."""
        entered: int | None = self.cleaned_data["search_above_tokens"]
        return self.instance.search_above_tokens if entered is None else entered


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
        yes_no_column("is_active", "active"),
        yes_no_column("is_public", "public"),
        moment_column("created_at", "created"),
    )
    search_fields = ("name", "slug")
    list_filter = (("is_active", yes_no_filter("active")), ("is_public", yes_no_filter("public")))
    readonly_fields = ("anonymous_callers_get",)
    change_form_before_template = "tenants/public.html"

    def tenant_id_of(self, row: Any) -> Any:
        return row.pk

    def has_add_permission(self, request: HttpRequest) -> bool:
        return tenant_permissions_of(request).everything

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return tenant_permissions_of(request).everything

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
            self.message_user(request, _public_warning(obj), messages.WARNING)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Make fields for superusers read-only, and the slug of an existing tenant, which its clients use."""
        fixed = super().get_readonly_fields(request, obj)
        if not tenant_permissions_of(request).everything:
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


def _how_long_records_are_kept() -> str:
    days = settings.MCPHUB_KEEP_DAYS
    otherwise = f"for {days} days" if days else "forever"
    return (
        "Older calls are deleted, with their arguments, results and events. 0: never. "
        f"Empty: the hub default (MCPHUB_KEEP_DAYS), currently {otherwise}."
    )


def _how_many_sessions() -> str:
    return f"For clients with protocol versions up to 2025-11-25. Empty: {DEFAULT_MAX_SESSIONS:,}."


def _public_warning(tenant: Tenant) -> str:
    return (
        f"{tenant} is public: anyone who knows the URL /t/{tenant.slug}/mcp can call what its patterns match, and is"
        f" recorded as anonymous. They currently match: {described(tenant)}."
    )


MAX_NAMES = 50


def public_names(tenant: Tenant) -> list[str]:
    """Return the enabled tools, resources and prompts that match the tenant's patterns."""
    permitted = PermittedNames(tenant.public_tools)
    return [
        name
        for kind, model, field in KINDS
        for name in model._default_manager.filter(tenant=tenant, enabled=True)
        .order_by(field)
        .values_list(field, flat=True)
        if permitted.have(kind, name)
    ]


def described(tenant: Tenant) -> str:
    """Return the names on one line."""
    names = public_names(tenant)
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more if names else "nothing"
