"""Sessions of handshake-era clients. An admin of the tenant can end a session."""

from dataclasses import dataclass
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter

from tools_app.calls import sessions
from tools_app.calls.admin.columns import OUTCOME_COLOURS, Fact, duration_text
from tools_app.calls.admin.payloads import shown_text
from tools_app.models import Call, Outcome, RunningCall, Session
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import moment_column
from tools_app.web.admin.decorators import column
from tools_app.web.admin.json_source import pretty
from tools_app.web.admin.links import key_link, key_name, link
from tools_app.web.admin.scoping import RecordAdmin, TenantFilter, badge, narrow
from tools_app.web.admin.site import site
from tools_app.web.admin.times import full_text, moment

MAX_CALLS: Final = 20
# There is no index by session: its calls are searched among this many of its tenant's calls.
MAX_LOOKED: Final = 5_000


class OpenFilter(DropdownFilter):
    """Filter by whether a session has ended."""

    title = "status"
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


@dataclass(frozen=True)
class CallOfSession:
    """A call as listed on the page of its session."""

    when: str
    name: str
    url: str
    says: SafeString
    took: str


@admin.register(Session, site=site)
class SessionAdmin(RecordAdmin):
    """Sessions of the user's tenants. The digest of the session id on the wire is never shown."""

    list_display = (
        "client",
        "tenant",
        "key",
        "protocol_version",
        "status",
        moment_column("created_at", "started"),
        moment_column("last_seen_at", "last used"),
    )
    list_filter = (OpenFilter, TenantFilter)
    list_select_related = ("tenant", "api_key")
    search_fields = ("client_name", "remote_address")
    empty_hint = "Clients with protocol versions up to 2025-11-25 open sessions. Later ones have none."
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        """Return rows without large columns; the page of one session loads them."""
        return super().get_queryset(request).defer("client_capabilities", "subscriptions")

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the admin and of the button that ends a session."""
        end = self.admin_site.admin_view(self.end_view)
        urls: list[URLPattern] = super().get_urls()
        return [path("<path:object_id>/end/", end, name="tools_app_session_end"), *urls]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the page of a session."""
        session: Session = self.get_object(request, unquote(object_id))
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": f"Session of {_client_name(session)}",
            "name": _client_name(session),
            "session": session,
            "state": self.status(session),
            "may_end": session.ended_at is None and tenant_permissions_of(request).changes(session.tenant_id),
            "facts": _facts(session),
            "capabilities": shown_text(pretty(session.client_capabilities)),
            "calls": _calls_of(session),
            "calls_url": f"{reverse('admin:tools_app_call_changelist')}?session={session.pk}",
        }
        return TemplateResponse(request, "calls/session.html", context)

    def end_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a session. For admins of its tenant."""
        session: Session = self.get_object(request, unquote(object_id))
        if request.method != "POST" or not tenant_permissions_of(request).changes(session.tenant_id):
            raise PermissionDenied
        if sessions.end_by_person(session):
            messages.success(request, "The session was ended. All processes stop serving it within a second.")
        else:
            messages.info(request, "The session had already ended.")
        return HttpResponseRedirect(reverse("admin:tools_app_session_change", args=[session.pk]))

    @column("client", ordering="client_name")
    def client(self, session: Session) -> SafeString:
        return narrow(_client_name(session))

    @column("key")
    def key(self, session: Session) -> SafeString:
        return narrow(key_name(session))

    @column("status")
    def status(self, session: Session) -> SafeString:
        return badge("Ended", "info") if session.ended_at else badge("Open", "success")


def _client_name(session: Session) -> str:
    return f"{session.client_name} {session.client_version}".strip() or "-"


def _facts(session: Session) -> list[Fact]:
    return [
        Fact("Tenant", link(session.tenant, session.tenant_id)),
        Fact("Key", key_link(session)),
        Fact("Remote address", session.remote_address or "-"),
        Fact("Protocol version", session.protocol_version or "-"),
        Fact("Started", full_text(session.created_at)),
        Fact("Last used", full_text(session.last_seen_at)),
        Fact("Ended", full_text(session.ended_at)),
        Fact("End reason", session.end_reason or "-"),
        Fact("Log level", session.log_level),
        Fact("Subscribed to", f"{len(session.subscriptions)} resource{'' if len(session.subscriptions) == 1 else 's'}"),
        Fact("Session ID in the hub", str(session.pk), copy=True),
    ]


def _calls_of(session: Session) -> list[CallOfSession]:
    """Return a session's running calls, and its newest finished ones among its tenant's newest since it started."""
    running = RunningCall.objects.filter(session=session).defer("arguments", "sealed_arguments")[:MAX_CALLS]
    recent = Call.objects.filter(tenant=session.tenant_id, started_at__gte=session.created_at)
    if session.ended_at:
        recent = recent.filter(started_at__lte=session.ended_at)
    found = recent.order_by("-started_at").values_list("pk", "session_id")[:MAX_LOOKED]
    ids = [call_id for call_id, session_id in found if session_id == session.pk][:MAX_CALLS]
    ended = Call.objects.filter(pk__in=ids).defer("cause").order_by("-started_at")
    return [*map(_running, running), *map(_ended, ended)]


def _running(call: RunningCall) -> CallOfSession:
    url = reverse("admin:tools_app_runningcall_change", args=[call.pk])
    says = badge(call.get_status_display(), "primary")
    return CallOfSession(moment(call.started_at), call.tool_name or call.method, url, says, "-")


def _ended(call: Call) -> CallOfSession:
    url = reverse("admin:tools_app_call_change", args=[call.pk])
    says = badge(call.get_outcome_display(), OUTCOME_COLOURS[Outcome(call.outcome)])
    took = duration_text(call.duration_us)
    return CallOfSession(moment(call.started_at), call.tool_name or call.method, url, says, took)
