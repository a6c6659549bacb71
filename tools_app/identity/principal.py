"""Authentication: a credential as a frozen `Principal`, which alone identifies the caller of a request.

Also the client's IP address behind trusted proxies, which keys and rate limits are bound to.
"""

import hmac
import math
import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

import msgspec
from django.db.models import Q, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.utils import timezone

from tools_app.core.config import config
from tools_app.core.database import run_in_db_thread
from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.core.validators import ItemKind
from tools_app.identity.oauth import scopes as oauth_scopes
from tools_app.identity.oauth import tokens as oauth_tokens
from tools_app.identity.oauth.scopes import Grant
from tools_app.identity.patterns import PermittedNames, matches
from tools_app.models import AccessToken, ApiKey, Tenant, TenantScope
from tools_app.protocol.jsonrpc import MAX_CLIENT_NAME_LENGTH
from tools_app.tenants import impersonation, last_used
from tools_app.tenants.keys import (
    ACCESS_DIGEST,
    ACCESS_PREFIX,
    JWT_PREFIX,
    MIN_KEY,
    access_digest,
    digest_of,
    signed_digest,
)
from tools_app.tenants.limits import quotas
from tools_app.tenants.limits.quotas import UNLIMITED, CallerLimits

# What every client needs before anything else, and what discloses nothing of the tenant.
UNRESTRICTED_METHODS: Final = frozenset({"initialize", "ping", "server/discover", "logging/setLevel"})
Network = IPv4Network | IPv6Network
# A network that contains no caller.
EMPTY_NETWORK: Final = ip_network("::/128")
# Why a key is no longer valid, in the record of a denial. The client is not told.
EXPIRED: Final = "The API key has expired."
REVOKED: Final = "The API key was revoked."


class OfferedTools(Protocol):
    """What `Principal.may` asks of a catalog."""

    @property
    def tools(self) -> Mapping[str, Any]:
        """The tools by name, which say whether they need a person (`needs_person`)."""

    def in_toolset(self, toolset: UUID, name: str) -> bool:
        """Whether a toolset has the tool of this name."""


class Principal(msgspec.Struct, frozen=True):
    """A tenant's key that passed every check, or an anonymous caller of a public tenant, whose `key_id` is None.

    `redacted_keys` are the tenant's own, beside the built-in ones. `names` are the permitted tools, resources and
    prompts, None for all. `address` is set for anonymous callers, who are limited by it. `methods` are patterns of
    allowed methods, None for all, and `networks` the allowed client networks, empty for all. `allowed` holds the
    caller's limits. `person` is the username of a person who acts as the key with an impersonation token. `person_id`
    is the user for whom the caller acts: that person, the person of a connection, or the creator of a key that acts for
    them; None without one. `scopes` are those of an OAuth access token, None for a key; `key_id` is then the key of its
    connection. `grants` are what these scopes permit, None for everything. `toolset` is the id of the toolset that
    restricts its tools, None for none, and `presentation` how they are listed, "" for the tenant's setting.
    """

    key_id: UUID | None
    tenant_id: UUID
    tenant_slug: str
    redacted_keys: tuple[str, ...]
    allowed: CallerLimits = UNLIMITED
    names: PermittedNames | None = None
    methods: tuple[str, ...] | None = None
    networks: tuple[Network, ...] = ()
    address: str = ""
    person: str = ""
    scopes: tuple[str, ...] | None = None
    grants: tuple[Grant, ...] | None = None
    person_id: int | None = None
    toolset: UUID | None = None
    presentation: str = ""

    @property
    def limit_key(self) -> str:
        """The name of the counters for the caller's limits."""
        return str(self.key_id) if self.key_id else f"{self.tenant_id}:{rate_limit_key(self.address)}"

    def recorded_name(self, client_name: str) -> str:
        """Return the name under which a client is recorded: its `clientInfo` name, unless a person acts as the key.

        Truncated to the length of the column.
        """
        if self.person:
            return f"playground ({self.person})"
        # Only the playground may record this name.
        if client_name.lstrip().casefold().startswith("playground"):
            client_name = f"client: {client_name}"
        return client_name[:MAX_CLIENT_NAME_LENGTH]

    def permits_method(self, method: str) -> bool:
        """Whether the caller may send requests of this method."""
        return (
            self.methods is None or method in UNRESTRICTED_METHODS or matches(method, self.methods)
        ) and not self.lacks_scope(method)

    def lacks_scope(self, method: str, item: tuple[ItemKind, str] | None = None) -> bool:
        """Whether the caller's access token has too narrow a scope for this method, with this item if it has one."""
        if self.grants is None or method in UNRESTRICTED_METHODS:
            return False
        return not any(grant.permits(method, item) for grant in self.grants)

    def may(self, kind: ItemKind, method: str, name: str, found: OfferedTools | None) -> bool:
        """Whether the caller may use this method of MCP with the item of this kind and name.

        The one rule for lists, searches, calls, completion and notifications: the key, the scopes, the toolset and the
        person decide it. `found` is the tenant's catalog, None if it has none. The name of a resource is its URI, or
        its template where a template has it; that of a skill is the URI of its SKILL.md. The item need not exist.
        """
        if (
            (self.names is not None and not self.names.have(kind, name))
            or (self.methods is not None and not matches(method, self.methods))
            or (self.grants is not None and not any(grant.permits(method, (kind, name)) for grant in self.grants))
        ):
            return False
        if kind != "tool":
            return True
        if self.toolset is not None and (found is None or not found.in_toolset(self.toolset, name)):
            return False
        tool = found.tools.get(name) if found is not None else None
        return self.person_id is not None or tool is None or not tool.needs_person

    @property
    def permissions(self) -> tuple[object, ...]:
        """What `may` depends on besides the catalog."""
        return self.names, self.methods, self.grants, self.toolset, self.person_id is not None

    def permits_address(self, address: str) -> bool:
        """Whether the caller may connect from this address."""
        return not self.networks or _within(address, self.networks)

    def has_same_access_as(self, other: "Principal") -> bool:
        """Whether this caller has the same scopes as the other one, and sees tools in the same way."""
        return _scopes_of(self) == _scopes_of(other)


