"""Toolsets: sets of tools that a tenant names for its keys."""

from typing import Any

from django.db import IntegrityError
from django.db.models import QuerySet, RestrictedError
from drf_spectacular.utils import OpenApiExample, extend_schema_serializer
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.catalog import toolsets
from tools_app.core.validators import ONE_LINE, validate_patterns
from tools_app.models import Tenant, Toolset
from tools_app.web.api.fields import Text, Texts
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import NamedRow, TenantField
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


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "A toolset", request_only=True, value={"tenant": "demo", "name": "Reading", "tools": ["search_*", "echo"]}
        )
    ]
)
class ToolsetRow(NamedRow):
    """A toolset. A key with it uses, of the tools that the key permits, only those that match."""

    tenant = TenantField()
    name = Text(max_length=80, validators=[ONE_LINE], help_text="By which keys refer to it.")
    tools = Texts(
        validators=[validate_patterns], help_text="Names of tools, and patterns such as report_*. At least one."
    )

    class Meta:
        model = Toolset
        fields = ("id", "tenant", "name", "description", "tools", "created_at")
        fixed = ("tenant",)
        named, kind, checked = "name", "toolset with", "tools"

    def check(self, row: Toolset) -> None:
        """Reject an empty set. Raises ValidationError."""
        toolsets.check_tools(row.tools)

    def check_room(self, tenant: Tenant) -> None:
        """Reject one set too many. Raises ValidationError."""
        toolsets.check_room(tenant)


class ToolsetsQuery(SearchQuery):
    """Filter by tenant and name."""

    searched = ("name", "description")


class Toolsets(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Sets of tools for keys, connections and service clients. One that is used cannot be deleted."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset: QuerySet[Toolset] = Toolset.objects.select_related("tenant")
    serializer_class = ToolsetRow
    query_class = ToolsetsQuery
    plural, singular = "toolsets", "toolset"

    def destroy(self, request: Request, *args: Any, **options: Any) -> Response:
        """Delete a toolset. Raises Conflict if a key uses it, also one that got it meanwhile."""
        try:
            return super().destroy(request, *args, **options)
        except (RestrictedError, IntegrityError):
            raise Conflict(toolsets.STILL_USED) from None

    def remove(self, row: Toolset) -> None:
        """Delete a toolset. Raises Conflict if a key uses it."""
        if problem := toolsets.why_not_deleted(row):
            raise Conflict(problem)
        super().remove(row)
