"""Service clients: programs that get access tokens by client credentials. Created, shown once, rotated, revoked."""

from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.identity.oauth import clients, key_sets, service_clients
from tools_app.identity.oauth import service_client_changes as service_changes
from tools_app.models import ServiceClient
from tools_app.tenants.api import KeysQuery
from tools_app.tenants.serializers import KeyRow
from tools_app.web.api.fields import JsonObject
from tools_app.web.api.problems import Conflict
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import Created, IsTenantAdmin, ListMixin, Retrieved, ScopedView, Updated

IT_SIGNS = "This client signs its requests and has no secret. Replace its public keys."
IT_SIGNS_NOT = "This client has a secret and no keys. Create another service client that signs."


class ServiceClientRow(KeyRow):
    """A service client, without its secret. Its id is that of the key under which its calls are recorded."""

    client_id = serializers.CharField(source="connection.client.client_id", read_only=True)
    connection = serializers.UUIDField(source="connection.pk", read_only=True)
    auth_method = serializers.CharField(
        source="connection.client.auth_method", read_only=True, help_text="client_secret_basic or private_key_jwt."
    )
    public_keys = JsonObject(
        source="connection.client.jwks",
        required=False,
        allow_null=True,
        help_text="A JSON Web Key Set of public keys, for a client that signs. Null: it has a secret.",
    )

    class Meta(KeyRow.Meta):
        model = ServiceClient
        fields = (
            *(name for name in KeyRow.Meta.fields if name not in ("prefix", "replaced_by")),
            "client_id",
            "connection",
            "auth_method",
            "public_keys",
        )
        read_only_fields = ("last_used_at", "revoked_at")

    prefix = None  # no client has the key's value
    replaced_by = None  # a secret is rotated in its place

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject keys that cannot be read, or that the client would not use. Raises ValidationError."""
        given = attrs.pop("connection", {}).get("client", {})
        attrs = super().validate(attrs)
        public_keys = given.get("jwks")
        if self.instance is not None and "jwks" in given:
            stored = self.instance.connection.client.jwks
            if (stored is None) != (public_keys is None):
                raise serializers.ValidationError({"public_keys": [IT_SIGNS_NOT]})
            public_keys = None if public_keys == stored else public_keys
        if public_keys is not None:
            try:
                attrs["public_keys"] = key_sets.checked(public_keys)
            except ValidationError as problem:
                raise serializers.ValidationError({"public_keys": problem.messages}) from problem
        return attrs


@extend_schema_serializer(
    examples=[OpenApiExample("A service client", request_only=True, value={"tenant": "demo", "name": "Nightly report"})]
)
class IssuedServiceClientRow(ServiceClientRow):
    """A service client with a new secret, which is shown only once."""

    secret = serializers.CharField(read_only=True, help_text="The secret; empty for a client that signs.")

    class Meta(ServiceClientRow.Meta):
        fields = (*ServiceClientRow.Meta.fields, "secret")


class ServiceClientsQuery(KeysQuery):
    """Filter by tenant, name and status."""

    searched = ("name", "connection__client__client_id")


class ServiceClients(ListMixin, Retrieved, Created, Updated, ScopedView):
    """Programs that get access tokens by client credentials. One is revoked, never deleted: calls refer to it."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = ServiceClient.objects.filter(connection__isnull=False, connection__person=None).select_related(
        "tenant", "created_by", "connection__client", "toolset"
    )
    serializer_class = ServiceClientRow
    query_class = ServiceClientsQuery
    plural, singular = "service clients", "service client"

    @extend_schema(request=ServiceClientRow, responses={201: IssuedServiceClientRow}, summary="Create service client")
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Create a service client. The response holds its secret, which is shown only once."""
        return super().create(request, *args, **options)

    def get_serializer_class(self) -> type[ServiceClientRow]:
        """Use the serializer with the secret for the response that shows it."""
        return IssuedServiceClientRow if self.action == "create" else ServiceClientRow

    def add(self, wanted: serializers.BaseSerializer) -> ServiceClient:
        """Create the client."""
        person = self.request.user
        created_by = person if isinstance(person, User) else None
        row, secret = service_clients.create(**wanted.validated_data, created_by=created_by)
        return _with_secret(row, secret)

    def change(self, wanted: serializers.BaseSerializer) -> ServiceClient:
        """Save the changed fields, and replace the keys if they are others."""
        public_keys = wanted.validated_data.pop("public_keys", None)
        row: ServiceClient = super().change(wanted)
        service_clients.keep_name(row)
        if public_keys is not None:
            service_changes.replace_keys(row, public_keys)
        return row

    @extend_schema(
        operation_id="service_clients_rotate",
        summary="Rotate secret",
        request=None,
        responses={200: IssuedServiceClientRow},
    )
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """Replace the secret. The old one is rejected at once; issued tokens stay valid for up to one hour."""
        row = self.get_object()
        if row.connection.client.auth_method == clients.SIGNED:
            raise Conflict(IT_SIGNS)
        shown = _with_secret(row, service_changes.rotate_secret(row))
        return Response(IssuedServiceClientRow(shown, context=self.get_serializer_context()).data)

    @extend_schema(
        operation_id="service_clients_revoke",
        summary="Revoke service client",
        request=None,
        responses={200: ServiceClientRow},
    )
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Revoke the client and its tokens within a second. Revoking again changes nothing."""
        row = self.get_object()
        service_changes.revoke(row)
        return Response(self.get_serializer(row).data)


def _with_secret(row: ServiceClient, secret: str) -> ServiceClient:
    """Return the row with the secret, for the response that shows it."""
    vars(row)["secret"] = secret
    return row
