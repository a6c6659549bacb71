"""Issuers of tenants: identity providers of people and issuers of workloads' tokens."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.base.fields import JsonObjects, Text
from tools_app.api.v1.base.serializers import Row, Strict, TenantField
from tools_app.api.v1.base.views import Member
from tools_app.api.v1.base.viewsets import (
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    Retrieved,
    ScopedView,
    SearchQuery,
    Updated,
)
from tools_app.issuers import provider, setup, tokens
from tools_app.models import Issuer
from tools_app.models.issuers import validate_rules

MAX_SECRET = 1000


class IssuerRow(Row):
    """An issuer without its client secret."""

    tenant = TenantField()
    rules = JsonObjects(
        required=False,
        validators=[validate_rules],
        help_text="What claims mean: objects with claims, and role (people) or names and methods (others).",
    )
    secret = Text(
        write_only=True,
        required=False,
        max_length=MAX_SECRET,
        help_text="The client secret. Replaces the stored one. It cannot be read back.",
    )

    class Meta:
        model = Issuer
        fields = (
            "id",
            "tenant",
            "name",
            "use",
            "issuer",
            "client_id",
            "secret",
            "rules",
            "accepts_assertions",
            "audience",
            "recheck_hours",
            "is_active",
            "created_at",
        )
        fixed = ("tenant",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the issuer with its provider. Raises ValidationError."""
        attrs = super().validate(attrs)
        try:
            setup.check(self.drafted({name: value for name, value in attrs.items() if name != "secret"}))
        except ValidationError as problem:
            raise serializers.ValidationError(serializers.as_serializer_error(problem)) from problem
        return attrs


class TokenToTry(Strict):
    """A token, which is not stored and gives no access."""

    token = Text(max_length=tokens.MAX_TOKEN, help_text="A signed JWT of the issuer.")


class TriedToken(serializers.Serializer):
    """What the rules make of a token."""

    claims = serializers.DictField(help_text="What the token says, verified or not.")
    rule = serializers.IntegerField(allow_null=True, help_text="The number of the rule that fits, from 1.")
    role = serializers.CharField(allow_blank=True)
    names = serializers.ListField(child=serializers.CharField())
    methods = serializers.ListField(child=serializers.CharField())
    problem = serializers.CharField(allow_blank=True, help_text="Why the token would not be accepted. Empty: it would.")


class Issuers(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Whose word a tenant takes for people (OpenID Connect) or for programs, and what their claims mean."""

    permission_classes = (Member, IsTenantAdmin)
    queryset = Issuer.objects.select_related("tenant").defer("ciphertext")
    serializer_class = IssuerRow
    query_class = SearchQuery

    def add(self, wanted: serializers.BaseSerializer) -> Issuer:
        """Store the issuer."""
        return self._saved(wanted, Issuer())

    def change(self, wanted: serializers.BaseSerializer) -> Issuer:
        """Store what changed and apply it to everybody who came from the issuer."""
        return self._saved(wanted, wanted.instance)

    def remove(self, row: Issuer) -> None:
        """Delete the issuer and withdraw the access of everybody who came from it."""
        with transaction.atomic():
            setup.delete(row)

    @extend_schema(operation_id="issuers_try", summary="Try token", request=TokenToTry, responses={200: TriedToken})
    @action(detail=True, methods=["post"], url_path="try", url_name="try")
    def try_token(self, request: Request, pk: str) -> Response:
        """Show what the rules make of a token."""
        sent = TokenToTry(data=request.data)
        sent.is_valid(raise_exception=True)
        try:
            trial = setup.try_out(
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

    def _saved(self, wanted: serializers.BaseSerializer, row: Issuer) -> Issuer:
        said = dict(wanted.validated_data)
        secret = said.pop("secret", "")
        for name, value in said.items():
            setattr(row, name, value)
        if secret:
            provider.seal_secret(row, secret)
        with transaction.atomic():
            row.save()
            setup.saved(row)
        return row
