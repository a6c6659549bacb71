"""Sessions of handshake-era clients."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.calls import sessions
from tools_app.models import Session
from tools_app.web.api.fields import Choice, Id, JsonObject, Text
from tools_app.web.api.serializers import Row, TenantOfRecord
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import IsTenantAdmin, ListMixin, Retrieved, ScopedView, TenantQuery


class SessionRow(Row):
    """What a client and the hub negotiated, bound to the key that created the session."""

    tenant = TenantOfRecord()
    key = serializers.UUIDField(
        source="api_key_id", read_only=True, allow_null=True, help_text="Null for anonymous calls."
    )

    class Meta:
        model = Session
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "key",
            "protocol_version",
            "client_name",
            "client_version",
            "log_level",
            "remote_address",
            "created_at",
            "last_seen_at",
            "ended_at",
            "end_reason",
        )
        read_only_fields = fields


class SessionDetail(SessionRow):
    """A session with the client's declarations, which a list leaves out."""

    client_capabilities = JsonObject(read_only=True)

    class Meta(SessionRow.Meta):
        fields = (*SessionRow.Meta.fields, "client_capabilities")
        read_only_fields = fields


class SessionsQuery(TenantQuery):
    """Filter by tenant, key, client and state."""

    state = Choice([("open", "Open"), ("ended", "Ended")], required=False, help_text="Whether it has ended.")
    key = Id(source="api_key_id", required=False, help_text="ID of the API key.")
    client = Text(
        source="client_name__icontains", required=False, max_length=200, help_text="Part of the client's name."
    )

    def filter_queryset(self, rows: QuerySet[Session], filters: dict[str, Any]) -> QuerySet[Session]:
        """Return those of `rows` that match the validated parameters."""
        if state := filters.pop("state", None):
            rows = rows.filter(ended_at__isnull=state == "open")
        return super().filter_queryset(rows, filters)


class Sessions(ListMixin, Retrieved, ScopedView):
    """Sessions of clients up to revision 2025-11-25. A tenant's admin can end one; its client then starts another."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Session.objects.select_related("tenant")
    serializer_class = SessionRow
    query_class = SessionsQuery

    def get_serializer_class(self) -> type[SessionRow]:
        """Use the full serializer for a single session."""
        return SessionRow if self.action == "list" else SessionDetail

    def get_queryset(self) -> QuerySet[Session]:
        """Leave out columns that the response does not have: they may be long."""
        unread = ["subscriptions", "client_capabilities"] if self.action == "list" else ["subscriptions"]
        return super().get_queryset().defer(*unread)

    @extend_schema(operation_id="sessions_end", summary="End session", request=None, responses={200: SessionDetail})
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        """End the session. All processes apply it within a second. Ending it again changes nothing."""
        row = self.get_object()
        sessions.end_by_person(row)
        row.refresh_from_db(fields=["ended_at", "end_reason"])
        return Response(self.get_serializer(row).data)
