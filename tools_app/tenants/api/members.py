"""Members: the roles that people have in tenants."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.models import Membership, Role
from tools_app.tenants import members
from tools_app.web.api.fields import Choice, Text
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Row, TenantField
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
)


class MemberRow(Row):
    """A person's role in one tenant."""

    tenant = TenantField()
    person = Text(
        source="user.username",
        max_length=254,
        help_text="Full username. Only superusers can add members; admins send invitations.",
    )
    email = serializers.CharField(source="user.email", read_only=True, help_text="Can be empty.")

    class Meta:
        model = Membership
        fields = ("id", "tenant", "person", "email", "role", "created_at")
        read_only_fields = ("created_at",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Look up the person, and keep the last admin. Raises ValidationError."""
        named = attrs.pop("user", {}).get("username")
        if self.instance is not None:
            return self._changed(self.instance, attrs, named)
        try:
            attrs["user"] = members.person_named(named)
        except members.UnknownPerson as problem:
            raise serializers.ValidationError({"person": [str(problem)]}) from problem
        if Membership.objects.filter(user=attrs["user"], tenant=attrs["tenant"]).exists():
            raise Conflict({"person": ["This person is already a member."]})
        return attrs

    def _changed(self, member: Membership, attrs: dict[str, Any], named: str | None) -> dict[str, Any]:
        if attrs.get("tenant", member.tenant) != member.tenant or named not in {None, member.user.get_username()}:
            raise serializers.ValidationError("Only the role of a member can be changed. Add another member instead.")
        if attrs.get("role", Role.ADMIN) != Role.ADMIN and members.is_last_admin(member):
            raise serializers.ValidationError({"role": [members.LAST_ADMIN]})
        return {name: value for name, value in attrs.items() if name == "role"}


class MembersQuery(TenantQuery):
    """Filter by tenant and role."""

    role = Choice(Role.choices, required=False, help_text="Members of this role.")
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
        if self.action == "create" and not self.tenant_permissions.everything:
            raise PermissionDenied(members.SUPERUSERS_ADD)

    @extend_schema(summary="Add member")
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Add an existing account, as a superuser. Others invite: see `invitations`."""
        return super().create(request, *args, **options)

    def remove(self, row: Membership) -> None:
        """Remove a member. Only a superuser can remove the last admin: afterwards, only superusers can add one."""
        if not self.tenant_permissions.everything and members.is_last_admin(row):
            raise PermissionDenied(members.LAST_ADMIN)
        row.delete()
