"""API keys: how they are made, issued, rotated and revoked. Looking them up per request is the key ring's work.

Whoever changes keys for a person calls `audit.key_changes`, which records what is done here.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from tools_app.models import ApiKey, Tenant
from tools_app.models.validators import validate_networks, validate_patterns

KEY_BYTES = 32
KEY_START = "mcphub_"
# How the credentials begin that let a person act as a key; see `auth.passes`.
ACTING_START: Final = "mcphub_pass_"
PREFIX_LENGTH = 12
SHORTEST_KEY = 32
# From when on people are told that a key is about to expire.
SOON: Final = timedelta(days=14)
LONGEST_OVERLAP: Final = timedelta(days=90)

# What one key has and the next takes over when it is rotated, beside its name.
SCOPES: Final = ("tool_patterns", "methods", "networks")
LIMITS: Final = (
    "calls_per_second",
    "calls_per_minute",
    "calls_per_day",
    "requests_per_second",
    "requests_per_day",
    "open_streams",
)


class WeakKey(ValueError):
    """A key that somebody chose is too short to be one."""


class NotRotatable(ValueError):
    """A key cannot be rotated: it does not open the door any more, or was replaced already."""


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
    tool_patterns: Sequence[str] = (),
    methods: Sequence[str] = (),
    networks: Sequence[str] = (),
    limits: Mapping[str, int | None] | None = None,
) -> tuple[ApiKey, str]:
    """Store a new key of `tenant` and return its row and the key itself, which cannot be had again.

    `tool_patterns`, `methods` and `networks` narrow what it opens, each empty for everything; `limits` are fields of
    LIMITS. Raises WeakKey if the caller brings a `key` of fewer than 32 characters or one that looks like a pass, and
    ValidationError for a pattern or a network that is none.
    """
    if key is not None and len(key) < SHORTEST_KEY:
        raise WeakKey(f"An API key needs at least {SHORTEST_KEY} characters.")
    if key is not None and key.startswith(ACTING_START):
        raise WeakKey(f"What begins with {ACTING_START} is a pass: choose another API key.")
    key = key or new_key()
    scopes: dict[str, Any] = {
        "tool_patterns": list(tool_patterns),
        "methods": list(methods),
        "networks": list(networks),
    }
    validate_patterns(scopes["tool_patterns"])
    validate_patterns(scopes["methods"])
    validate_networks(scopes["networks"])
    row = ApiKey.objects.create(
        tenant=tenant,
        name=name,
        prefix=key[:PREFIX_LENGTH],
        digest=digest_of(key),
        expires_at=expires_at,
        created_by=created_by,
        **scopes,
        **{name: value for name, value in (limits or {}).items() if name in LIMITS},
    )
    return row, key


def revoke(row: ApiKey) -> bool:
    """Revoke a key from now on. False if it was revoked before. Every process knows within a second."""
    return bool(ApiKey.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=timezone.now()))


# --- Rotation -------------------------------------------------------------------------------------------------


def rotate(row: ApiKey, overlap: timedelta, by: User | None = None) -> tuple[ApiKey, str]:
    """Issue the key that takes the place of `row`; both are good for `overlap`, or less if `row` expires before.

    The new one has the name, the scopes, the limits and as long a life. Gives back its row and the key itself, which
    cannot be had again. Raises NotRotatable.
    """
    now = timezone.now()
    with transaction.atomic():
        new, key = issue(
            row.tenant,
            row.name,
            expires_at=now + (row.expires_at - row.created_at) if row.expires_at else None,
            created_by=by,
            **{name: getattr(row, name) for name in SCOPES},
            limits={name: getattr(row, name) for name in LIMITS},
        )
        ends = now + bounded(overlap)
        if row.expires_at:
            ends = min(row.expires_at, ends)
        if not rotatable(ApiKey.objects.filter(pk=row.pk), now).update(expires_at=ends, replaced_by=new):
            raise NotRotatable("Only a key that is good now can be rotated, and only once: issue a new one instead.")
    row.expires_at, row.replaced_by = ends, new
    return new, key


def set_overlap(row: ApiKey, overlap: timedelta) -> bool:
    """Let a key that was replaced be good for `overlap` from now on, longer or shorter than before; zero ends it.

    False if it was not replaced, or is revoked.
    """
    ends = timezone.now() + bounded(overlap)
    replaced = ApiKey.objects.filter(pk=row.pk, revoked_at=None, replaced_by__isnull=False)
    if not replaced.update(expires_at=ends):
        return False
    row.expires_at = ends
    return True


def rotatable(rows: QuerySet[ApiKey], now: datetime | None = None) -> QuerySet[ApiKey]:
    """Those of `rows` that are good now and have no successor that is."""
    return good(rows, now).filter(Q(replaced_by=None) | Q(replaced_by__revoked_at__isnull=False))


def good(rows: QuerySet[ApiKey], now: datetime | None = None) -> QuerySet[ApiKey]:
    """Those of `rows` that open the door now, as far as they decide it themselves."""
    now = now or timezone.now()
    return rows.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)


def bounded(overlap: timedelta) -> timedelta:
    """An overlap within what makes sense."""
    return min(max(overlap, timedelta()), LONGEST_OVERLAP)


# --- Expiry ---------------------------------------------------------------------------------------------------


def expiring_soon(rows: QuerySet[ApiKey] | None = None, within: timedelta = SOON) -> QuerySet[ApiKey]:
    """Those of `rows`, or of all keys, that expire `within` this time and that nobody has replaced, the first first."""
    now = timezone.now()
    every = ApiKey.objects.all() if rows is None else rows
    return good(every, now).filter(expires_at__lte=now + within, replaced_by=None).order_by("expires_at")
