"""Sessions of handshake-era clients, as the hub keeps them. A tenant's admin may end one."""

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

from tools_app.admin.call_about import Fact
from tools_app.admin.call_facts import duration_text, moment_text
from tools_app.admin.call_page import OUTCOME_COLOURS
from tools_app.admin.call_payloads import shown_text
from tools_app.admin.decorators import column
from tools_app.admin.json_source import pretty
from tools_app.admin.links import key_link, key_name, link
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import RecordAdmin, TenantFilter, badge
from tools_app.admin.site import site
from tools_app.audit import session_changes
from tools_app.models import Call, Outcome, RunningCall, Session

MOST_CALLS: Final = 20
# There is no index by session: its calls are looked for among so many of its tenant's.
MOST_LOOKED: Final = 5_000


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


@dataclass(frozen=True)
class CallOfSession:
    """A call as the page of its session lists it."""

    when: str
    name: str
    url: str
    says: SafeString
    took: str


@admin.register(Session, site=site)
class SessionAdmin(RecordAdmin):
    """Sessions of the tenants within reach. The digest of the wire id stays in the database."""

    list_display = ("client", "tenant", "key", "protocol_version", "state", "created_at", "last_seen_at")
    list_filter = (OpenFilter, TenantFilter)
    list_select_related = ("tenant", "api_key")
    search_fields = ("client_name", "remote_address")
    show_full_result_count = False

    def get_urls(self) -> list[URLPattern]:
        """The button that ends a session."""
        end = self.admin_site.admin_view(self.end_view)
        urls: list[URLPattern] = super().get_urls()
        return [path("<path:object_id>/end/", end, name="tools_app_session_end"), *urls]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of a session."""
        session: Session = self.get_object(request, unquote(object_id))
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": f"Session of {self.client(session)}",
            "name": self.client(session),
            "session": session,
            "state": self.state(session),
            "may_end": session.ended_at is None and reach_of(request).changes(session.tenant_id),
            "facts": _facts(session),
            "capabilities": shown_text(pretty(session.client_capabilities)),
            "calls": _calls_of(session),
            "calls_url": f"{reverse('admin:tools_app_call_changelist')}?session={session.pk}",
        }
        return TemplateResponse(request, "admin/tools_app/session/page.html", context)

    def end_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a session, for an admin of its tenant."""
        session: Session = self.get_object(request, unquote(object_id))
        if request.method != "POST" or not reach_of(request).changes(session.tenant_id):
            raise PermissionDenied
        if session_changes.end(session):
            messages.success(request, "The session is over; every process knows within a second.")
        else:
            messages.info(request, "The session had ended before.")
        return HttpResponseRedirect(reverse("admin:tools_app_session_change", args=[session.pk]))

    @column("client", ordering="client_name")
    def client(self, session: Session) -> str:
        return f"{session.client_name} {session.client_version}".strip() or "-"

    @column("key")
    def key(self, session: Session) -> str:
        return key_name(session)

    @column("state")
    def state(self, session: Session) -> SafeString:
        return badge("Ended", "info") if session.ended_at else badge("Open", "success")


def _facts(session: Session) -> list[Fact]:
    return [
        Fact("Tenant", link(session.tenant, session.tenant_id)),
        Fact("Key", key_link(session)),
        Fact("Remote address", session.remote_address or "-"),
        Fact("Protocol revision", session.protocol_version or "-"),
        Fact("Began", moment_text(session.created_at)),
        Fact("Last used", moment_text(session.last_seen_at)),
        Fact("Ended", moment_text(session.ended_at) if session.ended_at else "-"),
        Fact("Why it ended", session.end_reason or "-"),
        Fact("Log messages from level", session.log_level),
        Fact("Subscribed to", f"{len(session.subscriptions)} resource{'' if len(session.subscriptions) == 1 else 's'}"),
        Fact("Session id in the hub", str(session.pk), copy=True),
    ]


def _calls_of(session: Session) -> list[CallOfSession]:
    """The calls that run in a session, and the newest that ended, among the newest of its tenant's since it began."""
    running = RunningCall.objects.filter(session=session).defer("arguments", "sealed_arguments")[:MOST_CALLS]
    recent = Call.objects.filter(tenant=session.tenant_id, started_at__gte=session.created_at)
    if session.ended_at:
        recent = recent.filter(started_at__lte=session.ended_at)
    found = recent.order_by("-started_at").values_list("pk", "session_id")[:MOST_LOOKED]
    ids = [call_id for call_id, session_id in found if session_id == session.pk][:MOST_CALLS]
    ended = Call.objects.filter(pk__in=ids).defer("cause").order_by("-started_at")
    return [*map(_running, running), *map(_ended, ended)]


def _running(call: RunningCall) -> CallOfSession:
    url = reverse("admin:tools_app_runningcall_change", args=[call.pk])
    says = badge(call.get_status_display(), "primary")
    return CallOfSession(moment_text(call.started_at), call.tool_name or call.method, url, says, "-")


def _ended(call: Call) -> CallOfSession:
    url = reverse("admin:tools_app_call_change", args=[call.pk])
    says = badge(call.get_outcome_display(), OUTCOME_COLOURS[Outcome(call.outcome)])
    took = duration_text(call.duration_us)
    return CallOfSession(moment_text(call.started_at), call.tool_name or call.method, url, says, took)
