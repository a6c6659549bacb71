"""The audit log: a list of settled calls and denials. Nobody changes them, superusers included."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from tools_app.admin import call_list, exports, saved_filters
from tools_app.admin.call_page import CallPage
from tools_app.admin.decorators import column
from tools_app.admin.site import site
from tools_app.models import Call


@admin.register(Call, site=site)
class CallAdmin(CallPage):
    """Settled calls and denials. Denials without a tenant are for superusers."""

    list_display = ("started", "called_in_short", "asked", "outcome_label", "tenant", "key", "client", "took")

    @column("method")
    def asked(self, call: Call) -> str:
        return call.method or "-"

    def get_list_display(self, request: HttpRequest) -> list[str]:
        """A record's tenant may be gone, so the column that is shown is a safe one."""
        return ["tenant_link" if name == "tenant" else name for name in super().get_list_display(request)]

    def get_urls(self) -> list[Any]:
        """The pages of calls, and what can be done with a search."""
        site = self.admin_site
        return [*saved_filters.urls(site), *exports.urls(site), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """What a search of the audit log finds: `audit.search` pages through it, where Django would count."""
        context = {
            **self.admin_site.each_context(request),
            "title": "Calls",
            "opts": self.opts,
            **call_list.context_of(self, request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/tools_app/call/list.html", context)
