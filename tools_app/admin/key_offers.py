"""What a key, or anybody, gets of a tenant by name, in words and numbers: asked before the key is used."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from tools_app.auth.principal import matches
from tools_app.models import Prompt, Resource, Tool

MOST_NAMES: Final = 12
KINDS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("tool", Tool, "name"),
    ("resource", Resource, "uri"),
    ("prompt", Prompt, "name"),
)


class Offered(NamedTuple):
    """What patterns name of one kind, of so many that are switched on."""

    kind: str
    names: list[str]
    total: int

    def __str__(self) -> str:
        things = self.kind if self.total == 1 else f"{self.kind}s"
        if not self.names:
            return f"none of {self.total} {things}" if self.total else f"no {things}"
        more = f" and {len(self.names) - MOST_NAMES} more" if len(self.names) > MOST_NAMES else ""
        return f"{len(self.names)} of {self.total} {things} ({', '.join(self.names[:MOST_NAMES])}{more})"


def offered(tenant_id: UUID, patterns: Sequence[str]) -> list[Offered]:
    """What a key with these patterns gets; without patterns it gets everything."""
    return [_of_kind(tenant_id, patterns, *kind) for kind in KINDS]


def described(tenant_id: UUID, patterns: Sequence[str]) -> str:
    """The same in one sentence."""
    return f"This key gets {'; '.join(map(str, offered(tenant_id, patterns)))}."


def _of_kind(tenant_id: UUID, patterns: Sequence[str], kind: str, model: Any, field: str) -> Offered:
    rows = model.objects.filter(tenant=tenant_id, enabled=True).order_by(field)
    names = list(rows.values_list(field, flat=True))
    return Offered(kind, [name for name in names if not patterns or matches(name, patterns)], len(names))
