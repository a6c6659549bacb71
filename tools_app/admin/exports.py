"""Exports of the audit log: what a search finds as one file, streamed, with a page that says how far it is.

An export belongs to the person that began it; nobody else finds it. What is in the file is decided when it is
downloaded: what the person may see then, with arguments and results of those tenants that it audits.
"""

from typing import Any, Final, cast

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET, require_POST

from tools_app.admin.saved_filters import back_to_list, posted_query
from tools_app.audit.exporting.answering import file_answer
from tools_app.audit.exporting.starting import start as start_export
from tools_app.audit.search.query import BadQuery
from tools_app.models import Export, ExportFormat, ExportState

MOST_LISTED: Final = 20


def urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of a person's exports."""
    return [
        path("exports/", site.admin_view(require_GET(listing(site))), name="exports"),
        path("exports/start/", site.admin_view(require_POST(start)), name="export_start"),
        path("exports/<uuid:id>/", site.admin_view(require_GET(page(site))), name="export"),
        path("exports/<uuid:id>/progress/", site.admin_view(require_GET(progress)), name="export_progress"),
        path("exports/<uuid:id>/download/", site.admin_view(require_GET(download)), name="export_download"),
    ]


def start(request: HttpRequest) -> HttpResponse:
    """Make an export of what was searched for, and show its page, which begins the download."""
    query, form = posted_query(request), request.POST.get("format", "")
    if query is None or form not in ExportFormat.values:
        messages.error(request, "Nothing was exported: choose a format, and mend the search.")
        return back_to_list(query)
    try:
        with_payloads = "with_payloads" in request.POST
        export = start_export(query, cast("User", request.user), ExportFormat(form), with_payloads=with_payloads)
    except BadQuery as problem:
        messages.error(request, f"Nothing was exported. {problem}")
        return back_to_list(query)
    return redirect("admin:export", export.pk)


def listing(site: AdminSite) -> Any:
    """The person's exports."""

    def exports(request: HttpRequest) -> HttpResponse:
        rows = Export.objects.filter(person=request.user.pk)[:MOST_LISTED]
        context = {**site.each_context(request), "title": "Exports", "exports": rows}
        return TemplateResponse(request, "admin/tools_app/export/list.html", context)

    return exports


def page(site: AdminSite) -> Any:
    """How far an export is."""

    def export_page(request: HttpRequest, id: Any) -> HttpResponse:
        export = _own(request, id)
        context = {
            **site.each_context(request),
            "title": "Export",
            "export": export,
            "state": state_of(export),
            "begins": export.state == ExportState.READY,
        }
        return TemplateResponse(request, "admin/tools_app/export/page.html", context)

    return export_page


def progress(request: HttpRequest, id: Any) -> HttpResponse:
    """The same for the page's script."""
    return JsonResponse(state_of(_own(request, id)))


def state_of(export: Export) -> dict[str, Any]:
    """What an export's page says of it. `share`: percent, None where it is not known of how many."""
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
    """The file, as it is made. It may be had again."""
    return file_answer(request, _own(request, id))


def _own(request: HttpRequest, id: Any) -> Export:
    export = Export.objects.filter(pk=id, person=request.user.pk).first()
    if export is None:
        raise Http404("There is no such export.")
    return export
