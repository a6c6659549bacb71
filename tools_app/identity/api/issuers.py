"""Issuers of tenants: identity providers of people and issuers of workloads' tokens."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.urls import reverse
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.identity.issuers import setup, tokens
from tools_app.identity.models.issuers import MAX_CLIENT_SECRET, WRITTEN_FIELDS, validate_rules
from tools_app.identity.people import directory
from tools_app.models import Issuer, IssuerUse
from tools_app.web.api.fields import JsonObjects, Text
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Row, Strict, TenantField
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import (
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    Retrieved,
    ScopedView,
    SearchQuery,
    Updated,
)


def _scim_url(request: Request, row: Issuer) -> str:
    url: str = request.build_absolute_uri(reverse("scim", args=[row.pk]))
    return url.rstrip("/")


class DirectoryState(serializers.Serializer):
    """The access of a company's directory (SCIM), without its token."""

    url = serializers.CharField(help_text="The base URL (tenant URL) of the directory.")
    connected = serializers.BooleanField(help_text="Whether there is a token.")
    token_prefix = serializers.CharField(allow_blank=True)
    token_created_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="The last request, to the minute.")
    users = serializers.IntegerField()
    groups = serializers.IntegerField()


class NewDirectoryToken(serializers.Serializer):
    """A new token of a directory, which is shown only once."""

    token = serializers.CharField()
    url = serializers.CharField(help_text="The base URL (tenant URL) of the directory.")


class IssuerRow(Row):
    """An issuer without its client secret."""

    tenant = TenantField()
    directory = serializers.SerializerMethodField(help_text="The company's directory (SCIM).")
    rules = JsonObjects(
        required=False,
        validators=[validate_rules],
        help_text="What claims mean: objects with claims, and role (people) or names and methods (others).",
    )
    secret = Text(
        write_only=True,
        required=False,
        max_length=MAX_CLIENT_SECRET,
        help_text="The client secret. Replaces the stored one. It cannot be read back.",
    )

    class Meta:
        model = Issuer
        fields = ("id", *WRITTEN_FIELDS, "directory", "created_at")
        fixed = ("tenant",)

    @extend_schema_field(DirectoryState)
    def get_directory(self, row: Issuer) -> dict[str, Any]:
        """Return the state of the directory."""
        return {"url": _scim_url(self.context["request"], row), **directory.state_of(row)._asdict()}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the issuer with its provider. Raises ValidationError."""
        attrs = super().validate(attrs)
        try:
            row = self.drafted({name: value for name, value in attrs.items() if name != "secret"})
            setup.check(row, attrs.get("secret", ""))
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

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Issuer.objects.select_related("tenant", "directory").defer("ciphertext")
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
        return Response({"token": directory.issue(row), "url": _scim_url(request, row)})

    def _saved(self, wanted: serializers.BaseSerializer, row: Issuer) -> Issuer:
        values = dict(wanted.validated_data)
        secret = values.pop("secret", "")
        for name, value in values.items():
            setattr(row, name, value)
        setup.save(row, secret=secret)
        return row
