"""Invitations: links that make the person who opens one a member."""

from typing import Any, cast

from django.contrib.auth.models import User
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.models import Invitation, Role
from tools_app.tenants import invitation_changes, invitation_mail, invitations
from tools_app.tenants.invitations import State
from tools_app.tenants.members import DEFAULT_ROLE
from tools_app.web.api.fields import Choice, Email
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import PersonField, Row, TenantField
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import Created, IsTenantAdmin, ListMixin, Retrieved, ScopedView, TenantQuery

STATES = tuple((state.value.lower(), state.value) for state in State)
ANSWERED = "This invitation has already been accepted or revoked."


class InvitationRow(Row):
    """Who is invited, to which tenant, with which role, and the status."""

    tenant = TenantField()
    email = Email(max_length=254, help_text=Invitation._meta.get_field("email").help_text)
    status = serializers.SerializerMethodField(help_text="`void`: the inviter is no longer an admin of the tenant.")
    role = Choice(Role.choices, default=DEFAULT_ROLE, help_text="Role of the new member.")
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

    @extend_schema_field(Choice(STATES))
    def get_status(self, row: Invitation) -> str:
        """Return the status."""
        return invitations.state_of(row).value.lower()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject a person who is already a member or invited. Raises Conflict."""
        try:
            invitations.check(attrs["tenant"], attrs["email"])
        except invitations.InvitationError as problem:
            raise Conflict({"email": [str(problem)]}) from problem
        return super().validate(attrs)


class LinkedInvitationRow(InvitationRow):
    """An invitation with its link, which is shown only once."""

    link = serializers.CharField(read_only=True, help_text="Send it to the person. It is not shown again.")
    sent = serializers.BooleanField(read_only=True, help_text="Whether the hub also sent it by e-mail.")

    class Meta(InvitationRow.Meta):
        fields = (*InvitationRow.Meta.fields, "link", "sent")


class InvitationsQuery(TenantQuery):
    """Filter by tenant and role."""

    role = Choice(Role.choices, required=False, help_text="Role of the new member.")


class Invitations(ListMixin, Retrieved, Created, ScopedView):
    """Invitations to tenants. They can be revoked, but not changed or deleted."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Invitation.objects.select_related("tenant", "invited_by", "accepted_by").prefetch_related(
        "invited_by__memberships"
    )
    serializer_class = InvitationRow
    query_class = InvitationsQuery

    def get_serializer_class(self) -> type[InvitationRow]:
        """Use the serializer with the link for responses that show it."""
        return LinkedInvitationRow if self.action == "create" else InvitationRow

    @extend_schema(request=InvitationRow, responses={201: LinkedInvitationRow}, summary="Invite a person")
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Invite a person. The response holds the link, which is shown only once. The hub also e-mails it if it can."""
        return super().create(request, *args, **options)

    def add(self, wanted: serializers.BaseSerializer) -> Invitation:
        """Create the invitation."""
        values = wanted.validated_data
        row, token = invitations.create(
            values["tenant"], values["email"], values["role"], cast("User", self.request.user)
        )
        vars(row)["token"] = token
        return row

    def added(self, row: Invitation) -> None:
        """Add the link and send it, after the transaction: a slow mail server delays no other request."""
        self._linked(row, vars(row).pop("token"))

    @extend_schema(
        operation_id="invitations_renew", summary="Renew invitation", request=None, responses={200: LinkedInvitationRow}
    )
    @action(detail=True, methods=["post"])
    def renew(self, request: Request, pk: str) -> Response:
        """Create a new link, valid for some days from now; the previous link becomes invalid."""
        row = self.get_object()
        token = invitation_changes.renew(row, cast("User", request.user))
        if token is None:
            raise Conflict(ANSWERED)
        shown = LinkedInvitationRow(self._linked(row, token), context=self.get_serializer_context())
        return Response(shown.data)

    @extend_schema(
        operation_id="invitations_revoke", summary="Revoke invitation", request=None, responses={200: InvitationRow}
    )
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Invalidate the link. Revoking again changes nothing."""
        row = self.get_object()
        if not invitation_changes.revoke(row) and row.revoked_at is None:
            raise Conflict(ANSWERED)
        row.refresh_from_db(fields=["revoked_at"])
        return Response(self.get_serializer(row).data)

    def _linked(self, row: Invitation, token: str) -> Invitation:
        """Return the row with its link, for the response that shows it; e-mails the link if the hub can."""
        link, mailed = (
            self.request.build_absolute_uri(reverse("invitation", args=[text]))
            for text in (token, invitations.note_mailed(row, token))
        )
        vars(row)["link"], vars(row)["sent"] = link, _sent(row, mailed)
        return row


def _sent(row: Invitation, link: str) -> bool:
    if not invitation_mail.is_possible():
        return False
    try:
        invitation_mail.send(row, link)
    except invitation_mail.NotSent:
        return False
    return True
