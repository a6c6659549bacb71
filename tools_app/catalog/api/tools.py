"""Tools and the revisions of their definitions."""

from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.catalog import authoring, revisions
from tools_app.catalog.api.catalog_items import Faults, OfferRow, OfferView
from tools_app.catalog.kinds import base as kinds
from tools_app.catalog.kinds import registry
from tools_app.catalog.validation.items import tool_faults
from tools_app.core.relations import first_within
from tools_app.core.validators import validate_aliases
from tools_app.models import Tool, ToolRevision
from tools_app.web.api.fields import MAX_INTEGER, Choice, JsonObject, JsonObjects, Texts, Whole, WholeParameter
from tools_app.web.api.paging import LIMIT, MAX_PAGE_BYTES, MOST, ROWS, Query, within_page_bytes
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import PersonField, Row, Strict, TenantField
from tools_app.web.api.viewsets import OfferQuery, check_unchanged, tagged

CONFIG = " ".join(kind.config_help for kind in kinds.all_kinds().values() if kind.config_help)
HTTP_TOOL = OpenApiExample(
    "An HTTP request",
    request_only=True,
    value={
        "tenant": "demo",
        "name": "find_book",
        "kind": "http",
        "description": "Find a book by its title.",
        "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
        "config": {
            "method": "GET",
            "base_url": "https://books.example.com/v1",
            "path": "search",
            "query": {"q": "{title}"},
            "headers": {"Authorization": "Bearer {secret:BOOKS}"},
        },
    },
)
PYTHON_TOOL = OpenApiExample(
    "A Python function", request_only=True, value={"tenant": "demo", "name": "echo", "kind": "python"}
)


@extend_schema_serializer(examples=[HTTP_TOOL, PYTHON_TOOL])
class ToolRow(OfferRow):
    """A tool as its tenant offers it now. For a Python function, the code declares its description and schemas."""

    tenant = TenantField()
    input_schema = JsonObject(required=False, help_text="JSON Schema of the arguments.")
    output_schema = JsonObject(required=False, allow_null=True, help_text="JSON Schema of the structured result.")
    icons = JsonObjects(required=False, help_text="Objects with src, mimeType and sizes.")
    config = JsonObject(required=False, help_text=CONFIG)
    aliases = Texts(
        required=False, validators=[validate_aliases], help_text="Other words by which find_tools finds the tool."
    )

    class Meta:
        model = Tool
        fields = (
            "id",
            "tenant",
            "name",
            "kind",
            "enabled",
            "title",
            "description",
            "input_schema",
            "output_schema",
            "annotations",
            "icons",
            "config",
            "background",
            "task",
            "timeout_seconds",
            "calls_per_second",
            "calls_per_minute",
            "calls_per_day",
            "calls_in_flight",
            "aliases",
            "pinned",
            "result_mask",
            "result_items",
            "result_bytes",
            "revision",
            "created_at",
            "updated_at",
        )
        fixed = ("tenant", "kind")

    def row_faults(self, row: Tool, given: dict[str, Any]) -> Faults:
        """Return the problems of a tool and of the request, as its kind has them."""
        return kinds.kind_of(row.kind).request_faults(row, given, self.instance) or tool_faults(row)


class RevisionRow(Row):
    """One version of a tool's definition."""

    created_by = PersonField(allow_null=True)

    class Meta:
        model = ToolRevision
        fields = ("number", "definition", "created_at", "created_by")
        read_only_fields = fields


class Restoring(Strict):
    """The revision to restore."""

    revision = Whole(min_value=1, help_text="Number of the revision.")


class RevisionsQuery(Query):
    """Parameters of a list of revisions."""

    limit = WholeParameter(required=False, default=LIMIT, min_value=1, max_value=MOST, help_text=ROWS)
    before = WholeParameter(required=False, min_value=1, max_value=MAX_INTEGER, help_text="Before this number.")


class ToolsQuery(OfferQuery):
    """Filter by tenant, name, kind, and whether the tool is enabled."""

    searched = ("name", "title", "description")

    kind = Choice(registry.CHOICES, required=False, help_text="Kind of tool.")


class Tools(OfferView):
    """The tools of tenants: Python functions, HTTP requests that an admin describes, and operations of API sources."""

    queryset = Tool.objects.select_related("tenant")
    serializer_class = ToolRow
    query_class = ToolsQuery

    def save(self, row: Tool) -> Tool:
        """Save the tool, with a new revision if its definition changed."""
        return authoring.save_tool(row, by=self._person)

    @property
    def _person(self) -> User | None:
        person = self.request.user
        return person if isinstance(person, User) else None

    @extend_schema(
        operation_id="tools_revisions_list",
        summary="List a tool's revisions",
        parameters=[RevisionsQuery],
        responses=RevisionRow(many=True),
        filters=False,
    )
    @action(detail=True, serializer_class=RevisionRow, pagination_class=None)
    def revisions(self, request: Request, pk: str) -> Response:
        """List the tool's definitions, newest first. `before`: only those before the last one that you have.

        A page ends earlier if its definitions are large; the last page is empty.
        """
        query = RevisionsQuery.validated(request)
        rows = self.get_object().revisions.select_related("created_by").order_by("-number")
        if "before" in query:
            rows = rows.filter(number__lt=query["before"])
        found, _ = first_within(rows, query["limit"], MAX_PAGE_BYTES)
        serializer = RevisionRow()
        return Response(within_page_bytes(serializer.to_representation(row) for row in found))

    @extend_schema(
        operation_id="tools_restore", summary="Restore a revision", request=Restoring, responses={200: ToolRow}
    )
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Restore an earlier definition of the tool as a new revision. Other settings do not change."""
        wanted = Restoring(data=request.data)
        wanted.is_valid(raise_exception=True)
        with change_log_transaction():
            tool = self.get_object()
            check_unchanged(request, tool)
            revision = tool.revisions.filter(number=wanted.validated_data["revision"]).first()
            if revision is None:
                raise serializers.ValidationError({"revision": ["Revision not found."]})
            try:
                restored = revisions.restore(tool, revision, self._person)
            except revisions.RevisionError as problem:
                raise Conflict(str(problem)) from problem
        return tagged(Response(self.get_serializer(restored).data), restored)
