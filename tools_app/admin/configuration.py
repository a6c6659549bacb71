"""A tenant's configuration as a file: downloaded, and taken in again once somebody has seen what that changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminTextareaWidget, UnfoldBooleanSwitchWidget

from tools_app.admin import differences
from tools_app.admin.decorators import button
from tools_app.admin.differences import DiffLine
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import ScopedAdmin, writer
from tools_app.blueprints.applying import NotApplied, apply
from tools_app.blueprints.blueprint import BadBlueprint, Blueprint, read
from tools_app.blueprints.describing import export
from tools_app.blueprints.planning import Doing, Plan, Step, plan
from tools_app.models import Tenant

# The text goes to the page and comes back; Django reads forms of no more than 2.5 MB.
MOST_BYTES = 2_000_000
MOST_STEPS = 200
COLOURS = {Doing.CREATE: "success", Doing.CHANGE: "info", Doing.DELETE: "danger"}
LABELS = {Doing.CREATE: "New", Doing.CHANGE: "Changed", Doing.DELETE: "Deleted"}


class ConfigurationForm(forms.Form):
    """A file, or the same pasted."""

    file = forms.FileField(required=False, label="YAML file", widget=UnfoldAdminFileFieldWidget)
    text = forms.CharField(
        required=False,
        strip=False,
        label="or paste it here",
        widget=UnfoldAdminTextareaWidget(
            attrs={"rows": 14, "spellcheck": "false", "style": "font-family: ui-monospace, monospace"}
        ),
    )
    prune = forms.BooleanField(
        required=False,
        label="Delete what the file does not name",
        help_text="Of the sections that the file has: tools, resources, prompts.",
        widget=UnfoldBooleanSwitchWidget,
    )
    # Of the tenant as the preview showed it; without one a preview is wanted.
    fingerprint = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """Read what was given. Raises ValidationError that tells everything that is wrong with it."""
        text = _text_of(self.cleaned_data.get("file"), self.cleaned_data.get("text", ""))
        try:
            return {**self.cleaned_data, "text": text, "blueprint": read(text)}
        except BadBlueprint as problem:
            raise ValidationError([str(one) for one in problem.problems]) from problem


@dataclass(frozen=True)
class ShownStep:
    """A step as the preview lists it."""

    label: str
    colour: str
    step: Step
    diff: list[DiffLine]


class ConfigurationAdmin(ScopedAdmin):
    """The two buttons of a tenant's page."""

    def has_export_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whoever may read all of a tenant."""
        return object_id is None or reach_of(request).audits(self.get_object(request, object_id).pk)

    def has_import_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whoever may change a tenant."""
        return self.has_change_permission(request, self.get_object(request, object_id) if object_id else None)

    @button("Export configuration", url_path="export", permissions=["export"], icon="download")
    def export_configuration(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The configuration as a file."""
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
        """Ask for a file, show what it would change, and apply it."""
        tenant = self.get_object(request, object_id)
        if not self.has_import_permission(request, object_id):
            raise PermissionDenied
        form = ConfigurationForm(request.POST, request.FILES) if request.method == "POST" else ConfigurationForm()
        if not form.is_valid():
            return self._page(request, tenant, {"form": form})
        found = _planned(request, tenant, form)
        wanted = form.cleaned_data["fingerprint"]
        if not wanted or found.problems:
            return self._preview(request, tenant, form, found)
        return self._apply(request, tenant, form, found)

    def _apply(self, request: HttpRequest, tenant: Tenant, form: ConfigurationForm, found: Plan) -> HttpResponse:
        try:
            if found.fingerprint != form.cleaned_data["fingerprint"]:
                raise NotApplied("The tenant was changed since you looked. This is what would change now.")
            apply(found, writer(request))
        except NotApplied as problem:
            self.message_user(request, str(problem), messages.WARNING)
            now = self.get_object(request, str(tenant.pk))
            return self._preview(request, now, form, _planned(request, now, form))
        self.message_user(request, f"Applied: {_counted(found)}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_tenant_change", args=[tenant.pk]))

    def _preview(self, request: HttpRequest, tenant: Tenant, form: ConfigurationForm, found: Plan) -> HttpResponse:
        page = {
            "plan": found,
            "steps": _shown(found.steps[:MOST_STEPS]),
            "more_steps": max(0, len(found.steps) - MOST_STEPS),
            "counted": _counted(found),
            "text": form.cleaned_data["text"],
            "prune": form.cleaned_data["prune"],
        }
        return self._page(request, tenant, page)

    def _page(self, request: HttpRequest, tenant: Tenant, page: dict[str, Any]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": f"Import configuration of {tenant}",
            "tenant": tenant,
            "original": tenant,
            "opts": self.opts,
            **page,
        }
        return TemplateResponse(
            request, "admin/tools_app/tenant/import.html", context, headers={"Cache-Control": "no-store"}
        )


def _planned(request: HttpRequest, tenant: Tenant, form: ConfigurationForm) -> Plan:
    blueprint: Blueprint = form.cleaned_data["blueprint"]
    return plan(tenant, blueprint, request.user, prune=form.cleaned_data["prune"])


def _text_of(upload: "UploadedFile[Any] | None", text: str) -> str:
    """What was uploaded, or else what was pasted. Raises ValidationError."""
    too_large = f"On this page {MOST_BYTES // 10**6} MB are the most: use manage.py import_tenant."
    if upload is None and not text.strip():
        raise ValidationError("Choose a file, or paste its text.")
    if upload is None:
        if len(text.encode()) > MOST_BYTES:
            raise ValidationError(too_large)
        return text
    if (upload.size or 0) > MOST_BYTES:
        raise ValidationError(too_large)
    try:
        return bytes(upload.read()).decode()
    except UnicodeDecodeError as problem:
        raise ValidationError("This file is not UTF-8 text.") from problem


def diff_of(step: Step) -> list[DiffLine]:
    """What a step changes, line by line."""
    before, after = step.sides
    if step.doing == Doing.CREATE:
        return [DiffLine("added", line) for line in differences.laid_out(after)]
    if step.doing == Doing.DELETE:
        return [DiffLine("removed", line) for line in differences.laid_out(before)]
    return differences.lines(before, after)


def _shown(steps: Sequence[Step]) -> list[ShownStep]:
    return [
        ShownStep(
            LABELS[step.doing],
            COLOURS[step.doing],
            step,
            diff_of(step),
        )
        for step in steps
    ]


def _counted(found: Plan) -> str:
    counts = (f"{found.count(doing)} {LABELS[doing].lower()}" for doing in Doing if found.count(doing))
    return ", ".join(counts) or "nothing"
