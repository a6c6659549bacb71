"""Export of a tenant's configuration as a file, and import with a preview of the changes."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminTextareaWidget, UnfoldBooleanSwitchWidget

from tools_app.models import Tenant
from tools_app.tenant_config.document import Configuration, InvalidConfiguration, read
from tools_app.tenant_config.export import export
from tools_app.tenant_config.plan import ApplyError, apply, plan
from tools_app.tenant_config.steps import Plan, StepAction
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.decorators import button
from tools_app.web.admin.scoping import ScopedAdmin, writer

# The preview sends the text back in a form; Django limits forms to 2.5 MB.
MAX_BYTES = 2_000_000
MAX_STEPS = 200
COLOURS = {StepAction.CREATE: "success", StepAction.CHANGE: "info", StepAction.DELETE: "danger"}
LABELS = {StepAction.CREATE: "New", StepAction.CHANGE: "Changed", StepAction.DELETE: "Deleted"}


class ConfigurationForm(forms.Form):
    """A file, or its text."""

    file = forms.FileField(required=False, label="YAML file", widget=UnfoldAdminFileFieldWidget)
    text = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_BYTES,
        label="or paste it here",
        widget=UnfoldAdminTextareaWidget(
            attrs={"rows": 14, "spellcheck": "false", "style": "font-family: ui-monospace, monospace"}
        ),
    )
    prune = forms.BooleanField(
        required=False,
        label="Delete rows that are not in the file",
        help_text="Applies to the sections that the file contains, such as tools or alert rules.",
        widget=UnfoldBooleanSwitchWidget,
    )
    # Fingerprint of the tenant in the preview; empty requests a preview.
    fingerprint = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """Parse the input. Raises ValidationError that lists all problems."""
        text = _text_of(self.cleaned_data.get("file"), self.cleaned_data.get("text", ""))
        try:
            return {**self.cleaned_data, "text": text, "configuration": read(text)}
        except InvalidConfiguration as error:
            raise ValidationError([str(one) for one in error.problems]) from error


class ConfigurationAdmin(ScopedAdmin):
    """The import and export buttons of a tenant's page."""

    def has_export_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow users who may read everything of the tenant."""
        return object_id is None or tenant_permissions_of(request).audits(self.get_object(request, object_id).pk)

    def has_import_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow users who may change the tenant."""
        return self.has_change_permission(request, self.get_object(request, object_id) if object_id else None)

    @button("Export configuration", url_path="export", permissions=["export"], icon="download")
    def export_configuration(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Download the configuration."""
        tenant = self.get_object(request, object_id)
        if not self.has_export_permission(request, object_id):
            raise PermissionDenied
        return HttpResponse(
            export(tenant),
            content_type="application/yaml",
            headers={"Content-Disposition": f'attachment; filename="{tenant.slug}.yaml"', "Cache-Control": "no-store"},
        )

    @button("Import configuration", url_path="import", permissions=["import"], icon="upload")
    def import_configuration(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form, preview the changes, and apply them."""
        tenant = self.get_object(request, object_id)
        if not self.has_import_permission(request, object_id):
            raise PermissionDenied
        form = ConfigurationForm(request.POST, request.FILES) if request.method == "POST" else ConfigurationForm()
        if not form.is_valid():
            return self._import_page(request, tenant, {"form": form})
        found = _plan_of(request, tenant, form)
        wanted = form.cleaned_data["fingerprint"]
        if not wanted or found.problems:
            return self._preview(request, tenant, form, found)
        try:
            if found.fingerprint != wanted:
                raise ApplyError("The tenant has changed since the preview. Review the changes again.")
            apply(found, writer(request))
        except ApplyError as error:
            self.message_user(request, str(error), messages.WARNING)
            now = self.get_object(request, str(tenant.pk))
            return self._preview(request, now, form, _plan_of(request, now, form))
        self.message_user(request, f"Applied: {_counted(found)}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_tenant_change", args=[tenant.pk]))

    def _preview(self, request: HttpRequest, tenant: Tenant, form: ConfigurationForm, found: Plan) -> HttpResponse:
        page = {
            "plan": found,
            "steps": [
                {"label": LABELS[step.doing], "colour": COLOURS[step.doing], "step": step, "diff": step.diff}
                for step in found.steps[:MAX_STEPS]
            ],
            "more_steps": max(0, len(found.steps) - MAX_STEPS),
            "counted": _counted(found),
            "text": form.cleaned_data["text"],
            "prune": form.cleaned_data["prune"],
        }
        return self._import_page(request, tenant, page)

    def _import_page(self, request: HttpRequest, tenant: Tenant, page: dict[str, Any]) -> HttpResponse:
        title = f"Import configuration of {tenant}"
        response = self.page(request, "tenants/import.html", title=title, tenant=tenant, original=tenant, **page)
        response.headers["Cache-Control"] = "no-store"
        return response


def _plan_of(request: HttpRequest, tenant: Tenant, form: ConfigurationForm) -> Plan:
    configuration: Configuration = form.cleaned_data["configuration"]
    return plan(tenant, configuration, request.user, prune=form.cleaned_data["prune"])


def _text_of(upload: "UploadedFile[Any] | None", text: str) -> str:
    """Return the uploaded or else the pasted text. Raises ValidationError."""
    too_large = f"The file is larger than {MAX_BYTES // 10**6} MB. Use manage.py import_tenant instead."
    if upload is None and not text.strip():
        raise ValidationError("Choose a file or paste its text.")
    if upload is None:
        if len(text.encode()) > MAX_BYTES:
            raise ValidationError(too_large)
        return text
    if (upload.size or 0) > MAX_BYTES:
        raise ValidationError(too_large)
    try:
        return bytes(upload.read()).decode()
    except UnicodeDecodeError as error:
        raise ValidationError("This file is not UTF-8 text.") from error


def _counted(found: Plan) -> str:
    counts = (f"{found.count(doing)} {LABELS[doing].lower()}" for doing in StepAction if found.count(doing))
    return ", ".join(counts) or "nothing"
