"""API keys: how they are made, issued and revoked. Looking them up per request is the key ring's work."""

import hashlib
import secrets
from datetime import datetime

from django.contrib.auth.models import User
from django.utils import timezone

from tools_app.models import ApiKey, Tenant

KEY_BYTES = 32
KEY_START = "mcphub_"
PREFIX_LENGTH = 12
SHORTEST_KEY = 32


class WeakKey(ValueError):
    """A key that somebody chose is too short to be one."""


def digest_of(key: str) -> str:
    """The SHA-256 of a key, in hex: a key has 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


def new_key() -> str:
    """A fresh key of 256 random bits."""
    return KEY_START + secrets.token_urlsafe(KEY_BYTES)


def issue(
    tenant: Tenant,
    name: str,
    *,
    key: str | None = None,
    expires_at: datetime | None = None,
    created_by: User | None = None,
) -> tuple[ApiKey, str]:
    """Store a new key of `tenant` and return its row and the key itself, which cannot be had again.

    Raises WeakKey if the caller brings a `key` of fewer than 32 characters.
    """
    if key is not None and len(key) < SHORTEST_KEY:
        raise WeakKey(f"An API key needs at least {SHORTEST_KEY} characters.")
    key = key or new_key()
    row = ApiKey.objects.create(
        tenant=tenant,
        name=name,
        prefix=key[:PREFIX_LENGTH],
        digest=digest_of(key),
        expires_at=expires_at,
        created_by=created_by,
    )
    return row, key


def revoke(row: ApiKey) -> bool:
    """Revoke a key from now on. False if it was revoked before. Every process knows within a second."""
    return bool(ApiKey.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=timezone.now()))
