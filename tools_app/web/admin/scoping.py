"""Base classes of the admin pages: objects of the user's tenants, changed only by admins of the tenant.

Every page is based on `ScopedAdmin`, or on `RecordAdmin` for read-only records. An object of another tenant is
treated as missing on every URL.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.apps import apps
from django.contrib.admin.filters import SimpleListFilter
from django.contrib.auth.models import User
from django.db.models import ForeignKey, Model, QuerySet
from django.forms import ModelChoiceField, ModelForm
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from unfold.contrib.filters.admin import DropdownFilter
from unfold.views import ChangeList

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.core.relations import large_columns
from tools_app.core.text_lists import TextListField
from tools_app.models import Toolset
from tools_app.tenants import permissions
from tools_app.tenants.permissions import TenantPermissions, tenant_permissions_of
from tools_app.web.admin import json_source
from tools_app.web.admin.conflicts import ConflictAdmin
from tools_app.web.admin.fields import form_field

MAX_CHOICES = 200
# Focusable, so that it can be scrolled with the keyboard.
PRE = '<pre tabindex="0" class="bg-base-50 dark:bg-base-800 font-mono max-w-4xl overflow-auto p-3 rounded-default \
text-xs" style="max-height: 30rem; white-space: pre-wrap; overflow-wrap: anywhere">{}</pre>'

NARROW = '<span class="hub-cut" title="{0}">{0}</span>'


@cache
def _link_tables() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of the models that Django makes for many-to-many fields, and what their rows begin with."""
    # A row without a page is listed as its kind and its text.
    linking = [model._meta for model in apps.get_models(include_auto_created=True) if model._meta.auto_created]
    plural = frozenset(str(meta.verbose_name_plural) for meta in linking)
    return plural, tuple(f"{capfirst(str(meta.verbose_name))}: " for meta in linking)


def without_link_tables(rows: Iterable[Any], counts: dict[str, int]) -> tuple[list[Any], dict[str, int]]:
    """Return the nested list of deleted rows, and their numbers by kind, without the rows of link tables."""
    plural, begin = _link_tables()
    return _without(rows, begin), {name: count for name, count in counts.items() if str(name) not in plural}


def _without(rows: Iterable[Any], begin: tuple[str, ...]) -> list[Any]:
    remaining = (_without(row, begin) if isinstance(row, list) else row for row in rows)
    return [row for row in remaining if row != [] and not (isinstance(row, str) and row.startswith(begin))]


class TenantFilter(DropdownFilter):
    """Filter by tenant, for users with several tenants; lists only their tenants."""

    title = "tenant"
    parameter_name = "tenant"

    def lookups(self, request: HttpRequest, model_admin: "ScopedAdmin") -> list[tuple[str, str]]:
        if not tenant_permissions_of(request).sees_several_tenants:
            return []
        tenants = permissions.tenants_seen_by(request.user)[:MAX_CHOICES]
        return [(str(tenant.pk), tenant.name) for tenant in tenants]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return by_id(queryset, "tenant_id", self.value())


