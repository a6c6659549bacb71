"""Scopes that a tenant names: what clients ask for, and which names and methods that permits."""

from typing import Any

from django import forms
from django.contrib import admin
from django.utils.safestring import SafeString

from tools_app.identity.oauth import scopes
from tools_app.methods.permissions import check_method
from tools_app.models import TenantScope
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import column
from tools_app.web.admin.fields import LinesField, NamesField
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter, narrow
from tools_app.web.admin.site import site


class ScopeForm(forms.ModelForm):  # type: ignore[type-arg]
    """A name, and what it permits."""

    tool_patterns = NamesField(
        label="Names",
        required=False,
        placeholder="Everything in the tenant",
        help_text="Names or URIs of tools, prompts and resources, one per line. * matches anything: report_*."
        " tool=report_sales is exactly this tool, and so are prompt= and resource=. Empty: all.",
    )
    methods = LinesField(
        label="Methods",
        check=check_method,
        required=False,
        placeholder="All methods",
        help_text="MCP methods, one per line: tools/call, prompts/*. What permits calling, getting or reading also"
        " permits listing the same names. Empty: all.",
    )

    class Meta:
        model = TenantScope
        fields = ("tenant", "name", "description", "tool_patterns", "methods")

    def clean(self) -> dict[str, Any] | None:
        """Reject a name that exists, and a scope beyond the limit. Raises ValidationError."""
        values = super().clean() or {}
        tenant = values.get("tenant") or (None if self.instance._state.adding else self.instance.tenant)
        if tenant is not None:
            if self.instance._state.adding:
                scopes.check_room(tenant)
            others = TenantScope.objects.filter(tenant=tenant, name=values.get("name")).exclude(pk=self.instance.pk)
            if others.exists():
                self.add_error("name", "This tenant already has a scope with this name.")
        return values


@admin.register(TenantScope, site=site)
class TenantScopeAdmin(ScopedAdmin):
    """The scopes of the user's tenants."""

    form = ScopeForm
    fields = ("tenant", "name", "description", "tool_patterns", "methods")
    list_display = (
        cut_column("name", "name"),
        "tenant",
        "names_shown",
        "methods_shown",
        moment_column("created_at", "created"),
    )
    list_filter = (TenantFilter,)
    empty_hint = "Clients ask for the scopes of the hub: to read, or to call."
    empty_advice = "Add a scope for clients that should have less."
    list_select_related = ("tenant",)
    search_fields = ("name", "description")

    @column("names")
    def names_shown(self, row: TenantScope) -> SafeString:
        return narrow(", ".join(row.tool_patterns) or "All")

    @column("methods")
    def methods_shown(self, row: TenantScope) -> SafeString:
        return narrow(", ".join(row.methods) or "All")
