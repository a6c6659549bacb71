"""Scopes that a tenant names: what they may be called, what they permit, and which tenant has which.

What permits calling, getting or reading also permits listing the same names.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
from django.core.exceptions import ValidationError

from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.core.validators import ItemKind
from tools_app.identity.oauth import scopes
from tools_app.identity.patterns import PermittedNames, matches
from tools_app.models import Tenant, TenantScope

# With the longest names, the scopes of a tenant and those of the hub fit into a token's row.
MAX_SCOPES: Final = 20
_NAME: Final = re.compile(r"[a-z][a-z0-9._:-]{0,39}")
RESERVED: Final = frozenset({scopes.OFFLINE, "openid", "profile", "email", "address", "phone"})
RESERVED_START: Final = "mcp:"
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


READ_GRANT: Final = Grant(None, scopes.READ_METHODS)


def check_name(name: str) -> None:
    """Raise ValidationError unless a tenant may call a scope so."""
    if not _NAME.fullmatch(name):
        raise ValidationError(
            "Write 1 to 40 characters: a lower-case letter first, then letters, digits and . _ : - such as reports."
        )
    if name in RESERVED or name.startswith(RESERVED_START):
        raise ValidationError(f"{name} is reserved. Choose another name.")


def check_room(tenant: Tenant) -> None:
    """Raise ValidationError if a tenant has as many scopes as it may have."""
    if TenantScope.objects.filter(tenant=tenant).count() >= MAX_SCOPES:
        raise ValidationError(f"A tenant names at most {MAX_SCOPES} scopes.")


def granted(tenant: Tenant, requested: str | None) -> str:
    """Return the scopes of a request to a tenant that the hub or the tenant knows; see `scopes.granted`."""
    named = TenantScope.objects.filter(tenant=tenant).order_by("name").values_list("name", flat=True)
    return scopes.granted(requested, named)


def stated(tenant: Tenant, claims: Mapping[str, Any]) -> str:
    """Return the scopes that a token states (`scope` or `scp`, a text or a list) and the hub or the tenant knows.

    Those of the hub if it has neither claim; "" if it has one and nothing in it is known.
    """
    found = [claims[name] for name in ("scope", "scp") if name in claims]
    if not found:
        return granted(tenant, None)
    texts = [text for value in found for text in (value if isinstance(value, list) else [value])]
    named = TenantScope.objects.filter(tenant=tenant).order_by("name").values_list("name", flat=True)
    known = " ".join((*scopes.SCOPES, *named))
    return scopes.narrowed(known, " ".join(text for text in texts if isinstance(text, str)))


def meanings(tenant: Tenant, scope: str) -> list[str]:
    """Return what scopes permit, in words."""
    rows = {row.name: row for row in TenantScope.objects.filter(tenant=tenant)}
    return [scopes.MEANING[one] if one in scopes.MEANING else _meaning(one, rows.get(one)) for one in scope.split()]


def is_all(scope: str) -> bool:
    """Whether a token with this scope may use everything, so that the scopes that its tenant names do not matter."""
    return scopes.CALL in scope.split()


def grants_of(scope: Collection[str], rows: Mapping[str, TenantScope]) -> tuple[Grant, ...] | None:
    """Return what a token with these scopes may use; None for everything. A scope that is gone grants nothing."""
    if scopes.CALL in scope:
        return None
    read = (READ_GRANT,) if scopes.READ in scope else ()
    return (*read, *(_grant(rows[name]) for name in scope if name in rows))


def of_tenants(tenants: Iterable[UUID]) -> dict[UUID, dict[str, TenantScope]]:
    """Return the scopes of tenants, by name."""
    found: dict[UUID, dict[str, TenantScope]] = {}
    for row in TenantScope.objects.filter(tenant__in=set(tenants)).order_by("name"):
        found.setdefault(row.tenant_id, {})[row.name] = row
    return found


async def challenged(slug: str | None) -> str:
    """Return the scopes that a client of a tenant is told to ask for: all of them. Raises the database's error."""
    named = await _names.get(slug) if slug else None
    return " ".join((*scopes.SCOPES, *(named or ())))


def names_of(slug: str) -> tuple[str, ...]:
    """Return the names of the scopes of a tenant, as the database has them."""
    return _load([slug]).get(slug, ())


def _load(slugs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    rows = TenantScope.objects.filter(tenant__slug__in=slugs, tenant__is_active=True).order_by("name")
    found: dict[str, tuple[str, ...]] = {}
    for slug, name in rows.values_list("tenant__slug", "name"):
        found[slug] = (*found.get(slug, ()), name)
    return found


# Strangers may ask for any number of tenants: lookups within this time share a query.
_names: RefreshAheadCache[str, tuple[str, ...]] = RefreshAheadCache(_load, gather_seconds=0.02)


def forget_all() -> None:
    """Forget the names of all tenants (for tests, which empty the database while the hub runs)."""
    _names.forget_all()


def _grant(row: TenantScope) -> Grant:
    methods = tuple(row.methods)
    lists = {listed for method, listed_by in _LISTS.items() if matches(method, methods) for listed in listed_by}
    names = PermittedNames(row.tool_patterns) if row.tool_patterns else None
    return Grant(names, (*methods, *sorted(lists)) if methods else None)


def _meaning(name: str, row: TenantScope | None) -> str:
    if row is None:
        return name
    return row.description or f"Use {', '.join(row.tool_patterns[:5]) or 'everything'} ({name})"
