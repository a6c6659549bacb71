"""Calls that have not ended."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.calls import FACTS, NOT_FOR_OPERATORS, Facts
from tools_app.api.v1.entrance import Member
from tools_app.api.v1.fields import Choice, Id, Text
from tools_app.api.v1.scoped import Listed, Retrieved, Runs, ScopedView, TenantQuery
from tools_app.execution import interventions
from tools_app.models import CallStatus, RunningCall


class RunningCallRow(Facts):
    """A call that has not ended."""

    arguments = serializers.SerializerMethodField(
        help_text=f"JSON text, redacted, and cut off where it is long. {NOT_FOR_OPERATORS}"
    )

    class Meta:
        model = RunningCall
        fields = (*FACTS, "status", "background", "timeout_seconds", "cancel_requested", "run_at", "owner", "arguments")
        read_only_fields = fields

    def get_arguments(self, call: RunningCall) -> str | None:
        """What was sent."""
        return call.arguments if self.audits(call) else None


class RunningQuery(TenantQuery):
    """By tenant, status, tool and key."""

    status = Choice(CallStatus.choices, required=False, help_text="Where it stands.")
    tool = Text(required=False, max_length=500, help_text="The name of its tool.")
    key = Id(required=False, help_text="The id of an API key.")

    def found(self, rows: QuerySet[RunningCall], chosen: Mapping[str, Any]) -> QuerySet[RunningCall]:
        """Those of `rows` that the parameters `chosen` ask for."""
        rows = super().found(rows, chosen)
        columns = {"status": "status", "tool": "tool_name", "key": "api_key_id"}
        return rows.filter(**{columns[name]: value for name, value in chosen.items() if name in columns})


class RunningCalls(Listed, Retrieved, ScopedView):
    """Calls that have not ended. A tenant's admin may cancel them."""

    permission_classes = (Member, Runs)
    queryset = RunningCall.objects.select_related("tenant").defer("sealed_arguments")
    serializer_class = RunningCallRow
    query_class = RunningQuery
    plural, singular = "running calls", "running call"

    @extend_schema(
        operation_id="running_calls_cancel",
        summary="Cancel running call",
        request=None,
        responses={202: RunningCallRow},
    )
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Ask whoever runs the call to stop; one that does not is ended within seconds."""
        call = self.get_object()
        interventions.cancel(call)
        call.cancel_requested = True
        return Response(self.get_serializer(call).data, status=202)
