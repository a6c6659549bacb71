"""API sources: OpenAPI documents whose operations are tools of a tenant."""

import re
from typing import Any, ClassVar, Final

import orjson
from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString
from drf_spectacular.generators import SchemaGenerator
from unfold.widgets import UnfoldAdminFileFieldWidget

from tools_app.catalog.admin.samples import SampleAdmin, origin_of
from tools_app.catalog.kinds.openapi.admin.api_operations import OperationsPage, operations_url
from tools_app.catalog.kinds.openapi.documents.reader import UnreadableDocument
from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.catalog.kinds.openapi.sources.documents import save_source
from tools_app.catalog.models import SECRET_NAME
from tools_app.models import ApiSource, Tenant
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.fields import JsonTextField, LinesField
from tools_app.web.admin.scoping import TenantFilter, json_block, writer
from tools_app.web.admin.site import site

SAMPLE: Final = "mcphub"
SAMPLE_ADDED: Final = (
    "The source was added. To call its tools, add a personal token as a secret and name it under the security schemes "
    "of the source. The tenant must be allowed to call the address of the hub, if that is private."
)
SELECTION: Final = (
    "Patterns of the operations that are read, one a line: paths (/users/*), methods with paths (GET /teams*), tags "
    "(tag:mail), names or operationIds (list_*). Empty: all, at most 5000."
)
SETTINGS = ("base_url", "server_variables", "secrets")
OPTIONS = ("selection", "cycle_depth", "output_schemas")


class ApiSourceForm(forms.ModelForm):  # type: ignore[type-arg]
    """The settings of a source, and the document of one that is uploaded."""

    document = forms.FileField(
        required=False,
        widget=UnfoldAdminFileFieldWidget,
        help_text="Instead of a URL: an OpenAPI document, JSON or YAML, of at most 8 MB. Documents that it refers to"
        " must be bundled into it.",
    )
    server_variables = JsonTextField(
        empty=dict, required=False, rows=3, help_text=ApiSource._meta.get_field("server_variables").help_text
    )
    secrets = JsonTextField(
        empty=dict, required=False, rows=3, help_text=ApiSource._meta.get_field("secrets").help_text
    )

    selection = LinesField(required=False, label="Selected operations", help_text=SELECTION)

    class Meta:
        model = ApiSource
        fields = ("tenant", "name", "url", "document", *SETTINGS, *OPTIONS)
        help_texts: ClassVar = {
            "url": "Where the document is. Refreshing the source reads it again, with the documents that it refers to."
        }

    def clean(self) -> dict[str, Any] | None:
        """Validate the settings, and that there is one document. Raises ValidationError."""
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("url") and cleaned.get("document"):
            self.add_error("document", "Choose a document, or enter its URL, not both.")
        is_new = self.instance._state.adding
        if (
            is_new
            and not {"url", "document"} & self.errors.keys()
            and not (cleaned.get("url") or cleaned.get("document"))
        ):
            self.add_error("url", "Enter the URL of the document, or choose a file.")
        tenant = cleaned.get("tenant") or (self.instance.tenant if self.instance.tenant_id else None)
        if tenant is not None:
            # Who saves a source here expects that its tools can be called.
            secrets = [one for one in (cleaned.get("secrets") or {}).values() if isinstance(one, str)]
            named = {secret for secret in secrets if re.fullmatch(SECRET_NAME.regex, secret)}
            there = set(tenant.secrets.filter(name__in=named).values_list("name", flat=True))
            for name in sorted(named - there):
                self.add_error("secrets", f"There is no secret {name}. Add it first.")
        return cleaned

    def clean_name(self) -> str:
        """Return the name. Raises ValidationError if another source of the tenant has it."""
        name: str = self.cleaned_data["name"]
        tenant = self.cleaned_data.get("tenant") or (self.instance.tenant if self.instance.tenant_id else None)
        if tenant and tenant.api_sources.filter(name=name).exclude(pk=self.instance.pk).exists():
            raise ValidationError("This tenant already has an API source with this name.")
        return name


