"""The REST API of issuers, clients, connections, scopes, service clients and personal tokens."""

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.identity import personal_tokens
from tools_app.identity.issuers import setup, tokens
from tools_app.identity.oauth import clients, connections, service_clients
from tools_app.identity.oauth.tokens import is_member, valid_connections
from tools_app.identity.people import directory
from tools_app.identity.serializers import (
    AccessRow,
    ClientPolicyRow,
    ClientRow,
    ConnectionRow,
    CurrentUser,
    IssuedServiceClientRow,
    IssuedToken,
    IssuerRow,
    NewDirectoryToken,
    ScopeRow,
    ServiceClientRow,
    SignInRow,
    TokenRow,
    TokenToTry,
    TriedToken,
)
from tools_app.models import (
    ClientPolicy,
    ClientSource,
    Connection,
    Issuer,
    IssuerUse,
    Membership,
    OAuthClient,
    PersonalToken,
    ServiceClient,
    SignInEvent,
    SignInStep,
    TenantScope,
)
from tools_app.tenants import permissions
from tools_app.tenants.api import KeysQuery
from tools_app.web.api.fields import UUID_TEXT, Choice, Text
from tools_app.web.api.paging import ListQuery
from tools_app.web.api.problems import Conflict
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import (
    ApiView,
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    Retrieved,
    ScopedView,
    SearchQuery,
    Superuser,
    TenantQuery,
    Updated,
    check_unchanged,
    tagged,
)

CLIENT_STATES = (("blocked", "Blocked"), ("active", "Not blocked"))


class ClientsQuery(SearchQuery):
    """Filter by name or client ID, by how the client is known, and by whether it is blocked."""

    searched = ("name", "client_id")

    tenant = None  # a client is of the whole hub
    search = Text(required=False, max_length=200, help_text="Part of the name or client ID, case-insensitive.")
    source = Choice(ClientSource.choices, required=False)
    state = Choice(CLIENT_STATES, required=False, help_text="Whether it is blocked in the whole hub.")

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
        if self.tenant_permissions.is_superuser:
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


class ConnectionsQuery(TenantQuery):
    """Filter by tenant and state."""

    state = Choice([("active", "Active"), ("ended", "Ended")], required=False, help_text="Whether it gives access now.")

    def filter_queryset(self, rows: QuerySet[Connection], filters: dict[str, Any]) -> QuerySet[Connection]:
        """Return those of `rows` that match the validated parameters."""
        if state := filters.pop("state", None):
            active = Connection.objects.filter(valid_connections() & is_member()).values("pk")
            rows = rows.filter(pk__in=active) if state == "active" else rows.exclude(pk__in=active)
        return super().filter_queryset(rows, filters)


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
        connections.change_access(row, wanted.validated_data)
        return tagged(Response(self.get_serializer(row).data), row)

    @extend_schema(
        operation_id="connections_end", summary="End connection", request=None, responses={200: ConnectionRow}
    )
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        """End the connection. All processes apply it within a second. Ending it again changes nothing."""
        row = self.get_object()
        connections.revoke(row)
        row.key.refresh_from_db(fields=["revoked_at"])
        return Response(self.get_serializer(row).data)