def _scopes_of(principal: Principal) -> tuple[object, ...]:
    return principal.names, principal.methods, principal.grants, principal.toolset, principal.presentation


@lru_cache(maxsize=4096)
def _within(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        # An address that cannot be parsed is outside.
        return False
    # A dual-stack server reports IPv4 as `::ffff:192.0.2.1`.
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)


class Credential:
    """A request's credential: the key or token, whether it was in the URL, and whether it is an impersonation token or
    an OAuth access token, which may be a JWT that an issuer signed.

    `digest` is its stored form, and `tenant_slug` the tenant's slug in the path that it was sent to, "" without one.
    """

    __slots__ = ("digest", "from_query", "is_access_token", "is_impersonation", "is_signed", "key")

    def __init__(self, key: str, *, from_query: bool = False, tenant_slug: str = "") -> None:
        self.key = key
        self.from_query = from_query
        self.is_impersonation = key.startswith(impersonation.PREFIX)
        self.is_signed = key.startswith(JWT_PREFIX)
        self.is_access_token = self.is_signed or key.startswith(ACCESS_PREFIX)
        if self.is_signed:
            self.digest = signed_digest(key, tenant_slug)
        else:
            self.digest = access_digest(key) if self.is_access_token else digest_of(key)


class _CachedKey(msgspec.Struct, frozen=True):
    digest: str
    key_id: UUID
    principal: Principal
    allow_query: bool
    # Seconds since the epoch: comparing them costs a tenth of comparing times.
    expires_at: float
    is_revoked: bool = False


def _load(digests: Sequence[str]) -> Mapping[str, _CachedKey]:
    tokens = [digest for digest in digests if digest.startswith(ACCESS_DIGEST)]
    # Revoked keys too: their use is recorded under them.
    rows = ApiKey.objects.filter(digest__in=digests, tenant__is_active=True)
    found = (
        {row.digest: _cached_key(row) for row in rows.select_related("tenant")} if len(tokens) < len(digests) else {}
    )
    if tokens:
        valid = oauth_tokens.valid_access_tokens().filter(digest__in=tokens)
        carried = list(valid.select_related("connection__key__tenant"))
        named = oauth_scopes.of_tenants(
            row.connection.tenant_id for row in carried if not oauth_scopes.is_all(row.scope)
        )
        found |= {row.digest: _cached_token(row, named.get(row.connection.tenant_id, {})) for row in carried}
    return found


def _cached_token(row: AccessToken, named: Mapping[str, TenantScope]) -> _CachedKey:
    cached, scopes = _cached_key(row.connection.key), tuple(row.scope.split())
    grants = oauth_scopes.grants_of(scopes, named)
    principal = msgspec.structs.replace(
        cached.principal, scopes=scopes, grants=grants, person_id=row.connection.person_id
    )
    # Tokens are never accepted in URLs (2026-07-28, authorization, §Access Token Usage).
    ends = min(row.expires_at.timestamp(), cached.expires_at)
    return _CachedKey(row.digest, cached.key_id, principal, allow_query=False, expires_at=ends)


