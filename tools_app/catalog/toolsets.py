"""Toolsets as a catalog holds them: which tools belong to a set, and how many sets a tenant may have."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

import orjson
from django.core.exceptions import ValidationError

from tools_app.identity.patterns import fits
from tools_app.models import MAX_TOOLSETS, ApiKey, Connection, Tenant, Toolset

# Keys that are named where a toolset cannot be deleted.
MAX_NAMED = 5
STILL_USED = "A key got this toolset meanwhile. Give it another toolset or none first."
# More are refused in the patterns of a toolset.
MAX_WILDCARDS = 4
# A name in a set.
ENTRY_BYTES = 64


@dataclass(frozen=True, slots=True)
class CompiledToolset:
    """The tools of a toolset: the names of the catalog that belong to it, and its entries for names that are gone.

    `exact` are the entries without `*`, `patterns` the parts between the `*` of the others.
    """

    names: frozenset[str]
    exact: frozenset[str]
    patterns: tuple[tuple[str, ...], ...]

    def covers(self, name: str) -> bool:
        """Whether a tool of this name would belong to it, though the catalog has none."""
        return name in self.exact or any(fits(name, parts) for parts in self.patterns)

    def as_bytes(self) -> bytes:
        """Return a text that is equal for equal sets."""
        return orjson.dumps([sorted(self.exact), self.patterns])

    @property
    def size(self) -> int:
        """The size of its names in bytes, about."""
        return ENTRY_BYTES * len(self.names)


class Resolver:
    """Finds the tools of a catalog that belong to sets. Each pattern is compared once, however many sets have it."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        self._known = frozenset(self._names)
        self._by_pattern: dict[tuple[str, ...], frozenset[str]] = {}

    def resolve(self, entries: Iterable[str]) -> CompiledToolset:
        """Return the toolset of these names and patterns."""
        wanted = frozenset(entries)
        patterns = tuple(sorted(tuple(entry.split("*")) for entry in wanted if "*" in entry))
        exact = frozenset(entry for entry in wanted if "*" not in entry)
        names = (exact & self._known).union(*map(self._of_pattern, patterns))
        return CompiledToolset(names, exact, patterns)

    def _of_pattern(self, parts: tuple[str, ...]) -> frozenset[str]:
        found = self._by_pattern.get(parts)
        if found is None:
            found = frozenset(name for name in self._prefix_matches(parts[0]) if fits(name, parts))
            self._by_pattern[parts] = found
        return found

    def _prefix_matches(self, start: str) -> Iterator[str]:
        for position in range(bisect_left(self._names, start), len(self._names)):
            if not self._names[position].startswith(start):
                return
            yield self._names[position]


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
    for entry in entries if isinstance(entries, list) else ():
        check_wildcards(entry)


def check_wildcards(entry: object) -> None:
    """Raise ValidationError for a pattern with more than MAX_WILDCARDS `*`."""
    if isinstance(entry, str) and entry.count("*") > MAX_WILDCARDS:
        raise ValidationError(f"{entry[:100]}: a pattern of a toolset has at most {MAX_WILDCARDS} *.")


def users_of(toolset: Toolset) -> tuple[list[str], int]:
    """Return what uses a toolset, by name, at most MAX_NAMED, and how many there are.

    These are valid, expired and revoked keys, connections and service clients.
    """
    rows = ApiKey.objects.filter(toolset=toolset).order_by("name", "pk")
    keys = list(rows[: MAX_NAMED + 1])
    count = len(keys) if len(keys) <= MAX_NAMED else rows.count()
    connections = {
        row.key_id: row for row in Connection.objects.filter(key__in=keys[:MAX_NAMED]).select_related("client")
    }
    users = []
    for key in keys[:MAX_NAMED]:
        connection = connections.get(key.pk)
        if connection is None:
            users.append(f"API key {key}")
        else:
            kind = "connection of" if connection.person_id else "service client"
            users.append(f"{kind} {connection.client.name}")
    return users, count


def listed_users(toolset: Toolset) -> str:
    """Return what uses a toolset in words, as in "API key ci and 3 more"; "" if nothing does."""
    users, count = users_of(toolset)
    more = f" and {count - len(users)} more" if count > len(users) else ""
    return f"{', '.join(users)}{more}"


def why_not_deleted(toolset: Toolset) -> str:
    """Return why a toolset cannot be deleted, with who uses it; "" if it can."""
    users = listed_users(toolset)
    return f"{toolset} is used by {users}. Give them another toolset or none first." if users else ""
