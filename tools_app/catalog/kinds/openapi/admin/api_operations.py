"""The operations of an API source: the difference that the newest document makes, and the choice of what to import."""

from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.catalog.kinds.openapi.sources.plan import (
    AppliedCounts,
    ApplyError,
    Entry,
    OperationChange,
    OperationFilter,
    Plan,
    apply,
    not_offered,
    plan,
)
from tools_app.core import diff
from tools_app.core.diff import DiffLine
from tools_app.models import ApiSource, RevisionState
from tools_app.web.admin.scoping import ScopedAdmin, writer

# Each is a field of the form.
MAX_SHOWN: Final = 300
MAX_DIFFERENCES: Final = 100
MAX_SKIPPED: Final = 200
MAX_QUERY_LENGTH: Final = 200


@dataclass(frozen=True)
class ShownChange:
    """A field of a changed tool, as a difference. `is_kept`: somebody overrode it, so it stays."""

    name: str
    is_kept: bool
    lines: list[DiffLine]


@dataclass(frozen=True)
class ShownTool:
    """A tool that the document changes."""

    entry: Entry
    changes: list[ShownChange] = field(default_factory=list)


class OperationsPage(ScopedAdmin):
    """The page of a source's operations."""

    def operations_page(self, request: HttpRequest, source: ApiSource) -> HttpResponse:
        """Show the difference, or apply it."""
        page: dict[str, Any] = {"may_write": self.has_change_permission(request, source)}
        if request.method == "POST" and not page["may_write"]:
            raise PermissionDenied
        if request.method == "POST" and request.POST.get("refresh") and source.url:
            documents.add_revision(source, writer(request))
            return HttpResponseRedirect(operations_url(source))
        revision = source.revisions.defer("content").first()
        if revision is not None:
            page["state"], page["problem"] = documents.state_of(revision)
            page["revision"] = revision
        if revision is None or page["state"] != RevisionState.READY:
            return self._render(request, source, page)
        planned = plan(source, revision)
        page["not_offered"] = not_offered(source)
        if request.method == "POST" and self._applied(request, planned):
            return HttpResponseRedirect(request.get_full_path())
        return self._render(request, source, {**page, **_shown(planned, _filter(request))})

    def _applied(self, request: HttpRequest, planned: Plan) -> bool:
        """Apply what the form says; whether that was possible."""
        if request.POST.get("all"):
            shown = _filter(request)
            wanted = {entry.key for entry in planned.of(OperationChange.NEW) if shown.finds(entry)}
        else:
            wanted = set(request.POST.getlist("key"))
        # The form shows one revision, and one state of the tools.
        previewed = (request.POST.get("revision"), request.POST.get("fingerprint"))
        enabled = wanted if request.POST.get("enable") else set[str]()
        try:
            if previewed != (str(planned.revision.number), planned.fingerprint):
                raise ApplyError("The source or its tools have changed since the preview. Review the changes again.")
            done = apply(planned, writer(request), wanted=wanted, enabled=enabled)
        except ApplyError as problem:
            self.message_user(request, str(problem), messages.WARNING)
            return False
        self.message_user(request, _summary(done), messages.SUCCESS)
        return True

    def _render(self, request: HttpRequest, source: ApiSource, page: dict[str, Any]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": f"Operations of {source}",
            "source": source,
            "original": source,
            "opts": self.opts,
            **page,
        }
        return TemplateResponse(
            request, "catalog/openapi/operations.html", context, headers={"Cache-Control": "no-store"}
        )


def operations_url(source: ApiSource) -> str:
    """Return the address of a source's operations."""
    return reverse("admin:tools_app_apisource_show_operations", args=[source.pk])


def _filter(request: HttpRequest) -> OperationFilter:
    """Return the filter in the parameters of a request."""
    values = {name: request.GET.get(name, "")[:MAX_QUERY_LENGTH] for name in ("tag", "path", "method", "search")}
    return OperationFilter(**values)


def _shown(planned: Plan, chosen: OperationFilter) -> dict[str, Any]:
    new = planned.of(OperationChange.NEW)
    found = [entry for entry in new if chosen.finds(entry)]
    changed = planned.of(OperationChange.CHANGED)
    redirected = planned.redirected
    repaired = [entry for entry in planned.entries if entry.operation and entry.operation.notes]
    is_moved = planned.changes_servers and planned.servers != planned.source.servers
    return {
        "plan": planned,
        "filter": chosen,
        "tags": sorted({tag for entry in new if entry.operation for tag in entry.operation.tags}),
        "methods": sorted({entry.operation.method for entry in new if entry.operation}),
        "new": new,
        "found": found[:MAX_SHOWN],
        "more": max(0, len(found) - MAX_SHOWN),
        "found_count": len(found),
        "found_tokens": sum(entry.operation.tokens for entry in found if entry.operation),
        "changed": [
            ShownTool(
                entry, [ShownChange(one.name, one.is_kept, diff.lines(one.base, one.theirs)) for one in entry.changes]
            )
            for entry in changed[:MAX_DIFFERENCES]
        ],
        "changed_count": len(changed),
        "more_changed": max(0, len(changed) - MAX_DIFFERENCES),
        "removed": planned.of(OperationChange.REMOVED),
        "skipped": planned.skipped[:MAX_SKIPPED],
        "skipped_count": len(planned.skipped),
        "more_skipped": max(0, len(planned.skipped) - MAX_SKIPPED),
        "repaired": repaired[:MAX_DIFFERENCES],
        "repaired_count": len(repaired),
        "more_repaired": max(0, len(repaired) - MAX_DIFFERENCES),
        "overridden": [entry for entry in planned.entries if entry.overridden],
        "servers_diff": diff.lines(planned.source.servers, planned.servers) if is_moved else [],
        "redirected": redirected[:MAX_DIFFERENCES],
        "more_redirected": max(0, len(redirected) - MAX_DIFFERENCES),
        "schemes_diff": diff.lines(planned.source.schemes, planned.schemes) if planned.changes_schemes else [],
        "same_count": len(planned.of(OperationChange.SAME)),
    }


def _summary(done: AppliedCounts) -> str:
    """Return what was done, in words."""
    counts = (
        (len(done.imported), "imported"),
        (len(done.changed) + len(done.enabled), "changed"),
        (len(done.removed), "disabled"),
    )
    return "Tools: " + (", ".join(f"{number} {what}" for number, what in counts if number) or "nothing to change") + "."
