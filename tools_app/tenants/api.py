"""The REST API of tenants, API keys, members and invitations.

A new key and the link of an invitation are only in the responses that create or replace them.
"""

from datetime import timedelta
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.models import ApiKey, Invitation, Membership, Role, Tenant
from tools_app.tenants import invitations, keys, members
from tools_app.tenants.serializers import (
    KEY_STATES,
    InvitationRow,
    IssuedKeyRow,
    KeyRow,
    LinkedInvitationRow,
    MemberRow,
    TenantRow,
)
from tools_app.web.api.fields import Choice, FlagParameter, Text, Whole
from tools_app.web.api.paging import ListQuery
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Strict
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import (
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
)

DAY = 24 * 3600


class TenantsQuery(ListQuery):
    """Filter by name, and by whether the tenant is active."""

    search = Text(required=False, max_length=200, help_text="Part of the name or slug.")
    is_active = FlagParameter(required=False, help_text="Whether it is active.")

    def filter_queryset(self, rows: QuerySet[Tenant], filters: dict[str, Any]) -> QuerySet[Tenant]:
        """Return those of `rows` that match the validated parameters."""
        if text := filters.pop("search", None):
            rows = rows.filter(Q(name__icontains=text) | Q(slug__icontains=text))
        return super().filter_queryset(rows, filters)


