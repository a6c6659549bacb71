"""The base of the pages of what a tenant offers: tools, resources and prompts.

Rows of each are switched on and off in bulk, and added from what installed apps register. All writing is
`execution.authoring`'s.
"""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from tools_app.admin.code_offers import CodeOffersForm, code_offers
from tools_app.admin.decorators import column
from tools_app.admin.scoped import ScopedAdmin, badge, json_block, only
from tools_app.auth import access
from tools_app.execution import authoring
from tools_app.models import Tenant, ToolKind

Fieldsets = list[tuple[str | None, dict[str, Any]]]

# Tools, resources and prompts that come from code are of a kind of the same name.
PYTHON = ToolKind.PYTHON.value


class OfferAdmin(ScopedAdmin):
    """Rows that a tenant offers to its clients. `code_name` is the field that a registry knows them by."""

    code_name = "name"
    actions = ("enable_selected", "disable_selected")
    list_select_related = ("tenant",)

    def registered(self) -> Mapping[str, Any]:
        """What installed apps register, by name."""
        raise NotImplementedError

    def add_code(self, request: HttpRequest, tenant: Tenant, names: list[str]) -> list[Any]:
        """Offer the registered `names` to `tenant`; gives back the rows that are new."""
        raise NotImplementedError

    @admin.action(description="Switch on selected %(verbose_name_plural)s", permissions=["change"])
    def enable_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._switch(request, queryset, enabled=True)

    @admin.action(description="Switch off selected %(verbose_name_plural)s", permissions=["change"])
    def disable_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._switch(request, queryset, enabled=False)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        authoring.delete(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with authoring.one_touch():
            for row in queryset:
                authoring.delete(row)

    @column("kind", ordering="kind")
    def kind_label(self, row: Any) -> SafeString:
        return badge(row.get_kind_display(), "info" if row.kind == PYTHON else "primary")

    @column("configuration")
    def config_json(self, row: Any) -> SafeString:
        return json_block(row.config)

    def python_page(self, request: HttpRequest) -> HttpResponse:
        """Offer what installed apps register to a tenant that this person runs."""
        tenants, registered = access.tenants_run_by(request.user), self.registered()
        form = CodeOffersForm(tenants, registered, request.POST or None)
        if form.is_valid():
            return self._offer(request, form.cleaned_data["tenant"], form.cleaned_data["functions"])
        tenant = _named(tenants, request.GET.get("tenant")) or only(tenants)
        page = {
            "title": f"Add Python {self.opts.verbose_name_plural}",
            "form": form,
            "tenants": tenants,
            "tenant": tenant,
            "functions": code_offers(registered, self._present(tenant)) if tenant else [],
            "opts": self.opts,
        }
        context = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "admin/tools_app/add_python.html", context)

    def _present(self, tenant: Tenant) -> set[str]:
        return set(self.model._default_manager.filter(tenant=tenant).values_list(self.code_name, flat=True))

    def _offer(self, request: HttpRequest, tenant: Tenant, names: list[str]) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        added = self.add_code(request, tenant, names)
        kind = str(self.opts.verbose_name_plural).capitalize()
        self.message_user(request, f"{kind} added to {tenant}: {len(added)}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse(f"admin:tools_app_{self.opts.model_name}_changelist"))

    def _switch(self, request: HttpRequest, chosen: QuerySet[Any], *, enabled: bool) -> None:
        changed = authoring.switch(self.rows_run(request, chosen), enabled)
        said = "Switched on" if enabled else "Switched off"
        self.message_user(request, f"{said}: {len(changed)}.", messages.SUCCESS)


def _named(tenants: QuerySet[Tenant], slug: str | None) -> Tenant | None:
    return tenants.filter(slug=slug).first() if slug else None