class ClientPolicies(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Which clients the members of a tenant may connect. The most specific host counts."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = ClientPolicy.objects.select_related("tenant")
    serializer_class = ClientPolicyRow
    query_class = TenantQuery
    plural, singular = "client policies", "client policy"


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


class Scopes(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Scopes that clients can ask for besides those of the hub. A deleted one grants nothing from then on."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = TenantScope.objects.select_related("tenant")
    serializer_class = ScopeRow
    query_class = TenantQuery
    plural, singular = "scopes", "scope"


class Issuers(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Whose word a tenant takes for people (OpenID Connect) or for programs, and what their claims mean."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Issuer.objects.select_related("tenant", "directory").defer("ciphertext")
    serializer_class = IssuerRow
    query_class = SearchQuery

    def remove(self, row: Issuer) -> None:
        """Delete the issuer and withdraw the access of everybody who came from it."""
        setup.delete(row)

    @extend_schema(operation_id="issuers_try", summary="Try token", request=TokenToTry, responses={200: TriedToken})
    @action(detail=True, methods=["post"], url_path="try", url_name="try")
    def try_token(self, request: Request, pk: str) -> Response:
        """Show what the rules make of a token."""
        sent = TokenToTry(data=request.data)
        sent.is_valid(raise_exception=True)
        try:
            trial = setup.try_rules(
                self.get_object(), sent.validated_data["token"], request.build_absolute_uri("/").rstrip("/")
            )
        except tokens.InvalidToken as problem:
            raise serializers.ValidationError({"token": [str(problem)]}) from problem
        rule = trial.rule
        return Response(
            {
                "claims": trial.claims,
                "rule": rule.number if rule else None,
                "role": rule.role if rule else "",
                "names": rule.names if rule else [],
                "methods": rule.methods if rule else [],
                "problem": trial.problem,
            }
        )

    @extend_schema(
        operation_id="issuers_directory_token_rotate",
        summary="Create directory token",
        request=None,
        responses={200: NewDirectoryToken},
        methods=["POST"],
    )
    @extend_schema(
        operation_id="issuers_directory_token_withdraw",
        summary="Withdraw directory token",
        request=None,
        responses={204: None},
        methods=["DELETE"],
    )
    @action(detail=True, methods=["post", "delete"], url_path="directory", url_name="directory")
    def connect_directory(self, request: Request, pk: str) -> Response:
        """Create the token of the company's directory, or withdraw it. The earlier one is rejected at once."""
        row = self.get_object()
        if request.method == "DELETE":
            directory.withdraw(row)
            return Response(status=204)
        if row.use != IssuerUse.PEOPLE:
            raise Conflict("This issuer is for programs, which have no directory.")
        url = request.build_absolute_uri(reverse("scim", args=[row.pk])).rstrip("/")
        return Response({"token": directory.issue(row), "url": url})


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
        """Use the serializer with the secret for the responses that show it."""
        return IssuedServiceClientRow if self.action in {"create", "rotate"} else ServiceClientRow

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
            raise Conflict("This client signs its requests and has no secret. Replace its public keys.")
        vars(row)["secret"] = service_clients.rotate_secret(row)
        return Response(self.get_serializer(row).data)

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
        service_clients.revoke(row)
        return Response(self.get_serializer(row).data)


class Me(ApiView):
    """The person who is logged in, with their roles."""

    queryset = Membership.objects.all()
    serializer_class = CurrentUser
    plural = singular = "me"

    @extend_schema(operation_id="me_retrieve", summary="Get the current user", responses=CurrentUser)
    def retrieve(self, request: Request, *_args: Any, **_options: Any) -> Response:
        """Retrieve the person who sends the request, with their roles."""
        person = request.user
        body = {
            "username": person.get_username(),
            "email": person.email,
            "is_superuser": self.tenant_permissions.is_superuser,
            "login": "token" if isinstance(request.auth, PersonalToken) else "session",
            "roles": Membership.objects.filter(user=person).select_related("tenant").order_by("tenant__slug")[:1000],
        }
        return Response(CurrentUser(body, context=self.get_serializer_context()).data)


class Tokens(ListMixin, Retrieved, Created, ApiView):
    """The caller's own tokens for this API. The tokens of others are not visible."""

    queryset = PersonalToken.objects.all()
    serializer_class = TokenRow
    query_class = ListQuery
    lookup_value_regex = UUID_TEXT

    def get_queryset(self) -> QuerySet[PersonalToken]:
        """Return the person's own tokens."""
        rows: QuerySet[PersonalToken] = super().get_queryset()
        return rows.filter(person=self.request.user.pk)

    def get_serializer_class(self) -> type[TokenRow]:
        """Use the serializer with the token for the response that shows it."""
        return IssuedToken if self.action == "create" else TokenRow

    @extend_schema(request=TokenRow, responses={201: IssuedToken})
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Create a token with the caller's own roles. The response holds the token itself, which is shown only once."""
        return super().create(request, *args, **options)

    @extend_schema(operation_id="tokens_revoke", summary="Revoke token", request=None, responses={200: TokenRow})
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Revoke the token. Revoking again changes nothing."""
        with change_log_transaction():
            row = self.get_object()
            personal_tokens.revoke(row)
        return Response(self.get_serializer(row).data)
