"""What a tenant decides about clients: which of them its members may connect, and which scopes they can ask for."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextInputWidget

from tools_app.identity.oauth import policies, scopes
from tools_app.methods.areas import check_method
from tools_app.models import ClientDecision, ClientPolicy, SignInEvent, TenantScope
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import column
from tools_app.web.admin.fields import LinesField, NamesField
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter, badge, narrow
from tools_app.web.admin.site import site

MAX_HOSTS: Final = 100
COLOURS = {ClientDecision.ALLOW: "success", ClientDecision.ASK: "warning", ClientDecision.DENY: "danger"}


class HostWidget(UnfoldAdminTextInputWidget):
    """A text field that offers the hosts of clients that were seen."""

    hosts: Sequence[str] = ()

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """Return the field, and the list that it offers."""
        field = super().render(name, value, {**(attrs or {}), "list": "hosts-seen"}, renderer)
        options = format_html_join("", '<option value="{}"></option>', ((host,) for host in self.hosts))
        return format_html('{}<datalist id="hosts-seen">{}</datalist>', field, options)


class PolicyForm(forms.ModelForm):  # type: ignore[type-arg]
    """A host and a decision."""

    class Meta:
        model = ClientPolicy
        fields = ("tenant", "host", "decision")
        help_texts: ClassVar = {
            "host": "The verified host of a client, such as claude.ai. For clients without one, where they return to: "
            "a host, localhost for programs on a computer, or a scheme such as cursor:. * matches anything, and the "
            "most specific policy counts.",
            "decision": "Counts for new connections. A client that is not allowed also gets no new tokens, so its "
            "access ends within an hour. To end it now, end the connection.",
        }

    def clean(self) -> dict[str, Any] | None:
        """Reject a policy beyond the limit. Raises ValidationError."""
        values = super().clean()
        if self.instance._state.adding and values and values.get("tenant"):
            policies.check_room(values["tenant"])
        return values


@admin.register(ClientPolicy, site=site)
class ClientPolicyAdmin(ScopedAdmin):
    """The decisions of the user's tenants."""

    form = PolicyForm
    empty_hint = "Members can connect every client."
    empty_advice = "Add a policy to deny the clients of a host, or to have an admin allow them first."
    fields = ("tenant", "host", "decision")
    list_display = ("host", "tenant", "says", moment_column("created_at", "created"))
    list_filter = ("decision", TenantFilter)
    list_select_related = ("tenant",)
    search_fields = ("host",)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, str | list[str]]:
        """Fill in what a link gives, such as that of a sign-in that was refused."""
        return {name: request.GET[name] for name in ("tenant", "host", "decision") if name in request.GET}

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        """Offer the hosts of clients that were seen in the user's tenants."""
        form = super().get_form(request, obj, change, **options)
        field = form.base_fields.get("host")
        if field is not None:
            field.widget = HostWidget()
            field.widget.hosts = hosts_seen(request)
        return form

    @column("decision", ordering="decision")
    def says(self, row: ClientPolicy) -> SafeString:
        decision = ClientDecision(row.decision)
        return badge(str(decision.label), COLOURS[decision])


def hosts_seen(request: HttpRequest) -> list[str]:
    """Return the hosts of clients that asked for access to tenants that this user administers."""
    events = tenant_permissions_of(request).rows_run(SignInEvent.objects.exclude(host=""))
    return list(events.order_by("host").values_list("host", flat=True).distinct()[:MAX_HOSTS])


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
