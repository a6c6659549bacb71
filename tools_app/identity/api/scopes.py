"""Scopes that a tenant names for patterns of names and methods."""

from tools_app.core.validators import validate_names, validate_patterns
from tools_app.identity.oauth import scopes
from tools_app.models import Tenant, TenantScope
from tools_app.web.api.fields import Text, Texts
from tools_app.web.api.serializers import NamedRow, TenantField
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import (
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    Retrieved,
    ScopedView,
    TenantQuery,
    Updated,
)


class ScopeRow(NamedRow):
    """A scope of a tenant."""

    tenant = TenantField()
    name = Text(max_length=40, help_text="What a client asks for, e.g. reports.")
    tool_patterns = Texts(
        required=False, validators=[validate_names], help_text="Names, e.g. report_* or tool=report_sales. Empty: all."
    )
    methods = Texts(
        required=False, validators=[validate_patterns], help_text="Patterns of methods, e.g. tools/call. Empty: all."
    )

    class Meta:
        model = TenantScope
        fields = ("id", "tenant", "name", "description", "tool_patterns", "methods", "created_at")
        fixed = ("tenant",)
        named, kind, checked = "name", "scope with", "name"

    def check(self, row: TenantScope) -> None:
        """Reject an invalid or reserved name. Raises ValidationError."""
        row.clean()

    def check_room(self, tenant: Tenant) -> None:
        """Reject a scope too many. Raises ValidationError."""
        scopes.check_room(tenant)


class Scopes(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Scopes that clients can ask for besides those of the hub. A deleted one grants nothing from then on."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = TenantScope.objects.select_related("tenant")
    serializer_class = ScopeRow
    query_class = TenantQuery
    plural, singular = "scopes", "scope"
