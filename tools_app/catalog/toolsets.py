"""Toolsets as a catalog holds them: which tools belong to a set, and how many sets a tenant may have."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

import orjson
from django.core.exceptions import ValidationError

from tools_app.access.patterns import matches
from tools_app.models import MAX_TOOLSETS, ApiKey, Connection, Tenant, Toolset

# Keys that are named where a toolset cannot be deleted.
MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class CompiledToolset:
    """The tools of a toolset: exact names, and patterns with `*`."""

    names: frozenset[str]
    patterns: tuple[str, ...]

    def covers(self, name: str) -> bool:
        """Whether the tool of this name belongs to it."""
        return name in self.names or matches(name, self.patterns)

    def as_bytes(self) -> bytes:
        """Return a text that is equal for equal sets."""
        return orjson.dumps([sorted(self.names), sorted(self.patterns)])


def compile_toolset(entries: Iterable[str]) -> CompiledToolset:
    """Return the toolset of these names and patterns."""
    wanted = frozenset(entries)
    patterns = tuple(sorted(entry for entry in wanted if "*" in entry))
    return CompiledToolset(wanted.difference(patterns), patterns)


def toolset_list(toolset: UUID) -> str:
    """Return the name of a toolset's list in the digests of a catalog."""
    return f"toolset:{toolset}"


def check_room(tenant: Tenant) -> None:
    """Raise ValidationError if a tenant has as many toolsets as it may have."""
    if Toolset.objects.filter(tenant=tenant).count() >= MAX_TOOLSETS:
        raise ValidationError(f"A tenant has at most {MAX_TOOLSETS} toolsets. Delete one first.")


def check_tools(entries: object) -> None:
    """Raise ValidationError for a toolset without tools: a key without a toolset has all."""
    if not entries:
        raise ValidationError("Enter at least one name or pattern.")


def users_of(toolset: Toolset) -> list[str]:
    """Return what uses a toolset, by name: valid, expired and revoked keys, connections and service clients."""
    keys = ApiKey.objects.filter(toolset=toolset).order_by("name")
    connections = {row.key_id: row for row in Connection.objects.filter(key__toolset=toolset).select_related("client")}
    return [_user(key, connections.get(key.pk)) for key in keys]


def _user(key: ApiKey, connection: Connection | None) -> str:
    if connection is None:
        return f"API key {key}"
    kind = "connection of" if connection.person_id else "service client"
    return f"{kind} {connection.client.name}"


def why_not_deleted(toolset: Toolset) -> str:
    """Return why a toolset cannot be deleted, with who uses it; "" if it can."""
    users = users_of(toolset)
    if not users:
        return ""
    more = f" and {len(users) - MAX_NAMED} more" if len(users) > MAX_NAMED else ""
    return f"{toolset} is used by {', '.join(users[:MAX_NAMED])}{more}. Give them another toolset or none first."
