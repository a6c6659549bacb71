"""Members: the roles that people have in tenants."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied

from tools_app.api.v1.entrance import Member
from tools_app.api.v1.fields import Choice, Text
from tools_app.api.v1.problems import Conflict
from tools_app.api.v1.rows import Row, TenantField
from tools_app.api.v1.scoped import (
    Created,
    Deleted,
    Listed,
    Retrieved,
    Runs,
    ScopedView,
    TenantQuery,
    Updated,
)
from tools_app.auth import members
from tools_app.models import Membership, Role


class MemberRow(Row):
    """A person's role in one tenant."""

    tenant = TenantField()
    person = Text(
        source="user.username",
        max_length=254,
        help_text="The user name, written out in full.",
    )
    email = serializers.CharField(source="user.email", read_only=True, help_text="May be empty.")

    class Meta:
        model = Membership
        fields = ("id", "tenant", "person", "email", "role", "created_at")
        read_only_fields = ("created_at",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Find the person, and keep the last admin. Raises ValidationError."""
        named = attrs.pop("user", {}).get("username")
        if self.instance is not None:
            return self._changed(self.instance, attrs, named)
        try:
            attrs["user"] = members.person_named(named)
        except members.NobodyNamed as problem:
            raise serializers.ValidationError({"person": [str(problem)]}) from problem
        if Membership.objects.filter(user=attrs["user"], tenant=attrs["tenant"]).exists():
            raise Conflict({"person": ["This person is a member already."]})
        return attrs

    def _changed(self, member: Membership, attrs: dict[str, Any], named: str | None) -> dict[str, Any]:
        if attrs.get("tenant", member.tenant) != member.tenant or named not in {None, member.user.get_username()}:
            raise serializers.ValidationError("Only the role of a member can be changed: add another member instead.")
        if attrs.get("role", Role.ADMIN) != Role.ADMIN and members.is_last_admin(member):
            raise serializers.ValidationError({"role": [members.LAST_ADMIN]})
        return {name: value for name, value in attrs.items() if name == "role"}


class MembersQuery(TenantQuery):
    """By tenant and role."""

    role = Choice(Role.choices, required=False, help_text="Members of this role.")
    person = Text(required=False, max_length=150, help_text="A user name, in full.")

    def found(self, rows: QuerySet[Membership], chosen: Mapping[str, Any]) -> QuerySet[Membership]:
        """Those of `rows` that the parameters `chosen` ask for."""
        rows = super().found(rows, chosen)
        if "person" in chosen:
            rows = rows.filter(user__username=chosen["person"])
        return rows.filter(role=chosen["role"]) if "role" in chosen else rows


class Members(Listed, Retrieved, Created, Updated, Deleted, ScopedView):
    """The people of tenants: an admin changes its tenant, an auditor reads all of it, an operator facts of calls."""

    permission_classes = (Member, Runs)
    queryset = Membership.objects.select_related("tenant", "user")
    serializer_class = MemberRow
    query_class = MembersQuery

    def remove(self, row: Membership) -> None:
        """Remove a member. The last admin stays, unless a superuser removes it: nobody else could let anybody in."""
        if not self.reach.everything and members.is_last_admin(row):
            raise PermissionDenied(members.LAST_ADMIN)
        row.delete()
