"""What a person may choose on the consent page: tools, resources, prompts, and for how long."""

from functools import cached_property
from typing import Any, Final, NamedTuple

from django import forms
from django.http import QueryDict

from tools_app.catalog.offers import Offer, offers_of
from tools_app.catalog.toolsets import Resolver
from tools_app.core.validators import ITEM_KINDS, MAX_EXACT
from tools_app.identity.oauth.connections import DEFAULT_LIFETIME, LIFETIMES
from tools_app.identity.patterns import PermittedNames, exactly
from tools_app.models import Connection, Tenant, Toolset

MAX_TENANTS: Final = 100
# Further offers of a group are chosen all together.
MAX_SHOWN: Final = 500
# Toolsets with a button of their own, the first ones by name.
MAX_TOOLSET_BUTTONS: Final = 20


class Checkbox(NamedTuple):
    """An offer that can be chosen. `toolsets`: numbers of the toolset buttons that check it, for the page's script."""

    offer: Offer
    is_checked: bool
    toolsets: str


class CheckboxGroup(NamedTuple):
    """The checkboxes of one kind. `preset` is the button that checks them beside "All"."""

    legend: str
    kind: str
    preset: str
    checkboxes: list[Checkbox]


class ConsentForm(forms.Form):
    """What the person chose. An offer that is not checked is not allowed."""

    days = forms.ChoiceField(
        label="Ask again after",
        choices=[(str(days), f"{days} days") for days in LIFETIMES],
        initial=str(DEFAULT_LIFETIME),
        required=False,
    )
    later = forms.BooleanField(label="Everything, including what is added later", required=False)

    def __init__(self, tenant: Tenant, data: QueryDict | None = None, **options: Any) -> None:
        super().__init__(data, **options)
        self._tenant = tenant
        self.offers = offers_of(tenant)
        self.chosen = {kind: set(data.getlist(kind)) if data is not None else None for kind in ITEM_KINDS}

    def clean(self) -> dict[str, Any]:
        """Reject a choice of nothing, or of too much to store. Raises ValidationError."""
        names = self.names()
        if not self.cleaned_data.get("later") and not names:
            raise forms.ValidationError("Choose at least one tool, prompt or resource.")
        if len(names) > MAX_EXACT:
            raise forms.ValidationError(f"Choose at most {MAX_EXACT}, or everything, including what is added later.")
        return self.cleaned_data

    @property
    def lifetime(self) -> int:
        """The chosen number of days."""
        return int(self.cleaned_data["days"] or DEFAULT_LIFETIME)

    def names(self) -> list[str]:
        """Return entries for exactly what was chosen; empty for everything."""
        if self.cleaned_data.get("later"):
            return []
        # What the tenant does not offer is ignored: it may have gone since the page was opened.
        chosen = [offer for offer in self.offers if offer.name in (self.chosen[offer.kind] or ())]
        return sorted(exactly(offer.kind, offer.name) for offer in chosen)

    def groups(self) -> list[CheckboxGroup]:
        """Return the checkboxes, at most MAX_SHOWN of a group."""
        return [
            self._group("Tools that only read", "tool", "reading", read_only=True),
            self._group("Tools that can change something", "tool", "changing", read_only=False),
            self._group("Prompts", "prompt", "reading", read_only=True),
            self._group("Resources", "resource", "reading", read_only=True),
        ]

    @cached_property
    def toolsets(self) -> list[tuple[str, frozenset[str]]]:
        """Toolsets of the tenant by name, with the offered tools that belong to them: a button checks these."""
        resolver = Resolver(offer.name for offer in self.offers if offer.kind == "tool")
        rows = Toolset.objects.filter(tenant=self._tenant).order_by("name")[:MAX_TOOLSET_BUTTONS]
        resolved = [(row.name, resolver.resolve(row.tools).names) for row in rows]
        return [(name, tools) for name, tools in resolved if tools]

    @property
    def unlisted_count(self) -> int:
        """The number of offers without a checkbox of their own."""
        return len(self.offers) - sum(len(group.checkboxes) for group in self.groups())

    def _group(self, legend: str, kind: str, preset: str, *, read_only: bool) -> CheckboxGroup:
        offers = [offer for offer in self.offers if offer.kind == kind and offer.read_only == read_only]
        return CheckboxGroup(legend, kind, preset, [self._checkbox(offer) for offer in offers[:MAX_SHOWN]])

    def _checkbox(self, offer: Offer) -> Checkbox:
        toolsets = enumerate(self.toolsets) if offer.kind == "tool" else ()
        toolset_numbers = " ".join(str(number) for number, (_, tools) in toolsets if offer.name in tools)
        return Checkbox(offer, self._is_checked(offer), toolset_numbers)

    def _is_checked(self, offer: Offer) -> bool:
        """Whether a checkbox is checked: as sent, else as allowed before, else all."""
        chosen = self.chosen[offer.kind]
        if chosen is not None:
            return offer.name in chosen
        allowed = self.initial.get("names")
        return not allowed or allowed.have(offer.kind, offer.name)


def initial_choices(existing: Connection | None) -> dict[str, Any]:
    """Return what the form shows first: what the person allowed before."""
    if existing is None:
        return {}
    names = existing.key.tool_patterns
    return {"names": PermittedNames(names) if names else None, "later": not names}
