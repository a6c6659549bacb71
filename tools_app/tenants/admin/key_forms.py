"""Forms of API keys: settings, scopes (one per line) and what they give access to, and the overlap of a rotated key."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final
from uuid import UUID

from django import forms
from django.contrib.auth.models import User
from unfold.widgets import UnfoldAdminRadioSelectWidget

from tools_app.catalog.toolsets import Resolver
from tools_app.core.validators import ItemKind
from tools_app.identity.patterns import PermittedNames
from tools_app.methods.areas import check_method
from tools_app.models import ApiKey, Prompt, Resource, Tool, Toolset
from tools_app.tenants.keys import SETTINGS, check_editor
from tools_app.web.admin.fields import LinesField, LinesTextarea, NamesField, form_field

MAX_NAMES: Final = 12
KINDS: Final[tuple[tuple[ItemKind, Any, str], ...]] = (
    ("tool", Tool, "name"),
    ("resource", Resource, "uri"),
    ("prompt", Prompt, "name"),
)


def described_access(tenant_id: UUID, entries: Sequence[str], toolset_id: UUID | None = None) -> str:
    """Return as one sentence what a key with these names can use, of the tools those of its toolset."""
    permitted = PermittedNames(entries) if entries else None
    parts = []
    for kind, model, field in KINDS:
        rows = model.objects.filter(tenant=tenant_id, enabled=True).order_by(field)
        every = list(rows.values_list(field, flat=True))
        names = [name for name in every if permitted is None or permitted.have(kind, name)]
        if model is Tool and toolset_id is not None:
            row = Toolset.objects.filter(tenant=tenant_id, pk=toolset_id).first()
            belonging = Resolver(names).resolve(row.tools if row else ()).names
            names = [name for name in names if name in belonging]
        total = f"{len(every)} {kind if len(every) == 1 else f'{kind}s'}"
        if names:
            more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
            parts.append(f"{len(names)} of {total} ({', '.join(names[:MAX_NAMES])}{more})")
        else:
            parts.append(f"none of {total}" if every else f"no {kind}s")
    return f"This key can use {'; '.join(parts)}."


OVERLAPS: Final = {
    "now": ("Revoke the old key now", timedelta()),
    "hour": ("1 hour", timedelta(hours=1)),
    "day": ("1 day", timedelta(days=1)),
    "week": ("7 days", timedelta(days=7)),
    "month": ("30 days", timedelta(days=30)),
}
USUAL_OVERLAP: Final = "day"


class ApiKeyForm(forms.ModelForm):  # type: ignore[type-arg]
    """The settings of a key. `editor` is who changes them, which the page sets."""

    editor: User | None = None

    class Meta:
        model = ApiKey
        fields = ("tenant", "name", "expires_at", "acts_for_creator", *SETTINGS)
        formfield_callback = form_field
        widgets: ClassVar = {
            "tool_patterns": LinesTextarea("Everything in the tenant"),
            "methods": LinesTextarea("All methods"),
            "networks": LinesTextarea("Any network"),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        methods, toolset = (self.fields.get(name) for name in ("methods", "toolset"))
        if isinstance(methods, LinesField):
            methods.check = check_method
        if isinstance(toolset, forms.ModelChoiceField) and self.instance.tenant_id and toolset.queryset is not None:
            toolset.queryset = toolset.queryset.filter(tenant=self.instance.tenant_id)

    def clean(self) -> dict[str, Any] | None:
        """Reject changes of somebody else's key. Raises ValidationError."""
        if not self.instance._state.adding:
            check_editor(self.instance, self.editor, self.changed_data)
        return super().clean()


class PreviewForm(forms.Form):
    """A tenant and the patterns to preview."""

    tenant = forms.UUIDField()
    patterns = NamesField(required=False)
    toolset = forms.UUIDField(required=False)


class OverlapForm(forms.Form):
    """How long a replaced key stays valid."""

    overlap = forms.ChoiceField(
        label="Both keys work for",
        choices=[(name, label) for name, (label, _) in OVERLAPS.items()],
        initial=USUAL_OVERLAP,
        widget=UnfoldAdminRadioSelectWidget,
    )

    @property
    def chosen(self) -> timedelta:
        """The overlap of a valid form."""
        return OVERLAPS[self.cleaned_data["overlap"]][1]
