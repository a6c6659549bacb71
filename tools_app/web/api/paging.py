"""Cursor pagination of lists, newest first: rows that are added meanwhile shift nothing.

A page has at most as many rows as requested, and at most MAX_PAGE_BYTES: it ends earlier if its rows are large, with
at least one row, and `next` continues.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import orjson
from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from tools_app.core.relations import first_within
from tools_app.web.api.fields import Id, WholeParameter

LIMIT, MOST = 50, 200
MAX_PAGE_BYTES = 1024 * 1024


class Query(serializers.Serializer):
    """Query parameters. Unknown parameters are rejected: without them, a list would return too much."""

    @classmethod
    def validated(cls, request: Request) -> dict[str, Any]:
        """Return the validated parameters of a request. Raises ValidationError, also for unknown or repeated ones."""
        known, faults = cls().fields, {}
        for name, values in request.query_params.lists():
            if name not in known:
                faults[name] = [f"Unknown parameter. Known parameters: {', '.join(known)}."]
            elif len(values) > 1:
                faults[name] = ["Use it only once."]
        if faults:
            raise serializers.ValidationError(faults)
        query = cls(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        checked: dict[str, Any] = query.validated_data
        return checked


ROWS = f"Rows per page, or fewer if they are large: a page has at most {MAX_PAGE_BYTES // 1024} KiB."


class ListQuery(Query):
    """The parameters that every list has. Others are filters: `source` is the lookup, if it has another name."""

    limit = WholeParameter(required=False, default=LIMIT, min_value=1, max_value=MOST, help_text=ROWS)
    cursor: serializers.Field = Id(required=False, help_text="Cursor of the page, from `next` of the previous page.")

    def filter_queryset(self, rows: QuerySet[Any], filters: dict[str, Any]) -> QuerySet[Any]:
        """Return those of `rows` that match the validated parameters."""
        return rows.filter(**filters)


class InSchema:
    """The schema of a page, for the OpenAPI document: `page_of` makes the pages."""

    def get_schema_operation_parameters(self, view: Any) -> list[Any]:
        """Return no parameters: the view's query has them."""
        return []

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of a page of rows."""
        link = {"type": ["string", "null"], "format": "uri", "description": "The next page; null on the last one."}
        return {
            "type": "object",
            "required": ["next", "results"],
            "properties": {"next": link, "results": schema},
        }


def page_of(rows: QuerySet[Any], limit: int, cursor: UUID | None) -> tuple[list[Any], UUID | None]:
    """Return a page of `rows` by id, newest first, and the cursor of the next page."""
    if cursor:
        rows = rows.filter(pk__lt=cursor)
    found, more = first_within(rows.order_by("-pk"), limit, MAX_PAGE_BYTES)
    return found, found[-1].pk if more and found else None


def within_page_bytes(shown: Iterable[Any]) -> list[Any]:
    """Return as many of the first serialized rows as fit MAX_PAGE_BYTES of JSON, at least one."""
    page: list[Any] = []
    size = 0
    for one in shown:
        size += len(orjson.dumps(one, default=str))
        if page and size > MAX_PAGE_BYTES:
            break
        page.append(one)
    return page


def next_address(request: Request, cursor: UUID | str | None) -> str | None:
    """Return the URL of the next page."""
    if cursor is None:
        return None
    address: str = replace_query_param(request.build_absolute_uri(), "cursor", cursor)
    return address
