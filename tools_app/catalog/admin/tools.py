"""Tools: functions registered by apps, HTTP requests defined in the admin, and operations of API sources."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.catalog import authoring
from tools_app.catalog.admin.base import Fieldsets
from tools_app.catalog.admin.tool_pages import DECLARED, ToolPage, settings_page
from tools_app.catalog.admin.tool_revisions import RevisionsAdmin
from tools_app.catalog.kinds import registry
from tools_app.catalog.kinds.python import runner as python
from tools_app.models import Tenant, Tool
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import TenantFilter, json_block, writer
from tools_app.web.admin.site import site

NEW_KIND: Final = "http"


def page_of(kind: str) -> ToolPage:
    """Return the page of a kind of tools."""
    page: ToolPage = import_module(f"{registry.KINDS[kind][1]}.admin.tools").PAGE
    return page


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
    actions_list: tuple[str, ...] = ("add_python_tools",)
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
        """Show the form of a new tool of the kind in the URL."""
        kind = _kind_of_new(request)
        page: HttpResponse = super().add_view(
            request, f"?kind={kind}", {"title": page_of(kind).add_title, **(extra_context or {})}
        )
        return page

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        options["form"] = page_of(obj.kind if obj else _kind_of_new(request)).form
        form = super().get_form(request, obj, change, **options)
        form.may_allow_networks = tenant_permissions_of(request).is_superuser
        return form

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin and of the endpoints that forms use."""
        return [*(url for name in registry.KINDS for url in page_of(name).urls(self.admin_site)), *super().get_urls()]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Show the form, with what its kind adds for those who may save it."""
        tool = options.get("obj")
        if tool is None or self.has_change_permission(request, tool):
            context.update(page_of(tool.kind if tool else _kind_of_new(request)).context(request, tool))
        return super().render_change_form(request, context, *args, **options)

    def get_fieldsets(self, request: HttpRequest, obj: Tool | None = None) -> Fieldsets:
        """Return the fieldsets of a tool of its kind, or of a read-only tool."""
        if obj and not self.has_change_permission(request, obj):
            return settings_page("Definition", ("config_json", *DECLARED))
        return page_of(obj.kind if obj else _kind_of_new(request)).fieldsets(obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Tool | None = None) -> list[str]:
        return [*super().get_readonly_fields(request, obj), *(page_of(obj.kind).readonly if obj else ())]

    def save_model(self, request: HttpRequest, obj: Tool, form: Any, change: bool) -> None:
        authoring.save_tool(obj, by=writer(request))

    @button("Add Python tools", url_path="add-python", permissions=["add"], icon="code")
    def add_python_tools(self, request: HttpRequest) -> HttpResponse:
        """Add registered functions to a tenant that this user administers."""
        return self.python_page(request)

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


def _kind_of_new(request: HttpRequest) -> str:
    kind = request.GET.get("kind", "")
    return kind if kind in registry.KINDS and page_of(kind).add_title else NEW_KIND


def _add_button(kind: str, page: ToolPage) -> Callable[[ToolAdmin, HttpRequest], HttpResponse]:
    @button(page.add_title, url_path=f"add-{kind}", permissions=["add"], icon=page.add_icon)
    def add(_admin: ToolAdmin, _request: HttpRequest) -> HttpResponse:
        return HttpResponseRedirect(f"{reverse('admin:tools_app_tool_add')}?kind={kind}")

    return add


for name in registry.KINDS:
    if page_of(name).add_title:
        setattr(ToolAdmin, f"add_{name}_tool", _add_button(name, page_of(name)))
        ToolAdmin.actions_list += (f"add_{name}_tool",)
site.register(Tool, ToolAdmin)