@admin.register(ApiSource, site=site)
class ApiSourceAdmin(OperationsPage, SampleAdmin):
    """The API sources of the user's tenants."""

    form = ApiSourceForm
    list_display = (
        cut_column("name", "name"),
        "tenant",
        cut_column("url", "document"),
        moment_column("updated_at", "updated"),
    )
    list_filter = (TenantFilter,)
    list_select_related = ("tenant",)
    search_fields = ("name", "url")
    empty_hint = "An API source is an OpenAPI document whose operations become tools."
    actions_detail = ("show_operations",)
    sample_label = "Add this hub's REST API"
    sample_hint = "To try it without another service, add the OpenAPI document of the hub's own REST API."
    readonly_fields = ("servers_json", "schemes_json", "revision", "tool_count")

    def get_fieldsets(self, request: HttpRequest, obj: ApiSource | None = None) -> Any:
        """Return the settings, and what the applied document says."""
        is_written = obj is None or self.has_change_permission(request, obj)
        document = ("url", "document") if is_written else ("url",)
        shown: list[Any] = [
            (None, {"fields": ("tenant", "name", *document)}),
            ("Requests", {"fields": SETTINGS}),
            ("Reading of the document", {"fields": OPTIONS}),
        ]
        if obj is not None:
            fieldset = {"fields": ("servers_json", "schemes_json", "revision", "tool_count")}
            shown.append(("In the applied document", fieldset))
        return shown

    def save_model(self, request: HttpRequest, obj: ApiSource, form: Any, change: bool) -> None:
        """Save the settings, and have a worker read a new document."""
        save_source(obj)
        upload: UploadedFile[Any] | None = form.cleaned_data.get("document")
        if upload is None and change and "url" not in form.changed_data:
            if not {*OPTIONS}.isdisjoint(form.changed_data):
                documents.read_again(obj, writer(request))
            return
        try:
            documents.add_revision(obj, writer(request), bytes(upload.read()) if upload else None)
        except UnreadableDocument as problem:
            self.message_user(request, str(problem), messages.ERROR)

    def response_add(self, request: HttpRequest, obj: ApiSource, post_url_continue: Any = None) -> HttpResponse:
        """Go on to the operations of the document."""
        return HttpResponseRedirect(operations_url(obj))

    def add_sample(self, request: HttpRequest, tenant: Tenant) -> HttpResponse:
        """Add the document of the REST API, and go on to its operations."""
        source = ApiSource(tenant=tenant, name=SAMPLE, base_url=origin_of(request))
        known = tenant.api_sources.filter(name=SAMPLE).first()
        if known is not None:
            return self._has_sample(request, known)
        try:
            source.clean()
        except ValidationError as problem:
            self.message_user(request, " ".join(problem.messages), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:tools_app_apisource_changelist"))
        generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
        document = orjson.dumps(generator.get_schema(request=None, public=True), default=str)
        try:
            save_source(source)
        except IntegrityError:
            # A second click, while the first was being answered.
            return self._has_sample(request, tenant.api_sources.get(name=SAMPLE))
        documents.add_revision(source, writer(request), document)
        self.message_user(request, SAMPLE_ADDED, messages.SUCCESS)
        return HttpResponseRedirect(operations_url(source))

    def _has_sample(self, request: HttpRequest, known: ApiSource) -> HttpResponse:
        self.message_user(request, f"{known.tenant} has the source {SAMPLE} already.", messages.WARNING)
        return HttpResponseRedirect(operations_url(known))

    def has_operations_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow users who may read the source."""
        return self.has_view_permission(request, self.get_object(request, object_id) if object_id else None)

    @button("Operations", url_path="operations", permissions=["operations"], icon="list")
    def show_operations(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what the newest document would change, and import what is selected."""
        return self.operations_page(request, self.get_object(request, object_id))

    @column("tools")
    def tool_count(self, source: ApiSource) -> int:
        return source.tools.count()

    @column("servers")
    def servers_json(self, source: ApiSource) -> SafeString:
        return json_block(source.servers)

    @column("security schemes")
    def schemes_json(self, source: ApiSource) -> SafeString:
        return json_block(source.schemes)
