"""Sign-in by OAuth: connections, client policies, and the steps of sign-ins."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.identity.oauth import clients, connection_changes, hosts, tokens
from tools_app.models import ClientPolicy, Connection, SignInEvent, SignInStep, Tenant
from tools_app.tenants.keys import LIMITS, SETTINGS
from tools_app.tenants.serializers import KeyRow
from tools_app.web.api.fields import Choice, Text
from tools_app.web.api.serializers import NamedRow, Row, TenantField, TenantOfRecord
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import (
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    Retrieved,
    ScopedView,
    TenantQuery,
    Updated,
    check_unchanged,
    tagged,
)

STATES = [("active", "Active"), ("ended", "Ended")]


class ConnectionRow(Row):
    """What a client may do in a tenant: what a person allowed, or that of a service client."""

    tenant = TenantOfRecord()
    client = serializers.CharField(source="client.name", read_only=True, help_text="The client's name.")
    client_id = serializers.CharField(source="client.client_id", read_only=True)
    verified_host = serializers.SerializerMethodField(help_text="Empty: the client proved none.")
    person = serializers.CharField(
        source="person.username", read_only=True, allow_null=True, help_text="Null: a service client."
    )
    key = serializers.UUIDField(
        source="key_id", read_only=True, help_text="The key under which its calls are recorded."
    )
    names = serializers.ListField(
        source="key.tool_patterns",
        child=serializers.CharField(),
        read_only=True,
        help_text="Tools, prompts and resources that it may use. Empty: all.",
    )
    methods = serializers.ListField(
        source="key.methods", child=serializers.CharField(), read_only=True, help_text="Empty: all."
    )
    toolset = serializers.CharField(
        source="key.toolset.name", read_only=True, allow_null=True, help_text="Its toolset. Null: none."
    )
    presentation = serializers.CharField(
        source="key.presentation", read_only=True, help_text="How its tools are listed. Empty: as the tenant is set."
    )
    limits = serializers.SerializerMethodField(help_text="The limits that are set.")
    expires_at = serializers.DateTimeField(source="key.expires_at", read_only=True, allow_null=True)
    revoked_at = serializers.DateTimeField(source="key.revoked_at", read_only=True, allow_null=True)
    last_used_at = serializers.DateTimeField(source="key.last_used_at", read_only=True, allow_null=True)

    class Meta:
        model = Connection
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "client",
            "client_id",
            "verified_host",
            "person",
            "key",
            "names",
            "methods",
            "toolset",
            "presentation",
            "limits",
            "scope",
            "consented_at",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
        )
        read_only_fields = fields

    def get_limits(self, row: Connection) -> dict[str, int]:
        """Return the limits of the key."""
        found = {name: getattr(row.key, name) for name in LIMITS}
        return {name: value for name, value in found.items() if value is not None}

    def get_verified_host(self, row: Connection) -> str:
        """Return the host of the client's metadata document."""
        return clients.host_of(row.client)


class ConnectionsQuery(TenantQuery):
    """Filter by tenant and state."""

    state = Choice(STATES, required=False, help_text="Whether it gives access now.")

    def filter_queryset(self, rows: QuerySet[Connection], filters: dict[str, Any]) -> QuerySet[Connection]:
        """Return those of `rows` that match the validated parameters."""
        if state := filters.pop("state", None):
            active = Connection.objects.filter(tokens.valid_connections() & tokens.is_member()).values("pk")
            rows = rows.filter(pk__in=active) if state == "active" else rows.exclude(pk__in=active)
        return super().filter_queryset(rows, filters)


class AccessRow(KeyRow):
    """What a connection may use: the fields of its key that an admin changes."""

    class Meta(KeyRow.Meta):
        fields = ("expires_at", *SETTINGS)
        read_only_fields: tuple[str, ...] = ()
        fixed: tuple[str, ...] = ()

    tenant = None  # type: ignore[assignment] # a connection stays in its tenant
    status = created_by = replaced_by = None  # type: ignore[assignment] # and these are facts


class Connections(ListMixin, Retrieved, ScopedView):
    """Clients that people connected by signing in, and service clients. A tenant's admin can change and end one."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Connection.objects.select_related("tenant", "client", "person", "key__toolset")
    serializer_class = ConnectionRow
    query_class = ConnectionsQuery

    @extend_schema(summary="Change connection", request=AccessRow, responses={200: ConnectionRow})
    @change_log_transaction()
    def partial_update(self, request: Request, *_args: Any, **_options: Any) -> Response:
        """Change what the connection may use, its limits and when it ends. It counts within a second."""
        row = self.get_object()
        wanted = AccessRow(row.key, data=request.data, partial=True, context=self.get_serializer_context())
        wanted.is_valid(raise_exception=True)
        check_unchanged(request, row)
        connection_changes.change_access(row, wanted.validated_data)
        return tagged(Response(self.get_serializer(row).data), row)

    @extend_schema(
        operation_id="connections_end", summary="End connection", request=None, responses={200: ConnectionRow}
    )
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        """End the connection. All processes apply it within a second. Ending it again changes nothing."""
        row = self.get_object()
        connection_changes.revoke(row)
        row.key.refresh_from_db(fields=["revoked_at"])
        return Response(self.get_serializer(row).data)


class ClientPolicyRow(NamedRow):
    """A decision about the clients of a host."""

    tenant = TenantField()
    host = Text(max_length=255, help_text="claude.ai, *.example.com, localhost, cursor: or *.")

    class Meta:
        model = ClientPolicy
        fields = ("id", "tenant", "host", "decision", "created_at")
        fixed = ("tenant",)
        named, kind, checked = "host", "policy for", "host"

    def check(self, row: ClientPolicy) -> None:
        """Normalize the host. Raises ValidationError."""
        row.host = hosts.normalized(row.host)

    def check_room(self, tenant: Tenant) -> None:
        """Reject a policy too many. Raises ValidationError."""
        hosts.check_room(tenant)


class ClientPolicies(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Which clients the members of a tenant may connect. The most specific host counts."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = ClientPolicy.objects.select_related("tenant")
    serializer_class = ClientPolicyRow
    query_class = TenantQuery
    plural, singular = "client policies", "client policy"


class SignInRow(Row):
    """One step of a sign-in."""

    tenant = TenantOfRecord()

    class Meta:
        model = SignInEvent
        fields: tuple[str, ...] = (
            "id",
            "at",
            "step",
            "reason",
            "tenant",
            "connection_id",
            "attempt",
            "client_id",
            "client_name",
            "person_name",
            "host",
            "remote_address",
        )
        read_only_fields = fields


class SignInsQuery(TenantQuery):
    """Filter by tenant and step."""

    step = Choice(SignInStep.choices, required=False)


class SignIns(ListMixin, Retrieved, ScopedView):
    """The steps of sign-ins in a tenant, the latest first, with why one failed and which rule was used."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = SignInEvent.objects.select_related("tenant")
    serializer_class = SignInRow
    query_class = SignInsQuery
    plural, singular = "sign-ins", "sign-in"
