"""How calls went: the dashboard's numbers."""

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.fields import Choice, Id, Text
from tools_app.api.v1.paging import Query
from tools_app.api.v1.scoped import ApiView
from tools_app.audit import overview
from tools_app.auth import access
from tools_app.models import CallFigures


class FiguresQuery(Query):
    """Of which calls."""

    period = Choice(
        [(period.name, period.title) for period in overview.PERIODS.values()],
        required=False,
        default="24h",
        help_text="Up to now.",
    )
    tenant = Text(required=False, max_length=63, help_text="The slug of a tenant. Without: of all that you see.")
    tool = Text(required=False, max_length=128, help_text="The name of a tool.")
    key = Id(required=False, help_text="The id of an API key.")
    client = Text(required=False, max_length=60, help_text="A client's name, in full.")


class WentRow(serializers.Serializer):
    """How some calls went."""

    calls = serializers.IntegerField(help_text="All that were let in.")
    errors = serializers.IntegerField(help_text="Those of them that did not end well.")
    denials = serializers.IntegerField(help_text="Requests that were turned away.")
    mean_us = serializers.FloatField(allow_null=True, help_text="Mean duration in microseconds; null without calls.")
    p50_us = serializers.FloatField(allow_null=True, help_text="Half of the calls took no longer.")
    p95_us = serializers.FloatField(allow_null=True, help_text="95 of 100 calls took no longer.")


class PointRow(serializers.Serializer):
    """What began in one part of the period."""

    begins_at = serializers.DateTimeField()
    went = WentRow()


class NamedRow(serializers.Serializer):
    """What was called by one name, with one key, or by one client."""

    name = serializers.CharField(allow_blank=True, help_text="Empty for all without one.")
    went = WentRow()


class FiguresRow(serializers.Serializer):
    """How the calls of a period went; `before`: of the one of the same length before it."""

    period = serializers.CharField(source="period.name")
    points = PointRow(many=True)
    total = WentRow()
    before = WentRow()
    tools = NamedRow(many=True, help_text="Those that were called most.")
    keys = NamedRow(many=True, help_text="By their ids.")
    clients = NamedRow(many=True)


class Figures(ApiView):
    """The numbers of the dashboard, kept as calls end: quick, whatever the size of the audit log."""

    queryset = CallFigures.objects.all()
    serializer_class = FiguresRow
    query_class = FiguresQuery

    @extend_schema(
        operation_id="figures_retrieve",
        summary="How did calls go?",
        parameters=[FiguresQuery],
        responses={200: FiguresRow, 404: None},
    )
    def retrieve(self, request: Request, *_args: Any, **_options: Any) -> Response:
        """Calls, errors, denials and durations of a period, over time and by tool, key and client."""
        chosen = self.query_class.asked(request)
        asked = overview.Asked(
            period=overview.PERIODS[chosen["period"]],
            tenants=self._tenants(chosen.get("tenant")),
            tool_name=chosen.get("tool"),
            api_key_id=chosen.get("key"),
            client_name=chosen.get("client"),
        )
        return Response(FiguresRow(overview.overview(asked, timezone.now())).data)

    def _tenants(self, slug: str | None) -> list[UUID] | None:
        """Those within reach, None for all. Raises NotFound."""
        if slug is None:
            return None if self.reach.everything else list(self.reach.seen)
        tenant = access.tenants_seen_by(self.request.user).filter(slug=slug).first()
        if tenant is None:
            raise NotFound("There is no tenant of this slug, or none that you may see.")
        return [tenant.pk]