class Tenants(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Tenants. Superusers add and delete them; a tenant's admins change its settings."""

    queryset = Tenant.objects.all()
    serializer_class = TenantRow
    query_class = TenantsQuery
    tenant_field = "pk"
    lookup_field = "slug"
    lookup_value_regex = "[a-z0-9-]{1,63}"

    def tenant_id_of(self, row: Any) -> Any:
        """Return the tenant's own id."""
        return row.pk

    def get_permissions(self) -> list[Any]:
        """Require a superuser for adding and deleting."""
        permission = Superuser if self.action in {"create", "destroy"} else IsTenantAdmin
        return [*super().get_permissions(), permission()]


class Rotation(Strict):
    """Parameters of a rotation."""

    overlap_seconds = Whole(
        required=False,
        default=DAY,
        min_value=0,
        max_value=int(keys.MAX_OVERLAP.total_seconds()),
        help_text="How long the old key stays valid beside the new one.",
    )


class KeysQuery(SearchQuery):
    """Filter by tenant, name and status."""

    searched = ("name", "prefix")

    status = Choice(KEY_STATES, required=False, help_text="Whether the key is accepted now.")

    def filter_queryset(self, rows: QuerySet[ApiKey], filters: dict[str, Any]) -> QuerySet[ApiKey]:
        """Return those of `rows` that match the validated parameters."""
        rows = keys.with_status(rows, filters.pop("status", None))
        return super().filter_queryset(rows, filters)


class Keys(ListMixin, Retrieved, Created, Updated, ScopedView):
    """The API keys of MCP clients. A key is revoked, never deleted: its sessions and calls refer to it."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = keys.without_connections(ApiKey.objects.select_related("tenant", "created_by", "toolset"))
    serializer_class = KeyRow
    query_class = KeysQuery
    plural, singular = "API keys", "API key"

    @extend_schema(request=KeyRow, responses={201: IssuedKeyRow}, summary="Issue API key")
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Create a key. The response holds the key itself, which is shown only once."""
        return super().create(request, *args, **options)

    def get_serializer_class(self) -> type[KeyRow]:
        """Use the serializer with the key for responses that show it."""
        return IssuedKeyRow if self.action in {"create", "rotate"} else KeyRow

    @extend_schema(
        operation_id="keys_rotate", summary="Rotate API key", request=Rotation, responses={201: IssuedKeyRow}
    )
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """Create a key that replaces this one, with all its settings; both are valid during the overlap."""
        rotation = Rotation(data=request.data)
        rotation.is_valid(raise_exception=True)
        overlap = timedelta(seconds=rotation.validated_data["overlap_seconds"])
        try:
            new, key = keys.rotate(self.get_object(), overlap, cast("User", request.user))
        except keys.NotRotatable as error:
            raise Conflict(str(error)) from error
        vars(new)["key"] = key
        return Response(self.get_serializer(new).data, status=201)

    @extend_schema(operation_id="keys_revoke", summary="Revoke API key", request=None, responses={200: KeyRow})
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Revoke the key. All processes apply it within a second. Revoking again changes nothing."""
        row = self.get_object()
        keys.revoke(row)
        return Response(self.get_serializer(row).data)


class RoleQuery(TenantQuery):
    """Filter by tenant and role."""

    role = Choice(Role.choices, required=False, help_text="Role.")


class MembersQuery(RoleQuery):
    """Filter also by person."""

    person = Text(source="user__username", required=False, max_length=150, help_text="Full username.")


class Members(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """The members of tenants: an admin changes the tenant, an auditor reads all of it, an operator facts of calls."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Membership.objects.select_related("tenant", "user")
    serializer_class = MemberRow
    query_class = MembersQuery

    def check_permissions(self, request: Request) -> None:
        """Allow only superusers to add an account: others would learn who has one. Raises PermissionDenied."""
        super().check_permissions(request)
        if self.action == "create" and not self.tenant_permissions.is_superuser:
            raise PermissionDenied(members.SUPERUSERS_ADD)

    @extend_schema(summary="Add member")
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Add an existing account, as a superuser. Others invite: see `invitations`."""
        return super().create(request, *args, **options)

    def remove(self, row: Membership) -> None:
        """Remove a member. Only a superuser can remove the last admin: afterwards, only superusers can add one."""
        if not self.tenant_permissions.is_superuser and members.is_last_admin(row):
            raise PermissionDenied(members.LAST_ADMIN)
        row.delete()


class Invitations(ListMixin, Retrieved, Created, ScopedView):
    """Invitations to tenants. They can be revoked, but not changed or deleted."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Invitation.objects.select_related("tenant", "invited_by", "accepted_by").prefetch_related(
        "invited_by__memberships"
    )
    serializer_class = InvitationRow
    query_class = RoleQuery

    def get_serializer_class(self) -> type[InvitationRow]:
        """Use the serializer with the link for responses that show it."""
        return LinkedInvitationRow if self.action in {"create", "renew"} else InvitationRow

    @extend_schema(request=InvitationRow, responses={201: LinkedInvitationRow}, summary="Invite a person")
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Invite a person. The response holds the link, which is shown only once. The hub also e-mails it if it can."""
        return super().create(request, *args, **options)

    def added(self, row: Invitation) -> None:
        """Add the link and send it, after the transaction: a slow mail server delays no other request."""
        self._add_link(row, vars(row).pop("token"))

    @extend_schema(
        operation_id="invitations_renew", summary="Renew invitation", request=None, responses={200: LinkedInvitationRow}
    )
    @action(detail=True, methods=["post"])
    def renew(self, request: Request, pk: str) -> Response:
        """Create a new link, valid for some days from now; the previous link becomes invalid."""
        row = self.get_object()
        token = invitations.renew(row, cast("User", request.user))
        if token is None:
            raise Conflict(invitations.ANSWERED)
        self._add_link(row, token)
        return Response(self.get_serializer(row).data)

    @extend_schema(
        operation_id="invitations_revoke", summary="Revoke invitation", request=None, responses={200: InvitationRow}
    )
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Invalidate the link. Revoking again changes nothing."""
        row = self.get_object()
        if not invitations.revoke(row) and row.revoked_at is None:
            raise Conflict(invitations.ANSWERED)
        row.refresh_from_db(fields=["revoked_at"])
        return Response(self.get_serializer(row).data)

    def _add_link(self, row: Invitation, token: str) -> None:
        base_url = self.request.build_absolute_uri("/")
        vars(row)["link"], vars(row)["sent"] = invitations.link_of(token, base_url), True
        try:
            invitations.send(row, token, base_url)
        except invitations.NotSent:
            vars(row)["sent"] = False
