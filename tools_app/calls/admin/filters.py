"""Filters of calls in the admin, in addition to the search by name."""

from collections.abc import Callable
from datetime import datetime, time
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_time
from unfold.contrib.filters.admin import DropdownFilter, RangeDateTimeFilter

from tools_app.models import ApiKey, Tool, methods_like
from tools_app.tenants import permissions
from tools_app.web.admin.links import ANONYMOUS
from tools_app.web.admin.scoping import MAX_CHOICES, RecordAdmin, by_id

Parsed = TypeVar("Parsed")

METHODS = ("tools/call", "resources/read", "prompts/get")


class MomentFilter(RangeDateTimeFilter):
    """Filter by a time range in the hub's time zone. A date without a time means its beginning or its end."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        first, last = self._moment("from", time.min), self._moment("to", time.max)
        if first:
            queryset = queryset.filter(**{f"{self.field_path}__gte": first})
        if last:
            queryset = queryset.filter(**{f"{self.field_path}__lte": last})
        return queryset

    def _moment(self, side: str, otherwise: time) -> datetime | None:
        day = _parsed(parse_date, self.used_parameters.get(f"{self.field_path}_{side}_0"))
        hour = _parsed(parse_time, self.used_parameters.get(f"{self.field_path}_{side}_1"))
        return timezone.make_aware(datetime.combine(day, hour or otherwise)) if day else None


class ToolFilter(DropdownFilter):
    """Filter by the name of an existing tool; former names can be searched."""

    title = "tool"
    parameter_name = "tool"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        tools = permissions.rows_seen_by(request.user, Tool.objects.order_by("name"))
        return [(name, name) for name in tools.values_list("name", flat=True).distinct()[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(tool_name=self.value()) if self.value() else queryset


class KeyFilter(DropdownFilter):
    """Filter by the client's API key."""

    title = "key"
    parameter_name = "key"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        keys = permissions.rows_seen_by(request.user, ApiKey.objects.order_by("name"))[:MAX_CHOICES]
        return [(ANONYMOUS, "Anonymous"), *((str(key.pk), str(key)) for key in keys)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == ANONYMOUS:
            return queryset.filter(api_key=None, tenant__isnull=False)
        return by_id(queryset, "api_key_id", self.value())


class MethodFilter(DropdownFilter):
    """Filter by method: tool, resource or prompt."""

    title = "method"
    parameter_name = "method"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        return [(method, method) for method in METHODS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(method__in=methods_like(self.value())) if self.value() else queryset


class SessionFilter(DropdownFilter):
    """Filter by session, linked from the session's page: there are too many sessions to list."""

    title = "session"
    parameter_name = "session"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        session_id = request.GET.get(self.parameter_name)
        return [(session_id, "Session")] if session_id else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return by_id(queryset, "session_id", self.value())


def _parsed(parse: Callable[[str], Parsed | None], text: str | None) -> Parsed | None:
    try:
        return parse(text or "")
    except ValueError:
        return None
