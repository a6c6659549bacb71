"""Revisions of a tool: comparing two of them, restoring an earlier one, and cloning a tool."""

import re
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget, UnfoldBooleanSwitchWidget

from tools_app.catalog import authoring, revisions
from tools_app.catalog.admin.base import OfferAdmin
from tools_app.catalog.kinds.base import kind_of
from tools_app.catalog.models import TOOL_NAME
from tools_app.core import diff
from tools_app.core.relations import first_within
from tools_app.models import Tenant, Tool, ToolRevision
from tools_app.tenants import permissions
from tools_app.web.admin.decorators import button
from tools_app.web.admin.scoping import only, writer

MAX_LISTED = 100
# Maximum total size of the definitions on a page.
MAX_BYTES = 4 * 1024 * 1024
# The maximum of PostgreSQL's integer column.
NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class RevisionRow:
    """A revision as listed on the page. `why_not`: why it cannot be restored."""

    revision: ToolRevision
    why_not: str

    @property
    def is_now(self) -> bool:
        """Whether this is the current definition."""
        return self.why_not == revisions.UNCHANGED

    @property
    def author(self) -> str:
        """The user who created the revision; the hub creates one when code changes."""
        by = self.revision.created_by
        return by.get_username() if by else "the hub"


class CloneForm(forms.Form):
    """The tenant and name of the clone."""

    tenant: "forms.ModelChoiceField[Tenant]" = forms.ModelChoiceField(
        Tenant.objects.none(), empty_label=None, widget=UnfoldAdminSelectWidget
    )
    name = forms.CharField(max_length=128, validators=[TOOL_NAME], widget=UnfoldAdminTextInputWidget)
    enabled = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text="If off, clients see the tool only after you enable it.",
    )

    def __init__(self, tenants: Any, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any] | None:
        """Reject a name that exists. Raises ValidationError."""
        tenant, name = self.cleaned_data.get("tenant"), self.cleaned_data.get("name")
        if tenant and name and tenant.tools.filter(name=name).exists():
            raise ValidationError({"name": f"{tenant} already has a tool with this name."})
        return super().clean()


class RevisionsAdmin(OfferAdmin):
    """The revisions and clone buttons of a tool's page."""

    def has_clone_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow users who can view the tool to clone it into a tenant that they administer."""
        return self.has_add_permission(request) and (object_id is None or bool(self.get_object(request, object_id)))

    def has_revisions_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow users who can view the tool to view its revisions."""
        return self.has_view_permission(request, self.get_object(request, object_id) if object_id else None)

    @button("Revisions", url_path="revisions", permissions=["revisions"], icon="history")
    def show_revisions(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """List the revisions and compare two; a POST restores one."""
        tool = self.get_object(request, object_id)
        if request.method == "POST":
            return self._restore(request, tool)
        newest = tool.revisions.select_related("created_by").order_by("-number")
        rows, has_more = first_within(newest, MAX_LISTED, MAX_BYTES)
        now = authoring.definition_of(tool)
        one, other = _chosen(request, tool, rows)
        before, after = one.definition if one else {}, other.definition if other else now
        page = {
            "title": f"Revisions of {tool}",
            "tool": tool,
            "original": tool,
            "listed": [RevisionRow(row, revisions.restore_problem(tool, row.definition)) for row in rows],
            "one": one,
            "other": other,
            "diff": diff.lines(before, after),
            "may_restore": self.has_change_permission(request, tool),
            "not_restored": kind_of(tool.kind).history,
            "has_more": has_more,
            "opts": self.opts,
        }
        context = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "catalog/tool/revisions.html", context)

    @button("Clone", url_path="clone", permissions=["clone"], icon="content_copy")
    def clone_tool(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Create a copy of this tool."""
        tool = self.get_object(request, object_id)
        tenants = permissions.tenants_run_by(request.user)
        if not tenants.exists():
            raise PermissionDenied
        home = tenants.filter(pk=tool.tenant_id).first() or only(tenants)
        initial = {"tenant": home, "name": f"{tool.name}_copy"[:128]}
        form = CloneForm(tenants, request.POST) if request.method == "POST" else CloneForm(tenants, initial=initial)
        if form.is_valid() and (clone := self._cloned(request, tool, form)) is not None:
            return HttpResponseRedirect(reverse("admin:tools_app_tool_change", args=[clone.pk]))
        page = {"title": f"Clone {tool}", "tool": tool, "original": tool, "form": form, "opts": self.opts}
        context = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "catalog/tool/clone.html", context)

    def _restore(self, request: HttpRequest, tool: Tool) -> HttpResponse:
        if not self.has_change_permission(request, tool):
            raise PermissionDenied
        number = request.POST.get("restore", "")
        revision = tool.revisions.filter(number=int(number)).first() if _is_number(number) else None
        if revision is None:
            raise Http404("Revision not found.")
        try:
            revisions.restore(tool, revision, writer(request))
        except revisions.RevisionError as error:
            self.message_user(request, f"Revision {revision.number} was not restored: {error}", messages.ERROR)
        else:
            self.message_user(
                request, f"Revision {revision.number} was restored as revision {tool.revision}.", messages.SUCCESS
            )
        return HttpResponseRedirect(reverse("admin:tools_app_tool_show_revisions", args=[tool.pk]))

    def _cloned(self, request: HttpRequest, tool: Tool, form: CloneForm) -> Tool | None:
        """Return the new tool, or None, with the error added to the form."""
        tenant, given = form.cleaned_data["tenant"], form.cleaned_data
        try:
            clone = revisions.clone(tool, tenant, given["name"], enabled=given["enabled"], by=writer(request))
        except revisions.RevisionError as error:
            form.add_error(None, str(error))
            return None
        self.message_user(request, f"{clone} was created in {tenant}.", messages.SUCCESS)
        present = tenant.secrets.values_list("name", flat=True)
        if missing := sorted(authoring.secrets_named_by(clone) - set(present)):
            message = f"{tenant} has no secret named {', '.join(missing)}. Set it before {clone} is called."
            self.message_user(request, message, messages.WARNING)
        return clone


def _chosen(
    request: HttpRequest, tool: Tool, rows: list[ToolRevision]
) -> tuple[ToolRevision | None, ToolRevision | None]:
    """Return the revisions to compare: by default the last two. None for the second means the current definition."""
    one, other = (request.GET.get(name, "") for name in ("from", "to"))
    if not one:
        return (rows[1] if len(rows) > 1 else None), (rows[0] if rows else None)
    found = {row.number: row for row in tool.revisions.filter(number__in=filter(_is_number, (one, other)))}
    if not _is_number(one) or int(one) not in found or (other and (not _is_number(other) or int(other) not in found)):
        raise Http404("Revision not found.")
    return found[int(one)], found[int(other)] if other else None


def _is_number(text: str) -> bool:
    return bool(NUMBER.fullmatch(text))
