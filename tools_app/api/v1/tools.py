"""Tools, and the revisions of their definitions."""

from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.api.v1.etags import check_unchanged, tagged
from tools_app.api.v1.fields import Choice, JsonObject, JsonObjects, Whole
from tools_app.api.v1.offers import Faults, OfferRow, OfferView
from tools_app.api.v1.problems import Conflict
from tools_app.api.v1.rows import PersonField, Row, Strict, TenantField
from tools_app.api.v1.scoped import OfferQuery
from tools_app.audit.changes import in_turn
from tools_app.execution import authoring, revisions
from tools_app.execution.checks.offers import tool_faults
from tools_app.models import Tool, ToolKind, ToolRevision

CONFIG = (
    'Of a Python function: `{"function": NAME}`. Of an HTTP request: `method`, `base_url`, `path`, `query`, `headers`,'
    " `body_mode` (none, arguments, template), `body`, `max_response_bytes`, `follow_redirects`; `{name}` stands for an"
    " argument, `{secret:NAME}` for a secret."
)
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
    """A tool as its tenant offers it now. The code of a Python function declares what is said of it."""

    tenant = TenantField()
    input_schema = JsonObject(required=False, help_text="JSON Schema of the arguments.")
    output_schema = JsonObject(required=False, allow_null=True, help_text="JSON Schema of the structured result.")
    icons = JsonObjects(required=False, help_text="Objects of src, mimeType and sizes.")
    config = JsonObject(required=False, help_text=CONFIG)

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
            "revision",
            "created_at",
            "updated_at",
        )
        fixed = ("tenant", "kind")

    def adopt(self, row: Tool) -> None:
        """Copy what the code declares."""
        authoring.adopt_code(row)

    def faults(self, row: Tool) -> Faults:
        """What is wrong with an HTTP tool."""
        return tool_faults(row)


class RevisionRow(Row):
    """One version of a tool's definition."""

    created_by = PersonField(allow_null=True)

    class Meta:
        model = ToolRevision
        fields = ("number", "definition", "created_at", "created_by")
        read_only_fields = fields


class Restoring(Strict):
    """Which revision comes back."""

    revision = Whole(min_value=1, help_text="Its number.")


class ToolsQuery(OfferQuery):
    """By tenant, name, kind, and whether it is switched on."""

    searched = ("name", "title", "description")

    kind = Choice(ToolKind.choices, required=False, help_text="How it runs.")


class Tools(OfferView):
    """The tools of tenants: Python functions of installed apps, and HTTP requests that an admin describes."""

    queryset = Tool.objects.select_related("tenant")
    serializer_class = ToolRow
    query_class = ToolsQuery

    def save(self, row: Tool) -> Tool:
        """Write the tool, with a new revision if its definition changed."""
        return authoring.save_tool(row, by=self._person)

    @property
    def _person(self) -> User | None:
        person = self.request.user
        return person if isinstance(person, User) else None

    @extend_schema(
        operation_id="tools_revisions_list",
        summary="List a tool's revisions",
        responses=RevisionRow(many=True),
        filters=False,
    )
    @action(detail=True, serializer_class=RevisionRow, pagination_class=None)
    def revisions(self, request: Request, pk: str) -> Response:
        """The definitions that the tool has had, newest first; at most 1000."""
        rows = self.get_object().revisions.select_related("created_by").order_by("-number")[:1000]
        return Response(RevisionRow(rows, many=True).data)

    @extend_schema(
        operation_id="tools_restore", summary="Restore a revision", request=Restoring, responses={200: ToolRow}
    )
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Define the tool as it was in an earlier revision, which makes a new one. What is not its definition stays."""
        wanted = Restoring(data=request.data)
        wanted.is_valid(raise_exception=True)
        with in_turn():
            tool = self.get_object()
            check_unchanged(request, tool)
            revision = tool.revisions.filter(number=wanted.validated_data["revision"]).first()
            if revision is None:
                raise serializers.ValidationError({"revision": ["This tool has no such revision."]})
            try:
                restored = revisions.restore(tool, revision, self._person)
            except revisions.NotPossible as problem:
                raise Conflict(str(problem)) from problem
        return tagged(Response(self.get_serializer(restored).data), restored)
