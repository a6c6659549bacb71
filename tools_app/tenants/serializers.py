"""What is read and written of tenants, API keys, members and invitations over REST."""

from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied

from tools_app.models import ApiKey, Invitation, Membership, Role, Tenant, Toolset
from tools_app.tenants import invitations, keys, members
from tools_app.tenants.models import TENANT_SLUG
from tools_app.tenants.permissions import SUPERUSERS_ONLY
from tools_app.web.api.fields import Choice, Text
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import PersonField, Row, TenantField

KEY_STATES = (("active", "Active"), ("expired", "Expired"), ("revoked", "Revoked"))
INVITATION_STATES = tuple((state.value.lower(), state.value) for state in invitations.State)


class TenantRow(Row):
    """A tenant and its settings."""

    endpoint = serializers.SerializerMethodField(help_text="URL for clients.")

    class Meta:
        model = Tenant
        fields = (
            "slug",
            "name",
            "endpoint",
            "is_active",
            "allow_query_key",
            "allowed_networks",
            "redacted_keys",
            "requires_second_factor",
            "keep_days",
            *keys.LIMITS,
            "calls_in_flight",
            "most_sessions",
            "is_public",
            "public_tools",
            "public_calls_per_minute",
            "presentation",
            "search_above_tokens",
            "created_at",
        )
        fixed = ("slug",)
        # One that another tenant has is a conflict.
        extra_kwargs = {"slug": {"validators": [TENANT_SLUG]}}

    @extend_schema_field({"type": "string", "format": "uri"})
    def get_endpoint(self, tenant: Tenant) -> str:
        """Return the URL."""
        return str(self.context["request"].build_absolute_uri(f"/t/{tenant.slug}/mcp"))

    def validate_slug(self, slug: str) -> str:
        """Return the slug. Raises Conflict if another tenant has it."""
        if self.instance is None and Tenant.objects.filter(slug=slug).exists():
            raise Conflict({"slug": ["This slug is already used by another tenant."]})
        return slug

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reserve superuser-only fields for superusers. Raises PermissionDenied."""
        attrs = super().validate(attrs)
        if self.instance is not None and not self.tenant_permissions.is_superuser:
            taken = [name for name in SUPERUSERS_ONLY if name in attrs and attrs[name] != getattr(self.instance, name)]
            if taken:
                raise PermissionDenied(f"Only superusers can change {', '.join(taken)}.")
        return attrs


class KeyRow(Row):
    """An API key, without the key itself."""

    tenant = TenantField()
    status = serializers.SerializerMethodField(help_text="Whether the key is accepted now.")
    created_by = PersonField(allow_null=True)
    toolset = Text(
        required=False,
        allow_null=True,
        max_length=Toolset._meta.get_field("name").max_length,
        help_text=f"Name of a toolset. {ApiKey._meta.get_field('toolset').help_text}",
    )
    replaced_by = serializers.UUIDField(source="replaced_by_id", read_only=True, allow_null=True)

    class Meta:
        model = ApiKey
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "name",
            "prefix",
            "status",
            "expires_at",
            "acts_for_creator",
            *keys.SETTINGS,
            "created_at",
            "created_by",
            "last_used_at",
            "revoked_at",
            "replaced_by",
        )
        read_only_fields: tuple[str, ...] = ("prefix", "last_used_at", "revoked_at")
        fixed: tuple[str, ...] = ("tenant", "acts_for_creator")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Replace the name of a toolset of the key's tenant by the toolset, and check who changes the key.

        Raises ValidationError.
        """
        attrs = super().validate(attrs)
        if (name := attrs.get("toolset")) is not None:
            tenant = attrs["tenant"] if self.instance is None else self.instance.tenant
            attrs["toolset"] = Toolset.objects.filter(tenant=tenant, name=name).first()
            if attrs["toolset"] is None:
                raise serializers.ValidationError({"toolset": ["This tenant has no toolset with this name."]})
        if self.instance is not None:
            changed = [name for name, value in attrs.items() if getattr(self.instance, name) != value]
            keys.check_editor(self.instance, self.person, changed)
        return attrs

    def create(self, validated_data: dict[str, Any]) -> ApiKey:
        """Issue the key, which is the attribute `key` of this row only."""
        row, key = keys.issue(**validated_data, created_by=self.person)
        vars(row)["key"] = key
        return row

    @property
    def person(self) -> User | None:
        """Who sends the request."""
        person = self.context["request"].user
        return person if isinstance(person, User) else None

    @extend_schema_field(Choice(KEY_STATES))
    def get_status(self, key: ApiKey) -> str:
        """Active, expired or revoked."""
        if key.revoked_at:
            return "revoked"
        return "expired" if key.expires_at and key.expires_at <= timezone.now() else "active"


