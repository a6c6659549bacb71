"""Calls that have not ended. Nobody changes them here; a tenant's admin may have them cancelled."""

from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.admin.call_about import Fact, about, links_of
from tools_app.admin.call_events import Events, events_of
from tools_app.admin.call_facts import CallFactsAdmin, duration_text, moment_text
from tools_app.admin.call_filters import KeyFilter, MethodFilter, SessionFilter, ToolFilter
from tools_app.admin.call_page import is_row_seen
from tools_app.admin.call_payloads import Shown, shown_text
from tools_app.admin.call_revision import revision_of
from tools_app.admin.decorators import column
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import TenantFilter, badge
from tools_app.admin.site import site
from tools_app.execution import interventions
from tools_app.models import Call, CallStatus, RunningCall

STATUS_COLOURS = {CallStatus.QUEUED: "info", CallStatus.RUNNING: "primary", CallStatus.WAITING: "warning"}
LONGEST_NUMBER = 9


@admin.register(RunningCall, site=site)
class RunningCallAdmin(CallFactsAdmin):
    """Calls that have not ended."""

    list_display = ("started", "called_in_short", "method", "status_label", "tenant", "key", "client", "running_for")
    list_filter = (("status", ChoicesDropdownFilter), MethodFilter, ToolFilter, KeyFilter, SessionFilter, TenantFilter)

    def get_urls(self) -> list[URLPattern]:
        """What the page asks for while the call runs, and the button that has it cancelled."""
        view = self.admin_site.admin_view
        name = "tools_app_runningcall"
        urls: list[URLPattern] = super().get_urls()
        return [
            path("<path:object_id>/news/", view(self.news_view), name=f"{name}_news"),
            path("<path:object_id>/cancel/", view(self.cancel_view), name=f"{name}_cancel"),
            *urls,
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of a call that runs; that of its record once it has ended."""
        call = self._running(request, object_id)
        if call is None:
            return HttpResponseRedirect(_record_url(object_id))
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return TemplateResponse(request, "admin/tools_app/call/running.html", self._context(request, call))

    def news_view(self, request: HttpRequest, object_id: str) -> JsonResponse:
        """How the call stands, and what it said since the event whose number is given."""
        call = self._running(request, object_id)
        if call is None:
            return _fresh({"ended": _record_url(object_id)})
        given = request.GET.get("after", "")
        after = int(given) if given.isdecimal() and len(given) <= LONGEST_NUMBER else 0
        audits = reach_of(request).audits(call.tenant_id)
        events = events_of(call.pk, call.started_at, after) if audits else Events([], has_more=False)
        return _fresh(
            {
                "status": call.get_status_display(),
                "for": self.running_for(call),
                "cancelling": call.cancel_requested,
                "events": [row.as_json() for row in events.rows],
            }
        )

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Have the call cancelled, as its client could, by an admin of its tenant."""
        call = self._running(request, object_id)
        if call is None:
            messages.info(request, "The call ended by itself before it could be cancelled.")
            return HttpResponseRedirect(_record_url(object_id))
        if request.method != "POST" or not reach_of(request).changes(call.tenant_id):
            raise PermissionDenied
        interventions.cancel(call)
        messages.success(request, "The call was asked to stop. One that does not stop by itself is ended in seconds.")
        return HttpResponseRedirect(reverse("admin:tools_app_runningcall_change", args=[call.pk]))

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """A record's tenant may be gone, so the column that is shown is a safe one."""
        return ["tenant_link" if name == "tenant" else name for name in super().get_list_display(request)]

    def _running(self, request: HttpRequest, object_id: str) -> RunningCall | None:
        """The call with this id; None if it has ended. Raises Http404 if it is missing or foreign."""
        try:
            call: RunningCall = self.get_object(request, unquote(object_id))
        except Http404:
            # A call that is settled moves from one table to the other.
            if is_row_seen(request, Call, object_id):
                return None
            raise
        return call

    def _context(self, request: HttpRequest, call: RunningCall) -> dict[str, Any]:
        reach = reach_of(request)
        audits = reach.audits(call.tenant_id)
        return {
            **self.admin_site.each_context(request),
            "title": f"Call of {self.called(call)}",
            "name": self.called(call),
            "call": call,
            "audits": audits,
            "may_cancel": reach.changes(call.tenant_id),
            "status": self.status_label(call),
            "when": moment_text(call.started_at),
            "for": self.running_for(call),
            "facts": [*about(self, call), *_standing(call)],
            "revision": revision_of(call),
            "links": links_of(call),
            **(_payloads(call) if audits else {}),
        }

    @column("status")
    def status_label(self, call: RunningCall) -> SafeString:
        return badge(call.get_status_display(), STATUS_COLOURS[CallStatus(call.status)])

    @column("for")
    def running_for(self, call: RunningCall) -> str:
        elapsed = timezone.now() - call.started_at
        return duration_text(max(0, elapsed // timedelta(microseconds=1)))


def _standing(call: RunningCall) -> list[Fact]:
    """What is known of a call only while it has not ended."""
    return [
        Fact("Began to run", moment_text(call.run_at) if call.run_at else "-"),
        Fact("Time limit", f"{call.timeout_seconds:g} s"),
        Fact("Task", "-" if call.task_seconds is None else f"kept for {call.task_seconds:g} s"),
        Fact("Asked to stop", "yes" if call.cancel_requested else "no"),
        Fact("Process", str(call.owner), copy=True),
    ]


def _payloads(call: RunningCall) -> dict[str, Any]:
    return {
        "arguments": shown_text(call.arguments) if call.arguments else Shown(note="None."),
        "events": events_of(call.pk, call.started_at),
    }


def _record_url(object_id: str) -> str:
    return reverse("admin:tools_app_call_change", args=[object_id])


def _fresh(news: dict[str, Any]) -> JsonResponse:
    return JsonResponse(news, headers={"Cache-Control": "no-store"})
