"""Choosing which registered Python functions a tenant offers."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.db.models import QuerySet

from tools_app.execution.kinds import python
from tools_app.models import Tenant


@dataclass(frozen=True)
class OfferedFunction:
    """A registered function as the page lists it. `present`: the tenant has a tool of its name."""

    name: str
    title: str
    description: str
    background: bool
    present: bool


def functions_of(tenant: Tenant) -> list[OfferedFunction]:
    """Every registered function, and whether `tenant` has it."""
    present = set(tenant.tools.values_list("name", flat=True))
    return [
        OfferedFunction(
            name, function.definition.title, function.definition.description, function.background, name in present
        )
        for name, function in python.all_registered().items()
    ]


class CodeToolsForm(forms.Form):
    """Functions for one tenant, of those that the person runs."""

    tenant: "forms.ModelChoiceField[Tenant]" = forms.ModelChoiceField(Tenant.objects.none())
    functions = forms.MultipleChoiceField(error_messages={"required": "Choose at least one function."})

    def __init__(self, tenants: QuerySet[Tenant], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants  # type: ignore[attr-defined]
        self.fields["functions"].choices = [(name, name) for name in python.all_registered()]  # type: ignore[attr-defined]
