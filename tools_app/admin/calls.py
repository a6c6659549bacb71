"""The audit log, and the calls that run now. Nobody changes either, superusers included.

What is shown here was sent by clients, so it is escaped, and what a record points to may be gone by now.
"""

from datetime import datetime, timedelta
from typing import Any, cast

import orjson
from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.admin.call_events import events_block
from tools_app.admin.call_filters import (
    KeyFilter,
    MethodFilter,
    MomentFilter,
    PeriodFilter,
    SessionFilter,
    ToolFilter,
)
from tools_app.admin.decorators import column
from tools_app.admin.links import key_link, key_name, link
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import RecordAdmin, TenantFilter, badge, narrow, related, text_block
from tools_app.admin.site import site
from tools_app.models import Call, CallPayload, CallStatus, Outcome, Prompt, Resource, RunningCall
from tools_app.models.packing import NotPacked

MOST_COUNTED = 10_000
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
    Outcome.INPUT_REQUIRED: "primary",
}
STATUS_COLOURS = {CallStatus.QUEUED: "info", CallStatus.RUNNING: "primary", CallStatus.WAITING: "warning"}


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than a person pages: counting a whole audit log takes longer than reading a page of it."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or `MOST_COUNTED` if there are more."""
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[:MOST_COUNTED].count()


class CallFactsAdmin(RecordAdmin):
    """What calls have in common, settled or running."""

    list_select_related = ("tenant", "api_key")
    search_fields: tuple[str, ...] = ("tool_name", "request_id", "client_name", "=trace_id")
    show_full_result_count = False
    paginator = BoundedPaginator

    def get_ordering(self, request: HttpRequest) -> list[str]:
        """Newest first, by the index at hand: one begins with the tenant, and ids grow with time."""
        return ["-id"] if reach_of(request).everything else ["-started_at"]

    @column("time", ordering="started_at")
    def started(self, call: Any) -> str:
        return _moment(call.started_at)

    @column("name", ordering="tool_name")
    def called(self, call: Any) -> str:
        return call.tool_name or call.method or "-"

    @column("name", ordering="tool_name")
    def called_in_short(self, call: Any) -> SafeString:
        return narrow(self.called(call))

    @column("client", ordering="client_name")
    def client(self, call: Any) -> str:
        return f"{call.client_name} {call.client_version}".strip() or call.remote_address or "-"

    @column("tenant")
    def tenant_link(self, call: Any) -> str:
        return link(related(call, "tenant"), call.tenant_id)

    @column("key")
    def key(self, call: Any) -> str:
        return key_name(call)

    @column("key")
    def key_link(self, call: Any) -> str:
        return key_link(call)

    @column("session")
    def session_link(self, call: Any) -> str:
        return link(related(call, "session"), call.session_id)

    @column("definition")
    def offer_link(self, call: Any) -> str:
        """The tool, resource or prompt as it is now."""
        return link(_offer(call), call.tool_id)

    @column("revision")
    def revision(self, call: Any) -> str:
        return str(call.tool_revision or "-")

    @column("events")
    def events(self, call: Any) -> SafeString:
        """What the call said before its result, in its order."""
        return events_block(call.pk)


@admin.register(Call, site=site)
class CallAdmin(CallFactsAdmin):
    """Settled calls and denials. Denials without a tenant are for superusers."""

    list_display = ("started", "called_in_short", "method", "outcome_label", "tenant", "key", "client", "took")
    list_filter = (
        ("outcome", ChoicesDropdownFilter),
        MethodFilter,
        ToolFilter,
        KeyFilter,
        SessionFilter,
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
            {
                "fields": (
                    "id",
                    "method",
                    "offer_link",
                    "revision",
                    "request_id",
                    "trace_id",
                    "background",
                    "repeated",
                    "writer",
                )
            },
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

    list_display = ("started", "called_in_short", "method", "status_label", "tenant", "key", "client", "running_for")
    list_filter = (("status", ChoicesDropdownFilter), MethodFilter, ToolFilter, KeyFilter, SessionFilter, TenantFilter)
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
                    "offer_link",
                    "revision",
                    "request_id",
                    "trace_id",
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
        return badge(call.get_status_display(), STATUS_COLOURS[CallStatus(call.status)])

    @column("for")
    def running_for(self, call: RunningCall) -> str:
        elapsed = timezone.now() - call.started_at
        return _duration(int(elapsed / timedelta(microseconds=1)))

    @column("arguments")
    def arguments_text(self, call: RunningCall) -> SafeString | str:
        return text_block(_indented(call.arguments)) if call.arguments else "-"


def _payload(call: Call, part: str, size: int) -> SafeString | str:
    payload: CallPayload | None = related(call, "payload")
    try:
        text = getattr(payload.texts(), part) if payload else ""
    except NotPacked as problem:
        return f"Not readable: {problem}."
    if text:
        return text_block(_indented(text))
    return f"Not kept ({size} bytes)." if size else "-"


def _indented(text: str) -> str:
    """JSON text, indented; a text that was cut off and is no JSON any more stays as it is."""
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode()
    except ValueError:
        return text


def _offer(call: Any) -> Model | None:
    """What was asked for, as it is now. A resource that a template stands for has no row of its own."""
    match call.method:
        case "resources/read":
            return Resource.objects.filter(tenant=call.tenant_id, uri=call.tool_name).only("uri").first()
        case "prompts/get":
            return Prompt.objects.filter(tenant=call.tenant_id, name=call.tool_name).first()
        case _:
            tool: Model | None = related(call, "tool")
            return tool


def _moment(moment: datetime) -> str:
    local = timezone.localtime(moment)
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d}"


def _duration(microseconds: int) -> str:
    if microseconds < SECOND:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / SECOND:.1f} s"