@extend_schema_serializer(
    examples=[OpenApiExample("A key", request_only=True, value={"tenant": "demo", "name": "Ann's laptop"})]
)
class IssuedKeyRow(KeyRow):
    """A new API key, with the key itself, which is shown only once."""

    key = serializers.CharField(read_only=True, help_text="The API key. It is not shown again.")

    class Meta(KeyRow.Meta):
        fields = (*KeyRow.Meta.fields, "key")


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
        """Look up the person, and keep the last admin. Raises ValidationError and Conflict."""
        named = attrs.pop("user", {}).get("username")
        if self.instance is None:
            try:
                attrs["user"] = members.person_named(named)
            except members.UnknownPerson as error:
                raise serializers.ValidationError({"person": [str(error)]}) from error
            if Membership.objects.filter(user=attrs["user"], tenant=attrs["tenant"]).exists():
                raise Conflict({"person": [members.IS_MEMBER]})
            return attrs
        member: Membership = self.instance
        if attrs.get("tenant", member.tenant) != member.tenant or named not in {None, member.user.get_username()}:
            raise serializers.ValidationError("Only the role of a member can be changed. Add another member instead.")
        if attrs.get("role", Role.ADMIN) != Role.ADMIN and members.is_last_admin(member):
            raise serializers.ValidationError({"role": [members.LAST_ADMIN]})
        return {name: value for name, value in attrs.items() if name == "role"}


class InvitationRow(Row):
    """Who is invited, to which tenant, with which role, and the status."""

    tenant = TenantField()
    status = serializers.SerializerMethodField(help_text="`void`: the inviter is no longer an admin of the tenant.")
    invited_by = PersonField(allow_null=True)
    accepted_by = PersonField(allow_null=True)

    class Meta:
        model = Invitation
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "email",
            "role",
            "status",
            "invited_by",
            "created_at",
            "expires_at",
            "accepted_at",
            "accepted_by",
            "revoked_at",
        )
        read_only_fields = ("expires_at", "accepted_at", "revoked_at")
        extra_kwargs = {"role": {"default": members.DEFAULT_ROLE}}

    @extend_schema_field(Choice(INVITATION_STATES))
    def get_status(self, row: Invitation) -> str:
        """Return the status."""
        return invitations.state_of(row).value.lower()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject a person who is already a member or invited. Raises Conflict."""
        try:
            invitations.check(attrs["tenant"], attrs["email"])
        except invitations.InvitationError as error:
            raise Conflict({"email": [str(error)]}) from error
        return super().validate(attrs)

    def create(self, validated_data: dict[str, Any]) -> Invitation:
        """Create the invitation. The token of its link is the attribute `token` of this row only."""
        row, token = invitations.create(**validated_data, by=self.context["request"].user)
        vars(row)["token"] = token
        return row


class LinkedInvitationRow(InvitationRow):
    """An invitation with its link, which is shown only once."""

    link = serializers.CharField(read_only=True, help_text="Send it to the person. It is not shown again.")
    sent = serializers.BooleanField(read_only=True, help_text="Whether the hub also sent it by e-mail.")

    class Meta(InvitationRow.Meta):
        fields = (*InvitationRow.Meta.fields, "link", "sent")
