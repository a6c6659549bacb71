"""The page of one settled call: all that is known of it, and its stream as it went.

Who is only an operator at the call's tenant sees facts: what was sent, said and answered, and why it failed, is for
admins and auditors.
"""

from typing import Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from tools_app.admin import call_downloads, call_payloads
from tools_app.admin.call_about import Fact, about, links_of
from tools_app.admin.call_events import events_of
from tools_app.admin.call_facts import CallFactsAdmin, duration_text, moment_text
from tools_app.admin.call_revision import revision_of
from tools_app.admin.call_timing import spans_of
from tools_app.admin.decorators import column
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import badge, by_id
from tools_app.models import Call, Outcome, RunningCall

OUTCOME_COLOURS = {
    Outcome.OK: "success",
    Outcome.TOOL_ERROR: "danger",
    Outcome.REJECTED: "warning",
    Outcome.DENIED: "danger",
    Outcome.CANCELLED: "info",
    Outcome.TIMEOUT: "warning",
    Outcome.LOST: "danger",
    Outcome.INTERRUPTED: "warning",
    Outcome.INPUT_REQUIRED: "primary",
}


class CallPage(CallFactsAdmin):
    """What is said of a settled call: in a row of the list, and on a page of its own."""

    def get_urls(self) -> list[URLPattern]:
        """The downloads beside the page."""
        download = self.admin_site.admin_view(self.download_view)
        urls: list[URLPattern] = super().get_urls()
        return [path("<path:object_id>/download/<str:part>/", download, name="tools_app_call_download"), *urls]

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Call]":
        """Calls with what their page links to."""
        rows: QuerySet[Call] = super().get_queryset(request)
        return rows.select_related("tenant", "api_key", "session", "tool")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of a call; that of the running call where it has not ended yet."""
        try:
            call: Call = self._call(request, object_id)
        except Http404:
            if is_row_seen(request, RunningCall, object_id):
                return HttpResponseRedirect(reverse("admin:tools_app_runningcall_change", args=[object_id]))
            raise
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return TemplateResponse(request, "admin/tools_app/call/page.html", self._context(request, call))

    def download_view(self, request: HttpRequest, object_id: str, part: str) -> HttpResponse:
        """Arguments, events or result as a file, for those who may read them."""
        call = self._call(request, object_id)
        if request.method not in ("GET", "HEAD") or not reach_of(request).audits(call.tenant_id):
            raise PermissionDenied
        return call_downloads.answer(call, part)

    def _call(self, request: HttpRequest, object_id: str) -> Call:
        """The call with this id. Raises Http404 if it is missing or foreign."""
        call: Call = self.get_object(request, unquote(object_id))
        return call

    def _context(self, request: HttpRequest, call: Call) -> dict[str, Any]:
        audits = reach_of(request).audits(call.tenant_id)
        return {
            **self.admin_site.each_context(request),
            "title": f"Call of {self.called(call)}",
            "name": self.called(call),
            "call": call,
            "audits": audits,
            "outcome": self.outcome_label(call),
            "when": moment_text(call.started_at),
            "took": duration_text(call.duration_us),
            "spans": spans_of(call),
            "facts": [*about(self, call), *_answered(call)],
            "revision": revision_of(call),
            "links": links_of(call),
            **(_payloads(call) if audits else {}),
        }

    @column("outcome", ordering="outcome")
    def outcome_label(self, call: Call) -> SafeString:
        return badge(call.get_outcome_display(), OUTCOME_COLOURS[Outcome(call.outcome)])

    @column("duration", ordering="duration_us")
    def took(self, call: Call) -> str:
        return duration_text(call.duration_us)


def is_row_seen(request: HttpRequest, model: Any, object_id: str) -> bool:
    """Whether there is a row of `model`, which has a tenant, with this id within reach."""
    tenants = by_id(model.objects, "pk", unquote(object_id) or "-").values_list("tenant_id", flat=True)
    return any(reach_of(request).sees(tenant) for tenant in tenants)


def _answered(call: Call) -> list[Fact]:
    """How a call ended and where that is written down."""
    return [
        Fact("Ended", moment_text(call.finished_at)),
        Fact("HTTP status", str(call.http_status or "-")),
        Fact("JSON-RPC error", "-" if call.rpc_error is None else str(call.rpc_error)),
        Fact("The tool's own verdict", {True: "error", False: "no error", None: "-"}[call.is_error]),
        Fact("Size", f"{call.arguments_size} bytes of arguments, {call.result_size} bytes of result"),
        *([Fact("Stands for", f"{call.repeated} denials of this kind")] if call.repeated > 1 else []),
        Fact("Written by process", str(call.writer), copy=True),
        Fact("Place in its chain", "-" if call.chain_position is None else str(call.chain_position)),
    ]


def _payloads(call: Call) -> dict[str, Any]:
    return {
        "cause": call.cause,
        "arguments": call_payloads.shown(call, "arguments"),
        "result": call_payloads.shown(call, "result"),
        "events": events_of(call.pk, call.started_at),
    }
