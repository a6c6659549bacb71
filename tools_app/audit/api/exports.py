"""Exports of the audit log: the results of a search of calls as one file."""

from typing import cast
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request

from tools_app.audit.export import file_response, start_export
from tools_app.audit.search.query import PARAMETERS, BadQuery, CallQuery
from tools_app.models import Export, ExportFormat, ExportState
from tools_app.web.api.fields import UUID_TEXT, Choice, Flag, Text
from tools_app.web.api.paging import ListQuery
from tools_app.web.api.serializers import Row
from tools_app.web.api.viewsets import ApiView, Created, ListMixin, Retrieved

MAX_QUERY = 4000


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "Yesterday's errors",
            request_only=True,
            value={"format": "jsonl", "query": "tenant=demo&outcome=tool_error,timeout&period=24h"},
        )
    ]
)
class ExportRow(Row):
    """An export and the progress of its download."""

    query = Text(
        required=False,
        default="",
        allow_blank=True,
        max_length=MAX_QUERY,
        help_text="Parameters of `GET /calls/` as a query string. Empty: all calls that you can see.",
    )
    format = Choice(ExportFormat.choices)
    with_payloads = Flag(
        required=False, default=False, help_text="Include arguments and results where you can read them."
    )

    class Meta:
        model = Export
        fields = (
            "id",
            "query",
            "format",
            "with_payloads",
            "state",
            "expected",
            "calls",
            "bytes",
            "created_at",
            "finished_at",
            "problem",
        )
        read_only_fields = ("state", "expected", "calls", "bytes", "finished_at", "problem")

    def validate_query(self, query: str) -> str:
        """Return the query string. Raises ValidationError for an invalid one or an unknown parameter."""
        params = QueryDict(query)
        unknown = sorted(set(params) - set(PARAMETERS))
        if unknown:
            raise serializers.ValidationError(f"There is no parameter {unknown[0]}. There are {', '.join(PARAMETERS)}.")
        try:
            CallQuery.from_params(params)
        except BadQuery as problem:
            raise serializers.ValidationError(f"{problem}") from problem
        return urlencode([(name, value) for name, values in params.lists() for value in values])


class ExportsQuery(ListQuery):
    """Filter by state."""

    state = Choice(ExportState.choices, required=False, help_text="State of the export.")


class Exports(ListMixin, Retrieved, Created, ApiView):
    """The caller's own exports of calls. The file's contents are determined when it is downloaded."""

    queryset = Export.objects.all()
    serializer_class = ExportRow
    query_class = ExportsQuery
    lookup_value_regex = UUID_TEXT

    def get_queryset(self) -> QuerySet[Export]:
        """Return the person's own exports."""
        rows: QuerySet[Export] = super().get_queryset()
        return rows.filter(person=self.request.user.pk)

    def add(self, wanted: serializers.BaseSerializer) -> Export:
        """Create the export. Raises ValidationError if the person may not search for the text."""
        values = wanted.validated_data
        query = CallQuery.from_params(QueryDict(values["query"]))
        person = cast("User", self.request.user)
        try:
            return start_export(query, person, ExportFormat(values["format"]), with_payloads=values["with_payloads"])
        except BadQuery as problem:
            raise serializers.ValidationError({"query": [str(problem)]}) from problem

    @extend_schema(
        operation_id="exports_download",
        summary="Download export",
        responses={(200, "application/jsonl"): OpenApiTypes.STR, (200, "text/csv"): OpenApiTypes.STR},
    )
    @action(detail=True)
    def download(self, request: Request, pk: str) -> StreamingHttpResponse:
        """Download the file as it is generated: JSON lines or CSV. Repeatable; the export reports the progress."""
        plain: HttpRequest = request._request  # noqa: SLF001 - whether the server is asynchronous
        return file_response(plain, self.get_object())
