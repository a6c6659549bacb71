"""The history of a row: what people changed of it."""

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.admin import ModelAdmin

from tools_app.admin import change_facts
from tools_app.admin.reach import reach_of
from tools_app.models import Action, Change

MOST = 50


@dataclass(frozen=True)
class Entry:
    """A change as the history lists it. `fields` are None for whom they are not meant."""

    change: Change
    colour: str
    fields: list[change_facts.ChangedField] | None


class HistoryAdmin(ModelAdmin):
    """Rows whose history is read from the record of changes, so that Django's own is not written."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> None:
        """Nothing: the change is recorded where it is made."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:
        """Nothing, for the same reason."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> None:
        """Nothing, for the same reason."""

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The newest changes of a row that this person may see, and where to find the others."""
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404("There is no such row.")
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        found = Change.objects.filter(kind=self.opts.model_name, object_id=str(row.pk)).order_by("-position")
        changes = [change for change in found[: MOST + 1] if reach_of(request).sees(change.tenant_id)]
        page = {
            "title": f"History of {row}",
            "entries": [_entry(request, change) for change in changes[:MOST]],
            "all": f"{reverse('admin:tools_app_change_changelist')}?object={row.pk}",
            "has_more": len(changes) > MOST,
            "original": row,
            "opts": self.opts,
            "module_name": str(self.opts.verbose_name_plural),
        }
        context = {**self.admin_site.each_context(request), **page, **(extra_context or {})}
        return TemplateResponse(request, "admin/tools_app/change/history.html", context)


def _entry(request: HttpRequest, change: Change) -> Entry:
    readable = change_facts.may_read_values(request, change)
    return Entry(
        change,
        change_facts.ACTION_COLOURS[Action(change.action)],
        change_facts.fields_of(change) if readable else None,
    )
