"""Calls that have not ended. Nobody changes them here."""

from datetime import timedelta

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.admin.call_facts import CallFactsAdmin, duration_text, indented
from tools_app.admin.call_filters import KeyFilter, MethodFilter, SessionFilter, ToolFilter
from tools_app.admin.decorators import column
from tools_app.admin.scoped import TenantFilter, badge, text_block
from tools_app.admin.site import site
from tools_app.models import CallStatus, RunningCall

STATUS_COLOURS = {CallStatus.QUEUED: "info", CallStatus.RUNNING: "primary", CallStatus.WAITING: "warning"}


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
        return duration_text(int(elapsed / timedelta(microseconds=1)))

    @column("arguments")
    def arguments_text(self, call: RunningCall) -> SafeString | str:
        return text_block(indented(call.arguments)) if call.arguments else "-"
