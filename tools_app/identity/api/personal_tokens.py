"""The person who is logged in, and their own tokens for this API."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.identity import personal_tokens as tokens
from tools_app.models import Membership, PersonalToken
from tools_app.web.api.fields import UUID_TEXT
from tools_app.web.api.paging import ListQuery
from tools_app.web.api.serializers import Row, TenantField
from tools_app.web.api.viewsets import ApiView, Created, ListMixin, Retrieved


class RoleOfMine(Row):
    """A role in a tenant."""

    tenant = TenantField(read_only=True)

    class Meta:
        model = Membership
        fields = ("tenant", "role")
        read_only_fields = fields


class Myself(serializers.Serializer):
    """The person who sends the request."""

    username = serializers.CharField()
    email = serializers.CharField(allow_blank=True)
    is_superuser = serializers.BooleanField(help_text="Superusers administer the whole hub.")
    login = serializers.ChoiceField([("session", "A browser's session"), ("token", "A personal token")])
    roles = RoleOfMine(many=True)


class Me(ApiView):
    """The person who is logged in, with their roles."""

    queryset = Membership.objects.all()
    serializer_class = Myself
    plural = singular = "me"

    @extend_schema(operation_id="me_retrieve", summary="Get the current user", responses=Myself)
    def retrieve(self, request: Request, *_args: Any, **_options: Any) -> Response:
        """Retrieve the person who sends the request, with their roles."""
        person = request.user
        body = {
            "username": person.get_username(),
            "email": person.email,
            "is_superuser": self.tenant_permissions.everything,
            "login": "token" if isinstance(request.auth, PersonalToken) else "session",
            "roles": Membership.objects.filter(user=person).select_related("tenant").order_by("tenant__slug")[:1000],
        }
        return Response(Myself(body, context=self.get_serializer_context()).data)


MADE_BY_HAND = "A token cannot create tokens. Create them in the admin, or here with a browser session."


class TokenRow(Row):
    """A personal token, without the token itself."""

    class Meta:
        model = PersonalToken
        fields: tuple[str, ...] = ("id", "name", "prefix", "created_at", "expires_at", "last_used_at", "revoked_at")
        read_only_fields = ("prefix", "last_used_at", "revoked_at")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Only accept a session login: a stolen token must not create others. Raises PermissionDenied."""
        if isinstance(self.context["request"].auth, PersonalToken):
            raise PermissionDenied(MADE_BY_HAND)
        return attrs


class IssuedToken(TokenRow):
    """A new token, with the token itself, which is shown only once."""

    token = serializers.CharField(read_only=True, help_text="The token. It is not shown again.")

    class Meta(TokenRow.Meta):
        fields = (*TokenRow.Meta.fields, "token")


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

    def add(self, wanted: serializers.BaseSerializer) -> PersonalToken:
        """Create the token."""
        values = wanted.validated_data
        row, token = tokens.issue(self.request.user, values["name"], expires_at=values.get("expires_at"))
        vars(row)["token"] = token
        return row

    @extend_schema(operation_id="tokens_revoke", summary="Revoke token", request=None, responses={200: TokenRow})
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Revoke the token. Revoking again changes nothing."""
        with change_log_transaction():
            row = self.get_object()
            tokens.revoke(row)
        return Response(self.get_serializer(row).data)
