"""Alerts that fired, and the log of their deliveries: read-only."""

from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

import orjson
from django.contrib import admin, messages
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from tools_app.alerts import delivery, evaluation
from tools_app.alerts.evaluation import TooManyTests
from tools_app.alerts.models import Alert, AlertDelivery, AlertDestination, AlertRule, DeliveryStatus
from tools_app.web.admin.columns import cut_column, full_moment, moment_column
from tools_app.web.admin.decorators import column
from tools_app.web.admin.scoping import RecordAdmin, TenantFilter, badge, json_block
from tools_app.web.admin.site import site
from tools_app.web.admin.times import moment

COLOURS: Final = {
    DeliveryStatus.PENDING: "info",
    DeliveryStatus.DELIVERED: "success",
    DeliveryStatus.FAILED: "danger",
}
MAX_DELIVERIES: Final = 50
# An attempt that began before may take TIMEOUT_SECONDS longer.
MAX_TEST_SECONDS: Final = 5.0


def send_tests(request: HttpRequest, chosen: Sequence[AlertDestination], rule: AlertRule | None = None) -> None:
    """Send a test message to each destination, and tell the user how each ended.

    After MAX_TEST_SECONDS the rest is left to the process that delivers alerts, and the log of deliveries shows it.
    """
    if not chosen:
        messages.warning(request, "There is no enabled destination. Add one to the rule first.")
    end = monotonic() + MAX_TEST_SECONDS
    for row in chosen:
        try:
            found = evaluation.send_test(row, rule)
        except TooManyTests as problem:
            messages.error(request, str(problem))
            return
        if monotonic() < end:
            delivery.attempt(found.pk)
            found.refresh_from_db()
        _show_result(request, found, row)


def _show_result(request: HttpRequest, found: AlertDelivery, row: AlertDestination) -> None:
    if found.status == DeliveryStatus.DELIVERED:
        messages.success(request, f"The test message to {row} was delivered.")
    elif found.status == DeliveryStatus.FAILED:
        messages.error(request, f"The test message to {row} failed: {found.error}")
    elif found.attempts:
        messages.error(request, f"The test message to {row} failed and will be sent again: {found.error}")
    else:
        messages.info(request, f"The test message to {row} is queued. See Deliveries for its result.")


@admin.register(Alert, site=site)
class AlertAdmin(RecordAdmin):
    """The alerts of the user's tenants, with their deliveries."""

    list_display = (
        cut_column("summary", "summary"),
        "tenant",
        cut_column("rule", "rule"),
        "status",
        moment_column("fired_at", "fired"),
        moment_column("resolved_at", "resolved"),
    )
    list_filter = (("resolved_at", admin.EmptyFieldListFilter), TenantFilter)
    list_select_related = ("tenant", "rule")
    search_fields = ("summary", "rule__name")
    fields = (
        "summary",
        "tenant",
        "rule",
        "status",
        "value_text",
        "threshold_text",
        full_moment("fired_at", "fired"),
        full_moment("resolved_at", "resolved"),
        "delivery_log",
    )
    empty_hint = "An alert appears here when a rule fires."

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return list(self.fields)

    @column("status")
    def status(self, row: Alert) -> SafeString:
        return badge("Resolved", "success") if row.resolved_at else badge("Firing", "danger")

    @column("value")
    def value_text(self, row: Alert) -> str:
        return f"{row.value:,.10g} {row.rule.measure.unit}"

    @column("threshold")
    def threshold_text(self, row: Alert) -> str:
        return f"{row.threshold:,.10g} {row.rule.measure.unit}"

    @column("deliveries")
    def delivery_log(self, row: Alert) -> SafeString | str:
        rows = list(row.deliveries.select_related("destination")[:MAX_DELIVERIES])
        if not rows:
            return "None: the rule has no enabled destination."
        lines = [
            (
                reverse("admin:tools_app_alertdelivery_change", args=[found.pk]),
                str(found),
                found.get_status_display().lower(),
                moment(found.created_at),
            )
            for found in rows
        ]
        return format_html_join("", '<p><a href="{}" class="underline">{}</a>: {}, {}</p>', lines)


@admin.register(AlertDelivery, site=site)
class DeliveryAdmin(RecordAdmin):
    """The messages to the destinations of the user's tenants, with their attempts."""

    list_display = (
        "event_text",
        "tenant",
        "destination",
        "state",
        "attempts",
        "response_status",
        moment_column("created_at", "created"),
        "error",
    )
    empty_hint = "Each message about an alert, and each test, appears here with its attempts."
    list_filter = ("status", "event", TenantFilter)
    list_select_related = ("tenant", "destination")
    fields = (
        "event_text",
        "tenant",
        "destination",
        "alert",
        "state",
        "attempts",
        "response_status",
        "error",
        full_moment("created_at", "created"),
        full_moment("next_attempt_at", "next attempt"),
        full_moment("finished_at", "finished"),
        "message",
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return list(self.fields)

    @column("event", ordering="event")
    def event_text(self, row: AlertDelivery) -> str:
        return row.get_event_display()

    @column("status", ordering="status")
    def state(self, row: AlertDelivery) -> SafeString:
        return badge(row.get_status_display(), COLOURS[DeliveryStatus(row.status)])

    @column("message")
    def message(self, row: AlertDelivery) -> SafeString:
        return json_block(orjson.loads(row.body))
