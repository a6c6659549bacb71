"""The page of a finished call: its facts, payloads and event stream, and the revision of the tool that it ran.

Operators of the call's tenant see the facts only. Arguments, events, result and the cause of an error are for admins
and auditors.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from tools_app.calls.admin import failures, payloads
from tools_app.calls.admin.columns import (
    OUTCOME_COLOURS,
    CallFactsAdmin,
    Fact,
    duration_text,
    facts_about,
    links_of,
    title_of,
)
from tools_app.calls.admin.events import events_of
from tools_app.catalog.revisions import source_of
from tools_app.core import diff as differences
from tools_app.core.diff import DiffLine
from tools_app.core.relations import related
from tools_app.models import Call, Outcome, RunningCall, Tool, ToolRevision
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.decorators import column
from tools_app.web.admin.links import key_name
from tools_app.web.admin.scoping import badge, by_id
from tools_app.web.admin.times import full_text
from tools_app.web.playground.run_again import can_run_again


@dataclass(frozen=True)
class Span:
    """A phase of a call. `kind` determines its colour on the page."""

    kind: str
    label: str
    microseconds: int

    @property
    def text(self) -> str:
        """The duration, formatted."""
        return duration_text(self.microseconds)


def spans_of(call: Call) -> list[Span]:
    """Return the phases of a call in order, without those that were not measured."""
    waited = call.waited_us
    if waited is None:
        # The call did not run.
        spans = [Span("whole", "Total", call.duration_us)]
    else:
        run = max(0, call.duration_us - waited)
        spans = [Span("queue", "Queued", waited), Span("run", "Run", run)]
    if call.recorded_us is not None:
        spans.append(Span("record", "Recording", call.recorded_us))
    return spans


class CallPage(CallFactsAdmin):
    """A finished call in the list and on its own page."""

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the admin and of the downloads."""
        download = self.admin_site.admin_view(self.download_view)
        urls: list[URLPattern] = super().get_urls()
        panel = self.admin_site.admin_view(require_GET(self.panel_view))
        return [
            path("<path:object_id>/download/<str:part>/", download, name="tools_app_call_download"),
            path("<path:object_id>/panel/", panel, name="tools_app_call_panel"),
            *urls,
        ]

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Call]":
        """Return calls with the related objects that their page links to."""
        rows: QuerySet[Call] = super().get_queryset(request)
        return rows.select_related("tenant", "api_key", "session", "tool")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the page of a call; redirect to the running call if it has not finished."""
        try:
            call: Call = self._call(request, object_id)
        except Http404:
            if is_row_seen(request, RunningCall, object_id):
                return HttpResponseRedirect(reverse("admin:tools_app_runningcall_change", args=[object_id]))
            raise
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return TemplateResponse(request, "calls/page.html", self._context(request, call))

    def panel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return what the page of a call shows, for the panel beside the list."""
        call = self._call(request, object_id)
        return TemplateResponse(request, "calls/body.html", self._facts(request, call))

    def download_view(self, request: HttpRequest, object_id: str, part: str) -> HttpResponse:
        """Download arguments, events or result, for users who may read them."""
        call = self._call(request, object_id)
        if request.method not in ("GET", "HEAD") or not tenant_permissions_of(request).audits(call.tenant_id):
            raise PermissionDenied
        return payloads.download(call, part)

    def _call(self, request: HttpRequest, object_id: str) -> Call:
        """Return the call with this id. Raises Http404 if it is missing or belongs to another tenant."""
        call: Call = self.get_object(request, unquote(object_id))
        return call

    def _context(self, request: HttpRequest, call: Call) -> dict[str, Any]:
        context = {**self.admin_site.each_context(request), "title": title_of(call)}
        return {**context, **self._facts(request, call)}

    def _facts(self, request: HttpRequest, call: Call) -> dict[str, Any]:
        audits = tenant_permissions_of(request).audits(call.tenant_id)
        return {
            "name": self.called(call),
            "call": call,
            "audits": audits,
            "runs_again": can_run_again(request, call),
            "outcome": self.outcome_label(call),
            "when": full_text(call.started_at),
            "took": duration_text(call.duration_us),
            "spans": spans_of(call),
            "facts": [*facts_about(self, call), *_answered(call)],
            "revision": revision_of(call),
            "links": links_of(call),
            "key": key_name(call),
            "similar": failures.address_of(call, tenant_permissions_of(request)),
            **(_payloads(call) if audits else {}),
        }

    @column("outcome", ordering="outcome")
    def outcome_label(self, call: Call) -> SafeString:
        return badge(call.get_outcome_display(), OUTCOME_COLOURS[Outcome(call.outcome)])

    @column("duration", ordering="duration_us")
    def took(self, call: Call) -> str:
        return duration_text(call.duration_us)


def is_row_seen(request: HttpRequest, model: Any, object_id: str) -> bool:
    """Return whether `model`, which has a tenant, has a row with this id that the user may see."""
    tenants = by_id(model.objects, "pk", unquote(object_id) or "-").values_list("tenant_id", flat=True)
    return any(tenant_permissions_of(request).sees(tenant) for tenant in tenants)


def _answered(call: Call) -> list[Fact]:
    """Return how a call ended and where it is recorded."""
    return [
        Fact("Ended", full_text(call.finished_at)),
        Fact("HTTP status", str(call.http_status or "-")),
        Fact("JSON-RPC error", "-" if call.rpc_error is None else str(call.rpc_error)),
        Fact("isError of the result", {True: "error", False: "no error", None: "-"}[call.is_error]),
        Fact("Size", f"{call.arguments_size} bytes of arguments, {call.result_size} bytes of result"),
        *([Fact("Shaped", f"The client received {call.shaped_size} bytes")] if call.shaped_size is not None else []),
        *([Fact("Aggregated denials", f"{call.repeated} of this kind")] if call.repeated > 1 else []),
        Fact("Recorded by process", str(call.writer), copy=True),
        Fact("Position in its chain", "-" if call.chain_position is None else str(call.chain_position)),
    ]


def _payloads(call: Call) -> dict[str, Any]:
    return {
        "cause": call.cause,
        "arguments": payloads.shown(call, "arguments"),
        "result": payloads.shown(call, "result"),
        "events": events_of(call.pk, call.started_at),
    }


@dataclass(frozen=True)
class Revision:
    """A tool's revision and its difference from the current one. `words` replaces the diff where there is none.

    `source` is where the tool came from.
    """

    number: int
    words: str = ""
    diff: list[DiffLine] = field(default_factory=list)
    source: str = ""


def revision_of(call: Any) -> Revision | None:
    """Return the revision that a call ran, or None if it has none: a resource, a prompt, a denial."""
    number = call.tool_revision
    if not number or call.tool_id is None:
        return None
    tool: Tool | None = related(call, "tool")
    if tool is None:
        return Revision(number, "The tool and its revisions were deleted.")
    if tool.revision == number:
        found = Revision(number, "Unchanged: this is the current definition of the tool.")
    else:
        found = _compared(number, tool)
    return replace(found, source=source_of(call))


def _compared(number: int, tool: Tool) -> Revision:
    wanted = ToolRevision.objects.filter(tool=tool, number__in=(number, tool.revision))
    definitions = dict(wanted.values_list("number", "definition"))
    if not {number, tool.revision} <= definitions.keys():
        return Revision(number, f"The current revision is {tool.revision}. This one is no longer stored.")
    diff = differences.lines(definitions[number], definitions[tool.revision])
    same = "" if diff else f"The current revision is {tool.revision}, with the same definition."
    return Revision(number, same or f"Changes up to the current revision {tool.revision}:", diff)