class LightChangeList(ChangeList):
    """A list that defers unbounded columns, such as schemas and files, unless it shows them."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        large = {field.name for field in large_columns(self.model)}
        return rows.defer(*large.difference(map(str, self.list_display)))


class ScopedAdmin(ConflictAdmin):
    """Objects that belong to a tenant."""

    tenant_field = "tenant"
    # Models whose rows cannot be deleted individually, and that are deleted with a row of this one.
    deleted_with_it: tuple[type[Model], ...] = ()
    # What an empty choice says, by field. Others say "None".
    blank_labels: Mapping[str, str] = MappingProxyType({"presentation": "As the tenant"})
    list_filter_submit = True
    warn_unsaved_form = True
    list_per_page = 50
    # What an empty list says: to everybody, to those who may add a row, and who may, to the others.
    empty_hint = ""
    empty_advice = ""
    added_by = "Admins of the tenant"

    def tenant_id_of(self, row: Any) -> Any:
        """Return the id of the tenant to which `row` belongs."""
        return row.tenant_id

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the list under its own name: Django's is "Select tool to change"."""
        title = capfirst(str(self.opts.verbose_name_plural))
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that this user may read."""
        return tenant_permissions_of(request).rows_seen(super().get_queryset(request), self.tenant_field)

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        return LightChangeList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row with this id. Raises Http404 alike if it is missing or belongs to another tenant."""
        row = super().get_object(request, object_id, from_field)
        if row is None:
            raise Http404("Not found.")
        return row

    def get_deleted_objects(
        self, objs: QuerySet[Any] | list[Any], request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[str]]:
        """Allow a row to be deleted with what cannot be deleted individually. Tables that only link are not listed."""
        deleted, counts, lacking, protected = super().get_deleted_objects(objs, request)
        with_it = {str(model._meta.verbose_name) for model in self.deleted_with_it}
        return *without_link_tables(deleted, counts), lacking - with_it, protected

    def rows_run(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return those of `rows` that this user may change."""
        return tenant_permissions_of(request).rows_run(rows, self.tenant_field)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return tenant_permissions_of(request).has_access

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        permitted = tenant_permissions_of(request)
        return permitted.has_access if obj is None else permitted.sees(self.tenant_id_of(obj))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return tenant_permissions_of(request).is_admin_anywhere

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._changes(tenant_permissions_of(request), obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._changes(tenant_permissions_of(request), obj)

    def _changes(self, permitted: TenantPermissions, row: Any) -> bool:
        return permitted.is_admin_anywhere if row is None else permitted.changes(self.tenant_id_of(row))

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Return the form field of a column. Lists of texts have one text per line."""
        if isinstance(db_field, TextListField):
            return form_field(db_field, **options)
        return super().formfield_for_dbfield(db_field, request, **options)

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Say what an empty choice means."""
        blank = [("", self._blank_label(db_field))]
        options.setdefault("choices", db_field.get_choices(include_blank=db_field.blank, blank_choice=blank))
        return super().formfield_for_choice_field(db_field, request, **options)

    def _blank_label(self, db_field: Any) -> str:
        return self.blank_labels.get(db_field.name, "None")

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **options: Any
    ) -> "ModelChoiceField[Any] | None":
        """Limit the choices, and valid values, to tenants that this user administers."""
        if db_field.name == "tenant":
            tenants = permissions.tenants_run_by(request.user)
            options["queryset"] = tenants
            options.setdefault("initial", only(tenants))
        if db_field.name == "toolset":
            options["queryset"] = self.rows_run(request, Toolset.objects.all())
        field: ModelChoiceField[Any] | None = super().formfield_for_foreignkey(db_field, request, **options)
        if field is not None and db_field.blank and field.empty_label:
            field.empty_label = self._blank_label(db_field)
        return field

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Make the tenant of an existing row read-only."""
        fixed = ["tenant"] if obj is not None and self.tenant_field == "tenant" else []
        return [*super().get_readonly_fields(request, obj), *fixed]

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """Omit the tenant column for users with a single tenant."""
        columns = super().get_list_display(request)
        return [name for name in columns if name != "tenant" or tenant_permissions_of(request).sees_several_tenants]

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show what would be deleted, or delete it. What permits it is checked while it is locked."""
        with change_log_transaction() if request.method == "POST" else nullcontext():
            page: HttpResponse = super().delete_view(request, object_id, extra_context)
            return page

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the selected rows, all of them or none."""
        with change_log_transaction():
            super().delete_queryset(request, queryset)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only the lookups of the filters: any other could be used to guess the value of a hidden column."""
        for entry in self.get_list_filter(request):
            if isinstance(entry, type) and issubclass(entry, SimpleListFilter):
                allowed = lookup == entry.parameter_name
            else:
                field = entry if isinstance(entry, str) else entry[0]
                allowed = lookup == field or lookup.startswith(f"{field}_")
            if allowed:
                return True
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: "ModelForm[Any]", change: bool) -> None:
        """Save only the changed fields, so that concurrent changes (a revocation) are not overwritten."""
        if not change:
            obj.save()
        elif form.changed_data:
            obj.save(update_fields=form.changed_data)


class RecordAdmin(ScopedAdmin):
    """Records that are written by the hub and read-only for all users, including superusers."""

    actions: Any = None
    added_by = ""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def by_id(rows: QuerySet[Any], field: str, value: str | None) -> QuerySet[Any]:
    """Filter `rows` by a UUID `field`. Returns all rows without a value, and none if it is not a UUID."""
    if not value:
        return rows
    try:
        return rows.filter(**{field: UUID(value)})
    except ValueError:
        return rows.none()


def writer(request: HttpRequest) -> User | None:
    """Return the user to record as the author of a change."""
    return request.user if isinstance(request.user, User) else None


def only(rows: QuerySet[Any]) -> Any:
    """Return the only row, or None if there are none or several."""
    first_two = list(rows[:2])
    return first_two[0] if len(first_two) == 1 else None


@lru_cache(maxsize=256)
def badge(text: str, colour: str) -> SafeString:
    """Return a coloured label: `success`, `info`, `warning`, `danger` or `primary`. A list shows few different ones."""
    return render_to_string("unfold/helpers/label.html", {"text": text, "type": colour})


def narrow(text: str) -> SafeString:
    """Return a list column's text, such as a long URI, truncated to leave room for other columns."""
    return format_html(NARROW, text)


def json_block(value: Any) -> SafeString:
    """Return a JSON value, indented and escaped."""
    return text_block(json_source.pretty(value))


def text_block(text: str) -> SafeString:
    """Return an escaped text in a monospaced font."""
    return format_html(PRE, text)
