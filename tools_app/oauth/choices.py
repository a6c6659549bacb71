"""What a person may choose on the consent page: tools, resources, prompts, and for how long."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from django import forms
from django.http import QueryDict

from tools_app.access.oauth.connections import DEFAULT_LIFETIME, LIFETIMES
from tools_app.access.principal import matches
from tools_app.catalog import compiled
from tools_app.models import Connection, Tenant

MAX_TENANTS: Final = 100
# More are chosen all together.
MAX_SHOWN: Final = 500
MAX_DESCRIPTION: Final = 160
KINDS: Final = ("tool", "prompt", "resource")


class Choice(NamedTuple):
    """One box to tick."""

    name: str
    title: str
    description: str
    ticked: bool


class Offered(NamedTuple):
    """The boxes of a page. `hidden` is how many tools are not shown one by one."""

    reading: list[Choice]
    changing: list[Choice]
    prompts: list[Choice]
    resources: list[Choice]
    hidden: int


class ConsentForm(forms.Form):
    """What the person chose. A box that is not ticked is not allowed."""

    days = forms.ChoiceField(
        label="Ask again after",
        choices=[(str(days), f"{days} days") for days in LIFETIMES],
        initial=str(DEFAULT_LIFETIME),
        required=False,
    )
    later = forms.BooleanField(label="Everything, including what is added later", required=False)

    def __init__(self, tenant: Tenant, data: QueryDict | None = None, **options: Any) -> None:
        super().__init__(data, **options)
        self._catalog = compiled.of_tenant(tenant)
        self.chosen = {kind: set(data.getlist(kind)) if data is not None else None for kind in KINDS}

    def clean(self) -> dict[str, Any]:
        """Reject a choice of nothing. Raises ValidationError."""
        if not self.cleaned_data.get("later") and not self.patterns():
            raise forms.ValidationError("Choose at least one tool, prompt or resource.")
        return self.cleaned_data

    @property
    def lifetime(self) -> int:
        """The chosen number of days."""
        return int(self.cleaned_data["days"] or DEFAULT_LIFETIME)

    def patterns(self) -> list[str]:
        """Return the chosen names and URIs; empty for everything."""
        if self.cleaned_data.get("later"):
            return []
        found = self._catalog
        offered = {"tool": found.tools, "prompt": found.prompts, "resource": {**found.resources, **found.templates}}
        # What the tenant does not offer is ignored: it may have gone since the page was opened.
        return sorted({name for kind, names in offered.items() for name in names if name in (self.chosen[kind] or ())})

    def is_ticked(self, kind: str, name: str) -> bool:
        """Whether a box is ticked: as sent, else as allowed before, else all."""
        chosen = self.chosen[kind]
        if chosen is not None:
            return name in chosen
        patterns: Sequence[str] = self.initial.get("patterns", ())
        return not patterns or matches(name, patterns)


def initial_of(known: Connection | None) -> dict[str, Any]:
    """Return what the form shows first: what the person allowed before."""
    if known is None:
        return {}
    return {"patterns": known.key.tool_patterns, "later": not known.key.tool_patterns}


def offered(tenant: Tenant, form: ConsentForm) -> Offered:
    """Return the boxes of a tenant's catalog, at most MAX_SHOWN of a kind."""
    found = compiled.of_tenant(tenant)
    reading = [tool for tool in found.tools.values() if tool.read_only]
    changing = [tool for tool in found.tools.values() if not tool.read_only]
    shown = [*found.resources.values(), *found.templates.values()]
    return Offered(
        reading=_boxes(form, "tool", reading),
        changing=_boxes(form, "tool", changing),
        prompts=_boxes(form, "prompt", list(found.prompts.values())),
        resources=_boxes(form, "resource", shown),
        hidden=sum(max(0, len(kind) - MAX_SHOWN) for kind in (reading, changing, found.prompts, shown)),
    )


def _boxes(form: ConsentForm, kind: str, rows: Sequence[Any]) -> list[Choice]:
    return [
        Choice(
            row.name,
            row.definition.title or "",
            (row.definition.description or "")[:MAX_DESCRIPTION],
            form.is_ticked(kind, row.name),
        )
        for row in rows[:MAX_SHOWN]
    ]
