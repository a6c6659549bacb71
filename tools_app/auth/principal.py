"""Who is asking: a credential becomes a frozen `Principal`. Nothing else in a request says who it is from."""

import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from uuid import UUID

import msgspec
from django.utils import timezone

from tools_app.auth import allowance, passes, usage
from tools_app.auth.allowance import UNLIMITED, Allowance
from tools_app.auth.keys import digest_of
from tools_app.auth.proxies import counted_as
from tools_app.auth.ring import Ring
from tools_app.models import ApiKey, Tenant
from tools_app.models.bridge import in_store

# What every client needs before it can do anything, and what says nothing of what the tenant has.
ALWAYS: Final = frozenset({"initialize", "ping", "server/discover", "logging/setLevel"})
Network = IPv4Network | IPv6Network
# The address of nobody.
NOWHERE: Final = ip_network("::/128")


class Principal(msgspec.Struct, frozen=True):
    """A tenant's key that passed every check, or anybody at a public tenant, whose `key_id` is None.

    `redacted_keys` are the tenant's own, beside the built-in ones. `patterns` say what the caller gets of tools,
    resources and prompts; None is everything. `address` is set for anonymous callers, who are limited by it.
    `methods` are patterns of what it may ask for, None for everything, and `networks` where it may call from, empty for
    anywhere. `allowed` is what the caller may use up. `person` is the user name of whoever acts as the key with a pass.
    """

    key_id: UUID | None
    tenant_id: UUID
    tenant_slug: str
    redacted_keys: tuple[str, ...]
    allowed: Allowance = UNLIMITED
    patterns: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    networks: tuple[Network, ...] = ()
    address: str = ""
    person: str = ""

    @property
    def limited_as(self) -> str:
        """Under which name the caller's own limits are counted."""
        return str(self.key_id) if self.key_id else f"{self.tenant_id}:{counted_as(self.address)}"

    def named(self, client_name: str) -> str:
        """The name under which a client is recorded: its own word for it, unless a person acts as the key."""
        if self.person:
            return f"playground ({self.person})"
        # Nobody else can say so.
        return f"client: {client_name}" if client_name.lstrip().casefold().startswith("playground") else client_name

    def may_use(self, name: str) -> bool:
        """Whether the caller gets the tool, the prompt or the resource of this name or URI."""
        return self.patterns is None or matches(name, self.patterns)

    def may_ask(self, method: str) -> bool:
        """Whether the caller may send requests of this method."""
        return self.methods is None or method in ALWAYS or matches(method, self.methods)

    def may_call_from(self, address: str) -> bool:
        """Whether the caller may be at this address."""
        return not self.networks or _within(address, self.networks)

    def has_scopes_of(self, other: "Principal") -> bool:
        """Whether this caller gets the same as the other one."""
        return self.patterns == other.patterns and self.methods == other.methods


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of `patterns`, in which `*` stands for anything, stands for `name`."""
    return any(_fits(name, pattern) for pattern in patterns)


def _fits(name: str, pattern: str) -> bool:
    """The same of one pattern, in linear time: no regular expression, which some patterns keep busy for hours."""
    first, *inner = pattern.split("*")
    if not inner:
        return name == pattern
    last = inner.pop()
    at, end = len(first), len(name) - len(last)
    if end < at or not name.startswith(first) or not name.endswith(last):
        return False
    for part in inner:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


@lru_cache(maxsize=4096)
def _within(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        # Whoever cannot be placed is outside.
        return False
    # Where a server listens on both, IPv4 comes as `::ffff:192.0.2.1`.
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)


class Credential(msgspec.Struct, frozen=True):
    """What a request carries: the key, and whether it stood in the URL."""

    key: str
    from_query: bool = False


class _KnownKey(msgspec.Struct, frozen=True):
    digest: str
    key_id: UUID
    principal: Principal
    allow_query: bool
    expires_at: datetime | None


def _load(digests: Sequence[str]) -> Mapping[str, _KnownKey]:
    rows = ApiKey.objects.filter(digest__in=digests, revoked_at=None, tenant__is_active=True)
    return {row.digest: _known(row) for row in rows.select_related("tenant")}


def _known(row: ApiKey) -> _KnownKey:
    tenant = row.tenant
    principal = Principal(
        key_id=row.pk,
        tenant_id=tenant.pk,
        tenant_slug=tenant.slug,
        redacted_keys=tuple(tenant.redacted_keys),
        allowed=allowance.of_key(row),
        patterns=tuple(row.tool_patterns) or None,
        methods=tuple(row.methods) or None,
        networks=tuple(map(_network, row.networks)),
    )
    return _KnownKey(row.digest, row.pk, principal, tenant.allow_query_key, row.expires_at)


def _network(text: str) -> Network:
    """A network as a row has it. One that is none lets nobody in, and must not keep other keys from being read."""
    try:
        return ip_network(text)
    except ValueError:
        return NOWHERE


ring: Ring[str, _KnownKey] = Ring(_load)


class _Public(msgspec.Struct, frozen=True):
    principal: Principal
    calls_per_minute: int


def _load_public(slugs: Sequence[str]) -> Mapping[str, _Public]:
    tenants = Tenant.objects.filter(slug__in=slugs, is_active=True, is_public=True)
    return {tenant.slug: _Public(_anybody(tenant), tenant.public_calls_per_minute) for tenant in tenants}


def _anybody(tenant: Tenant) -> Principal:
    return Principal(
        key_id=None,
        tenant_id=tenant.pk,
        tenant_slug=tenant.slug,
        redacted_keys=tuple(tenant.redacted_keys),
        allowed=allowance.of_tenant(tenant),
        patterns=tuple(tenant.public_tools),
    )


public_ring: Ring[str, _Public] = Ring(_load_public)


async def anybody(tenant_slug: str, address: str) -> Principal | None:
    """Whoever calls from `address` without a key; None unless this tenant is open to everybody."""
    public = await public_ring.get(tenant_slug)
    if public is None:
        return None
    everybody = public.principal
    caller = counted_as(address)
    allowed = allowance.of_address(everybody.allowed, everybody.tenant_id, caller, public.calls_per_minute)
    return msgspec.structs.replace(everybody, address=address, allowed=allowed)


async def operator(tenant_slug: str) -> Principal | None:
    """Whoever runs the hub's own commands for a tenant: no key, and everything that the tenant offers."""
    return await in_store(_operator, tenant_slug)


def _operator(slug: str) -> Principal | None:
    tenant = Tenant.objects.filter(slug=slug, is_active=True).first()
    return msgspec.structs.replace(_anybody(tenant), patterns=None) if tenant else None


async def authenticate(credential: Credential) -> Principal | None:
    """The principal of a credential, or None: unknown, revoked, expired, its tenant off, or a URL key not allowed.

    Raises the database's error when the key is not in memory and cannot be read.
    """
    holder = None
    if credential.key.startswith(passes.START):
        holder = await passes.holder_of(credential.key)
        if holder is None or credential.from_query:
            return None
    digest = digest_of(credential.key) if holder is None else holder.digest
    known = await ring.get(digest)
    if known is None or not hmac.compare_digest(known.digest, digest):
        return None
    if credential.from_query and not known.allow_query:
        return None
    if known.expires_at is not None and known.expires_at <= timezone.now():
        return None
    if holder is not None:
        # Not a use of the key: its last use tells whether a client still carries it.
        return msgspec.structs.replace(known.principal, person=holder.username)
    usage.key_used(known.key_id)
    return known.principal
