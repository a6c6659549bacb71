"""Secrets: write-only values."""

from typing import Any

from rest_framework import serializers

from tools_app.catalog import authoring
from tools_app.catalog.validation.sizes import MAX_SECRET_LENGTH
from tools_app.models import Secret
from tools_app.web.api.fields import Text
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
    SearchQuery,
    Updated,
)


class SecretRow(Row):
    """A secret without its value."""

    tenant = TenantField()
    value = Text(
        write_only=True,
        max_length=MAX_SECRET_LENGTH,
        help_text="Replaces the stored value. It cannot be read back.",
    )

    class Meta:
        model = Secret
        fields = ("id", "tenant", "name", "value", "created_at", "updated_at")
        fixed = ("tenant", "name")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject a name that is taken. Raises ValidationError."""
        attrs = super().validate(attrs)
        self.drafted(attrs).clean()
        if self.instance is None and Secret.objects.filter(tenant=attrs["tenant"], name=attrs["name"]).exists():
            raise Conflict({"name": ["This tenant already has a secret with this name. Change that one."]})
        return attrs


class Secrets(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Values that HTTP tools insert into their requests as `{secret:NAME}`. Encrypted, and never returned."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Secret.objects.select_related("tenant").defer("ciphertext")
    serializer_class = SecretRow
    query_class = SearchQuery

    def add(self, wanted: serializers.BaseSerializer) -> Secret:
        """Store the value."""
        values = wanted.validated_data
        return authoring.set_secret(values["tenant"], values["name"], values["value"])

    def change(self, wanted: serializers.BaseSerializer) -> Secret:
        """Store the new value, if there is one."""
        secret: Secret = wanted.instance
        if "value" not in wanted.validated_data:
            return secret
        return authoring.set_secret(secret.tenant, secret.name, wanted.validated_data["value"])

    def remove(self, row: Secret) -> None:
        """Delete the secret."""
        authoring.delete_secret(row)
