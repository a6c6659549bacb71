"""What a tenant offers, by name, for people who choose from it: on the form of a key, and when they sign in."""

from typing import Any, Final, NamedTuple

from tools_app.catalog import compiled
from tools_app.core.validators import ItemKind
from tools_app.models import Tenant

MAX_DESCRIPTION: Final = 160


class Offer(NamedTuple):
    """A tool, a prompt or a resource. `read_only` is True for what changes nothing, as prompts and resources do."""

    kind: ItemKind
    name: str
    title: str
    description: str
    read_only: bool


def offers_of(tenant: Tenant) -> list[Offer]:
    """Return what a tenant offers: tools, prompts, resources, each by name."""
    found = compiled.of_tenant(tenant)
    rows: list[tuple[ItemKind, Any]] = [
        *(("tool", tool) for tool in found.tools.values()),
        *(("prompt", prompt) for prompt in found.prompts.values()),
        *(("resource", resource) for resource in (*found.resources.values(), *found.templates.values())),
    ]
    return [
        Offer(
            kind,
            row.name,
            row.definition.title or "",
            (row.definition.description or "")[:MAX_DESCRIPTION],
            kind != "tool" or row.read_only,
        )
        for kind, row in rows
    ]
