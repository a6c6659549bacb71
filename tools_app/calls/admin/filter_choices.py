"""The choices of the audit log's search form: a user's tenants, keys and tools, read in one query."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import CharField, F, QuerySet, Value
from django.db.models.functions import Cast, Concat

from tools_app.audit.search.query import ANONYMOUS
from tools_app.models import ApiKey, Tenant, Tool
from tools_app.tenants import permissions
from tools_app.tenants.permissions import TenantRole
from tools_app.web.admin.scoping import MAX_CHOICES

MAX_ROWS: Final = 5 * MAX_CHOICES

Choices = list[tuple[str, str]]


@dataclass(frozen=True)
class Offered:
    """Choices as pairs of an id or name and its label."""

    tenants: Choices
    keys: Choices
    tools: Choices


def offered_to(person: permissions.Person, roles: Iterable[TenantRole]) -> Offered:
    """Return the choices of `person`. `roles` are the user's tenant roles, unless the user is a superuser."""
    rows = _of_tenants(person, ApiKey.objects.all(), "key", Concat("name", Value(" ("), "prefix", Value("…)")))
    rows = rows.union(_of_tenants(person, Tool.objects.all(), "tool", F("name")))
    if permissions.is_superuser(person):
        rows = rows.union(_values(Tenant.objects.all(), "tenant", F("name")))
    found: dict[str, Choices] = {"key": [(ANONYMOUS, "Anonymous")], "tool": [], "tenant": []}
    for kind, id, name in rows.order_by("offered", "shown")[:MAX_ROWS]:
        found[kind].append((name, name) if kind == "tool" else (str(UUID(id)), name))
    tools = list(dict.fromkeys(found["tool"]))
    tenants = found["tenant"] + [(str(tenant.id), tenant.name) for tenant in roles]
    return Offered(tenants[:MAX_CHOICES], found["key"][:MAX_CHOICES], tools[:MAX_CHOICES])


def _of_tenants(person: permissions.Person, rows: "QuerySet[Any]", kind: str, shown: Any) -> "QuerySet[Any, Any]":
    return _values(permissions.rows_seen_by(person, rows), kind, shown)


def _values(rows: "QuerySet[Any]", kind: str, shown: Any) -> "QuerySet[Any, Any]":
    text = CharField()
    named = rows.order_by().annotate(offered=Value(kind, text), row_id=Cast("pk", text), shown=Cast(shown, text))
    found: QuerySet[Any, Any] = named.values_list("offered", "row_id", "shown")
    return found
