"""What people changed: who, what, before and after."""

from collections.abc import Mapping
from typing import Any

import orjson
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from tools_app.api.v1.fields import Choice, JsonObject, Moment, Text
from tools_app.api.v1.rows import Row, TenantOfRecord
from tools_app.api.v1.scoped import Listed, Retrieved, ScopedView, TenantQuery
from tools_app.models import Action, Change, Via

OPERATORS = "Null for operators."


class ChangeRow(Row):
    """One change by one person."""

    tenant = TenantOfRecord(help_text="The slug of its tenant; null for none, or one that is gone.")
    person = serializers.CharField(source="person_name", read_only=True, help_text="The user name at that time.")
    before = serializers.SerializerMethodField(help_text=f"The fields that differ, as they were. {OPERATORS}")
    after = serializers.SerializerMethodField(help_text=f"The same fields as they became. {OPERATORS}")

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
        """What it was."""
        return self._told(change, change.before)

    @extend_schema_field(JsonObject(allow_null=True))
    def get_after(self, change: Change) -> Any:
        """What it became."""
        return self._told(change, change.after)

    def _told(self, change: Change, text: str) -> Any:
        return orjson.loads(text) if self.reach.audits(change.tenant_id) else None


class ChangesQuery(TenantQuery):
    """By tenant, person, action, kind and time."""

    person = Text(required=False, max_length=150, help_text="A user name, in full.")
    action = Choice(Action.choices, required=False, help_text="What was done.")
    kind = Text(required=False, max_length=40, help_text="What sort of thing was changed, as `tool` or `apikey`.")
    object_id = Text(required=False, max_length=64, help_text="The id of the thing that was changed.")
    via = Choice(Via.choices, required=False, help_text="How.")
    since = Moment(required=False, help_text="Then or later.")
    until = Moment(required=False, help_text="Then or earlier.")

    def found(self, rows: QuerySet[Change], chosen: Mapping[str, Any]) -> QuerySet[Change]:
        """Those of `rows` that the parameters `chosen` ask for."""
        rows = super().found(rows, chosen)
        return rows.filter(**{COLUMNS[name]: value for name, value in chosen.items() if name in COLUMNS})


COLUMNS = {
    "person": "person_name",
    "action": "action",
    "kind": "kind",
    "object_id": "object_id",
    "via": "via",
    "since": "at__gte",
    "until": "at__lte",
}


class Changes(Listed, Retrieved, ScopedView):
    """What people changed, through the admin, this API or the command line. Insert-only: nobody changes it."""

    queryset = Change.objects.select_related("tenant").defer("digest")
    serializer_class = ChangeRow
    query_class = ChangesQuery
