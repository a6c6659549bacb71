"""The base of the admin's pages: rows of tenants within reach, changed only by those who run the tenant.

Every page is built on `ScopedAdmin`, or on `RecordAdmin` for what nobody may change. A row of a foreign tenant is
answered like one that does not exist, by whatever address it is asked for.
"""

from typing import Any
from uuid import UUID

from django.contrib.admin.filters import SimpleListFilter
from django.contrib.auth.models import User
from django.db.models import ForeignKey, QuerySet
from django.forms import ModelChoiceField, ModelForm
from django.http import Http404, HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter

from tools_app.admin import json_source
from tools_app.admin.history import HistoryAdmin
from tools_app.admin.reach import Reach, reach_of
from tools_app.auth import access

MOST_CHOICES = 200
# It scrolls, so a keyboard must reach it.
PRE = '<pre tabindex="0" class="bg-base-50 dark:bg-base-800 font-mono max-w-4xl overflow-auto p-3 rounded-default \
text-xs" style="max-height: 30rem; white-space: pre-wrap; overflow-wrap: anywhere">{}</pre>'

NARROW = '<span title="{0}" style="display: inline-block; max-width: min(14rem, 50vw); overflow: hidden; \
text-overflow: ellipsis; vertical-align: bottom; white-space: nowrap">{0}</span>'


class TenantFilter(DropdownFilter):
    """By tenant, for those who see several; offers those alone."""

    title = "tenant"
    parameter_name = "tenant"

    def lookups(self, request: HttpRequest, model_admin: "ScopedAdmin") -> list[tuple[str, str]]:
        if not reach_of(request).sees_several:
            return []
        tenants = access.tenants_seen_by(request.user)[:MOST_CHOICES]
        return [(str(tenant.pk), tenant.name) for tenant in tenants]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return by_id(queryset, "tenant_id", self.value())


class ScopedAdmin(HistoryAdmin):
    """Rows that belong to a tenant."""

    tenant_field = "tenant"
    list_filter_submit = True
    warn_unsaved_form = True
    list_per_page = 50

    def tenant_id_of(self, row: Any) -> Any:
        """The id of the tenant to which `row` belongs."""
        return row.tenant_id

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows that this person may read."""
        return access.rows_seen_by(request.user, super().get_queryset(request), self.tenant_field)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row with this id. Raises Http404 if it is missing or foreign, which must look the same."""
        row = super().get_object(request, object_id, from_field)
        if row is None:
            raise Http404("There is no such row.")
        return row

    def rows_run(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those of `rows` that this person may change."""
        reach = reach_of(request)
        return rows if reach.everything else rows.filter(**{f"{self.tenant_field}__in": reach.run})

    def has_module_permission(self, request: HttpRequest) -> bool:
        return reach_of(request).enters

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        reach = reach_of(request)
        return reach.enters if obj is None else reach.sees(self.tenant_id_of(obj))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return reach_of(request).runs_any

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._changes(reach_of(request), obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._changes(reach_of(request), obj)

    def _changes(self, reach: Reach, row: Any) -> bool:
        return reach.runs_any if row is None else reach.changes(self.tenant_id_of(row))

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **options: Any
    ) -> "ModelChoiceField[Any] | None":
        """Offer, and accept, only tenants that this person runs."""
        if db_field.name == "tenant":
            tenants = access.tenants_run_by(request.user)
            options["queryset"] = tenants
            options.setdefault("initial", only(tenants))
        field: ModelChoiceField[Any] | None = super().formfield_for_foreignkey(db_field, request, **options)
        return field

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """A row never moves to another tenant."""
        fixed = ["tenant"] if obj is not None and self.tenant_field == "tenant" else []
        return [*super().get_readonly_fields(request, obj), *fixed]

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """Leave the tenant out for those who see one only."""
        columns = super().get_list_display(request)
        return [name for name in columns if name != "tenant" or reach_of(request).sees_several]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow what the filters offer. Any other lookup could be used to guess a hidden column bit by bit."""
        return any(_offers(entry, lookup) for entry in self.get_list_filter(request))

    def save_model(self, request: HttpRequest, obj: Any, form: "ModelForm[Any]", change: bool) -> None:
        """Write only what was changed, so that what happened to the row meanwhile (a revocation) is not undone."""
        if not change:
            obj.save()
        elif form.changed_data:
            obj.save(update_fields=form.changed_data)


class RecordAdmin(ScopedAdmin):
    """Rows that the hub writes and nobody changes: not a superuser either."""

    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def by_id(rows: QuerySet[Any], field: str, value: str | None) -> QuerySet[Any]:
    """`rows` whose `field` is the UUID that a filter was given; all without one, none if it is no UUID."""
    if not value:
        return rows
    try:
        return rows.filter(**{field: UUID(value)})
    except ValueError:
        return rows.none()


def writer(request: HttpRequest) -> User | None:
    """Who is to be named as the author of a change."""
    return request.user if isinstance(request.user, User) else None


def only(rows: QuerySet[Any]) -> Any:
    """The one row that there is, else None."""
    first_two = list(rows[:2])
    return first_two[0] if len(first_two) == 1 else None


def badge(text: str, colour: str) -> SafeString:
    """A coloured label: `success`, `info`, `warning`, `danger` or `primary`."""
    return render_to_string("unfold/helpers/label.html", {"text": text, "type": colour})


def narrow(text: str) -> SafeString:
    """A text that may be a long URI, for a column of a list: cut off, so that the others keep their room."""
    return format_html(NARROW, text)


def json_block(value: Any) -> SafeString:
    """A JSON value, indented and escaped."""
    return text_block(json_source.pretty(value))


def text_block(text: str) -> SafeString:
    """A text as it is, escaped, in a monospaced font."""
    return format_html(PRE, text)


def _offers(entry: Any, lookup: str) -> bool:
    if isinstance(entry, type) and issubclass(entry, SimpleListFilter):
        return lookup == entry.parameter_name
    field = entry if isinstance(entry, str) else entry[0]
    return lookup == field or lookup.startswith(f"{field}_")
