"""API sources: OpenAPI documents, the difference that they make, and the import of their operations."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.catalog.kinds.openapi.documents.reader import UnreadableDocument
from tools_app.catalog.kinds.openapi.serializers import (
    ApiSourceRow,
    AppliedRow,
    Applying,
    DocumentRow,
    OperationsRow,
    Refreshing,
)
from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.catalog.kinds.openapi.sources.documents import save_source
from tools_app.catalog.kinds.openapi.sources.plan import (
    ApplyError,
    Entry,
    OperationChange,
    OperationFilter,
    Plan,
    apply,
    not_offered,
    plan,
)
from tools_app.models import ApiSource, ApiSourceRevision, RevisionState
from tools_app.web.api.fields import MAX_INTEGER, Choice, Text, WholeParameter
from tools_app.web.api.paging import LIMIT, MOST, ROWS, Query, within_page_bytes
from tools_app.web.api.problems import Conflict
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

NOT_READY = "The document was not read yet, or could not be read. `operations` says which."


class OperationsQuery(Query):
    """Filter the operations, and select a page of them."""

    doing = Choice(
        [(one.value, one.value) for one in OperationChange], required=False, help_text="What the document means for it."
    )
    tag = Text(required=False, max_length=200, help_text="A tag.")
    path = Text(required=False, max_length=200, help_text="The beginning of the path.")
    method = Text(required=False, max_length=20, help_text="The method, in capitals.")
    search = Text(required=False, max_length=200, help_text="Words in the name, path, title or description.")
    limit = WholeParameter(required=False, default=LIMIT, min_value=1, max_value=MOST, help_text=ROWS)
    offset = WholeParameter(required=False, default=0, min_value=0, max_value=MAX_INTEGER, help_text="Skip this many.")


class ApiSources(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """OpenAPI documents whose operations are tools. Deleting a source deletes its tools."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = ApiSource.objects.select_related("tenant")
    serializer_class = ApiSourceRow
    query_class = SearchQuery
    plural, singular = "API sources", "API source"

    def add(self, wanted: serializers.BaseSerializer) -> ApiSource:
        """Save the source, and have a worker read its document."""
        values = dict(wanted.validated_data)
        document = values.pop("document", None)
        source = save_source(ApiSource(**values))
        self._refresh(source, document)
        return source

    def change(self, wanted: serializers.BaseSerializer) -> ApiSource:
        """Save the settings, and have a worker read a new document."""
        source: ApiSource = wanted.instance
        values = dict(wanted.validated_data)
        document, url = values.pop("document", None), source.url
        options = documents.options_of(source)
        for name, value in values.items():
            setattr(source, name, value)
        save_source(source)
        if document is not None or source.url not in {"", url}:
            self._refresh(source, document)
        elif documents.options_of(source) != options:
            documents.read_again(source, self._person)
        return source

    @extend_schema(operation_id="api_sources_refresh", summary="Refresh", request=Refreshing, responses=DocumentRow)
    @action(detail=True, methods=["post"])
    def refresh(self, request: Request, pk: str) -> Response:
        """Have a worker read the document again. `operations` tells when it is done, and what would change."""
        wanted = Refreshing(data=request.data)
        wanted.is_valid(raise_exception=True)
        document = wanted.validated_data.get("document")
        with change_log_transaction():
            source = self.get_object()
            if bool(source.url) == (document is not None):
                problem = "The source has a URL. Remove the document." if source.url else "Send the document."
                raise serializers.ValidationError({"document": [problem]})
            revision = self._refresh(source, document)
        return Response(DocumentRow(revision).data)

    @extend_schema(
        operation_id="api_sources_operations",
        summary="List operations",
        parameters=[OperationsQuery],
        responses=OperationsRow,
        filters=False,
    )
    @action(detail=True, pagination_class=None)
    def operations(self, request: Request, pk: str) -> Response:
        """List the operations of the newest document, and what applying it would change. Nothing is changed."""
        query = OperationsQuery.validated(request)
        revision = self._newest(self.get_object())
        state, problem = documents.state_of(revision)
        if state != RevisionState.READY:
            nothing = {"fingerprint": "", "changes_servers": False, "changes_schemes": False, "count": 0, "tokens": 0}
            nothing |= {"results": [], "skipped": [], "skipped_count": 0, "unselected": 0, "not_offered": []}
            return Response({"state": state, "problem": problem, "revision": revision.number, **nothing})
        return Response(_operations_page(plan(revision.source, revision), query))

    @extend_schema(operation_id="api_sources_apply", summary="Apply", request=Applying, responses={200: AppliedRow})
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str) -> Response:
        """Import operations of the newest document, and bring the tools of the source up to date."""
        wanted = Applying(data=request.data)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        revision = self._newest(self.get_object())
        if documents.state_of(revision)[0] != RevisionState.READY:
            raise Conflict(NOT_READY)
        planned = plan(revision.source, revision)
        if values.get("revision", revision.number) != revision.number or values.get("fingerprint", "") not in {
            "",
            planned.fingerprint,
        }:
            raise Conflict("The source or its tools have changed. List the operations again.")
        keys = values.get("operations", [])
        if keys is not None and (unknown := sorted(set(keys) - {entry.key for entry in planned.entries})):
            raise serializers.ValidationError({"operations": [f"Not in the document: {unknown[0][:200]}."]})
        chosen = {entry.key for entry in planned.of(OperationChange.NEW)} if keys is None else set(keys)
        try:
            done = apply(planned, self._person, wanted=chosen, enabled=chosen if values.get("enable") else frozenset())
        except ApplyError as problem:
            raise Conflict(str(problem)) from problem
        changed = [*done.changed, *done.enabled]
        counts = {"imported": done.imported, "changed": changed, "disabled": done.removed}
        return Response({name: [entry.name for entry in entries] for name, entries in counts.items()})

    @property
    def _person(self) -> User | None:
        person = self.request.user
        return person if isinstance(person, User) else None

    def _refresh(self, source: ApiSource, document: str | None) -> ApiSourceRevision:
        try:
            return documents.add_revision(source, self._person, None if document is None else document.encode())
        except UnreadableDocument as problem:
            raise serializers.ValidationError({"document": [str(problem)]}) from problem

    def _newest(self, source: ApiSource) -> ApiSourceRevision:
        """Return the newest revision. Raises Conflict if there is none."""
        revision = source.revisions.select_related("source__tenant").defer("content").first()
        if revision is None:
            raise Conflict("No document was read yet. Refresh the source.")
        return revision


