"""Sessions of handshake-era clients, as the hub keeps them."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter

from tools_app.admin.decorators import column
from tools_app.admin.links import key_link, key_name
from tools_app.admin.scoped import RecordAdmin, TenantFilter, badge, json_block
from tools_app.admin.site import site
from tools_app.models import Session


class OpenFilter(DropdownFilter):
    """By whether a session has ended."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        return [("open", "Open"), ("ended", "Ended")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        match self.value():
            case "open":
                return queryset.filter(ended_at=None)
            case "ended":
                return queryset.exclude(ended_at=None)
        return queryset


@admin.register(Session, site=site)
class SessionAdmin(RecordAdmin):
    """Sessions of the tenants within reach. The digest of the wire id stays in the database."""

    list_display = ("client", "tenant", "key", "protocol_version", "state", "created_at", "last_seen_at")
    list_filter = (OpenFilter, TenantFilter)
    list_select_related = ("tenant", "api_key")
    search_fields = ("client_name", "remote_address")
    show_full_result_count = False
    fieldsets = (
        (None, {"fields": ("id", "tenant", "key_link", "state", "calls")}),
        ("Client", {"fields": ("client", "remote_address", "protocol_version", "capabilities")}),
        ("Times", {"fields": ("created_at", "last_seen_at", "ended_at", "end_reason")}),
    )

    @column("client", ordering="client_name")
    def client(self, session: Session) -> str:
        return f"{session.client_name} {session.client_version}".strip() or "-"

    @column("key")
    def key(self, session: Session) -> str:
        return key_name(session)

    @column("key")
    def key_link(self, session: Session) -> str:
        return key_link(session)

    @column("calls")
    def calls(self, session: Session) -> SafeString:
        """The way to what was called in this session."""
        address = f"{reverse('admin:tools_app_call_changelist')}?session={session.pk}"
        return format_html('<a href="{}" class="text-link">Calls of this session</a>', address)

    @column("state")
    def state(self, session: Session) -> SafeString:
        return badge("Ended", "info") if session.ended_at else badge("Open", "success")

    @column("capabilities")
    def capabilities(self, session: Session) -> SafeString:
        return json_block(session.client_capabilities)
