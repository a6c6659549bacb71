"""Resources: texts, files and HTTP requests defined in the admin, and Python functions registered by apps."""

import mimetypes
import re
from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.catalog import authoring
from tools_app.catalog import resource_functions as resources
from tools_app.catalog.admin.base import NOT_WRITTEN, Fieldsets, OfferAdmin, SettingsForm
from tools_app.catalog.admin.resource_forms import WRITTEN
from tools_app.models import Resource, ResourceKind, Tenant
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import TenantFilter, json_block, text_block
from tools_app.web.admin.site import site

DESCRIBED = ("name", "title", "description", "mime_type", "annotations_json", "icons_json")
NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
TITLES = {
    ResourceKind.TEXT.value: "Add text resource",
    ResourceKind.FILE.value: "Add file resource",
    ResourceKind.HTTP.value: "Add HTTP resource",
}


@admin.register(Resource, site=site)
class ResourceAdmin(OfferAdmin):
    """Resources of the user's tenants."""

    code_name = "uri"
    list_display = (
        cut_column("uri", "URI"),
        cut_column("name", "name"),
        "tenant",
        "kind_label",
        "enabled",
        moment_column("updated_at", "updated"),
    )
    list_filter = (("kind", ChoicesDropdownFilter), "enabled", TenantFilter)
    search_fields = ("uri", "name", "title", "description")
    empty_hint = "Clients read a resource by its URI: a text, a file, an HTTP request or a Python function."
    actions_list = ("add_python_resources", "add_text_resource", "add_file_resource", "add_http_resource")
    actions_detail = ("download",)
    readonly_fields = ("kind_label", "text_shown", "size", "config_json", "annotations_json", "icons_json")

    def registered(self) -> Mapping[str, Any]:
        return resources.all_registered()

    def add_code(self, request: HttpRequest, tenant: Tenant, names: list[str]) -> list[Resource]:
        return authoring.add_code_resources(tenant, names)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Resource]:
        """Return the rows without their contents: fifty files could exhaust the memory."""
        rows: QuerySet[Resource] = super().get_queryset(request)
        return rows.defer("blob", "text")

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the form of a new resource of the kind in the URL."""
        kind = _kind_asked_for(request)
        page: HttpResponse = super().add_view(
            request, f"?kind={kind}", {"title": TITLES[kind], **(extra_context or {})}
        )
        return page

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        kind = obj.kind if obj else _kind_asked_for(request)
        options["form"] = WRITTEN.get(kind, SettingsForm)
        form = super().get_form(request, obj, change, **options)
        form.may_allow_networks = tenant_permissions_of(request).is_superuser
        return form

    def get_fieldsets(self, request: HttpRequest, obj: Resource | None = None) -> Fieldsets:
        """Return the fieldsets of a resource of its kind, or of a read-only one."""
        contents: dict[str, tuple[str, ...]]
        if obj and (obj.kind in NOT_WRITTEN or not self.has_change_permission(request, obj)):
            contents = {ResourceKind.TEXT.value: ("text_shown",), ResourceKind.FILE.value: ("size",)}
            title, description = NOT_WRITTEN.get(obj.kind, ("Definition", ""))
            fields = (*DESCRIBED, *contents.get(obj.kind, ("config_json", "timeout_seconds")))
            declared = {"description": description, "fields": fields}
            return [(None, {"fields": ("tenant", "uri", "kind_label", "enabled")}), (title, declared)]
        contents = {
            ResourceKind.TEXT.value: ("text",),
            ResourceKind.FILE.value: ("size", "upload") if obj else ("upload",),
            ResourceKind.HTTP.value: ("config", "timeout_seconds"),
        }
        kind = obj.kind if obj else _kind_asked_for(request)
        return [
            (None, {"fields": ("tenant", "uri", "name", "title", "description", "enabled")}),
            ("Contents", {"fields": ("mime_type", *contents[kind])}),
            ("Shown to clients", {"fields": ("annotations", "icons")}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Resource | None = None) -> list[str]:
        fixed = super().get_readonly_fields(request, obj)
        return [*fixed, "uri", *DESCRIBED, "timeout_seconds"] if obj and obj.kind in NOT_WRITTEN else fixed

    def save_model(self, request: HttpRequest, obj: Resource, form: Any, change: bool) -> None:
        authoring.save_resource(obj)

    def has_download_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Return whether this is a file that this user may read. Raises Http404 if missing or of another tenant."""
        resource = self.get_object(request, object_id)
        return resource.kind == ResourceKind.FILE and self.has_view_permission(request, resource)

    @button("Download", url_path="download", permissions=["download"], icon="download")
    def download(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Download the stored file. It is never displayed inline: an upload must not run as a page of the hub."""
        resource = self.get_object(request, object_id)
        return HttpResponse(
            bytes(resource.blob),
            content_type="application/octet-stream",
            headers={
                "Content-Disposition": f'attachment; filename="{file_name(resource)}"',
                "Cache-Control": "no-store",
            },
        )

    @button("Add Python resources", url_path="add-python", permissions=["add"], icon="code")
    def add_python_resources(self, request: HttpRequest) -> HttpResponse:
        """Add registered functions to a tenant that this user administers."""
        return self.python_page(request)

    @button("Add text", url_path="add-text", permissions=["add"], icon="article")
    def add_text_resource(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the form of a new text."""
        return _to_form(ResourceKind.TEXT)

    @button("Add file", url_path="add-file", permissions=["add"], icon="attach_file")
    def add_file_resource(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the form of a new file."""
        return _to_form(ResourceKind.FILE)

    @button("Add HTTP resource", url_path="add-http", permissions=["add"], icon="http")
    def add_http_resource(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the form of a new HTTP request."""
        return _to_form(ResourceKind.HTTP)

    @column("text")
    def text_shown(self, resource: Resource) -> SafeString:
        return text_block(resource.text)

    @column("size")
    def size(self, resource: Resource) -> str:
        return filesizeformat(len(resource.blob))

    @column("annotations")
    def annotations_json(self, resource: Resource) -> SafeString:
        return json_block(resource.annotations)


def file_name(resource: Resource) -> str:
    """Return the name of a download: the end of its URI, with an extension for its MIME type."""
    name = NOT_IN_FILE_NAMES.sub("-", resource.uri.rstrip("/").rpartition("/")[2]).strip("-.") or "resource"
    ending = mimetypes.guess_extension(resource.mime_type.partition(";")[0]) or ""
    return name if "." in name else f"{name}{ending}"


def _kind_asked_for(request: HttpRequest) -> str:
    kind = request.GET.get("kind", "")
    return kind if kind in WRITTEN else ResourceKind.TEXT.value


def _to_form(kind: ResourceKind) -> HttpResponse:
    return HttpResponseRedirect(f"{reverse('admin:tools_app_resource_add')}?kind={kind.value}")
