"""Who is asking: a credential becomes a frozen `Principal`. Nothing else in a request says who it is from."""

import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from django.utils import timezone

from tools_app.auth import usage
from tools_app.auth.keys import digest_of
from tools_app.auth.ring import Ring
from tools_app.models import ApiKey


class Principal(msgspec.Struct, frozen=True):
    """A tenant's key that passed every check. `redacted_keys` are the tenant's own, beside the built-in ones."""

    key_id: UUID
    tenant_id: UUID
    tenant_slug: str
    key_calls_per_minute: int | None
    tenant_calls_per_minute: int | None
    redacted_keys: tuple[str, ...]


class Credential(msgspec.Struct, frozen=True):
    """What a request carries: the key, and whether it stood in the URL."""

    key: str
    from_query: bool = False


class _KnownKey(msgspec.Struct, frozen=True):
    digest: str
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
        key_calls_per_minute=row.calls_per_minute,
        tenant_calls_per_minute=tenant.calls_per_minute,
        redacted_keys=tuple(tenant.redacted_keys),
    )
    return _KnownKey(row.digest, principal, tenant.allow_query_key, row.expires_at)


ring: Ring[str, _KnownKey] = Ring(_load)


async def authenticate(credential: Credential) -> Principal | None:
    """The principal of a credential, or None: unknown, revoked, expired, its tenant off, or a URL key not allowed.

    Raises the database's error when the key is not in memory and cannot be read.
    """
    digest = digest_of(credential.key)
    known = await ring.get(digest)
    if known is None or not hmac.compare_digest(known.digest, digest):
        return None
    if credential.from_query and not known.allow_query:
        return None
    if known.expires_at is not None and known.expires_at <= timezone.now():
        return None
    usage.key_used(known.principal.key_id)
    return known.principal