def _operations_page(planned: Plan, query: Mapping[str, Any]) -> Mapping[str, Any]:
    chosen = OperationFilter(**{name: query.get(name, "") for name in ("tag", "path", "method", "search")})
    found = [
        entry for entry in planned.entries if query.get("doing", entry.doing) == entry.doing and chosen.finds(entry)
    ]
    page = found[query["offset"] : query["offset"] + query["limit"]]
    return {
        "state": RevisionState.READY,
        "problem": "",
        "revision": planned.revision.number,
        "fingerprint": planned.fingerprint,
        "changes_servers": planned.changes_servers,
        "changes_schemes": planned.changes_schemes,
        "count": len(found),
        "tokens": sum(entry.operation.tokens for entry in found if entry.operation),
        "results": within_page_bytes(map(_row, page)),
        "skipped": [{"key": one.key, "pointer": one.pointer, "reason": one.reason} for one in planned.skipped[:MOST]],
        "skipped_count": len(planned.skipped),
        "unselected": planned.unselected,
        "not_offered": [{"name": name, "reason": reason} for name, reason in not_offered(planned.source)[:MOST]],
    }


def _row(entry: Entry) -> Mapping[str, Any]:
    operation = entry.operation
    return {
        "key": entry.key,
        "name": entry.name,
        "doing": entry.doing.value,
        "title": operation.definition["title"] if operation else "",
        "tags": operation.tags if operation else [],
        "tokens": operation.tokens if operation else 0,
        "changes": [{"field": change.name, "overridden": change.is_kept} for change in entry.changes],
        "overridden": list(entry.overridden),
        "notes": operation.notes if operation else [],
    }
