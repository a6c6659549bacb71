"""By what changes are found."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import DropdownFilter

from tools_app.admin.change_facts import kind_name
from tools_app.admin.scoped import MOST_CHOICES, RecordAdmin

# Changes are kept for ever: reading all of them for a choice would take longer and longer.
NEWEST = 5_000


class PersonFilter(DropdownFilter):
    """By who made them, as they were called then."""

    title = "person"
    parameter_name = "person"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        return [(name, name) for name in _found(request, model_admin, "person_name") if name]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(person_name=self.value()) if self.value() else queryset


class KindFilter(DropdownFilter):
    """By what was changed."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        return [(kind, kind_name(kind)) for kind in _found(request, model_admin, "kind")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


class ObjectFilter(DropdownFilter):
    """Of one row, for those who come from its page: there are too many to choose from."""

    title = "row"
    parameter_name = "object"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        asked = request.GET.get(self.parameter_name)
        return [(asked, "Of one row")] if asked else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(object_id=self.value()) if self.value() else queryset


def _found(request: HttpRequest, model_admin: RecordAdmin, field: str) -> list[str]:
    """The values of a field among the newest changes that this person may see."""
    newest = model_admin.get_queryset(request).order_by("-position").values_list(field, flat=True)[:NEWEST]
    return sorted(set(newest))[:MOST_CHOICES]
