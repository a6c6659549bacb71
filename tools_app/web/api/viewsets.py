"""Base views of tenant-owned rows, which only admins of the tenant may change.

A row of another tenant is answered like one that does not exist (404); a person who may read a row without being an
admin of its tenant may not change it (403). `tenants.permissions` decides, as in the admin.

ETags of rows with a time of change, and `If-Match`, prevent lost updates. Without `If-Match`, the last change wins.
"""

import hashlib
from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from django.utils.http import parse_etags
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.models import Connection
from tools_app.tenants import permissions
from tools_app.tenants.keys import SETTINGS
from tools_app.tenants.models import MAX_SLUG_LENGTH
from tools_app.web.api.fields import UUID_TEXT, FlagParameter, Text
from tools_app.web.api.paging import InSchema, ListQuery, next_address, page_of, within_page_bytes
from tools_app.web.api.problems import ChangedMeanwhile
from tools_app.web.api.views import BaseApiView

LENGTH = 16


def etag_of(row: Any) -> str | None:
    """Return the row's entity tag; None if the row has no time of change. A connection is what its key permits."""
    if isinstance(row, Connection):
        state = "|".join(str(getattr(row.key, name)) for name in (*SETTINGS, "expires_at", "revoked_at"))
    elif (changed_at := getattr(row, "updated_at", None)) is not None:
        state = changed_at.isoformat()
    else:
        return None
    return f'"{hashlib.sha256(f"{row.pk}|{state}".encode()).hexdigest()[:LENGTH]}"'


def tagged(response: Response, row: Any) -> Response:
    """Return the response with the row's ETag."""
    if tag := etag_of(row):
        response["ETag"] = tag
    return response


def check_unchanged(request: Request, row: Any) -> None:
    """Raise ChangedMeanwhile if `If-Match` names another state of the row."""
    header = request.headers.get("If-Match")
    if header is None:
        return
    tags = parse_etags(header)
    if "*" not in tags and etag_of(row) not in tags:
        raise ChangedMeanwhile


WRITING = frozenset({"update", "partial_update", "destroy"})


class IsTenantAdmin(BasePermission):
    """Changes are for admins of the row's tenant, and superusers."""

    message = "Only admins of this tenant can change this."

    def has_permission(self, request: Request, view: "ApiView") -> bool:
        """Whether this person may change any tenant."""
        return request.method in SAFE_METHODS or view.tenant_permissions.is_admin_anywhere

    def has_object_permission(self, request: Request, view: "ScopedView", obj: Any) -> bool:
        """Whether this person may change the row's tenant."""
        return request.method in SAFE_METHODS or view.tenant_permissions.changes(view.tenant_id_of(obj))


class Superuser(BasePermission):
    """Changes are for superusers only."""

    message = "Only superusers can do this."

    def has_permission(self, request: Request, view: "ApiView") -> bool:
        """Whether this person is a superuser, or the request changes nothing."""
        return request.method in SAFE_METHODS or view.tenant_permissions.is_superuser


class ApiView(BaseApiView, GenericViewSet):
    """The base of views of rows."""

    filter_backends = ()
    pagination_class = InSchema


class TenantQuery(ListQuery):
    """Filter by tenant."""

    tenant: serializers.Field | None = Text(
        source="tenant__slug", required=False, max_length=MAX_SLUG_LENGTH, help_text="Slug of a tenant."
    )


class SearchQuery(TenantQuery):
    """Filter by tenant, and by a text in one of the `searched` fields."""

    searched: ClassVar[tuple[str, ...]] = ("name",)

    search = Text(required=False, max_length=200, help_text="Part of the name, case-insensitive.")

    def filter_queryset(self, rows: QuerySet[Any], filters: dict[str, Any]) -> QuerySet[Any]:
        """Return those of `rows` that match the validated parameters."""
        for word in filters.pop("search", "").split():
            rows = rows.filter(Q(*((f"{name}__icontains", word) for name in self.searched), _connector=Q.OR))
        return super().filter_queryset(rows, filters)


class OfferQuery(SearchQuery):
    """Filter also by kind, which each subclass defines, and by whether the row is enabled."""

    enabled = FlagParameter(required=False, help_text="Whether it is enabled.")


class ScopedView(ApiView):
    """Rows that belong to a tenant."""

    tenant_field = "tenant"
    lookup_value_regex = UUID_TEXT
    query_class: type[TenantQuery] = TenantQuery

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that this person may read; locks a row that is about to be changed."""
        rows = permissions.rows_seen_by(self.request.user, super().get_queryset(), self.tenant_field)
        return rows.select_for_update(of=("self",)) if self.action in WRITING else rows

    def tenant_id_of(self, row: Any) -> Any:
        """Return the id of the tenant to which `row` belongs."""
        return row.tenant_id


class ListMixin:
    """`GET` of a list."""

    def list(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """List rows, newest first."""
        filters = self.query_class.validated(request)
        limit, cursor = filters.pop("limit"), filters.pop("cursor", None)
        rows, cursor = page_of(self.query_class().filter_queryset(self.get_queryset(), filters), limit, cursor)
        serializer = self.get_serializer()
        results = within_page_bytes(serializer.to_representation(row) for row in rows)
        if len(results) < len(rows):
            cursor = rows[len(results) - 1].pk
        return Response({"next": next_address(request, cursor), "results": results})


class Retrieved:
    """`GET` of one row."""

    def retrieve(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """Retrieve one row."""
        row = self.get_object()
        return tagged(Response(self.get_serializer(row).data), row)


class Created:
    """`POST` to a list. `add` creates the row."""

    def create(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """Create a row."""
        with change_log_transaction():
            serializer = self.get_serializer(data=request.data)
            serializer.is_valid(raise_exception=True)
            row = self.add(serializer)
        self.added(row)
        return tagged(Response(self.get_serializer(row).data, status=201), row)

    def added(self, row: Any) -> None:
        """Called after the transaction, once the row is created."""

    def add(self, serializer: serializers.BaseSerializer) -> Any:
        """Save and return the new row."""
        return serializer.save()


class Updated:
    """`PUT` and `PATCH` of one row. `change` writes it."""

    def update(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """Replace a row."""
        return self.changed(request, partial=False)

    def partial_update(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """Update some fields of a row."""
        return self.changed(request, partial=True)

    @change_log_transaction()
    def changed(self: Any, request: Request, *, partial: bool) -> Response:
        """Update a row. Raises ChangedMeanwhile if it is not the state that the client has read."""
        row = self.get_object()
        serializer = self.get_serializer(row, data=request.data, partial=partial)
        serializer.is_valid(raise_exception=True)
        check_unchanged(request, row)
        row = self.change(serializer)
        return tagged(Response(self.get_serializer(row).data), row)

    def change(self, serializer: serializers.BaseSerializer) -> Any:
        """Save the changed fields, and return the row."""
        return serializer.save()


class Deleted:
    """`DELETE` of one row. `remove` deletes it."""

    @extend_schema(responses={204: None})
    @change_log_transaction()
    def destroy(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """Delete a row."""
        row = self.get_object()
        check_unchanged(request, row)
        self.remove(row)
        return Response(status=204)

    def remove(self, row: Any) -> None:
        """Delete the row."""
        row.delete()
