"""The change log: who changed what, before and after."""

from typing import Any

import orjson
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from tools_app.models import Action, Change, Via
from tools_app.web.api.fields import Choice, JsonObject, Moment, Text
from tools_app.web.api.serializers import Row, TenantOfRecord
from tools_app.web.api.viewsets import ListMixin, Retrieved, ScopedView, TenantQuery

OPERATORS = "Null for operators."


class ChangeRow(Row):
    """One change by one person."""

    tenant = TenantOfRecord(help_text="Slug of the tenant; null if there is none or it was deleted.")
    person = serializers.CharField(source="person_name", read_only=True, help_text="Username at that time.")
    before = serializers.SerializerMethodField(help_text=f"Changed fields before the change. {OPERATORS}")
    after = serializers.SerializerMethodField(help_text=f"Changed fields after the change. {OPERATORS}")

    class Meta:
        model = Change
        fields = (
            "id",
            "position",
            "at",
            "tenant",
            "person",
            "via",
            "remote_address",
            "action",
            "kind",
            "object_id",
            "object_name",
            "before",
            "after",
        )
        read_only_fields = fields

    @extend_schema_field(JsonObject(allow_null=True))
    def get_before(self, change: Change) -> Any:
        """Return the values before the change."""
        return self._if_permitted(change, change.before)

    @extend_schema_field(JsonObject(allow_null=True))
    def get_after(self, change: Change) -> Any:
        """Return the values after the change."""
        return self._if_permitted(change, change.after)

    def _if_permitted(self, change: Change, text: str) -> Any:
        return orjson.loads(text) if self.tenant_permissions.audits(change.tenant_id) else None


class ChangesQuery(TenantQuery):
    """Filter by tenant, person, action, kind and time."""

    person = Text(source="person_name", required=False, max_length=150, help_text="Full username.")
    action = Choice(Action.choices, required=False, help_text="Action.")
    kind = Text(required=False, max_length=40, help_text="Kind of the changed object, such as `tool` or `apikey`.")
    object_id = Text(required=False, max_length=64, help_text="ID of the changed object.")
    via = Choice(Via.choices, required=False, help_text="Channel of the change.")
    since = Moment(source="at__gte", required=False, help_text="At or after this time.")
    until = Moment(source="at__lte", required=False, help_text="At or before this time.")


class Changes(ListMixin, Retrieved, ScopedView):
    """Changes that people made through the admin, this API or the command line. Insert-only."""

    queryset = Change.objects.select_related("tenant").defer("digest")
    serializer_class = ChangeRow
    query_class = ChangesQuery
