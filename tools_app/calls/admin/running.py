"""Calls that have not finished. Read-only, except that an admin of the tenant can cancel them."""

from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.calls.admin.columns import CallFactsAdmin, Fact, duration_text, facts_about, links_of, title_of
from tools_app.calls.admin.detail import is_row_seen, revision_of
from tools_app.calls.admin.events import Events, events_of
from tools_app.calls.admin.filters import KeyFilter, MethodFilter, SessionFilter, ToolFilter
from tools_app.calls.admin.payloads import Shown, shown_text
from tools_app.calls.background import delivery
from tools_app.models import Call, CallStatus, RunningCall
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.decorators import column
from tools_app.web.admin.scoping import TenantFilter, badge
from tools_app.web.admin.site import site
from tools_app.web.admin.times import full_text

STATUS_COLOURS = {CallStatus.QUEUED: "info", CallStatus.RUNNING: "primary", CallStatus.WAITING: "warning"}
MAX_NUMBER = 9
# Each cancellation is a transaction with an entry in the change log.
MAX_CANCELLED = 500


@admin.register(RunningCall, site=site)
class RunningCallAdmin(CallFactsAdmin):
    """Calls that have not finished."""

    list_display = ("started", "called_in_short", "method", "status_label", "tenant", "key", "client", "running_for")
    actions = ("cancel_selected",)
    empty_hint = "Calls appear here while they run. When they end, they are listed under Calls."
    list_filter = (("status", ChoicesDropdownFilter), MethodFilter, ToolFilter, KeyFilter, SessionFilter, TenantFilter)

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the admin, of the page's polling endpoint and of the cancel button."""
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
        """Show the page of a running call; redirect to its record once it has finished."""
        call = self._running(request, object_id)
        if call is None:
            return HttpResponseRedirect(_record_url(object_id))
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return TemplateResponse(request, "calls/running.html", self._context(request, call))

    def news_view(self, request: HttpRequest, object_id: str) -> JsonResponse:
        """Return the status of the call and its events after the given sequence number."""
        call = self._running(request, object_id)
        if call is None:
            return _fresh({"ended": _record_url(object_id)})
        given = request.GET.get("after", "")
        after = int(given) if given.isdecimal() and len(given) <= MAX_NUMBER else 0
        audits = tenant_permissions_of(request).audits(call.tenant_id)
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
        """Cancel the call, as its client could. For admins of its tenant."""
        call = self._running(request, object_id)
        if call is None:
            messages.info(request, "The call ended before it could be cancelled.")
            return HttpResponseRedirect(_record_url(object_id))
        if request.method != "POST" or not tenant_permissions_of(request).changes(call.tenant_id):
            raise PermissionDenied
        delivery.cancel_by_person(call)
        messages.success(request, "Cancellation requested. A call that does not stop is terminated within seconds.")
        return HttpResponseRedirect(reverse("admin:tools_app_runningcall_change", args=[call.pk]))

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may cancel any calls."""
        return tenant_permissions_of(request).is_admin_anywhere

    @admin.action(description="Cancel selected calls", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[RunningCall]) -> None:
        """Cancel the selected calls of tenants that this user administers."""
        chosen = queryset.defer("arguments", "sealed_arguments")
        cancellable = list(self.rows_run(request, chosen)[: MAX_CANCELLED + 1])
        cancelled = sum(delivery.cancel_by_person(call) for call in cancellable[:MAX_CANCELLED])
        message = f"Asked to stop: {cancelled}. A call that does not stop by itself is ended in seconds."
        self.message_user(request, message, messages.SUCCESS if cancelled else messages.WARNING)
        if len(cancellable) > MAX_CANCELLED:
            self.message_user(request, f"At most {MAX_CANCELLED} at once: select the others again.", messages.WARNING)
        if not tenant_permissions_of(request).is_superuser and (foreign := queryset.count() - len(cancellable)) > 0:
            message = f"Not cancelled, because you are no admin of their tenants: {foreign}."
            self.message_user(request, message, messages.WARNING)

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """Return the columns with `tenant_link`, since the tenant of a record may have been deleted."""
        return ["tenant_link" if name == "tenant" else name for name in super().get_list_display(request)]

    def _running(self, request: HttpRequest, object_id: str) -> RunningCall | None:
        """Return the call with this id, or None if it has ended. Raises Http404 if missing or of another tenant."""
        try:
            call: RunningCall = self.get_object(request, unquote(object_id))
        except Http404:
            # A call moves to another table when it finishes.
            if is_row_seen(request, Call, object_id):
                return None
            raise
        return call

    def _context(self, request: HttpRequest, call: RunningCall) -> dict[str, Any]:
        permitted = tenant_permissions_of(request)
        audits = permitted.audits(call.tenant_id)
        return {
            **self.admin_site.each_context(request),
            "title": title_of(call),
            "name": self.called(call),
            "call": call,
            "audits": audits,
            "may_cancel": permitted.changes(call.tenant_id),
            "status": self.status_label(call),
            "when": full_text(call.started_at),
            "for": self.running_for(call),
            "facts": [*facts_about(self, call), *_standing(call)],
            "revision": revision_of(call),
            "links": links_of(call),
            **(_payloads(call) if audits else {}),
        }

    @column("status")
    def status_label(self, call: RunningCall) -> SafeString:
        return badge(call.get_status_display(), STATUS_COLOURS[CallStatus(call.status)])

    @column("duration")
    def running_for(self, call: RunningCall) -> str:
        elapsed = timezone.now() - call.started_at
        return duration_text(max(0, elapsed // timedelta(microseconds=1)))


def _standing(call: RunningCall) -> list[Fact]:
    """Return the facts that are known only while a call is running."""
    return [
        Fact("Started running", full_text(call.run_at)),
        Fact("Time limit", f"{call.timeout_seconds:g} s"),
        Fact("Task", "-" if call.task_seconds is None else f"kept for {call.task_seconds:g} s"),
        Fact("Cancellation requested", "yes" if call.cancel_requested else "no"),
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
