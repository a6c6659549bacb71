"""The page of an HTTP tool."""

from typing import Any, Final

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import URLPattern

from tools_app.catalog.admin.base import Fieldsets
from tools_app.catalog.admin.tool_pages import ABOUT_SHAPING, ALIAS_FIELDS, SHAPING, ToolPage
from tools_app.catalog.kinds.http import config as http
from tools_app.catalog.kinds.http.admin import builder
from tools_app.catalog.kinds.http.admin.forms import HttpToolForm
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.models import Tool
from tools_app.web.admin.fields import TOOL_LIMITS, limits_fieldset

ADVANCED: Final = (
    "enabled",
    *HttpToolForm.response_fields,
    "timeout_seconds",
    "background",
    "task",
    "output_schema",
    "annotations",
    "icons",
)


def _folded(tool: Tool | None, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the class that folds these fields, unless one of them has another value than a new tool's."""
    if tool is None:
        return ("collapse",)
    new, usual = Tool(), http.HttpConfig()
    for name in fields:
        if name in HttpToolForm.response_fields:
            is_usual = tool.config.get(name, getattr(usual, name)) == getattr(usual, name)
        else:
            is_usual = getattr(tool, name) == getattr(new, name)
        if not is_usual:
            return ()
    return ("collapse",)


class HttpToolPage(ToolPage):
    """The form of a request, with the field to paste one into, and with *Try it*."""

    form = HttpToolForm
    add_title = "Add HTTP tool"
    add_icon = "http"

    def fieldsets(self, tool: Tool | None) -> Fieldsets:
        """Return the definition; what a new tool rarely needs is folded."""
        facts: Fieldsets = [("Facts", {"fields": ("kind_label", "revision")})] if tool else []
        limits, about_limits = limits_fieldset(TOOL_LIMITS)
        return [
            (None, {"fields": ("tenant", "name", "title", "description")}),
            ("Request", {"fields": HttpToolForm.request_fields}),
            ("Arguments", {"fields": ("input_schema",)}),
            ("Advanced", {"fields": ADVANCED, "classes": _folded(tool, ADVANCED)}),
            (SHAPING, {**ABOUT_SHAPING, "classes": _folded(tool, SHAPING_FIELDS)}),
            ("Search", {"fields": ALIAS_FIELDS, "classes": _folded(tool, ALIAS_FIELDS)}),
            (limits, {**about_limits, "classes": _folded(tool, TOOL_LIMITS)}),
            *facts,
        ]

    def context(self, request: HttpRequest, tool: Tool | None) -> dict[str, Any]:
        """Return what the script of the form needs to know."""
        return {"builder": builder.context_of(request, tool)}

    def urls(self, site: AdminSite) -> list[URLPattern]:
        """Return the endpoints of the script."""
        return builder.urls(site)


PAGE = HttpToolPage()