def _cached_key(row: ApiKey) -> _CachedKey:
    tenant, networks = row.tenant, list[Network]()
    for text in row.networks:
        try:
            networks.append(ip_network(text))
        except ValueError:
            # An invalid one matches no caller and must not prevent other keys from loading.
            networks.append(EMPTY_NETWORK)
    principal = Principal(
        key_id=row.pk,
        tenant_id=tenant.pk,
        tenant_slug=tenant.slug,
        redacted_keys=tuple(tenant.redacted_keys),
        allowed=quotas.of_key(row),
        names=PermittedNames(row.tool_patterns) if row.tool_patterns else None,
        methods=tuple(row.methods) or None,
        networks=tuple(networks),
        person_id=row.created_by_id if row.acts_for_creator else None,
        toolset=row.toolset_id,
        presentation=row.presentation,
    )
    expires_at = row.expires_at.timestamp() if row.expires_at else math.inf
    return _CachedKey(row.digest, row.pk, principal, tenant.allow_query_key, expires_at, row.revoked_at is not None)


# Anyone can send any number of unknown keys: lookups within this many seconds share a query.
GATHER_SECONDS: Final = 0.02


def _size_of(cached: _CachedKey) -> int:
    names, grants = cached.principal.names, cached.principal.grants or ()
    return sum(each.size for each in (names, *(grant.names for grant in grants)) if each is not None)


cache: RefreshAheadCache[str, _CachedKey] = RefreshAheadCache(_load, _size_of, gather_seconds=GATHER_SECONDS)


# What open streams depend on.
_STATE_COLUMNS: Final = ("tool_patterns", "methods", "networks", "toolset", "presentation")
# The maximum number of keys in one query of `key_states`.
MAX_LOAD: Final = 1000


async def key_states(digests: Collection[str]) -> Mapping[str, Hashable]:
    """Return for each valid key what its open streams depend on: its scopes and networks, as the database has them.

    Costs a tenth of loading the keys. The use of a key is not noted. Raises the database's error.
    """
    return await run_in_db_thread(_load_key_states, list(digests)) if digests else {}


def _load_key_states(digests: Sequence[str]) -> Mapping[str, Hashable]:
    unexpired = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    valid = ApiKey.objects.filter(unexpired, revoked_at=None, tenant__is_active=True).order_by()
    # As text, because it is only compared.
    columns = [Cast(name, TextField()) for name in _STATE_COLUMNS]
    tokens = [digest for digest in digests if digest.startswith(ACCESS_DIGEST)]
    held = [digest for digest in digests if not digest.startswith(ACCESS_DIGEST)]
    found: dict[str, Hashable] = {}
    for start in range(0, len(held), MAX_LOAD):
        some = valid.filter(digest__in=held[start : start + MAX_LOAD])
        found.update((row[0], row) for row in some.values_list("digest", "tenant__allow_query_key", *columns))
    of_key = [Cast(f"connection__key__{name}", TextField()) for name in _STATE_COLUMNS]
    for start in range(0, len(tokens), MAX_LOAD):
        some_tokens = oauth_tokens.valid_access_tokens().order_by().filter(digest__in=tokens[start : start + MAX_LOAD])
        rows = list(some_tokens.values_list("digest", "scope", "connection__tenant", *of_key))
        named = oauth_scopes.of_tenants(row[2] for row in rows if not oauth_scopes.is_all(row[1]))
        found.update((row[0], (row, oauth_scopes.grants_of(row[1].split(), named.get(row[2], {})))) for row in rows)
    return found


class _Public(msgspec.Struct, frozen=True):
    principal: Principal
    calls_per_minute: int


def _load_public(slugs: Sequence[str]) -> Mapping[str, _Public]:
    tenants = Tenant.objects.filter(slug__in=slugs, is_active=True, is_public=True)
    return {tenant.slug: _Public(_public_principal(tenant), tenant.public_calls_per_minute) for tenant in tenants}


def _public_principal(tenant: Tenant) -> Principal:
    return Principal(
        key_id=None,
        tenant_id=tenant.pk,
        tenant_slug=tenant.slug,
        redacted_keys=tuple(tenant.redacted_keys),
        allowed=quotas.of_tenant(tenant),
        names=PermittedNames(tenant.public_tools),
    )


public_cache: RefreshAheadCache[str, _Public] = RefreshAheadCache(_load_public, gather_seconds=GATHER_SECONDS)


