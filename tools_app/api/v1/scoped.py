"""The base of the API's views: rows of tenants within reach, changed only by those who run the tenant.

A foreign row is answered like one that does not exist (404); who sees a row without running its tenant may not change
it (403). Both are as in the admin: `auth.access` decides.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from tools_app.api.v1.entrance import Entrance
from tools_app.api.v1.etags import check_unchanged, tagged
from tools_app.api.v1.fields import FlagParameter, Text
from tools_app.api.v1.paging import InSchema, ListQuery, next_address, page_of
from tools_app.audit.changes import in_turn
from tools_app.auth import access

SLUG_LENGTH = 63
HOLDING = frozenset({"update", "partial_update", "destroy"})
ID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


class Runs(BasePermission):
    """For what changes anything: admins of the row's tenant, and superusers."""

    message = "Only this tenant's admins change what belongs to it."

    def has_permission(self, request: Request, view: "ApiView") -> bool:
        """Whether there is a tenant that this person may change."""
        return request.method in SAFE_METHODS or view.reach.runs_any

    def has_object_permission(self, request: Request, view: "ScopedView", obj: Any) -> bool:
        """Whether this row's tenant is one of them."""
        return request.method in SAFE_METHODS or view.reach.changes(view.tenant_id_of(obj))


class Superuser(BasePermission):
    """Superusers alone, for what changes anything."""

    message = "Only superusers do this."

    def has_permission(self, request: Request, view: "ApiView") -> bool:
        """Whether this is one."""
        return request.method in SAFE_METHODS or view.reach.everything


class ApiView(Entrance, GenericViewSet):
    """What the views of rows have in common."""

    filter_backends = ()
    pagination_class = InSchema


class TenantQuery(ListQuery):
    """By tenant."""

    tenant = Text(required=False, max_length=SLUG_LENGTH, help_text="The slug of a tenant.")

    def found(self, rows: QuerySet[Any], chosen: Mapping[str, Any]) -> QuerySet[Any]:
        """Those of `rows` that the parameters `chosen` ask for."""
        if "tenant" in chosen:
            rows = rows.filter(tenant__slug=chosen["tenant"])
        return rows


class SearchQuery(TenantQuery):
    """By tenant, and by a text in one of `searched`."""

    searched: ClassVar[tuple[str, ...]] = ("name",)

    search = Text(required=False, max_length=200, help_text="A text that stands in its name, in upper or lower case.")

    def found(self, rows: QuerySet[Any], chosen: Mapping[str, Any]) -> QuerySet[Any]:
        """Those of `rows` that the parameters `chosen` ask for."""
        rows = super().found(rows, chosen)
        for word in chosen.get("search", "").split():
            rows = rows.filter(Q(*((f"{name}__icontains", word) for name in self.searched), _connector=Q.OR))
        return rows


class OfferQuery(SearchQuery):
    """And by its kind, which each sort of offer has its own of, and whether it is switched on."""

    enabled = FlagParameter(required=False, help_text="Whether it is switched on.")

    def found(self, rows: QuerySet[Any], chosen: Mapping[str, Any]) -> QuerySet[Any]:
        """Those of `rows` that the parameters `chosen` ask for."""
        rows = super().found(rows, chosen)
        return rows.filter(**{name: chosen[name] for name in ("enabled", "kind") if name in chosen})


class ScopedView(ApiView):
    """Rows that belong to a tenant."""

    tenant_field = "tenant"
    lookup_value_regex = ID
    query_class: type[TenantQuery] = TenantQuery

    def get_queryset(self) -> QuerySet[Any]:
        """The rows that this person may read; one that is to be changed is held until it is."""
        rows = access.rows_seen_by(self.request.user, super().get_queryset(), self.tenant_field)
        return rows.select_for_update(of=("self",)) if self.action in HOLDING else rows

    def tenant_id_of(self, row: Any) -> Any:
        """The id of the tenant to which `row` belongs."""
        return row.tenant_id


class Listed:
    """`GET` of a list."""

    def list(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """A page of rows, newest first."""
        chosen = self.query_class.asked(request)
        rows, cursor = page_of(
            self.query_class().found(self.get_queryset(), chosen), chosen["limit"], chosen.get("cursor")
        )
        results = self.get_serializer(rows, many=True).data
        return Response({"next": next_address(request, cursor), "results": results})


class Retrieved:
    """`GET` of one row."""

    def retrieve(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """One row."""
        row = self.get_object()
        return tagged(Response(self.get_serializer(row).data), row)


class Created:
    """`POST` to a list. `add` makes the row."""

    def create(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """A new row."""
        with in_turn():
            wanted = self.get_serializer(data=request.data)
            wanted.is_valid(raise_exception=True)
            row = self.add(wanted)
        self.added(row)
        return tagged(Response(self.get_serializer(row).data, status=201), row)

    def added(self, row: Any) -> None:
        """Do what follows when the row is there, and nobody waits any more."""

    def add(self, wanted: serializers.BaseSerializer) -> Any:
        """The new row, saved."""
        return wanted.save()


class Updated:
    """`PUT` and `PATCH` of one row. `change` writes it."""

    def update(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """The row, replaced."""
        return self.changed(request, partial=False)

    def partial_update(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """The row, with some of its fields replaced."""
        return self.changed(request, partial=True)

    @in_turn()
    def changed(self: Any, request: Request, *, partial: bool) -> Response:
        """The row as it was asked for. Raises ChangedMeanwhile if it is not what the client has seen."""
        row = self.get_object()
        wanted = self.get_serializer(row, data=request.data, partial=partial)
        wanted.is_valid(raise_exception=True)
        check_unchanged(request, row)
        row = self.change(wanted)
        return tagged(Response(self.get_serializer(row).data), row)

    def change(self, wanted: serializers.BaseSerializer) -> Any:
        """The row, saved with what is wanted: no more than that is written."""
        row, changed = wanted.instance, wanted.validated_data
        for name, value in changed.items():
            setattr(row, name, value)
        if changed:
            row.save(update_fields=list(changed))
        return row


class Deleted:
    """`DELETE` of one row. `remove` does it."""

    @extend_schema(responses={204: None})
    @in_turn()
    def destroy(self: Any, request: Request, *_args: Any, **_options: Any) -> Response:
        """Nothing: the row is gone."""
        row = self.get_object()
        check_unchanged(request, row)
        self.remove(row)
        return Response(status=204)

    def remove(self, row: Any) -> None:
        """Delete the row."""
        row.delete()
