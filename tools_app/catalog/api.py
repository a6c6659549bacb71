"""The REST API of tools with their revisions, resources, prompts, toolsets and secrets."""

from typing import Any

from django.db import IntegrityError
from django.db.models import QuerySet, RestrictedError
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.catalog import authoring, revisions, toolsets
from tools_app.catalog.kinds import registry
from tools_app.catalog.serializers import (
    ListedResourceRow,
    PromptRow,
    ResourceRow,
    Restoring,
    RevisionRow,
    SecretRow,
    ToolRow,
    ToolsetRow,
)
from tools_app.core.relations import OctetLength, first_within
from tools_app.models import Prompt, PromptKind, Resource, ResourceKind, Secret, Tool, Toolset
from tools_app.web.admin.scoping import writer
from tools_app.web.api.fields import MAX_INTEGER, Choice, WholeParameter
from tools_app.web.api.paging import LIMIT, MAX_PAGE_BYTES, MOST, ROWS, Query, within_page_bytes
from tools_app.web.api.problems import Conflict
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import (
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    OfferQuery,
    Retrieved,
    ScopedView,
    SearchQuery,
    Updated,
    check_unchanged,
    tagged,
)


class CatalogView(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Rows that a tenant offers to its clients."""

    permission_classes = (HasMembership, IsTenantAdmin)

    def remove(self, row: Any) -> None:
        """Delete the row. Recorded calls stay."""
        authoring.delete(row)


class RevisionsQuery(Query):
    """Parameters of a list of revisions."""

    limit = WholeParameter(required=False, default=LIMIT, min_value=1, max_value=MOST, help_text=ROWS)
    before = WholeParameter(required=False, min_value=1, max_value=MAX_INTEGER, help_text="Before this number.")


class ToolsQuery(OfferQuery):
    """Filter by tenant, name, kind, and whether the tool is enabled."""

    searched = ("name", "title", "description")

    kind = Choice(registry.CHOICES, required=False, help_text="Kind of tool.")


class Tools(CatalogView):
    """The tools of tenants: Python functions, HTTP requests that an admin describes, and operations of API sources."""

    queryset = Tool.objects.select_related("tenant")
    serializer_class = ToolRow
    query_class = ToolsQuery

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
                restored = revisions.restore(tool, revision, writer(request))
            except revisions.RevisionError as error:
                raise Conflict(str(error)) from error
        return tagged(Response(self.get_serializer(restored).data), restored)


class ResourcesQuery(OfferQuery):
    """Filter by tenant, name, kind, and whether the resource is enabled."""

    searched = ("uri", "name", "title", "description")

    kind = Choice(ResourceKind.choices, required=False, help_text="Source of the contents.")


class Resources(CatalogView):
    """The resources of tenants: texts, files, HTTP requests and Python functions that clients read by a URI."""

    queryset = Resource.objects.select_related("tenant")
    serializer_class = ResourceRow
    query_class = ResourcesQuery

    def get_serializer_class(self) -> type[ResourceRow]:
        """Use the serializer with the text for a single resource."""
        return ListedResourceRow if self.action == "list" else ResourceRow

    def get_queryset(self) -> QuerySet[Resource]:
        """Leave out the text in lists: it may be long."""
        rows: QuerySet[Resource] = super().get_queryset()
        if self.action != "list":
            return rows
        return rows.defer("text", "blob").annotate(stored_bytes=OctetLength("text") + OctetLength("blob"))


class PromptsQuery(OfferQuery):
    """Filter by tenant, name, kind, and whether the prompt is enabled."""

    searched = ("name", "title", "description")

    kind = Choice(PromptKind.choices, required=False, help_text="Source of the messages.")


class Prompts(CatalogView):
    """The prompts of tenants: messages with placeholders, and Python functions."""

    queryset = Prompt.objects.select_related("tenant")
    serializer_class = PromptRow
    query_class = PromptsQuery


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
        if error := toolsets.why_not_deleted(row):
            raise Conflict(error)
        super().remove(row)


class Secrets(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Values that HTTP tools insert into their requests as `{secret:NAME}`. Encrypted, and never returned."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Secret.objects.select_related("tenant").defer("ciphertext")
    serializer_class = SecretRow
    query_class = SearchQuery

    def remove(self, row: Secret) -> None:
        """Delete the secret."""
        authoring.delete_secret(row)
