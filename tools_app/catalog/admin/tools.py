"""Tools: functions registered by apps, HTTP requests defined in the admin, and operations of API sources."""

from collections.abc import Mapping
from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.catalog import authoring
from tools_app.catalog.admin import tool_builder
from tools_app.catalog.admin.base import Fieldsets
from tools_app.catalog.admin.tool_forms import (
    ALIAS_FIELDS,
    HttpToolForm,
    OperationToolForm,
    PythonToolForm,
    UpstreamToolForm,
)
from tools_app.catalog.admin.tool_revisions import RevisionsAdmin
from tools_app.catalog.kinds.http.config import HttpConfig
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.models import Tenant, Tool, ToolKind
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.fields import TOOL_LIMITS, limits_fieldset
from tools_app.web.admin.scoping import TenantFilter, json_block, writer
from tools_app.web.admin.site import site

DECLARED = (
    "title",
    "description",
    "background",
    "task",
    "timeout_seconds",
    "annotations_json",
    "icons_json",
    "input_json",
    "output_json",
)
FORMS: Final[Mapping[str, Any]] = {
    ToolKind.PYTHON.value: PythonToolForm,
    ToolKind.HTTP.value: HttpToolForm,
    ToolKind.OPERATION.value: OperationToolForm,
    ToolKind.UPSTREAM.value: UpstreamToolForm,
}


@admin.register(Tool, site=site)
class ToolAdmin(RevisionsAdmin):
    """Tools of the user's tenants."""

    list_display = (
        cut_column("name", "name"),
        cut_column("title", "title"),
        "tenant",
        "kind_label",
        "enabled",
        "background",
        "revision",
        moment_column("updated_at", "updated"),
    )
    list_filter = (("kind", ChoicesDropdownFilter), "enabled", TenantFilter)
    search_fields = ("name", "title", "description")
    empty_hint = "A tool is an HTTP request, a Python function, an operation of an API source or a tool of an upstream."
    empty_advice = "Describe an HTTP request, or add Python functions, an API source or an upstream."
    actions_list = ("add_python_tools", "add_http_tool")
    actions_detail = ("try_tool", "show_revisions", "clone_tool")
    change_form_before_template = "catalog/tool/builder.html"
    delete_confirmation_template = "admin/tools_app/tool/delete_confirmation.html"
    delete_selected_confirmation_template = "admin/tools_app/tool/delete_selected_confirmation.html"
    readonly_fields = (
        "kind_label",
        "config_json",
        "annotations_json",
        "icons_json",
        "input_json",
        "output_json",
        "revision",
    )

    def registered(self) -> Mapping[str, Any]:
        return python.all_registered()

    def add_code(self, request: HttpRequest, tenant: Tenant, names: list[str]) -> list[Tool]:
        return authoring.add_code_tools(tenant, names, by=writer(request))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the form of a new HTTP tool; Python tools are defined in code."""
        page: HttpResponse = super().add_view(request, form_url, {"title": "Add HTTP tool", **(extra_context or {})})
        return page

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        options["form"] = FORMS[obj.kind] if obj else HttpToolForm
        form = super().get_form(request, obj, change, **options)
        form.may_allow_networks = tenant_permissions_of(request).everything
        return form

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin and of the endpoints that the form of an HTTP tool uses."""
        return [*tool_builder.urls(self.admin_site), *super().get_urls()]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Show the form of an HTTP tool with the field to paste a request into, and with *Try it*."""
        tool = options.get("obj")
        may_write = tool is None or self.has_change_permission(request, tool)
        if may_write and isinstance(context["adminform"].form, HttpToolForm):
            context["builder"] = tool_builder.context_of(request, tool)
        return super().render_change_form(request, context, *args, **options)

    def get_fieldsets(self, request: HttpRequest, obj: Tool | None = None) -> Fieldsets:
        """Return the fieldsets of an HTTP tool, of a function, or of a read-only tool."""
        if obj and not self.has_change_permission(request, obj):
            return _read_only_page()
        if obj and obj.kind == ToolKind.PYTHON:
            return _python_page()
        if obj and obj.kind == ToolKind.OPERATION:
            return _operation_page()
        if obj and obj.kind == ToolKind.UPSTREAM:
            return _upstream_page()
        return _http_page(obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Tool | None = None) -> list[str]:
        fixed = super().get_readonly_fields(request, obj)
        if obj and obj.kind == ToolKind.OPERATION:
            return [*fixed, "source_link", "operation"]
        if obj and obj.kind == ToolKind.UPSTREAM:
            return [*fixed, "name", *(name for name in DECLARED if name != "timeout_seconds")]
        return [*fixed, "name", *DECLARED] if obj and obj.kind == ToolKind.PYTHON else fixed

    def save_model(self, request: HttpRequest, obj: Tool, form: Any, change: bool) -> None:
        authoring.save_tool(obj, by=writer(request))

    @button("Add Python tools", url_path="add-python", permissions=["add"], icon="code")
    def add_python_tools(self, request: HttpRequest) -> HttpResponse:
        """Add registered functions to a tenant that this user administers."""
        return self.python_page(request)

    @button("Add HTTP tool", url_path="add-http", permissions=["add"], icon="http")
    def add_http_tool(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the form of a new HTTP tool."""
        return HttpResponseRedirect(reverse("admin:tools_app_tool_add"))

    def has_try_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may try this tool, or any: it is called with a key of its tenant."""
        return self.has_change_permission(request, self.get_object(request, object_id) if object_id else None)

    @button("Try it", url_path="try", permissions=["try"], icon="play_circle")
    def try_tool(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Redirect to the playground with this tool selected."""
        tool = self.get_object(request, object_id)
        return HttpResponseRedirect(f"{reverse('admin:playground')}?tool={tool.pk}")

    @column("API source")
    def source_link(self, tool: Tool) -> SafeString:
        url = reverse("admin:tools_app_apisource_show_operations", args=[tool.source_id])
        return format_html('<a class="text-link" href="{}">{}</a>', url, tool.source)

    @column("annotations")
    def annotations_json(self, tool: Tool) -> SafeString:
        return json_block(tool.annotations)

    @column("input schema")
    def input_json(self, tool: Tool) -> SafeString:
        return json_block(tool.input_schema)

    @column("output schema")
    def output_json(self, tool: Tool) -> SafeString:
        return json_block(tool.output_schema)


