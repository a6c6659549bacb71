"""Credentials for upstream servers, without their values: people set and remove their own, admins remove any."""

from typing import Any

from django.db.models import Q, QuerySet
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied

from tools_app.models import CredentialOwner, Upstream, UpstreamCredential
from tools_app.tenants import permissions
from tools_app.upstreams.credentials import store
from tools_app.upstreams.credentials.store import MAX_VALUE_LENGTH, InvalidCredential, Owner
from tools_app.web.api.fields import Id, Text
from tools_app.web.api.serializers import Row, TenantOfRecord
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import Created, Deleted, ListMixin, Retrieved, ScopedView

NOT_YOURS = "Only admins of this tenant enter its credential."


class UpstreamCredentialRow(Row):
    """A credential without its value. One without a key and a person is the tenant's."""

    tenant = TenantOfRecord(help_text="Slug of the tenant.")
    upstream = Id(source="upstream_id", help_text="Id of the upstream.")
    key = Id(source="key_id", read_only=True, allow_null=True, help_text="Id of the API key that has it.")
    person = serializers.CharField(
        source="person.username", read_only=True, allow_null=True, default=None, help_text="Who has it."
    )
    value = Text(
        write_only=True,
        max_length=MAX_VALUE_LENGTH,
        help_text="The value of the header. It replaces the one that is stored, and cannot be read back.",
    )

    class Meta:
        model = UpstreamCredential
        fields = (
            "id",
            "tenant",
            "upstream",
            "key",
            "person",
            "kind",
            "value",
            "origin",
            "scopes",
            "expires_at",
            "refresh_at",
            "problem",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("kind", "origin", "scopes", "expires_at", "refresh_at", "problem")


class UpstreamCredentials(ListMixin, Retrieved, Created, Deleted, ScopedView):
    """Credentials for upstream servers: the caller's own, and for admins all of their tenants."""

    permission_classes = (HasMembership,)
    queryset = UpstreamCredential.objects.select_related("tenant", "upstream", "person").defer("ciphertext")
    serializer_class = UpstreamCredentialRow

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that this person may see, and may delete."""
        rows: QuerySet[Any] = super().get_queryset()
        run = permissions.tenants_run_by(self.request.user)
        return rows.filter(Q(person=self.request.user.pk) | Q(tenant__in=run))

    def add(self, wanted: serializers.BaseSerializer) -> UpstreamCredential:
        """Store the value for the caller, or for the tenant, as the upstream needs it. Raises ValidationError."""
        values = wanted.validated_data
        seen = permissions.rows_seen_by(self.request.user, Upstream.objects.select_related("tenant"))
        upstream = seen.filter(pk=values["upstream_id"]).first()
        if upstream is None:
            raise serializers.ValidationError({"upstream": ["There is no such upstream."]})
        if upstream.credential_owner == CredentialOwner.KEY:
            text = "Its calls use credentials of keys. Enter them at /connections/upstreams."
            raise serializers.ValidationError({"upstream": [text]})
        is_own = upstream.credential_owner == CredentialOwner.PERSON
        if not is_own and not permissions.may_change(self.request.user, upstream.tenant):
            raise PermissionDenied(NOT_YOURS)
        try:
            return store.save_value(
                upstream, Owner(person_id=self.request.user.pk) if is_own else store.TENANT, values["value"]
            )
        except InvalidCredential as problem:
            raise serializers.ValidationError({"value": [str(problem)]}) from None
