"""Base class of the pages of a tenant's tools, resources and prompts.

Rows are enabled and disabled in bulk and added from the functions of installed apps. All writes go through
`catalog.authoring`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from tools_app.catalog import authoring, compiled
from tools_app.catalog.validation.items import faults_of
from tools_app.models import PromptKind, Tenant
from tools_app.tenants import permissions
from tools_app.web.admin.decorators import column
from tools_app.web.admin.fields import OfferForm, add_faults
from tools_app.web.admin.scoping import ScopedAdmin, badge, json_block, only


@dataclass(frozen=True)
class CodeOffer:
    """A registered function as listed on the page. `present`: the tenant has a row with its name."""

    name: str
    description: str
    background: bool
    present: bool


def code_offers(registered: Mapping[str, Any], present: Collection[str]) -> list[CodeOffer]:
    """Return each entry of a registry, with whether it is `present`."""
    return [
        CodeOffer(name, entry.definition.description, getattr(entry, "background", False), name in present)
        for name, entry in registered.items()
    ]


class CodeOffersForm(forms.Form):
    """Selects functions and one of the tenants that the user administers."""

    tenant: "forms.ModelChoiceField[Tenant]" = forms.ModelChoiceField(Tenant.objects.none())
    functions = forms.MultipleChoiceField(error_messages={"required": "Choose at least one function."})

    def __init__(self, tenants: QuerySet[Tenant], names: Collection[str], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants  # type: ignore[attr-defined]
        self.fields["functions"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]


class SettingsForm(forms.ModelForm):  # type: ignore[type-arg]
    """What an admin sets of a resource or prompt that code or an upstream defines."""

    class Meta:
        fields = ("enabled",)

    def full_clean(self) -> None:
        """Validate the form, and reject a function that no installed app registers any more."""
        super().full_clean()
        if self.is_bound:
            for fault in chain(*faults_of(self.instance).values()):
                self.add_error(None, f"{fault} Otherwise disable it in the list, or delete it.")


class WrittenForm(OfferForm):
    """A resource or prompt that is written in the admin, checked by the rules of the REST API and of files, too."""

    # The kind of the rows.
    kind: ClassVar[Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.instance.kind = self.kind

    def full_clean(self) -> None:
        """Validate the form, then the row as a whole."""
        super().full_clean()
        if self.is_bound and not self.errors:
            add_faults(self, faults_of(self.instance))


Fieldsets = list[tuple[str | None, dict[str, Any]]]
# Kinds whose definition is not written on these pages, and where it is.
NOT_WRITTEN: Final = {
    PromptKind.PYTHON.value: ("Declared in code", "Declared by the function's code."),
    PromptKind.UPSTREAM.value: ("Accepted definition", "Defined by the upstream, and accepted by an admin."),
}

# The kind of objects defined in code, the same for tools, resources and prompts.
PYTHON = "python"


class OfferAdmin(ScopedAdmin):
    """Objects that a tenant offers to its clients. `code_name` is the field that holds the name in the registry."""

    code_name = "name"
    actions = ("enable_selected", "disable_selected")
    list_select_related = ("tenant",)

    def registered(self) -> Mapping[str, Any]:
        """Return the functions registered by installed apps, by name."""
        raise NotImplementedError

    def add_code(self, request: HttpRequest, tenant: Tenant, names: list[str]) -> list[Any]:
        """Add the registered `names` to `tenant`. Returns the new rows."""
        raise NotImplementedError

    @admin.action(description="Enable selected %(verbose_name_plural)s", permissions=["change"])
    def enable_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        changed = authoring.switch(self.rows_run(request, queryset), True)
        self.message_user(request, f"Enabled: {len(changed)}.", messages.SUCCESS)

    @admin.action(description="Disable selected %(verbose_name_plural)s", permissions=["change"])
    def disable_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        changed = authoring.switch(self.rows_run(request, queryset), False)
        self.message_user(request, f"Disabled: {len(changed)}.", messages.SUCCESS)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Show the form, and why clients are not offered a row that is enabled."""
        row = options.get("obj")
        if row is not None and row.enabled and (reason := compiled.of_tenant(row.tenant).not_offered.get(row.pk)):
            self.message_user(
                request, f"Clients are not offered this {self.opts.verbose_name}: {reason}", messages.WARNING
            )
        return super().render_change_form(request, context, *args, **options)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        authoring.delete(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with authoring.single_version_bump():
            for row in queryset:
                authoring.delete(row)

    @column("kind", ordering="kind")
    def kind_label(self, row: Any) -> SafeString:
        # In one word: lists have little room.
        return badge(row.get_kind_display().split()[0], "info" if row.kind == PYTHON else "primary")

    @column("configuration")
    def config_json(self, row: Any) -> SafeString:
        return json_block(row.config)

    @column("icons")
    def icons_json(self, row: Any) -> SafeString:
        return json_block(row.icons)

    def python_page(self, request: HttpRequest) -> HttpResponse:
        """Add registered functions to a tenant that this user administers."""
        tenants, registered = permissions.tenants_run_by(request.user), self.registered()
        form = CodeOffersForm(tenants, registered, request.POST or None)
        if form.is_valid():
            if not self.has_add_permission(request):
                raise PermissionDenied
            tenant = form.cleaned_data["tenant"]
            added = self.add_code(request, tenant, form.cleaned_data["functions"])
            kind = str(self.opts.verbose_name_plural).capitalize()
            self.message_user(request, f"{kind} added to {tenant}: {len(added)}.", messages.SUCCESS)
            return HttpResponseRedirect(reverse(f"admin:tools_app_{self.opts.model_name}_changelist"))
        tenant = tenants.filter(slug=request.GET.get("tenant", "")).first() or only(tenants)
        rows = self.model._default_manager.filter(tenant=tenant)
        present = set(rows.values_list(self.code_name, flat=True))
        page = {
            "title": f"Add Python {self.opts.verbose_name_plural}",
            "form": form,
            "tenants": tenants,
            "tenant": tenant,
            "functions": code_offers(registered, present) if tenant else [],
            "opts": self.opts,
        }
        context = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "catalog/add_python.html", context)
