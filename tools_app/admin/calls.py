"""The audit log, and the calls that run now. Nobody changes either, superusers included.

What is shown here was sent by clients, so it is escaped, and what a record points to may be gone by now.
"""

from collections.abc import Callable
from datetime import datetime, time, timedelta
from typing import Any, TypeVar, cast

import orjson
from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_time
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter, DropdownFilter, RangeDateTimeFilter

from tools_app.admin.decorators import column
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import (
    MOST_CHOICES,
    RecordAdmin,
    TenantFilter,
    badge,
    by_id,
    related,
    text_block,
)
from tools_app.admin.site import site
from tools_app.auth import access
from tools_app.models import ApiKey, Call, CallEvent, CallPayload, CallStatus, Outcome, RunningCall, Tool

Parsed = TypeVar("Parsed")

MOST_COUNTED = 10_000
MOST_EVENTS = 500
SECOND = 1_000_000

OUTCOME_COLOURS = {
    Outcome.OK: "success",
    Outcome.TOOL_ERROR: "danger",
    Outcome.REJECTED: "warning",
    Outcome.DENIED: "danger",
    Outcome.CANCELLED: "info",
    Outcome.TIMEOUT: "warning",
    Outcome.LOST: "danger",
    Outcome.INTERRUPTED: "warning",
}
PERIODS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than a person pages: counting a whole audit log takes longer than reading a page of it."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or `MOST_COUNTED` if there are more."""
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[:MOST_COUNTED].count()


