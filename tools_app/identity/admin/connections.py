"""Connections of the tenants that a user may see: which clients people connected, with what, and how to end them."""

from contextlib import nullcontext
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.identity.oauth import clients, connections, redirects, scopes, tokens
from tools_app.models import Connection
from tools_app.tenants.admin.key_forms import ApiKeyForm
from tools_app.tenants.keys import LIMITS, SETTINGS
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import full_moment, moment_column
from tools_app.web.admin.conflicts import ConflictForm
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import RecordAdmin, TenantFilter, badge, narrow
from tools_app.web.admin.site import site

MAX_NAMES = 200
ACTIVE = ("Active", "success")
EXPIRED = ("Expired", "warning")
ENDED = ("Ended", "danger")
BLOCKED = ("Client blocked", "danger")
LEFT = ("Person left", "danger")


class StatusFilter(DropdownFilter):
    """Filter by whether a connection gives access now."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        return [("active", "Active"), ("ended", "Ended or expired")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Connection]) -> QuerySet[Connection]:
        active = tokens.valid_connections() & tokens.is_member()
        match self.value():
            case "active":
                return queryset.filter(active)
            case "ended":
                return queryset.exclude(pk__in=Connection.objects.filter(active).values("pk"))
        return queryset


class MomentInput(forms.DateTimeInput):
    """A field for a date and a time, to the second, so that what is not touched is not changed."""

    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__(attrs={**UnfoldAdminTextInputWidget().attrs, "step": "1"}, format="%Y-%m-%dT%H:%M:%S")


class AccessForm(ConflictForm, ApiKeyForm):
    """The settings of the key behind a connection. What somebody else saved meanwhile is noticed."""

    expires_at = forms.DateTimeField(
        label="Ends",
        required=False,
        widget=MomentInput(),
        help_text="Empty: it ends when the person leaves the tenant or somebody ends it.",
    )

    class Meta(ApiKeyForm.Meta):
        fields = ("expires_at", *SETTINGS)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        names = self.fields["tool_patterns"]
        names.help_text = (
            "Names or URIs of the tools, prompts and resources that the client can use, one per line. * matches"
            " anything. tool=search is exactly the tool search, and so are prompt= and resource=. Empty: all. When the"
            " client asks for access again, the person can choose other names; methods and limits stay."
        )
        for name in ("toolset", "presentation"):
            choices = self.fields[name].choices  # type: ignore[attr-defined] # both are fields with choices
            self.fields[name].widget = UnfoldAdminSelectWidget(choices=choices)
        for name in LIMITS:
            self.fields[name].widget = UnfoldAdminIntegerFieldWidget(attrs={"min": "0"})

    @property
    def recorded_row(self) -> Connection:
        """The connection."""
        return Connection.objects.get(key=self.instance.pk)

    @property
    def changes(self) -> dict[str, Any]:
        """The fields that were changed, with their new values."""
        return {name: self.cleaned_data[name] for name in self.changed_data}


@admin.register(Connection, site=site)
class ConnectionAdmin(RecordAdmin):
    """Made by people on the consent page, ended here or by them. They are not deleted: calls refer to their keys."""

    list_display = (
        "client_name",
        "person_name",
        "tenant",
        "uses",
        "status",
        moment_column("key__last_used_at", "last used"),
        moment_column("key__expires_at", "ends"),
        moment_column("consented_at", "allowed"),
    )
    list_filter = (StatusFilter, TenantFilter)
    empty_hint = (
        "People connect clients by giving them the address of the tenant's endpoint, which they find under Connections"
        " in the menu of their account, and signing in."
    )
    list_select_related = ("tenant", "client", "person", "key")
    search_fields = ("client__name", "person__username")
    actions = ("end_selected",)
    actions_detail = ("calls_of_connection", "sign_ins_of_connection", "change_access", "end_connection")
    fieldsets = (
        (None, {"fields": ("client_name", "host", "person_name", "tenant", "status")}),
        ("Access", {"fields": ("scope_text", "names", "toolset", "methods", "limits", "returns_to")}),
        (
            "Times",
            {
                "fields": (
                    full_moment("consented_at", "allowed"),
                    full_moment("created_at", "first allowed"),
                    full_moment("key__last_used_at", "last used"),
                    full_moment("key__expires_at", "ends"),
                )
            },
        ),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [name for _, group in self.fieldsets for name in group["fields"]]

    def has_read_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may see this connection, or any."""
        return self.has_view_permission(request, self.get_object(request, object_id) if object_id else None)

    def has_end_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may end this connection, or any."""
        permitted = tenant_permissions_of(request)
        if object_id is None:
            return permitted.is_admin_anywhere
        row = self.get_object(request, object_id)
        return permitted.changes(row.tenant_id) and row.key.revoked_at is None

    @admin.action(description="End selected connections", permissions=["end"])
    def end_selected(self, request: HttpRequest, queryset: QuerySet[Connection]) -> HttpResponse | None:
        """End the selected connections of tenants that this user administers, after confirmation."""
        chosen = list(self.rows_run(request, queryset).filter(key__revoked_at=None).select_related("key"))
        if "confirmed" not in request.POST:
            return self._confirm(request, chosen, "end_selected")
        self._end(request, chosen)
        return None

    @button("End connection", url_path="end", permissions=["end"], icon="block", danger=True)
    def end_connection(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a connection after confirmation."""
        row: Connection = self.get_object(request, object_id)
        if not tenant_permissions_of(request).changes(row.tenant_id):
            raise PermissionDenied
        if request.method != "POST":
            return self._confirm(request, [row])
        self._end(request, [row])
        return HttpResponseRedirect(reverse("admin:tools_app_connection_change", args=[row.pk]))

    @button("Calls", url_path="calls", permissions=["read"], icon="receipt_long")
    def calls_of_connection(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Redirect to the calls of a connection."""
        row: Connection = self.get_object(request, object_id)
        return HttpResponseRedirect(f"{reverse('admin:tools_app_call_changelist')}?key={row.key_id}")

    @button("Sign-ins", url_path="sign-ins", permissions=["read"], icon="login")
    def sign_ins_of_connection(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Redirect to the sign-ins of a connection."""
        row: Connection = self.get_object(request, object_id)
        return HttpResponseRedirect(f"{reverse('admin:tools_app_signinevent_changelist')}?connection={row.pk}")

    @button("Change access", url_path="access", permissions=["end"], icon="tune")
    def change_access(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Change what a connection may use, its limits and when it ends."""
        row: Connection = self.get_object(request, object_id)
        if not tenant_permissions_of(request).changes(row.tenant_id):
            raise PermissionDenied
        saved = request.POST if request.method == "POST" else None
        with change_log_transaction() if saved is not None else nullcontext():
            # Read in the transaction that compares and saves it.
            row.key.refresh_from_db()
            form = AccessForm(saved, instance=row.key)
            if not form.is_valid():
                page = {"title": f"Change access of {row}", "row": row, "form": form, "opts": self.opts}
                context = {**self.admin_site.each_context(request), **page}
                return TemplateResponse(request, "identity/connection/access.html", context)
            changed = connections.change_access(row, form.changes)
        if changed:
            self.message_user(request, "The access was changed. It counts within a second.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_connection_change", args=[row.pk]))

    def _confirm(self, request: HttpRequest, chosen: list[Connection], action_name: str = "") -> HttpResponse:
        back = reverse("admin:tools_app_connection_changelist")
        page = {"title": "End connection?", "button": "End connection", "back": back, "rows": chosen}
        return self.page(request, "identity/connection/end.html", **page, action_name=action_name)

    def _end(self, request: HttpRequest, chosen: list[Connection]) -> None:
        ended = [row for row in chosen if connections.revoke(row)]
        self.message_user(request, f"Connections ended: {len(ended)}.", messages.SUCCESS)

    @column("client", ordering="client__name")
    def client_name(self, row: Connection) -> SafeString:
        return narrow(row.client.name)

    @column("verified host")
    def host(self, row: Connection) -> str:
        return clients.host_of(row.client) or "None. The client registered itself, so its name is not verified."

    @column("person", ordering="person__username")
    def person_name(self, row: Connection) -> str:
        return str(row.person.get_username()) if row.person else "Service client"

    @column("may use")
    def uses(self, row: Connection) -> str:
        names = len(row.key.tool_patterns)
        return f"{names} {'name' if names == 1 else 'names'}" if names else "Everything"

    @column("may use")
    def names(self, row: Connection) -> SafeString | str:
        found = row.key.tool_patterns
        if not found:
            return "Everything, including what is added later."
        more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
        listed = format_html_join(", ", "<code>{}</code>", ((name,) for name in found[:MAX_NAMES]))
        return format_html("{}{}", listed, more)

    @column("toolset")
    def toolset(self, row: Connection) -> str:
        return str(row.key.toolset or "None")

    @column("methods")
    def methods(self, row: Connection) -> str:
        return ", ".join(row.key.methods) or "All"

    @column("limits")
    def limits(self, row: Connection) -> str:
        found = {name: getattr(row.key, name) for name in LIMITS}
        texts = [f"{name.replace('_', ' ')}: {value}" for name, value in found.items() if value is not None]
        return "; ".join(texts) or "None"

    @column("may")
    def scope_text(self, row: Connection) -> str:
        return "; ".join(scopes.meanings(row.tenant, row.scope))

    @column("redirects to")
    def returns_to(self, row: Connection) -> str:
        return redirects.destination_of(row.redirect_uri)

    @column("status")
    def status(self, row: Connection) -> SafeString:
        if row.key.revoked_at is not None:
            return badge(*ENDED)
        if row.key.expires_at is not None and row.key.expires_at <= timezone.now():
            return badge(*EXPIRED)
        if row.client.blocked_at is not None:
            return badge(*BLOCKED)
        members = Q(tokens.is_member() & tokens.valid_connections(), pk=row.pk)
        return badge(*(ACTIVE if Connection.objects.filter(members).exists() else LEFT))
