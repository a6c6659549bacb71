"""Choosing what a tenant offers of that which installed apps register: tools, resources or prompts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.db.models import QuerySet

from tools_app.models import Tenant


@dataclass(frozen=True)
class CodeOffer:
    """A registered function as the page lists it. `present`: the tenant has a row of its name."""

    name: str
    description: str
    background: bool
    present: bool


def code_offers(registered: Mapping[str, Any], present: Collection[str]) -> list[CodeOffer]:
    """Every entry of a registry, and whether it is among those that are `present`."""
    return [
        CodeOffer(name, entry.definition.description, getattr(entry, "background", False), name in present)
        for name, entry in registered.items()
    ]


class CodeOffersForm(forms.Form):
    """Functions for one tenant, of those that the person runs."""

    tenant: "forms.ModelChoiceField[Tenant]" = forms.ModelChoiceField(Tenant.objects.none())
    functions = forms.MultipleChoiceField(error_messages={"required": "Choose at least one function."})

    def __init__(self, tenants: QuerySet[Tenant], names: Collection[str], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants  # type: ignore[attr-defined]
        self.fields["functions"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
