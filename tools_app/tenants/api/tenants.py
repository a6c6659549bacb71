"""Tenants: created by superusers, configured by their admins."""

from typing import Any

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied

from tools_app.core.validators import validate_key_names, validate_names, validate_networks
from tools_app.models import Tenant
from tools_app.tenants.models import MAX_SLUG_LENGTH, TENANT_SLUG
from tools_app.tenants.permissions import SUPERUSERS_ONLY
from tools_app.web.api.fields import FlagParameter, Text, Texts
from tools_app.web.api.paging import ListQuery
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Row
from tools_app.web.api.viewsets import (
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    Retrieved,
    ScopedView,
    Superuser,
    Updated,
)


class TenantRow(Row):
    """A tenant and its settings."""

    slug = Text(
        max_length=MAX_SLUG_LENGTH,
        validators=[TENANT_SLUG],
        help_text="Part of the tenant's URL, /t/SLUG/mcp. It cannot be changed.",
    )
    allowed_networks = Texts(
        required=False, validators=[validate_networks], help_text="Private networks (CIDR) that HTTP tools can call."
    )
    redacted_keys = Texts(
        required=False,
        validators=[validate_key_names],
        help_text="Additional key names whose values the audit log redacts.",
    )
    public_tools = Texts(
        required=False,
        validators=[validate_names],
        help_text="Names that anonymous callers can use, e.g. tool=echo or search_*.",
    )
    endpoint = serializers.SerializerMethodField(help_text="URL for clients.")

    class Meta:
        model = Tenant
        fields = (
            "slug",
            "name",
            "endpoint",
            "is_active",
            "allow_query_key",
            "allowed_networks",
            "redacted_keys",
            "requires_second_factor",
            "keep_days",
            "calls_per_second",
            "calls_per_minute",
            "calls_per_day",
            "requests_per_second",
            "requests_per_day",
            "open_streams",
            "calls_in_flight",
            "most_sessions",
            "is_public",
            "public_tools",
            "public_calls_per_minute",
            "presentation",
            "search_above_tokens",
            "created_at",
        )
        fixed = ("slug",)

    @extend_schema_field({"type": "string", "format": "uri"})
    def get_endpoint(self, tenant: Tenant) -> str:
        """Return the URL."""
        return str(self.context["request"].build_absolute_uri(f"/t/{tenant.slug}/mcp"))

    def validate_slug(self, slug: str) -> str:
        """Return the slug. Raises Conflict if another tenant has it."""
        if self.instance is None and Tenant.objects.filter(slug=slug).exists():
            raise Conflict({"slug": ["This slug is already used by another tenant."]})
        return slug

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reserve superuser-only fields for superusers. Raises PermissionDenied."""
        attrs = super().validate(attrs)
        if self.instance is not None and not self.tenant_permissions.everything:
            taken = [name for name in SUPERUSERS_ONLY if name in attrs and attrs[name] != getattr(self.instance, name)]
            if taken:
                raise PermissionDenied(f"Only superusers can change {', '.join(taken)}.")
        return attrs


class TenantsQuery(ListQuery):
    """Filter by name, and by whether the tenant is active."""

    search = Text(required=False, max_length=200, help_text="Part of the name or slug.")
    is_active = FlagParameter(required=False, help_text="Whether it is active.")

    def filter_queryset(self, rows: QuerySet[Tenant], filters: dict[str, Any]) -> QuerySet[Tenant]:
        """Return those of `rows` that match the validated parameters."""
        if text := filters.pop("search", None):
            rows = rows.filter(Q(name__icontains=text) | Q(slug__icontains=text))
        return super().filter_queryset(rows, filters)


class Tenants(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Tenants. Superusers add and delete them; a tenant's admins change its settings."""

    queryset = Tenant.objects.all()
    serializer_class = TenantRow
    query_class = TenantsQuery
    tenant_field = "pk"
    lookup_field = "slug"
    lookup_value_regex = "[a-z0-9-]{1,63}"

    def tenant_id_of(self, row: Any) -> Any:
        """Return the tenant's own id."""
        return row.pk

    def get_permissions(self) -> list[Any]:
        """Require a superuser for adding and deleting."""
        permission = Superuser if self.action in {"create", "destroy"} else IsTenantAdmin
        return [*super().get_permissions(), permission()]
