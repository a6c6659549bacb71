"""The scopes of access tokens: which methods and names a client may use, besides what its connection permits.

Beside the hub's own scopes, a tenant names some. What permits calling, getting or reading also permits listing the same
names.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from django.core.exceptions import ValidationError

from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.core.validators import ItemKind
from tools_app.identity.models.oauth import OFFLINE
from tools_app.identity.patterns import PermittedNames, matches
from tools_app.models import Tenant, TenantScope

READ: Final = "mcp:read"
CALL: Final = "mcp:call"
# In a challenge, all of them: many clients cannot ask for more later.
SCOPES: Final = (READ, CALL)
# Clients may ask for refresh tokens, too, which every client gets anyway. Only the server's metadata names it.
SUPPORTED: Final = (*SCOPES, OFFLINE)
MEANING: Final = {READ: "See its catalog, read resources and use prompts", CALL: "Call tools"}
# With the longest names, the scopes of a tenant and those of the hub fit into a token's row.
MAX_SCOPES: Final = 20

# What READ permits. CALL permits everything.
READ_METHODS: Final = (
    "completion/complete",
    "prompts/get",
    "prompts/list",
    "resources/directory/read",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "skills/get",
    "skills/list",
    "subscriptions/listen",
    "tools/list",
)
_LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "tools/call": ("tools/list",),
    "prompts/get": ("prompts/list",),
    "resources/read": ("resources/list", "resources/templates/list"),
}


class Grant(msgspec.Struct, frozen=True):
    """What one scope permits: names, and patterns of methods, None for all."""

    names: PermittedNames | None
    methods: tuple[str, ...] | None

    def permits(self, method: str, item: tuple[ItemKind, str] | None = None) -> bool:
        """Whether the scope permits this method, with this item if it has one."""
        return (self.methods is None or matches(method, self.methods)) and (
            item is None or self.names is None or self.names.have(*item)
        )


READ_GRANT: Final = Grant(None, READ_METHODS)


def check_room(tenant: Tenant) -> None:
    """Raise ValidationError if a tenant has as many scopes as it may have."""
    if TenantScope.objects.filter(tenant=tenant).count() >= MAX_SCOPES:
        raise ValidationError(f"A tenant names at most {MAX_SCOPES} scopes.")


def granted(tenant: Tenant, requested: str | None) -> str:
    """Return the scopes of a request to a tenant that the hub or the tenant knows.

    Those of the hub if it names none (RFC 6749, section 3.3).
    """
    return narrowed(_known(tenant), requested) or " ".join(SCOPES)


def stated(tenant: Tenant, claims: Mapping[str, Any]) -> str:
    """Return the scopes that a token states (`scope` or `scp`, a text or a list) and the hub or the tenant knows.

    Those of the hub if it has neither claim; "" if it has one and nothing in it is known.
    """
    values = [claims[name] for name in ("scope", "scp") if name in claims]
    if not values:
        return " ".join(SCOPES)
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    return narrowed(_known(tenant), " ".join(text for text in texts if isinstance(text, str)))


def _known(tenant: Tenant) -> str:
    """Return the scopes that the hub and a tenant know."""
    named = TenantScope.objects.filter(tenant=tenant).order_by("name").values_list("name", flat=True)
    return " ".join((*SCOPES, *named))


def narrowed(scope: str, requested: str | None) -> str:
    """Return those of `scope` that are requested."""
    wanted = set((requested or "").split())
    return " ".join(name for name in scope.split() if name in wanted)


def covers(allowed: str, wanted: str) -> bool:
    """Whether allowed scopes contain all wanted ones."""
    return set(allowed.split()) >= set(wanted.split())


def meanings(tenant: Tenant, scope: str) -> list[str]:
    """Return what scopes permit, in words."""
    rows = TenantScope.objects.filter(tenant=tenant)
    named = {
        row.name: row.description or f"Use {', '.join(row.tool_patterns[:5]) or 'everything'} ({row.name})"
        for row in rows
    }
    return [MEANING.get(name) or named.get(name, name) for name in scope.split()]


def is_all(scope: str) -> bool:
    """Whether a token with this scope may use everything, so that the scopes that its tenant names do not matter."""
    return CALL in scope.split()


def grants_of(scope: Collection[str], rows: Mapping[str, TenantScope]) -> tuple[Grant, ...] | None:
    """Return what a token with these scopes may use; None for everything. A scope that is gone grants nothing."""
    if CALL in scope:
        return None
    grants = [READ_GRANT] if READ in scope else []
    for row in (rows[name] for name in scope if name in rows):
        methods = tuple(row.methods)
        lists = {listed for method, names in _LISTS.items() if matches(method, methods) for listed in names}
        permitted = PermittedNames(row.tool_patterns) if row.tool_patterns else None
        grants.append(Grant(permitted, (*methods, *sorted(lists)) if methods else None))
    return tuple(grants)


def of_tenants(tenants: Iterable[UUID]) -> dict[UUID, dict[str, TenantScope]]:
    """Return the scopes of tenants, by name."""
    rows: dict[UUID, dict[str, TenantScope]] = {}
    for row in TenantScope.objects.filter(tenant__in=set(tenants)).order_by("name"):
        rows.setdefault(row.tenant_id, {})[row.name] = row
    return rows


async def challenged(slug: str | None) -> str:
    """Return the scopes that a client of a tenant is told to ask for: all of them. Raises the database's error."""
    named = await _names.get(slug) if slug else None
    return " ".join((*SCOPES, *(named or ())))


def names_of(slug: str) -> tuple[str, ...]:
    """Return the names of the scopes of a tenant, as the database has them."""
    return _load([slug]).get(slug, ())


def _load(slugs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    rows = TenantScope.objects.filter(tenant__slug__in=slugs, tenant__is_active=True).order_by("name")
    names: dict[str, tuple[str, ...]] = {}
    for slug, name in rows.values_list("tenant__slug", "name"):
        names[slug] = (*names.get(slug, ()), name)
    return names


# Strangers may ask for any number of tenants: lookups within this time share a query.
_names: RefreshAheadCache[str, tuple[str, ...]] = RefreshAheadCache(_load, gather_seconds=0.02)


def forget_all() -> None:
    """Forget the names of all tenants (for tests, which empty the database while the hub runs)."""
    _names.forget_all()
