"""Toolsets: sets of tools that keys refer to, with how many tools each has now and what a list of them costs."""

from collections.abc import Sequence
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.db.models import Count, QuerySet, RestrictedError
from django.forms.widgets import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from tools_app.catalog import compiled, toolsets
from tools_app.catalog.presentation import Contents, contents_of
from tools_app.catalog.toolsets import check_wildcards, listed_users, users_of
from tools_app.core.validators import validate_patterns
from tools_app.models import Tenant, Toolset
from tools_app.tenants.admin.key_forms import PreviewForm
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import column
from tools_app.web.admin.fields import LinesField
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter
from tools_app.web.admin.site import site

MAX_NAMES: Final = 12
UNKNOWN: Final = "The tools of this tenant cannot be read."


def contents(tenant: Tenant, entries: Sequence[str]) -> Contents | None:
    """Return the tools of a tenant that belong to a set of names and patterns; None if they cannot be read."""
    try:
        return contents_of(compiled.of_tenant(tenant), entries)
    except (TypeError, ValueError, RecursionError):
        return None


def described(tenant: Tenant, entries: Sequence[str]) -> str:
    """Return in one sentence which tools belong to a set, and what a list of them costs."""
    view = contents(tenant, entries)
    if view is None:
        return UNKNOWN
    if not view.tools:
        return "No tool belongs to it now."
    names = list(view.tools)
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    word = "tool" if len(names) == 1 else "tools"
    return f"{len(names)} {word} ({', '.join(names[:MAX_NAMES])}{more}), about {view.tokens:,} tokens in a list."


def check_entry(line: str) -> None:
    """Raise ValidationError for an invalid name or pattern of a toolset."""
    validate_patterns([line])
    check_wildcards(line)


class ToolsetForm(forms.ModelForm):  # type: ignore[type-arg]
    """A name, and the tools that belong to the set."""

    tools = LinesField(
        check=check_entry,
        placeholder="search_*",
        help_text="Names of tools, one per line. * matches anything, also tools that are added later: report_*.",
    )

    class Meta:
        model = Toolset
        fields = ("tenant", "name", "description", "tools")

    def clean(self) -> dict[str, Any] | None:
        """Reject a name that exists, and a set beyond the limit. Raises ValidationError."""
        values = super().clean() or {}
        tenant = values.get("tenant") or (self.instance.tenant if self.instance.tenant_id else None)
        if tenant is not None:
            if self.instance._state.adding:
                toolsets.check_room(tenant)
            others = Toolset.objects.filter(tenant=tenant, name=values.get("name")).exclude(pk=self.instance.pk)
            if others.exists():
                self.add_error("name", "This tenant already has a toolset with this name.")
        return values


@admin.register(Toolset, site=site)
class ToolsetAdmin(ScopedAdmin):
    """The toolsets of the user's tenants. One that a key uses cannot be deleted."""

    form = ToolsetForm
    fields = ("tenant", "name", "description", "tools", "gets", "used_by")
    readonly_fields = ("gets", "used_by")
    list_display = (
        cut_column("name", "name"),
        "tenant",
        "number_of_tools",
        "tokens",
        "number_of_users",
        moment_column("created_at", "created"),
    )
    list_filter = (TenantFilter,)
    list_per_page = 20
    empty_hint = "A toolset is a named set of tools. Keys and connections that have one see no other tools."
    list_select_related = ("tenant",)
    search_fields = ("name", "description")

    class Media:
        js = (
            Script("tools_app/tenants/key_preview.js", type="module"),
            Script("tools_app/tenants/key_names.js", type="module"),
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Toolset]:
        """Return the toolsets of the user's tenants, with the number of keys of each."""
        rows: QuerySet[Toolset] = super().get_queryset(request)
        return rows.annotate(users=Count("keys"))

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin and of the preview."""
        preview = self.admin_site.admin_view(require_POST(self.preview))
        return [path("preview/", preview, name="tools_app_toolset_preview"), *super().get_urls()]

    def preview(self, request: HttpRequest) -> HttpResponse:
        """Return which tools belong to a set that is being edited, as JSON: `{"text": …}`."""
        permitted, form = tenant_permissions_of(request), PreviewForm(request.POST)
        if not form.is_valid():
            return JsonResponse({"text": " ".join(str(text) for texts in form.errors.values() for text in texts)})
        tenant = Tenant.objects.filter(pk=form.cleaned_data["tenant"], is_active=True).first()
        if tenant is None or not permitted.sees(tenant.pk):
            raise Http404("Tenant not found.")
        if not permitted.changes(tenant.pk):
            raise PermissionDenied
        return JsonResponse({"text": described(tenant, form.cleaned_data["patterns"])})

    def get_deleted_objects(
        self, objs: QuerySet[Any] | list[Any], request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[str]]:
        """Refuse to delete toolsets that are used, and say by whom."""
        deleted, counts, _, _ = super().get_deleted_objects(objs, request)
        # Nothing is deleted with a toolset: permissions for keys do not matter.
        users = [user for row in objs for user in users_of(row)[0]]
        return deleted, counts, set(), users[:MAX_NAMES]

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Delete a toolset. One that a key got meanwhile stays, and the page says so."""
        try:
            page: HttpResponse = super().delete_view(request, object_id, extra_context)
        except (RestrictedError, IntegrityError):
            return self._still_used(request)
        return page

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, or delete what is selected in it."""
        try:
            page: HttpResponse = super().changelist_view(request, extra_context)
        except (RestrictedError, IntegrityError):
            return self._still_used(request)
        return page

    def _still_used(self, request: HttpRequest) -> HttpResponse:
        self.message_user(request, toolsets.STILL_USED, messages.ERROR)
        return HttpResponseRedirect(reverse("admin:tools_app_toolset_changelist"))

    @column("has now")
    def gets(self, row: Toolset) -> SafeString:
        """The tools of the set, with the boxes of names that a script shows."""
        chosen = None if row._state.adding else row.tenant
        description = (
            described(chosen, row.tools) if chosen else "Select a tenant to see which tools belong to the set."
        )
        tenant = chosen.pk if chosen else ""
        return format_html(
            '<div data-key-names="{}" data-tenant="{}" data-field="id_tools" data-only="tool"></div>'
            '<span aria-live="polite" data-key-preview="{}" data-tenant="{}" data-field="id_tools">{}</span>',
            reverse("admin:tools_app_apikey_names"),
            tenant,
            reverse("admin:tools_app_toolset_preview"),
            tenant,
            description,
        )

    @column("used by")
    def used_by(self, row: Toolset) -> str:
        """Keys, connections and service clients with this set."""
        return ("" if row._state.adding else listed_users(row)) or "Not used"

    @column("tools")
    def number_of_tools(self, row: Toolset) -> str:
        view = self._contents(row)
        return "?" if view is None else str(len(view.tools))

    @column("tokens")
    def tokens(self, row: Toolset) -> str:
        """About what a list of its tools costs."""
        view = self._contents(row)
        return "?" if view is None else f"{view.tokens:,}"

    def _contents(self, row: Any) -> Contents | None:
        """Return the tools of a row of the list, found once for all of its columns."""
        if "contents" not in row.__dict__:
            row.contents = contents(row.tenant, row.tools)
        found: Contents | None = row.contents
        return found

    @column("used by")
    def number_of_users(self, row: Any) -> str:
        return f"{row.users} key{'' if row.users == 1 else 's'}"
