"""What a person may choose on the consent page: tools, resources, prompts, and for how long."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from django import forms
from django.http import QueryDict

from tools_app.access.oauth.connections import DEFAULT_LIFETIME, LIFETIMES
from tools_app.access.patterns import matches
from tools_app.catalog.offers import Offer, offers_of
from tools_app.models import Connection, Tenant

MAX_TENANTS: Final = 100
# More of a group are chosen all together.
MAX_SHOWN: Final = 500
KINDS: Final = ("tool", "prompt", "resource")


class Group(NamedTuple):
    """The boxes of one kind: each with whether it is ticked. `preset` is the one that ticks them beside "All"."""

    legend: str
    kind: str
    preset: str
    boxes: list[tuple[Offer, bool]]


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
        self.offers = offers_of(tenant)
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
        # What the tenant does not offer is ignored: it may have gone since the page was opened.
        return sorted({offer.name for offer in self.offers if offer.name in (self.chosen[offer.kind] or ())})

    def groups(self) -> list[Group]:
        """Return the boxes, at most MAX_SHOWN of a group."""
        return [
            self._group("Tools that only read", "tool", "reading", read_only=True),
            self._group("Tools that can change something", "tool", "changing", read_only=False),
            self._group("Prompts", "prompt", "reading", read_only=True),
            self._group("Resources", "resource", "reading", read_only=True),
        ]

    @property
    def hidden(self) -> int:
        """How much is offered without a box of its own."""
        return len(self.offers) - sum(len(group.boxes) for group in self.groups())

    def _group(self, legend: str, kind: str, preset: str, *, read_only: bool) -> Group:
        own = [offer for offer in self.offers if offer.kind == kind and offer.read_only == read_only]
        return Group(legend, kind, preset, [(offer, self._is_ticked(offer)) for offer in own[:MAX_SHOWN]])

    def _is_ticked(self, offer: Offer) -> bool:
        """Whether a box is ticked: as sent, else as allowed before, else all."""
        chosen = self.chosen[offer.kind]
        if chosen is not None:
            return offer.name in chosen
        patterns: Sequence[str] = self.initial.get("patterns", ())
        return not patterns or matches(offer.name, patterns)


def initial_of(known: Connection | None) -> dict[str, Any]:
    """Return what the form shows first: what the person allowed before."""
    if known is None:
        return {}
    return {"patterns": known.key.tool_patterns, "later": not known.key.tool_patterns}
