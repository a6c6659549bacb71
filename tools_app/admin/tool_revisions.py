"""What a tool was: any two of its definitions compared, an earlier one brought back, and a tool cloned."""

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

from tools_app.admin import differences
from tools_app.admin.decorators import button
from tools_app.admin.offers import OfferAdmin
from tools_app.admin.scoped import only, writer
from tools_app.auth import access
from tools_app.blueprints.building import secrets_named_by
from tools_app.execution import revisions
from tools_app.models import Tenant, Tool, ToolKind, ToolRevision
from tools_app.models.catalog import TOOL_NAME

MOST_LISTED = 100
# PostgreSQL keeps no much larger one in this column.
NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Listed:
    """A revision as the page lists it. `why_not`: why it cannot be brought back."""

    revision: ToolRevision
    why_not: str

    @property
    def is_now(self) -> bool:
        """Whether the tool is defined like this now."""
        return self.why_not == revisions.AS_NOW

    @property
    def author(self) -> str:
        """Who made it; the hub itself makes one when code changes."""
        by = self.revision.created_by
        return by.get_username() if by else "the hub"


class CloneForm(forms.Form):
    """Where the new tool belongs, and what it is called there."""

    tenant: "forms.ModelChoiceField[Tenant]" = forms.ModelChoiceField(
        Tenant.objects.none(), empty_label=None, widget=UnfoldAdminSelectWidget
    )
    name = forms.CharField(max_length=128, validators=[TOOL_NAME], widget=UnfoldAdminTextInputWidget)
    enabled = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text="Off: clients see it once you switch it on.",
    )

    def __init__(self, tenants: Any, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any] | None:
        """Refuse a name that is taken. Raises ValidationError."""
        tenant, name = self.cleaned_data.get("tenant"), self.cleaned_data.get("name")
        if tenant and name and tenant.tools.filter(name=name).exists():
            raise ValidationError({"name": f"{tenant} has a tool of this name."})
        return super().clean()


class RevisionsAdmin(OfferAdmin):
    """The buttons of a tool's page that lead to what it was, and to another one like it."""

    def has_clone_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whoever sees a tool may take it along to a tenant that this person runs."""
        return self.has_add_permission(request) and (object_id is None or bool(self.get_object(request, object_id)))

    def has_revisions_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whoever sees a tool sees what it was."""
        return self.has_view_permission(request, self.get_object(request, object_id) if object_id else None)

    @button("Revisions", url_path="revisions", permissions=["revisions"], icon="history")
    def show_revisions(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """List the revisions and compare two; a POST brings one back."""
        tool = self.get_object(request, object_id)
        if request.method == "POST":
            return self._restore(request, tool)
        rows = list(tool.revisions.select_related("created_by").order_by("-number")[:MOST_LISTED])
        now = revisions.definition_of(tool)
        one, other = _chosen(request, tool, rows)
        before, after = one.definition if one else {}, other.definition if other else now
        page = {
            "title": f"Revisions of {tool}",
            "tool": tool,
            "original": tool,
            "listed": [Listed(row, revisions.why_not(tool, row.definition)) for row in rows],
            "one": one,
            "other": other,
            "diff": differences.lines(before, after),
            "may_restore": self.has_change_permission(request, tool),
            "is_code": tool.kind == ToolKind.PYTHON,
            "from_code": revisions.FROM_CODE,
            "has_more": len(rows) == MOST_LISTED,
            "opts": self.opts,
        }
        context = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "admin/tools_app/tool/revisions.html", context)

    @button("Clone", url_path="clone", permissions=["clone"], icon="content_copy")
    def clone_tool(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make another tool like this one."""
        tool = self.get_object(request, object_id)
        tenants = access.tenants_run_by(request.user)
        if not tenants.exists():
            raise PermissionDenied
        home = tenants.filter(pk=tool.tenant_id).first() or only(tenants)
        initial = {"tenant": home, "name": f"{tool.name}_copy"[:128]}
        form = CloneForm(tenants, request.POST) if request.method == "POST" else CloneForm(tenants, initial=initial)
        if form.is_valid() and (made := self._cloned(request, tool, form)) is not None:
            return HttpResponseRedirect(reverse("admin:tools_app_tool_change", args=[made.pk]))
        page = {"title": f"Clone {tool}", "tool": tool, "original": tool, "form": form, "opts": self.opts}
        context = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "admin/tools_app/tool/clone.html", context)

    def _restore(self, request: HttpRequest, tool: Tool) -> HttpResponse:
        if not self.has_change_permission(request, tool):
            raise PermissionDenied
        number = request.POST.get("restore", "")
        revision = tool.revisions.filter(number=int(number)).first() if _is_number(number) else None
        if revision is None:
            raise Http404("There is no such revision.")
        try:
            revisions.restore(tool, revision, writer(request))
        except revisions.NotPossible as problem:
            self.message_user(request, f"Revision {revision.number} stays as it is: {problem}", messages.ERROR)
        else:
            self.message_user(
                request, f"Revision {revision.number} is back, as revision {tool.revision}.", messages.SUCCESS
            )
        return HttpResponseRedirect(reverse("admin:tools_app_tool_show_revisions", args=[tool.pk]))

    def _cloned(self, request: HttpRequest, tool: Tool, form: CloneForm) -> Tool | None:
        """The new tool; None if it cannot be, which the form tells."""
        tenant, given = form.cleaned_data["tenant"], form.cleaned_data
        try:
            made = revisions.clone(tool, tenant, given["name"], enabled=given["enabled"], by=writer(request))
        except revisions.NotPossible as problem:
            form.add_error(None, str(problem))
            return None
        self.message_user(request, f"{made} of {tenant} was made.", messages.SUCCESS)
        if missing := _missing_secrets(made):
            told = f"{tenant} has no secret named {', '.join(missing)}: set it before {made} is called."
            self.message_user(request, told, messages.WARNING)
        return made


def _chosen(
    request: HttpRequest, tool: Tool, rows: list[ToolRevision]
) -> tuple[ToolRevision | None, ToolRevision | None]:
    """The revisions to compare; None for the second is how the tool is now. At first, the last two."""
    one, other = (request.GET.get(name, "") for name in ("from", "to"))
    if not one:
        return (rows[1] if len(rows) > 1 else None), (rows[0] if rows else None)
    found = {row.number: row for row in tool.revisions.filter(number__in=filter(_is_number, (one, other)))}
    if not _is_number(one) or int(one) not in found or (other and (not _is_number(other) or int(other) not in found)):
        raise Http404("There is no such revision.")
    return found[int(one)], found[int(other)] if other else None


def _is_number(text: str) -> bool:
    return bool(NUMBER.fullmatch(text))


def _missing_secrets(tool: Tool) -> list[str]:
    return sorted(secrets_named_by(tool) - set(tool.tenant.secrets.values_list("name", flat=True)))
