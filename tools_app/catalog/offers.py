"""What a tenant offers, by name, for people who choose from it: on the form of a key, and when they sign in."""

from collections.abc import Sequence
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
    readable = [*found.resources.values(), *found.templates.values()]
    return [
        *(_offer("tool", tool, read_only=tool.read_only) for tool in found.tools.values()),
        *_of_kind("prompt", list(found.prompts.values())),
        *_of_kind("resource", readable),
    ]


def _of_kind(kind: ItemKind, rows: Sequence[Any]) -> list[Offer]:
    return [_offer(kind, row, read_only=True) for row in rows]


def _offer(kind: ItemKind, row: Any, *, read_only: bool) -> Offer:
    definition = row.definition
    return Offer(kind, row.name, definition.title or "", (definition.description or "")[:MAX_DESCRIPTION], read_only)
