"""Exports of the audit log: what a search of calls finds as one file."""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request

from tools_app.api.v1.fields import Choice, Flag, Text
from tools_app.api.v1.paging import ListQuery
from tools_app.api.v1.rows import Row
from tools_app.api.v1.scoped import ID, ApiView, Created, Listed, Retrieved
from tools_app.audit.exporting.answering import file_answer
from tools_app.audit.exporting.starting import start
from tools_app.audit.search.query import PARAMETERS, BadQuery, CallQuery
from tools_app.models import Export, ExportFormat, ExportState

LONGEST = 4000


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
    """An export and how far its download is."""

    query = Text(
        required=False,
        default="",
        allow_blank=True,
        max_length=LONGEST,
        help_text="The parameters of `GET /calls/`, as a query string. Empty: all calls that you see.",
    )
    format = Choice(ExportFormat.choices)
    with_payloads = Flag(
        required=False, default=False, help_text="Arguments and results, too, where you may read them."
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
        """The query string. Raises ValidationError for one that makes no sense, or has an unknown parameter."""
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
    """By state."""

    state = Choice(ExportState.choices, required=False, help_text="How far it is.")

    def found(self, rows: QuerySet[Export], chosen: Mapping[str, Any]) -> QuerySet[Export]:
        """Those of `rows` that the parameters `chosen` ask for."""
        return rows.filter(state=chosen["state"]) if "state" in chosen else rows


class Exports(Listed, Retrieved, Created, ApiView):
    """The caller's own exports of calls. What is in the file is decided when it is downloaded."""

    queryset = Export.objects.all()
    serializer_class = ExportRow
    query_class = ExportsQuery
    lookup_value_regex = ID

    def get_queryset(self) -> QuerySet[Export]:
        """The person's own."""
        rows: QuerySet[Export] = super().get_queryset()
        return rows.filter(person=self.request.user.pk)

    def add(self, wanted: serializers.BaseSerializer) -> Export:
        """Begin the export. Raises ValidationError where the person may not search for the text."""
        said = wanted.validated_data
        query = CallQuery.from_params(QueryDict(said["query"]))
        person = cast("User", self.request.user)
        try:
            return start(query, person, ExportFormat(said["format"]), with_payloads=said["with_payloads"])
        except BadQuery as problem:
            raise serializers.ValidationError({"query": [str(problem)]}) from problem

    @extend_schema(
        operation_id="exports_download",
        summary="Download export",
        responses={(200, "application/jsonl"): OpenApiTypes.STR, (200, "text/csv"): OpenApiTypes.STR},
    )
    @action(detail=True)
    def download(self, request: Request, pk: str) -> StreamingHttpResponse:
        """The file, as it is made: JSON lines or CSV. It may be had again; the export tells meanwhile how far it is."""
        plain: HttpRequest = request._request  # noqa: SLF001 - whether the server is asynchronous
        return file_answer(plain, self.get_object())
