"""A person's own tokens for this API."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.paging import ListQuery
from tools_app.api.v1.rows import Row
from tools_app.api.v1.scoped import ID, ApiView, Created, Listed, Retrieved
from tools_app.audit.changes import in_turn
from tools_app.auth import tokens
from tools_app.models import PersonalToken

MADE_BY_HAND = "A token makes no tokens: make them in the admin, or here with the session of a browser."


class TokenRow(Row):
    """A personal token, without the token itself."""

    class Meta:
        model = PersonalToken
        fields: tuple[str, ...] = ("id", "name", "prefix", "created_at", "expires_at", "last_used_at", "revoked_at")
        read_only_fields = ("prefix", "last_used_at", "revoked_at")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Whoever found a token shall have nothing when it is revoked. Raises PermissionDenied."""
        if isinstance(self.context["request"].auth, PersonalToken):
            raise PermissionDenied(MADE_BY_HAND)
        return attrs


class IssuedToken(TokenRow):
    """A new token, with the token itself: it is told here and never again."""

    token = serializers.CharField(read_only=True, help_text="What a script carries. It cannot be had again.")

    class Meta(TokenRow.Meta):
        fields = (*TokenRow.Meta.fields, "token")


class TokensQuery(ListQuery):
    """Nothing but the page."""

    def found(self, rows: QuerySet[PersonalToken], chosen: Mapping[str, Any]) -> QuerySet[PersonalToken]:
        """All of `rows`."""
        return rows


class Tokens(Listed, Retrieved, Created, ApiView):
    """The caller's own tokens for this API. Nobody sees another person's."""

    queryset = PersonalToken.objects.all()
    serializer_class = TokenRow
    query_class = TokensQuery
    lookup_value_regex = ID

    def get_queryset(self) -> QuerySet[PersonalToken]:
        """The person's own."""
        rows: QuerySet[PersonalToken] = super().get_queryset()
        return rows.filter(person=self.request.user.pk)

    def get_serializer_class(self) -> type[TokenRow]:
        """A new token is told once."""
        return IssuedToken if self.action == "create" else TokenRow

    @extend_schema(request=TokenRow, responses={201: IssuedToken})
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """A new token with the caller's own roles. The answer holds the token itself, which cannot be had again."""
        return super().create(request, *args, **options)

    def add(self, wanted: serializers.BaseSerializer) -> PersonalToken:
        """Make the token."""
        said = wanted.validated_data
        row, token = tokens.issue(self.request.user, said["name"], expires_at=said.get("expires_at"))
        vars(row)["token"] = token
        return row

    @extend_schema(operation_id="tokens_revoke", summary="Revoke token", request=None, responses={200: TokenRow})
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """The token opens nothing from now on. Revoking twice changes nothing."""
        with in_turn():
            row = self.get_object()
            tokens.revoke(row)
        return Response(self.get_serializer(row).data)
