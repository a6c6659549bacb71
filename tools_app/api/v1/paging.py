"""Pages of lists, newest first. A cursor says where a page ended, so that rows that come meanwhile shift nothing."""

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request

from tools_app.api.v1.fields import Id, WholeParameter

LIMIT, MOST = 50, 200


class Query(serializers.Serializer):
    """Parameters of an address. One that is unknown is refused: a list would find too much without it."""

    @classmethod
    def asked(cls, request: Request) -> dict[str, Any]:
        """The checked parameters of a request. Raises ValidationError, also for what is unknown or comes twice."""
        known, faults = cls().fields, {}
        for name, values in request.query_params.lists():
            if name not in known:
                faults[name] = [f"There is no such parameter. There are {', '.join(known)}."]
            elif len(values) > 1:
                faults[name] = ["Write it once."]
        if faults:
            raise serializers.ValidationError(faults)
        query = cls(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        checked: dict[str, Any] = query.validated_data
        return checked


class ListQuery(Query):
    """The parameters that every list has."""

    limit = WholeParameter(required=False, default=LIMIT, min_value=1, max_value=MOST, help_text="Rows of a page.")
    cursor: serializers.Field = Id(required=False, help_text="Where the page begins: `next` of the page before has it.")


class InSchema:
    """How a page looks, for the OpenAPI document: pages are made by `page_of`."""

    def get_schema_operation_parameters(self, view: Any) -> list[Any]:
        """None beside those of the view's query."""
        return []

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema of a page of rows."""
        link = {"type": ["string", "null"], "format": "uri", "description": "The next page; null on the last one."}
        return {
            "type": "object",
            "required": ["next", "results"],
            "properties": {"next": link, "results": schema},
        }


def page_of(rows: QuerySet[Any], limit: int, cursor: UUID | None) -> tuple[list[Any], UUID | None]:
    """A page of `rows` by their ids, newest first, and the cursor of the next."""
    if cursor:
        rows = rows.filter(pk__lt=cursor)
    found = list(rows.order_by("-pk")[: limit + 1])
    more = len(found) > limit
    return found[:limit], found[limit - 1].pk if more else None


def next_address(request: Request, cursor: UUID | str | None) -> str | None:
    """The address of the next page."""
    if cursor is None:
        return None
    kept = [(name, value) for name, value in request.query_params.items() if name != "cursor"]
    address: str = request.build_absolute_uri(request.path)
    return f"{address}?{urlencode([*kept, ('cursor', cursor)])}"
