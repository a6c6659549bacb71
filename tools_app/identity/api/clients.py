"""Clients that asked for access: who they are, and blocking them in the whole hub, which superusers do."""

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.identity.oauth import clients
from tools_app.models import ClientSource, Connection, OAuthClient
from tools_app.tenants import permissions
from tools_app.web.api.fields import UUID_TEXT, Choice, Text
from tools_app.web.api.serializers import Row
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import ApiView, ListMixin, Retrieved, SearchQuery, Superuser

STATES = (("blocked", "Blocked"), ("active", "Not blocked"))


class ClientRow(Row):
    """An application that asked for access."""

    verified_host = serializers.SerializerMethodField(help_text="Empty: the client proved none.")
    redirect_uris = serializers.ListField(child=serializers.CharField(), read_only=True)
    grant_types = serializers.ListField(
        child=serializers.CharField(), read_only=True, help_text="What it may ask for tokens with."
    )
    auth_methods = serializers.SerializerMethodField(help_text="How it may authenticate.")

    class Meta:
        model = OAuthClient
        fields: tuple[str, ...] = (
            "id",
            "client_id",
            "name",
            "source",
            "verified_host",
            "redirect_uris",
            "grant_types",
            "auth_method",
            "auth_methods",
            "created_at",
            "fetched_at",
            "last_used_at",
            "blocked_at",
        )
        read_only_fields = fields

    def get_verified_host(self, row: OAuthClient) -> str:
        """Return the host of the client's metadata document."""
        return clients.host_of(row)

    def get_auth_methods(self, row: OAuthClient) -> list[str]:
        """Return the ways in which the client may authenticate."""
        return clients.methods_of(row)


class ClientsQuery(SearchQuery):
    """Filter by name or client ID, by how the client is known, and by whether it is blocked."""

    searched = ("name", "client_id")

    tenant = None  # a client is of the whole hub
    search = Text(required=False, max_length=200, help_text="Part of the name or client ID, case-insensitive.")
    source = Choice(ClientSource.choices, required=False)
    state = Choice(STATES, required=False, help_text="Whether it is blocked in the whole hub.")

    def filter_queryset(self, rows: QuerySet[OAuthClient], filters: dict[str, Any]) -> QuerySet[OAuthClient]:
        """Return those of `rows` that match the validated parameters."""
        if state := filters.pop("state", None):
            rows = rows.filter(blocked_at__isnull=state == "active")
        return super().filter_queryset(rows, filters)


class Clients(ListMixin, Retrieved, ApiView):
    """Clients of the connections of the person's tenants. Superusers see and block all."""

    permission_classes = (HasMembership, Superuser)
    queryset = OAuthClient.objects.all()
    serializer_class = ClientRow
    query_class = ClientsQuery
    lookup_value_regex = UUID_TEXT

    def get_queryset(self) -> QuerySet[OAuthClient]:
        """Return the clients that this person may see."""
        rows: QuerySet[OAuthClient] = super().get_queryset()
        if self.tenant_permissions.everything:
            return rows
        seen = permissions.rows_seen_by(self.request.user, Connection.objects.filter(client=OuterRef("pk")))
        return rows.filter(Exists(seen))

    @extend_schema(operation_id="clients_block", summary="Block client", request=None, responses={200: ClientRow})
    @action(detail=True, methods=["post"])
    def block(self, request: Request, pk: str) -> Response:
        """Block the client in all tenants, within a second. Blocking it again changes nothing."""
        return self._decided(blocked=True)

    @extend_schema(operation_id="clients_unblock", summary="Unblock client", request=None, responses={200: ClientRow})
    @action(detail=True, methods=["post"])
    def unblock(self, request: Request, pk: str) -> Response:
        """Let the client in again. Unblocking it again changes nothing."""
        return self._decided(blocked=False)

    @change_log_transaction()
    def _decided(self, *, blocked: bool) -> Response:
        row = self.get_object()
        clients.set_blocked(row, blocked=blocked)
        return Response(self.get_serializer(row).data)