SHAPING: Final = "Shaping of results"
ABOUT_SHAPING: Final = {
    "description": "What clients receive of a result. The record keeps the whole, and clients can read it in parts."
    " A shaped tool is listed without its output schema.",
    "fields": SHAPING_FIELDS,
}
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


def _http_page(tool: Tool | None) -> Fieldsets:
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


def _operation_page() -> Fieldsets:
    limits = limits_fieldset(TOOL_LIMITS)
    definition = {
        "description": "The source's document describes the request.",
        "fields": ("source_link", "operation", "config_json"),
    }
    return [
        (None, {"fields": ("tenant", "name", "title", "description", "enabled")}),
        ("Arguments", {"fields": ("input_schema",)}),
        ("Advanced", {"fields": ("timeout_seconds", "background", "task", "output_schema", "annotations", "icons")}),
        limits,
        (SHAPING, ABOUT_SHAPING),
        ("Search", {"fields": ALIAS_FIELDS}),
        ("Request", definition),
        ("Facts", {"fields": ("kind_label", "revision")}),
    ]


def _folded(tool: Tool | None, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the class that folds these fields, unless one of them has another value than a new tool's."""
    if tool is None:
        return ("collapse",)
    new, usual = Tool(), HttpConfig()
    for name in fields:
        if name in HttpToolForm.response_fields:
            is_usual = tool.config.get(name, getattr(usual, name)) == getattr(usual, name)
        else:
            is_usual = getattr(tool, name) == getattr(new, name)
        if not is_usual:
            return ()
    return ("collapse",)


def _python_page() -> Fieldsets:
    definition = {"description": "Declared by the function's code.", "fields": ("config_json", *DECLARED, "revision")}
    return [
        (None, {"fields": ("tenant", "name", "kind_label", "enabled")}),
        limits_fieldset(TOOL_LIMITS),
        (SHAPING, ABOUT_SHAPING),
        ("Search", {"fields": ALIAS_FIELDS}),
        ("Declared in code", definition),
    ]


def _upstream_page() -> Fieldsets:
    fields = ("config_json", *(name for name in DECLARED if name not in {"timeout_seconds", "background", "task"}))
    definition = {"description": "Defined by the upstream, and accepted by an admin.", "fields": (*fields, "revision")}
    return [
        (None, {"fields": ("tenant", "name", "kind_label", "enabled", "timeout_seconds")}),
        limits_fieldset(TOOL_LIMITS),
        (SHAPING, ABOUT_SHAPING),
        ("Search", {"fields": ALIAS_FIELDS}),
        ("Accepted definition", definition),
    ]


def _read_only_page() -> Fieldsets:
    return [
        (None, {"fields": ("tenant", "name", "kind_label", "enabled")}),
        limits_fieldset(TOOL_LIMITS),
        (SHAPING, ABOUT_SHAPING),
        ("Search", {"fields": ALIAS_FIELDS}),
        ("Definition", {"fields": ("config_json", *DECLARED, "revision")}),
    ]
