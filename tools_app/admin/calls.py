"""The audit log: a list of settled calls and denials. Nobody changes them, superusers included."""

from django.contrib import admin
from django.http import HttpRequest
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.admin.call_facts import CallFactsAdmin
from tools_app.admin.call_filters import (
    KeyFilter,
    MethodFilter,
    MomentFilter,
    PeriodFilter,
    SessionFilter,
    ToolFilter,
)
from tools_app.admin.call_page import CallPage
from tools_app.admin.scoped import TenantFilter
from tools_app.admin.site import site
from tools_app.models import Call


@admin.register(Call, site=site)
class CallAdmin(CallPage):
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

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """A record's tenant may be gone, so the column that is shown is a safe one."""
        return ["tenant_link" if name == "tenant" else name for name in super().get_list_display(request)]