def is_known(credential: Credential | None, tenant_slug: str | None) -> bool:
    """Whether this process has accepted these credentials before. They may be invalid by now."""
    if credential is None:
        return tenant_slug is not None and public_cache.has_row(tenant_slug)
    if credential.is_impersonation:
        return impersonation.is_known(credential.key)
    return cache.has_row(credential.digest)


async def anonymous_principal(tenant_slug: str, address: str) -> Principal | None:
    """Return the principal of an anonymous caller at `address`; None unless the tenant is public."""
    public = await public_cache.get(tenant_slug)
    if public is None:
        return None
    public_principal = public.principal
    caller = rate_limit_key(address)
    allowed = quotas.of_address(public_principal.allowed, public_principal.tenant_id, caller, public.calls_per_minute)
    return msgspec.structs.replace(public_principal, address=address, allowed=allowed)


async def operator_principal(tenant_slug: str) -> Principal | None:
    """Return the principal of the hub's own commands for a tenant: no key, and everything that the tenant offers."""
    tenant = await run_in_db_thread(Tenant.objects.filter(slug=tenant_slug, is_active=True).first)
    return msgspec.structs.replace(_public_principal(tenant), names=None) if tenant else None


async def authenticate(credential: Credential) -> Principal | None:
    """Return the principal of a credential; None if it is unknown, revoked or expired, its tenant is inactive, or the
    tenant does not allow keys in URLs.

    Raises the database's error when the key is not cached and cannot be read.
    """
    holder, digest = None, credential.digest
    if credential.is_impersonation:
        holder = await impersonation.holder_of(credential.key)
        if holder is None or credential.from_query:
            return None
        digest = holder.digest
    elif len(credential.key) < MIN_KEY:
        # Too short to be a key.
        return None
    cached = await cache.get(digest)
    if (
        cached is None
        or not hmac.compare_digest(cached.digest, digest)
        or (credential.from_query and not cached.allow_query)
    ):
        return None
    if cached.is_revoked or cached.expires_at <= time.time():
        return None
    if holder is not None:
        # Not counted as a use of the key: its last use tells whether a client still has it.
        return msgspec.structs.replace(cached.principal, person=holder.username, person_id=holder.person_id)
    last_used.key_used(cached.key_id)
    return cached.principal


async def authenticate_uncached(credential: Credential) -> Principal | None:
    """Return the principal of a credential that was stored a moment ago. Raises the database's error."""
    await cache.fresh(credential.digest)
    return await authenticate(credential)


class EndedKey(NamedTuple):
    """The principal that a credential had until its key ended, and why it ended."""

    principal: Principal
    cause: str


def ended_key(credential: Credential) -> EndedKey | None:
    """Return whose key an invalid credential was, from the cache; None unless it was revoked or has expired."""
    cached = cache.last_row(credential.digest)
    if cached is None or not hmac.compare_digest(cached.digest, credential.digest):
        return None
    if cached.is_revoked:
        return EndedKey(cached.principal, REVOKED)
    return EndedKey(cached.principal, EXPIRED) if cached.expires_at <= time.time() else None


MAX_ADDRESS_LENGTH = 45
# The length of the network prefix of an IPv6 address.
NETWORK_BITS = 64


def client_ip_of(request: HttpRequest) -> str:
    """Return the client's IP address of a Django request."""
    return client_ip(str(request.META.get("REMOTE_ADDR", "")), request.headers.get("X-Forwarded-For", ""))


def site_of(address: str) -> str:
    """Return the network by which is counted what strangers store: what a site usually has, IPv4 /24 or IPv6 /48."""
    try:
        parsed = ip_address(rate_limit_key(address).partition("/")[0])
    except ValueError:
        return address[:MAX_ADDRESS_LENGTH]
    return str(ip_network((parsed.packed, 48 if isinstance(parsed, IPv6Address) else 24), strict=False))


@lru_cache(maxsize=1024)
def rate_limit_key(address: str) -> str:
    """Return the key for rate limits: the address, or the /64 network of an IPv6 address, which one host controls."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or ip_network((parsed.packed, NETWORK_BITS), strict=False))


def client_ip(address: str, forwarded_for: str) -> str:
    """Return the client's IP address behind MCPHUB_TRUSTED_PROXIES proxies.

    `address` is the peer of the connection, `forwarded_for` the value of X-Forwarded-For ("" if missing).
    """
    if not config.MCPHUB_TRUSTED_PROXIES:
        return address
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()]
    return hops[-min(config.MCPHUB_TRUSTED_PROXIES, len(hops))][:MAX_ADDRESS_LENGTH] if hops else address
