"""Invitations: links that make whoever opens them a member."""

from collections.abc import Mapping
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.entrance import Member
from tools_app.api.v1.fields import Choice, Email
from tools_app.api.v1.problems import Conflict
from tools_app.api.v1.rows import PersonField, Row, TenantField
from tools_app.api.v1.scoped import Created, Listed, Retrieved, Runs, ScopedView, TenantQuery
from tools_app.audit import invitation_changes
from tools_app.auth import invitation_mail, invitations
from tools_app.auth.invitations import State
from tools_app.models import Invitation, Role

STATES = tuple((state.value.lower(), state.value) for state in State)
ANSWERED = "This invitation was taken or revoked meanwhile."


class InvitationRow(Row):
    """Who is invited, to which tenant, as what, and what has become of it."""

    tenant = TenantField()
    email = Email(help_text="Who is invited. Another person's account cannot take it.")
    status = serializers.SerializerMethodField(help_text="`void`: who invited does not run the tenant any more.")
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
        """What has become of it."""
        return invitations.state_of(row).value.lower()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse who is a member or invited already. Raises Conflict."""
        try:
            invitations.check(attrs["tenant"], attrs["email"])
        except invitations.NotInvited as problem:
            raise Conflict({"email": [str(problem)]}) from problem
        return super().validate(attrs)


class LinkedInvitationRow(InvitationRow):
    """An invitation with its link: it is told here and never again."""

    link = serializers.CharField(read_only=True, help_text="Give it to the person. It cannot be had again.")
    sent = serializers.BooleanField(read_only=True, help_text="Whether the hub sent it by e-mail, too.")

    class Meta(InvitationRow.Meta):
        fields = (*InvitationRow.Meta.fields, "link", "sent")


class InvitationsQuery(TenantQuery):
    """By tenant and role."""

    role = Choice(Role.choices, required=False, help_text="As what.")

    def found(self, rows: QuerySet[Invitation], chosen: Mapping[str, Any]) -> QuerySet[Invitation]:
        """Those of `rows` that the parameters `chosen` ask for."""
        rows = super().found(rows, chosen)
        return rows.filter(role=chosen["role"]) if "role" in chosen else rows


class Invitations(Listed, Retrieved, Created, ScopedView):
    """Invitations to tenants. They are revoked, never changed or deleted."""

    permission_classes = (Member, Runs)
    queryset = Invitation.objects.select_related("tenant", "invited_by", "accepted_by").prefetch_related(
        "invited_by__memberships"
    )
    serializer_class = InvitationRow
    query_class = InvitationsQuery

    def get_serializer_class(self) -> type[InvitationRow]:
        """The link is told once."""
        return LinkedInvitationRow if self.action == "create" else InvitationRow

    @extend_schema(request=InvitationRow, responses={201: LinkedInvitationRow}, summary="Invite a person")
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Invite somebody. The answer holds the link, which cannot be had again. The hub sends it, too, if it can."""
        return super().create(request, *args, **options)

    def add(self, wanted: serializers.BaseSerializer) -> Invitation:
        """Make the invitation."""
        said = wanted.validated_data
        row, token = invitations.make(said["tenant"], said["email"], said["role"], cast("User", self.request.user))
        vars(row)["token"] = token
        return row

    def added(self, row: Invitation) -> None:
        """Tell the link, and send it: a mail server that is slow holds nobody else up."""
        self._linked(row, vars(row).pop("token"))

    @extend_schema(
        operation_id="invitations_renew", summary="Renew invitation", request=None, responses={200: LinkedInvitationRow}
    )
    @action(detail=True, methods=["post"])
    def renew(self, request: Request, pk: str) -> Response:
        """A new link, for some days from now; the one before leads nowhere any more."""
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
        """The link leads nowhere any more. Revoking twice changes nothing."""
        row = self.get_object()
        if not invitation_changes.revoke(row) and row.revoked_at is None:
            raise Conflict(ANSWERED)
        row.refresh_from_db(fields=["revoked_at"])
        return Response(self.get_serializer(row).data)

    def _linked(self, row: Invitation, token: str) -> Invitation:
        """The row with its link, for the answer that tells it, sent by e-mail where the hub can."""
        link = self.request.build_absolute_uri(reverse("invitation", args=[token]))
        vars(row)["link"], vars(row)["sent"] = link, _sent(row, link)
        return row


def _sent(row: Invitation, link: str) -> bool:
    if not invitation_mail.is_possible():
        return False
    try:
        invitation_mail.send(row, link)
    except invitation_mail.NotSent:
        return False
    return True
