"""The change log: who changed what, when and how, with the values before and after. Read-only."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter, DropdownFilter

from tools_app.audit.admin import change_values
from tools_app.audit.admin.change_values import kind_name
from tools_app.calls.admin.columns import BoundedPaginator
from tools_app.calls.admin.filters import MomentFilter
from tools_app.core.relations import related
from tools_app.models import Action, Change, Via
from tools_app.web.admin.columns import full_moment, moment_column
from tools_app.web.admin.decorators import column
from tools_app.web.admin.links import link
from tools_app.web.admin.scoping import MAX_CHOICES, RecordAdmin, TenantFilter, badge, narrow
from tools_app.web.admin.site import site

# Changes are kept forever, so choices are read from the newest only.
NEWEST = 5_000
MOMENT = full_moment("at", "time")


class PersonFilter(DropdownFilter):
    """Filter by the name that the user had at the time of the change."""

    title = "person"
    parameter_name = "person"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        return [(name, name) for name in _found(request, model_admin, "person_name") if name]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(person_name=self.value()) if self.value() else queryset


class KindFilter(DropdownFilter):
    """Filter by the kind of object that was changed."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        return [(kind, kind_name(kind)) for kind in _found(request, model_admin, "kind")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


class ObjectFilter(DropdownFilter):
    """Filter by object, linked from the object's page: there are too many objects to list."""

    title = "row"
    parameter_name = "object"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        selected = request.GET.get(self.parameter_name)
        return [(selected, "Object")] if selected else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(object_id=self.value()) if self.value() else queryset


def _found(request: HttpRequest, model_admin: RecordAdmin, field: str) -> list[str]:
    """Return the distinct values of a field among the newest changes that this user may see."""
    newest = model_admin.get_queryset(request).order_by("-position").values_list(field, flat=True)[:NEWEST]
    return sorted(set(newest))[:MAX_CHOICES]


@admin.register(Change, site=site)
class ChangeAdmin(RecordAdmin):
    """Changes of the user's tenants. Hub-wide changes are visible to superusers only."""

    list_display = (
        moment_column("at", "time", "position"),
        "who",
        "action_label",
        "kind_label",
        "what",
        "tenant_name",
        "how",
    )
    list_filter = (
        PersonFilter,
        KindFilter,
        ("action", ChoicesDropdownFilter),
        ("via", ChoicesDropdownFilter),
        TenantFilter,
        ("at", MomentFilter),
        ObjectFilter,
    )
    list_select_related = ("tenant",)
    empty_hint = "Who creates, changes or deletes something is recorded here."
    search_fields = ("object_name", "person_name")
    show_full_result_count = False
    paginator = BoundedPaginator
    ordering = ("-position",)
    readonly_fields = (
        MOMENT,
        "who",
        "how",
        "remote_address",
        "action_label",
        "kind_label",
        "object_shown",
        "tenant_link",
        "difference",
        "position",
        "digest_hex",
    )
    fieldsets = (
        (None, {"fields": ("action_label", "kind_label", "object_shown", "tenant_link", "difference")}),
        ("Who", {"fields": ("who", "how", "remote_address", MOMENT)}),
        ("Evidence", {"fields": ("position", "digest_hex"), "description": "Its position in the chain of changes."}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets, without the values for users who may not read them."""
        if obj is None or change_values.may_read_values(request, obj):
            return super().get_fieldsets(request, obj)
        (title, first), *others = self.fieldsets
        fields = tuple(name for name in first["fields"] if name != "difference")
        return [(title, {**first, "fields": fields}), *others]

    @column("person", ordering="person_name")
    def who(self, change: Change) -> str:
        return change_values.actor_name(change)

    @column("action", ordering="action")
    def action_label(self, change: Change) -> SafeString:
        action = Action(change.action)
        return badge(str(action.label), change_values.ACTION_COLOURS[action])

    @column("kind", ordering="kind")
    def kind_label(self, change: Change) -> str:
        return change_values.kind_name(change.kind)

    @column("name", ordering="object_name")
    def what(self, change: Change) -> SafeString:
        return narrow(change.object_name or change.object_id)

    @column("name")
    def object_shown(self, change: Change) -> str:
        return change_values.object_link(change)

    @column("tenant", ordering="tenant")
    def tenant_name(self, change: Change) -> str:
        tenant = related(change, "tenant")
        return str(tenant) if tenant else "-"

    @column("tenant")
    def tenant_link(self, change: Change) -> str:
        return link(related(change, "tenant"), change.tenant_id)

    @column("via", ordering="via")
    def how(self, change: Change) -> str:
        return str(Via(change.via).label)

    @column("changed values")
    def difference(self, change: Change) -> SafeString:
        fields = change_values.fields_of(change)
        return render_to_string("audit/change/fields.html", {"fields": fields})

    @column("digest")
    def digest_hex(self, change: Change) -> SafeString:
        return format_html('<span style="overflow-wrap: anywhere">{}</span>', bytes(change.digest).hex())