class PeriodFilter(DropdownFilter):
    """By how long ago a call started."""

    title = "period"
    parameter_name = "period"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        return [("1h", "Last hour"), ("24h", "Last 24 hours"), ("7d", "Last 7 days"), ("30d", "Last 30 days")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        period = PERIODS.get(self.value() or "")
        return queryset.filter(started_at__gte=timezone.now() - period) if period else queryset


class MomentFilter(RangeDateTimeFilter):
    """Between two moments in the hub's time zone. A date without a time means from its start, or to its end."""

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
    """By the name of a tool that exists now; older names are found by search."""

    title = "tool"
    parameter_name = "tool"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        tools = access.rows_seen_by(request.user, Tool.objects.order_by("name"))
        return [(name, name) for name in tools.values_list("name", flat=True).distinct()[:MOST_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(tool_name=self.value()) if self.value() else queryset


class KeyFilter(DropdownFilter):
    """By the key that the client carried."""

    title = "key"
    parameter_name = "key"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        keys = access.rows_seen_by(request.user, ApiKey.objects.order_by("name"))[:MOST_CHOICES]
        return [(str(key.pk), str(key)) for key in keys]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return by_id(queryset, "api_key_id", self.value())


class CallFactsAdmin(RecordAdmin):
    """What calls have in common, settled or running."""

    list_select_related = ("tenant", "api_key")
    search_fields: tuple[str, ...] = ("tool_name", "request_id", "client_name")
    show_full_result_count = False
    paginator = BoundedPaginator

    def get_ordering(self, request: HttpRequest) -> list[str]:
        """Newest first, by the index at hand: one begins with the tenant, and ids grow with time."""
        return ["-id"] if reach_of(request).everything else ["-started_at"]

    @column("time", ordering="started_at")
    def started(self, call: Any) -> str:
        return _moment(call.started_at)

    @column("tool", ordering="tool_name")
    def called(self, call: Any) -> str:
        return call.tool_name or call.method or "-"

    @column("client", ordering="client_name")
    def client(self, call: Any) -> str:
        return f"{call.client_name} {call.client_version}".strip() or call.remote_address or "-"

    @column("tenant")
    def tenant_link(self, call: Any) -> str:
        return _link(related(call, "tenant"), call.tenant_id)

    @column("key")
    def key(self, call: Any) -> str:
        found = related(call, "api_key")
        return str(found) if found else _gone(call.api_key_id)

    @column("key")
    def key_link(self, call: Any) -> str:
        return _link(related(call, "api_key"), call.api_key_id)

    @column("session")
    def session_link(self, call: Any) -> str:
        return _link(related(call, "session"), call.session_id)

    @column("tool")
    def tool_link(self, call: Any) -> str:
        name = call.tool_name or "-"
        return _link(related(call, "tool"), call.tool_id) if call.tool_id else name

    @column("revision")
    def revision(self, call: Any) -> str:
        return str(call.tool_revision or "-")

    @column("events")
    def events(self, call: Any) -> SafeString:
        """What the call said before its result, in its order."""
        rows = CallEvent.objects.filter(call_id=call.pk).order_by("sequence")[: MOST_EVENTS + 1]
        told = [{"event": event, "data": _indented(event.data)} for event in rows]
        page = {"events": told[:MOST_EVENTS], "more": len(told) > MOST_EVENTS}
        return render_to_string("admin/tools_app/call/events.html", page)


@admin.register(Call, site=site)
class CallAdmin(CallFactsAdmin):
    """Settled calls and denials. Denials without a tenant are for superusers."""

    list_display = ("started", "called", "outcome_label", "tenant", "key", "client", "took")
    list_filter = (
        ("outcome", ChoicesDropdownFilter),
        ToolFilter,
        KeyFilter,
        PeriodFilter,
        ("started_at", MomentFilter),
        TenantFilter,
    )
    search_fields = (*CallFactsAdmin.search_fields, "cause")
    fieldsets = (
        (None, {"fields": ("called", "outcome_label", "cause_text")}),
        ("Exchange", {"fields": ("arguments", "events", "result")}),
        (
            "Who",
            {"fields": ("tenant_link", "key_link", "session_link", "client", "remote_address", "protocol_version")},
        ),
        (
            "What",
            {"fields": ("id", "method", "tool_link", "revision", "request_id", "background", "repeated", "writer")},
        ),
        ("Answer", {"fields": ("http_status", "rpc_error", "is_error")}),
        ("Timing", {"fields": ("started", "finished", "took")}),
    )

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """A record's tenant may be gone, so the column that is shown is a safe one."""
        return ["tenant_link" if name == "tenant" else name for name in super().get_list_display(request)]

    @column("outcome", ordering="outcome")
    def outcome_label(self, call: Call) -> SafeString:
        return badge(call.get_outcome_display(), OUTCOME_COLOURS[Outcome(call.outcome)])

    @column("duration", ordering="duration_us")
    def took(self, call: Call) -> str:
        return _duration(call.duration_us)

    @column("finished")
    def finished(self, call: Call) -> str:
        return _moment(call.finished_at)

    @column("cause")
    def cause_text(self, call: Call) -> SafeString | str:
        return text_block(call.cause) if call.cause else "-"

    @column("arguments")
    def arguments(self, call: Call) -> SafeString | str:
        return _payload(call, "arguments", call.arguments_size)

    @column("result")
    def result(self, call: Call) -> SafeString | str:
        return _payload(call, "result", call.result_size)


@admin.register(RunningCall, site=site)
class RunningCallAdmin(CallFactsAdmin):
    """Calls that have not ended."""

    list_display = ("started", "called", "status_label", "tenant", "key", "client", "running_for")
    list_filter = (("status", ChoicesDropdownFilter), ToolFilter, TenantFilter)
    fieldsets = (
        (None, {"fields": ("called", "status_label", "running_for")}),
        ("Exchange", {"fields": ("arguments_text", "events")}),
        (
            "Who",
            {"fields": ("tenant_link", "key_link", "session_link", "client", "remote_address", "protocol_version")},
        ),
        (
            "What",
            {
                "fields": (
                    "id",
                    "method",
                    "tool_link",
                    "revision",
                    "request_id",
                    "background",
                    "timeout_seconds",
                    "cancel_requested",
                    "owner",
                )
            },
        ),
        ("Timing", {"fields": ("started", "run_at")}),
    )

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """A record's tenant may be gone, so the column that is shown is a safe one."""
        return ["tenant_link" if name == "tenant" else name for name in super().get_list_display(request)]

    @column("status")
    def status_label(self, call: RunningCall) -> SafeString:
        return badge(call.get_status_display(), "info" if call.status == CallStatus.QUEUED else "primary")

    @column("for")
    def running_for(self, call: RunningCall) -> str:
        elapsed = timezone.now() - call.started_at
        return _duration(int(elapsed / timedelta(microseconds=1)))

    @column("arguments")
    def arguments_text(self, call: RunningCall) -> SafeString | str:
        return text_block(_indented(call.arguments)) if call.arguments else "-"


def _parsed(parse: Callable[[str], Parsed | None], text: str | None) -> Parsed | None:
    try:
        return parse(text or "")
    except ValueError:
        return None


def _payload(call: Call, part: str, size: int) -> SafeString | str:
    payload: CallPayload | None = related(call, "payload")
    text = getattr(payload, part, "")
    if text:
        return text_block(_indented(text))
    return f"Not kept ({size} bytes)." if size else "-"


def _indented(text: str) -> str:
    """JSON text, indented; a text that was cut off and is no JSON any more stays as it is."""
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode()
    except ValueError:
        return text


def _link(row: Model | None, row_id: Any) -> str:
    if row is None:
        return _gone(row_id)
    address = reverse(f"admin:{row._meta.label_lower.replace('.', '_')}_change", args=[row.pk])
    return format_html('<a href="{}" class="text-link">{}</a>', address, row)


def _gone(row_id: Any) -> str:
    return f"{row_id} (gone)" if row_id else "-"


def _moment(moment: datetime) -> str:
    local = timezone.localtime(moment)
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d}"


def _duration(microseconds: int) -> str:
    if microseconds < SECOND:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / SECOND:.1f} s"
