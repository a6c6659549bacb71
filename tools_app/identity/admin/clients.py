"""Clients that asked for access: who they are, and blocking them in the whole hub, which superusers do."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.identity.oauth import clients
from tools_app.models import Connection, OAuthClient
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import full_moment, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import RecordAdmin, badge, narrow
from tools_app.web.admin.site import site


@admin.register(OAuthClient, site=site)
class OAuthClientAdmin(RecordAdmin):
    """Clients belong to no tenant. Admins of a tenant see those of its connections; superusers see and block all."""

    list_display = (
        "name_shown",
        "host",
        "source_label",
        "state",
        moment_column("last_used_at", "last used"),
        moment_column("created_at", "first seen"),
    )
    list_filter = (("source", ChoicesDropdownFilter), ("blocked_at", admin.EmptyFieldListFilter))
    search_fields = ("name", "client_id")
    empty_hint = "A client appears here when it registers, or when somebody connects it."
    actions_detail = ("block_client", "unblock_client")
    fieldsets = (
        (None, {"fields": ("name", "client_id", "host", "source_label", "state", "used_by")}),
        ("Technical", {"fields": ("addresses", "authentication")}),
        (
            "Times",
            {
                "fields": (
                    full_moment("created_at", "first seen"),
                    full_moment("fetched_at", "document read"),
                    full_moment("last_used_at", "last used"),
                )
            },
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[OAuthClient]:
        """Return the clients of the connections of tenants that this user administers; all for superusers."""
        permitted = tenant_permissions_of(request)
        if permitted.is_superuser:
            return OAuthClient.objects.all()
        connections = Connection.objects.filter(client=OuterRef("pk"), tenant__in=permitted.administered)
        return OAuthClient.objects.filter(Exists(connections))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [name for _, group in self.fieldsets for name in group["fields"]]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return tenant_permissions_of(request).is_admin_anywhere

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is None or tenant_permissions_of(request).is_superuser:
            return tenant_permissions_of(request).is_admin_anywhere
        return self.get_queryset(request).filter(pk=obj.pk).exists()

    def has_block_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may block this client, which is not blocked yet."""
        return self._may_decide(request, object_id, is_blocked=False)

    def has_unblock_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may unblock this client."""
        return self._may_decide(request, object_id, is_blocked=True)

    def _may_decide(self, request: HttpRequest, object_id: str | None, *, is_blocked: bool) -> bool:
        if object_id is not None:
            # What this user may not see is missing, on this page too.
            self.get_object(request, object_id)
        if not tenant_permissions_of(request).is_superuser:
            return False
        return object_id is None or (self.get_object(request, object_id).blocked_at is not None) == is_blocked

    @button("Block", url_path="block", permissions=["block"], icon="block", danger=True)
    def block_client(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Block a client in all tenants."""
        return self._decided(request, object_id, blocked=True)

    @button("Unblock", url_path="unblock", permissions=["unblock"], icon="check_circle")
    def unblock_client(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Let a client in again."""
        return self._decided(request, object_id, blocked=False)

    def _decided(self, request: HttpRequest, object_id: str, *, blocked: bool) -> HttpResponse:
        row: OAuthClient | None = self.get_object(request, object_id)
        if row is None:
            raise Http404("Client not found.")
        if request.method == "POST" and clients.set_blocked(row, blocked=blocked):
            text = f"{row.name} is blocked in all tenants." if blocked else f"{row.name} is no longer blocked."
            self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_oauthclient_change", args=[row.pk]))

    @column("name", ordering="name")
    def name_shown(self, row: OAuthClient) -> SafeString:
        return narrow(row.name)

    @column("verified host")
    def host(self, row: OAuthClient) -> str:
        return clients.host_of(row) or "-"

    @column("known by", ordering="source")
    def source_label(self, row: OAuthClient) -> str:
        return str(row.get_source_display())

    @column("status")
    def state(self, row: OAuthClient) -> SafeString:
        return badge("Blocked", "danger") if row.blocked_at else badge("Not blocked", "success")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return a client, with the number of its connections that this user may know of."""
        permitted = tenant_permissions_of(request)
        if not permitted.is_admin_anywhere:
            raise PermissionDenied
        row = super().get_object(request, object_id, from_field)
        vars(row)["connections_seen"] = permitted.rows_run(row.connections.all()).count()
        return row

    @column("connections")
    def used_by(self, row: OAuthClient) -> str:
        return str(vars(row)["connections_seen"])

    @column("authentication")
    def authentication(self, row: OAuthClient) -> str:
        return ", ".join(clients.methods_of(row))

    @column("redirect URIs")
    def addresses(self, row: OAuthClient) -> SafeString:
        return format_html_join("", "<p><code>{}</code></p>", ((uri,) for uri in row.redirect_uris))
