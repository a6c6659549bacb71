"""Secrets: written here, read nowhere."""

from typing import Any

from rest_framework import serializers

from tools_app.api.v1.entrance import Member
from tools_app.api.v1.fields import Text
from tools_app.api.v1.problems import Conflict
from tools_app.api.v1.rows import Row, TenantField
from tools_app.api.v1.scoped import (
    Created,
    Deleted,
    Listed,
    Retrieved,
    Runs,
    ScopedView,
    SearchQuery,
    Updated,
)
from tools_app.execution import authoring
from tools_app.models import Secret

LONGEST = 65_536


class SecretRow(Row):
    """A secret without its value."""

    tenant = TenantField()
    value = Text(
        write_only=True, max_length=LONGEST, help_text="Replaces what was stored before. It cannot be read again."
    )

    class Meta:
        model = Secret
        fields = ("id", "tenant", "name", "value", "created_at", "updated_at")
        fixed = ("tenant", "name")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a name that is taken. Raises ValidationError."""
        attrs = super().validate(attrs)
        if self.instance is None and Secret.objects.filter(tenant=attrs["tenant"], name=attrs["name"]).exists():
            raise Conflict({"name": ["This tenant has a secret of this name: change that one."]})
        return attrs


class Secrets(Listed, Retrieved, Created, Updated, Deleted, ScopedView):
    """Values that HTTP tools put into their requests as `{secret:NAME}`. Encrypted, and never given back."""

    permission_classes = (Member, Runs)
    queryset = Secret.objects.select_related("tenant").defer("ciphertext")
    serializer_class = SecretRow
    query_class = SearchQuery

    def add(self, wanted: serializers.BaseSerializer) -> Secret:
        """Store the value."""
        said = wanted.validated_data
        return authoring.set_secret(said["tenant"], said["name"], said["value"])

    def change(self, wanted: serializers.BaseSerializer) -> Secret:
        """Store another value, if there is one."""
        secret: Secret = wanted.instance
        if "value" not in wanted.validated_data:
            return secret
        return authoring.set_secret(secret.tenant, secret.name, wanted.validated_data["value"])

    def remove(self, row: Secret) -> None:
        """Delete it."""
        authoring.delete_secret(row)
