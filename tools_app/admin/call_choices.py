"""What the form above the audit log has to choose from: the tenants, keys and tools of one person, in one query."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import CharField, F, QuerySet, Value
from django.db.models.functions import Cast, Concat

from tools_app.admin.scoped import MOST_CHOICES
from tools_app.audit.search.query import ANONYMOUS
from tools_app.auth import access
from tools_app.auth.access import Seat
from tools_app.models import ApiKey, Tenant, Tool

MOST_ROWS: Final = 5 * MOST_CHOICES

Choices = list[tuple[str, str]]


@dataclass(frozen=True)
class Offered:
    """What there is to choose from: ids or names, and what they are called."""

    tenants: Choices
    keys: Choices
    tools: Choices


def offered_to(person: access.Person, seats: Iterable[Seat]) -> Offered:
    """What `person` may choose from. `seats` are its tenants, if it is no superuser."""
    rows = _of_tenants(person, ApiKey.objects.all(), "key", Concat("name", Value(" ("), "prefix", Value("…)")))
    rows = rows.union(_of_tenants(person, Tool.objects.all(), "tool", F("name")))
    if access.is_superuser(person):
        rows = rows.union(_values(Tenant.objects.all(), "tenant", F("name")))
    found: dict[str, Choices] = {"key": [(ANONYMOUS, "None: anonymous")], "tool": [], "tenant": []}
    for kind, id, name in rows.order_by("offered", "shown")[:MOST_ROWS]:
        found[kind].append((name, name) if kind == "tool" else (str(UUID(id)), name))
    tools = list(dict.fromkeys(found["tool"]))
    tenants = found["tenant"] + [(str(tenant.id), tenant.name) for tenant in seats]
    return Offered(tenants[:MOST_CHOICES], found["key"][:MOST_CHOICES], tools[:MOST_CHOICES])


def _of_tenants(person: access.Person, rows: "QuerySet[Any]", kind: str, shown: Any) -> "QuerySet[Any, Any]":
    return _values(access.rows_seen_by(person, rows), kind, shown)


def _values(rows: "QuerySet[Any]", kind: str, shown: Any) -> "QuerySet[Any, Any]":
    text = CharField()
    named = rows.order_by().annotate(offered=Value(kind, text), row_id=Cast("pk", text), shown=Cast(shown, text))
    found: QuerySet[Any, Any] = named.values_list("offered", "row_id", "shown")
    return found
