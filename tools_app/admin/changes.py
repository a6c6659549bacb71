"""What people changed: who, what, when, how, and both sides of it. Written by the hub, changed by nobody."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.admin import change_facts
from tools_app.admin.call_facts import BoundedPaginator, moment_text
from tools_app.admin.call_filters import MomentFilter
from tools_app.admin.change_filters import KindFilter, ObjectFilter, PersonFilter
from tools_app.admin.decorators import column
from tools_app.admin.links import link
from tools_app.admin.scoped import RecordAdmin, TenantFilter, badge, narrow
from tools_app.admin.site import site
from tools_app.models import Action, Change, Via
from tools_app.models.reading import related


@admin.register(Change, site=site)
class ChangeAdmin(RecordAdmin):
    """Changes of the tenants within reach; those of the whole hub are for superusers."""

    list_display = ("moment", "who", "action_label", "kind_label", "what", "tenant_name", "how")
    list_display_links = ("moment",)
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
    search_fields = ("object_name", "person_name")
    show_full_result_count = False
    paginator = BoundedPaginator
    ordering = ("-position",)
    readonly_fields = (
        "moment",
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
        ("Who", {"fields": ("who", "how", "remote_address", "moment")}),
        ("Evidence", {"fields": ("position", "digest_hex"), "description": "Its place in the chain of changes."}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Without the values for those who may not read them."""
        if obj is None or change_facts.may_read_values(request, obj):
            return super().get_fieldsets(request, obj)
        (title, first), *others = self.fieldsets
        fields = tuple(name for name in first["fields"] if name != "difference")
        return [(title, {**first, "fields": fields}), *others]

    @column("time", ordering="position")
    def moment(self, change: Change) -> str:
        return moment_text(change.at)

    @column("person", ordering="person_name")
    def who(self, change: Change) -> str:
        return change_facts.actor_name(change)

    @column("action", ordering="action")
    def action_label(self, change: Change) -> SafeString:
        action = Action(change.action)
        return badge(str(action.label), change_facts.ACTION_COLOURS[action])

    @column("kind", ordering="kind")
    def kind_label(self, change: Change) -> str:
        return change_facts.kind_name(change.kind)

    @column("name", ordering="object_name")
    def what(self, change: Change) -> SafeString:
        return narrow(change.object_name or change.object_id)

    @column("name")
    def object_shown(self, change: Change) -> str:
        return change_facts.object_link(change)

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

    @column("what differs")
    def difference(self, change: Change) -> SafeString:
        fields = change_facts.fields_of(change)
        return render_to_string("admin/tools_app/change/fields.html", {"fields": fields})

    @column("digest")
    def digest_hex(self, change: Change) -> SafeString:
        return format_html('<span style="overflow-wrap: anywhere">{}</span>', bytes(change.digest).hex())
