"""The audit log: a read-only list of finished calls and denials, and exports of it.

An export is the calls that match a search as a streamed file, with a progress page. It is visible only to the user who
started it. Its content is determined at the time of the download: the calls that the user may see then, with arguments
and results for tenants where the user is an admin or auditor.
"""

from typing import Any, Final, cast
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET, require_POST

from tools_app.audit.export import file_response, start_export
from tools_app.audit.search.query import BadQuery
from tools_app.calls.admin import change_list, saved_filters
from tools_app.calls.admin.detail import CallPage
from tools_app.calls.admin.saved_filters import back_to_list, posted_query
from tools_app.models import Call, Export, ExportFormat, ExportState
from tools_app.web.admin.decorators import column
from tools_app.web.admin.links import key_name
from tools_app.web.admin.scoping import narrow
from tools_app.web.admin.site import site
from tools_app.web.admin.times import moment

MAX_LISTED: Final = 20


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL patterns of a user's exports."""
    return [
        path("exports/", site.admin_view(require_GET(listing(site))), name="exports"),
        path("exports/start/", site.admin_view(require_POST(start)), name="export_start"),
        path("exports/<uuid:id>/", site.admin_view(require_GET(page(site))), name="export"),
        path("exports/<uuid:id>/progress/", site.admin_view(require_GET(progress)), name="export_progress"),
        path("exports/<uuid:id>/download/", site.admin_view(require_GET(download)), name="export_download"),
    ]


def start(request: HttpRequest) -> HttpResponse:
    """Create an export of a search and redirect to its page, which starts the download."""
    query, form = posted_query(request), request.POST.get("format", "")
    if query is None or form not in ExportFormat.values:
        messages.error(request, "Not exported: choose a format and correct the search.")
        return back_to_list(query)
    try:
        with_payloads = "with_payloads" in request.POST
        export = start_export(query, cast("User", request.user), ExportFormat(form), with_payloads=with_payloads)
    except BadQuery as problem:
        messages.error(request, f"Not exported. {problem}")
        return back_to_list(query)
    return redirect("admin:export", export.pk)


def listing(site: AdminSite) -> Any:
    """Return the view that lists the user's exports."""

    def exports(request: HttpRequest) -> HttpResponse:
        rows = Export.objects.filter(person=request.user.pk)[:MAX_LISTED]
        context = {**site.each_context(request), "title": "Exports", "exports": rows}
        return TemplateResponse(request, "audit/export/list.html", context)

    return exports


def page(site: AdminSite) -> Any:
    """Return the view that shows the progress of an export."""

    def export_page(request: HttpRequest, id: Any) -> HttpResponse:
        export = _export_of(request, id)
        context = {
            **site.each_context(request),
            "title": "Export",
            "export": export,
            "state": state_of(export),
            "begins": export.state == ExportState.READY,
        }
        return TemplateResponse(request, "audit/export/page.html", context)

    return export_page


def progress(request: HttpRequest, id: Any) -> HttpResponse:
    """Return the progress of an export as JSON for the page's script."""
    return JsonResponse(state_of(_export_of(request, id)))


def state_of(export: Export) -> dict[str, Any]:
    """Return the state of an export. `share`: percent, None if the total is unknown."""
    share = min(100, 100 * export.calls // export.expected) if export.expected else None
    return {
        "state": export.state,
        "label": export.get_state_display(),
        "calls": export.calls,
        "bytes": export.bytes,
        "expected": export.expected,
        "share": 100 if export.state == ExportState.DONE else share,
        "problem": export.problem,
    }


def download(request: HttpRequest, id: Any) -> StreamingHttpResponse:
    """Stream the file while it is generated. It can be downloaded again."""
    return file_response(request, _export_of(request, id))


def _export_of(request: HttpRequest, id: Any) -> Export:
    export = Export.objects.filter(pk=id, person=request.user.pk).first()
    if export is None:
        raise Http404("Export not found.")
    return export


@admin.register(Call, site=site)
class CallAdmin(CallPage):
    """Finished calls and denials. Denials without a tenant are visible to superusers only."""

    list_display = ("when", "called_in_short", "outcome_label", "tenant", "key", "client", "took")

    @column("time")
    def when(self, call: Call) -> str:
        return moment(call.started_at)

    @column("key")
    def key(self, call: Call) -> SafeString:
        return narrow(key_name(call))

    @column("client")
    def client(self, call: Call) -> SafeString:
        return narrow(super().client(call))

    @column("outcome")
    def outcome_label(self, call: Call) -> SafeString:
        """Return the outcome, with the number of denials that were recorded together."""
        label = super().outcome_label(call)
        return format_html("{} {} times", label, call.repeated) if call.repeated > 1 else label

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """Return the columns with `tenant_link`, since the tenant of a record may have been deleted."""
        return ["tenant_link" if name == "tenant" else name for name in super().get_list_display(request)]

    def get_urls(self) -> list[Any]:
        """Return the pages of calls and the actions on a search."""
        site = self.admin_site
        count = path("count/", site.admin_view(require_GET(self.count_view)), name="tools_app_call_count")
        return [count, *saved_filters.urls(site), *urls(site), *super().get_urls()]

    def count_view(self, request: HttpRequest) -> HttpResponse:
        """Return how many calls match a search, as JSON: `{"text": …}`."""
        try:
            return JsonResponse({"text": change_list.count_text(request)})
        except BadQuery as problem:
            return JsonResponse({"text": str(problem)}, status=400)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the calls that match a search. `audit.search` paginates because Django would count all rows.

        A form sends its empty fields, too: the address that people copy has only the filters in use.
        """
        used = [(name, value) for name, values in request.GET.lists() for value in values if value.strip()]
        if len(used) < sum(len(values) for _, values in request.GET.lists()):
            return redirect(f"{request.path}?{urlencode(used)}")
        context = {
            **self.admin_site.each_context(request),
            "title": "Calls",
            "opts": self.opts,
            **change_list.context_of(self, request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "calls/list.html", context)
