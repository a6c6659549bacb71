"""Sessions of handshake-era clients."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.entrance import Member
from tools_app.api.v1.fields import Choice, Id, JsonObject, Text
from tools_app.api.v1.rows import Row, TenantOfRecord
from tools_app.api.v1.scoped import Listed, Retrieved, Runs, ScopedView, TenantQuery
from tools_app.audit import session_changes
from tools_app.models import Session


class SessionRow(Row):
    """What a client and the hub agreed on, bound to the key that made it."""

    tenant = TenantOfRecord()
    key = serializers.UUIDField(source="api_key_id", read_only=True, allow_null=True, help_text="Null: anonymous.")
    client_capabilities = JsonObject(read_only=True)

    class Meta:
        model = Session
        fields = (
            "id",
            "tenant",
            "key",
            "protocol_version",
            "client_name",
            "client_version",
            "client_capabilities",
            "log_level",
            "remote_address",
            "created_at",
            "last_seen_at",
            "ended_at",
            "end_reason",
        )
        read_only_fields = fields


class SessionsQuery(TenantQuery):
    """By tenant, key, client and state."""

    state = Choice([("open", "Open"), ("ended", "Ended")], required=False, help_text="Whether it has ended.")
    key = Id(required=False, help_text="The id of its API key.")
    client = Text(required=False, max_length=200, help_text="A text that stands in its client's name.")

    def found(self, rows: QuerySet[Session], chosen: Mapping[str, Any]) -> QuerySet[Session]:
        """Those of `rows` that the parameters `chosen` ask for."""
        rows = super().found(rows, chosen)
        if "state" in chosen:
            rows = rows.filter(ended_at__isnull=chosen["state"] == "open")
        if "key" in chosen:
            rows = rows.filter(api_key_id=chosen["key"])
        return rows.filter(client_name__icontains=chosen["client"]) if "client" in chosen else rows


class Sessions(Listed, Retrieved, ScopedView):
    """Sessions of clients up to revision 2025-11-25. A tenant's admin may end one; its client then begins another."""

    permission_classes = (Member, Runs)
    queryset = Session.objects.select_related("tenant")
    serializer_class = SessionRow
    query_class = SessionsQuery

    @extend_schema(operation_id="sessions_end", summary="End session", request=None, responses={200: SessionRow})
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        """The session is over; every process knows within a second. Ending twice changes nothing."""
        row = self.get_object()
        session_changes.end(row)
        row.refresh_from_db(fields=["ended_at", "end_reason"])
        return Response(self.get_serializer(row).data)
