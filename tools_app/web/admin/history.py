"""The history of an object, read from the change log."""

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.admin import ModelAdmin

from tools_app.audit.admin import change_values
from tools_app.core.relations import first_within
from tools_app.models import Action, Change
from tools_app.tenants.permissions import tenant_permissions_of

MAX_ENTRIES = 50
# Maximum total size of the changes on a page.
MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Entry:
    """A change as listed in the history. `fields` is None for users who may not read them."""

    change: Change
    colour: str
    fields: list[change_values.ChangedField] | None


class HistoryAdmin(ModelAdmin):
    """An admin whose history is read from the change log instead of Django's LogEntry, which is not written."""

    def page(self, request: HttpRequest, template: str, **context: Any) -> TemplateResponse:
        """Return a page of the admin beside those of Django."""
        base = {**self.admin_site.each_context(request), "opts": self.opts}
        return TemplateResponse(request, template, {**base, **context})

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> None:
        """Do nothing: the change is recorded where it is made."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:
        """Do nothing: see `log_addition`."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> None:
        """Do nothing: see `log_addition`."""

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the newest changes of an object that this user may see, with a link to all of them."""
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404("Not found.")
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        found = Change.objects.filter(kind=self.opts.model_name, object_id=str(row.pk)).order_by("-position")
        newest, has_more = first_within(found, MAX_ENTRIES, MAX_BYTES)
        changes = [change for change in newest if tenant_permissions_of(request).sees(change.tenant_id)]
        entries = [
            Entry(
                change,
                change_values.ACTION_COLOURS[Action(change.action)],
                change_values.fields_of(change) if change_values.may_read_values(request, change) else None,
            )
            for change in changes
        ]
        context = {
            "title": f"History of {row}",
            "entries": entries,
            "all": f"{reverse('admin:tools_app_change_changelist')}?object={row.pk}",
            "has_more": has_more,
            "original": row,
            "module_name": str(self.opts.verbose_name_plural),
        }
        return self.page(request, "audit/change/history.html", **{**context, **(extra_context or {})})
