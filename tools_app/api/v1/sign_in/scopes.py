"""Scopes that a tenant names for patterns of names and methods."""

from typing import Any

from django.core.exceptions import ValidationError
from rest_framework import serializers

from tools_app.access.oauth import tenant_scopes
from tools_app.api.v1.base.fields import Text, Texts
from tools_app.api.v1.base.problems import Conflict
from tools_app.api.v1.base.serializers import Row, TenantField
from tools_app.api.v1.base.views import Member
from tools_app.api.v1.base.viewsets import (
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    Retrieved,
    ScopedView,
    TenantQuery,
    Updated,
)
from tools_app.models import TenantScope
from tools_app.models.validators import validate_patterns


class ScopeRow(Row):
    """A scope of a tenant."""

    tenant = TenantField()
    name = Text(max_length=40, help_text="What a client asks for, e.g. reports.")
    tool_patterns = Texts(
        required=False, validators=[validate_patterns], help_text="Patterns of names, e.g. report_*. Empty: all."
    )
    methods = Texts(
        required=False, validators=[validate_patterns], help_text="Patterns of methods, e.g. tools/call. Empty: all."
    )

    class Meta:
        model = TenantScope
        fields = ("id", "tenant", "name", "description", "tool_patterns", "methods", "created_at")
        fixed = ("tenant",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject an invalid or reserved name, one that exists, and a scope too many. Raises ValidationError."""
        attrs = super().validate(attrs)
        row = self.drafted(attrs)
        try:
            tenant_scopes.check_name(row.name)
            if self.instance is None:
                tenant_scopes.check_room(row.tenant)
        except ValidationError as problem:
            raise serializers.ValidationError({"name": problem.messages}) from problem
        if TenantScope.objects.filter(tenant=row.tenant, name=row.name).exclude(pk=row.pk).exists():
            raise Conflict({"name": ["This tenant already has a scope with this name. Change that one."]})
        return attrs


class Scopes(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Scopes that clients can ask for besides those of the hub. A deleted one grants nothing from then on."""

    permission_classes = (Member, IsTenantAdmin)
    queryset = TenantScope.objects.select_related("tenant")
    serializer_class = ScopeRow
    query_class = TenantQuery
    plural, singular = "scopes", "scope"
