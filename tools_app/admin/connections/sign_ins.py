"""The trace of sign-ins: each step of each attempt, with its reason where it failed. Read-only."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.admin.base.columns import full_moment, moment_column
from tools_app.admin.base.decorators import column
from tools_app.admin.base.scoping import RecordAdmin, TenantFilter, badge, narrow
from tools_app.admin.base.site import site
from tools_app.admin.calls.columns import BoundedPaginator
from tools_app.admin.calls.filters import MomentFilter
from tools_app.core.relations import related
from tools_app.models import SignInEvent, SignInStep

COLOURS = {
    SignInStep.CLIENT_SEEN: "info",
    SignInStep.ASKED: "info",
    SignInStep.ALLOWED: "success",
    SignInStep.DENIED: "warning",
    SignInStep.ISSUED: "success",
    SignInStep.REFRESHED: "success",
    SignInStep.REPLAYED: "danger",
    SignInStep.REVOKED: "warning",
    SignInStep.REJECTED: "danger",
}


@admin.register(SignInEvent, site=site)
class SignInAdmin(RecordAdmin):
    """Steps in the user's tenants. Those before a tenant is known are visible to superusers only."""

    list_display = (
        moment_column("at", "time", "at"),
        "step_label",
        "client_shown",
        "person_name",
        "tenant_name",
        "reason_shown",
        "remote_address",
    )
    list_filter = (("step", ChoicesDropdownFilter), TenantFilter, ("at", MomentFilter))
    list_select_related = ("tenant",)
    search_fields = ("client_name", "person_name")
    show_full_result_count = False
    paginator = BoundedPaginator
    fields = (
        full_moment("at", "time"),
        "step_label",
        "reason",
        "client_name",
        "client_id",
        "person_name",
        "tenant_name",
        "remote_address",
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return list(self.fields)

    @column("step", ordering="step")
    def step_label(self, row: SignInEvent) -> SafeString:
        step = SignInStep(row.step)
        return badge(str(step.label), COLOURS[step])

    @column("client", ordering="client_name")
    def client_shown(self, row: SignInEvent) -> SafeString:
        return narrow(row.client_name or row.client_id or "-")

    @column("tenant")
    def tenant_name(self, row: SignInEvent) -> str:
        tenant = related(row, "tenant")
        return str(tenant) if tenant else "-"

    @column("reason")
    def reason_shown(self, row: SignInEvent) -> SafeString:
        return narrow(row.reason or "-")
