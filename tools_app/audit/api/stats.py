"""Call statistics: the dashboard's numbers."""

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.stats import overview
from tools_app.models import CallFigures
from tools_app.tenants import permissions
from tools_app.tenants.models import MAX_SLUG_LENGTH
from tools_app.web.api.fields import Choice, Id, Text
from tools_app.web.api.paging import Query
from tools_app.web.api.viewsets import ApiView


class FiguresQuery(Query):
    """Filters of the statistics."""

    period = Choice(
        [(period.name, period.title) for period in overview.PERIODS.values()],
        required=False,
        default="24h",
        help_text="Period up to now.",
    )
    tenant = Text(
        required=False, max_length=MAX_SLUG_LENGTH, help_text="Slug of a tenant. Default: all tenants that you can see."
    )
    tool = Text(required=False, max_length=128, help_text="Name of a tool.")
    key = Id(required=False, help_text="ID of an API key.")
    client = Text(required=False, max_length=60, help_text="Full name of a client.")


class StatisticsRow(serializers.Serializer):
    """Statistics of calls."""

    calls = serializers.IntegerField(help_text="Accepted calls.")
    errors = serializers.IntegerField(help_text="Accepted calls that failed.")
    denials = serializers.IntegerField(help_text="Denied requests.")
    mean_us = serializers.FloatField(allow_null=True, help_text="Mean duration in microseconds; null without calls.")
    p50_us = serializers.FloatField(allow_null=True, help_text="Median duration in microseconds.")
    p95_us = serializers.FloatField(allow_null=True, help_text="95th percentile of the duration in microseconds.")


class PointRow(serializers.Serializer):
    """Statistics of the calls that started in one part of the period."""

    begins_at = serializers.DateTimeField()
    statistics = StatisticsRow()


class NamedRow(serializers.Serializer):
    """Statistics of the calls of one tool, key or client."""

    name = serializers.CharField(allow_blank=True, help_text="Empty for calls without a name.")
    statistics = StatisticsRow()


class FiguresRow(serializers.Serializer):
    """Statistics of the calls of a period; `before` is the preceding period of the same length."""

    period = serializers.CharField(source="period.name")
    points = PointRow(many=True)
    total = StatisticsRow()
    before = StatisticsRow()
    tools = NamedRow(many=True, help_text="The most frequent ones.")
    keys = NamedRow(many=True, help_text="By key ID.")
    clients = NamedRow(many=True)


class Figures(ApiView):
    """The dashboard's statistics, updated as calls end: fast for an audit log of any size."""

    queryset = CallFigures.objects.all()
    serializer_class = FiguresRow
    query_class = FiguresQuery

    @extend_schema(
        operation_id="figures_retrieve",
        summary="Call statistics",
        parameters=[FiguresQuery],
        responses={200: FiguresRow, 404: None},
    )
    def retrieve(self, request: Request, *_args: Any, **_options: Any) -> Response:
        """Retrieve calls, errors, denials and durations of a period, over time and by tool, key and client."""
        chosen = self.query_class.validated(request)
        query = overview.OverviewQuery(
            period=overview.PERIODS[chosen["period"]],
            tenants=self._tenants(chosen.get("tenant")),
            tool_name=chosen.get("tool"),
            api_key_id=chosen.get("key"),
            client_name=chosen.get("client"),
        )
        return Response(FiguresRow(overview.overview(query, timezone.now())).data)

    def _tenants(self, slug: str | None) -> list[UUID] | None:
        """Return the ids of the tenants that the person may read, None for all. Raises NotFound."""
        if slug is None:
            return None if self.tenant_permissions.is_superuser else list(self.tenant_permissions.readable)
        tenant = permissions.tenants_seen_by(self.request.user).filter(slug=slug).first()
        if tenant is None:
            raise NotFound("Tenant not found.")
        return [tenant.pk]
