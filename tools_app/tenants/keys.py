"""API keys: issuing, rotation and revocation. `identity.principal` looks keys up for each request."""

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.models import Action, ApiKey, Tenant
from tools_app.tenants.models import CallerLimited

KEY_BYTES = 32
KEY_PREFIX = "mcphub_"
# The prefix of impersonation tokens; see `tenants.impersonation`.
IMPERSONATION_PREFIX: Final = "mcphub_pass_"
# The prefix of OAuth access tokens, and of their digests; see `identity.oauth.tokens`.
ACCESS_PREFIX: Final = "mcphub_at_"
ACCESS_DIGEST: Final = "at:"
# How a signed token (JWT) begins: with a JSON object in base64.
JWT_PREFIX: Final = "eyJ"
# How no API key begins: each of these credentials is looked up elsewhere.
RESERVED_PREFIXES: Final = {
    IMPERSONATION_PREFIX: "impersonation tokens",
    ACCESS_PREFIX: "access tokens",
    JWT_PREFIX: "signed tokens",
}
PREFIX_LENGTH = 12
# In place of the first characters of a key, for keys whose value no client has: those of connections.
CONNECTION_PREFIX: Final = "sign-in"
MIN_KEY = 32
# How long before its expiry a key is reported as expiring soon.
EXPIRES_SOON: Final = timedelta(days=14)
MAX_OVERLAP: Final = timedelta(days=90)

LIMITS: Final[tuple[str, ...]] = tuple(field.name for field in CallerLimited._meta.fields)
# What restricts a key beside its limits. Fields of keys that people set belong here unless they are named.
SCOPES: Final[tuple[str, ...]] = tuple(
    field.name
    for field in ApiKey._meta.concrete_fields
    if field.editable and field.name not in {"tenant", "name", "expires_at", "acts_for_creator", *LIMITS}
)
# What a rotated key passes on to its successor, beside its name.
SETTINGS: Final = (*SCOPES, *LIMITS)
# What everybody who may change a key may change of one that acts for somebody else.
RENAMING: Final = frozenset({"name"})


class WeakKey(ValueError):
    """A chosen key is too short."""


class NotRotatable(ValueError):
    """A key cannot be rotated: it is no longer valid or was already replaced."""


def digest_of(key: str) -> str:
    """Return the SHA-256 of a key, in hex: a key has 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


def access_digest(token: str) -> str:
    """Return the stored form of an OAuth access token, which differs from that of every key."""
    return ACCESS_DIGEST + digest_of(token)


def signed_digest(token: str, place: str) -> str:
    """Return the stored form of a token that an issuer signed.

    Two tenants may accept it, so the tenant's slug in the endpoint's path belongs to it (`place`; "" for `/mcp`).
    """
    return ACCESS_DIGEST + digest_of(f"{place} {token}")


def new_key() -> str:
    """Return a new key of 256 random bits, which never reads as another credential: one in 262,144 would."""
    while (key := KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)).startswith(tuple(RESERVED_PREFIXES)):
        pass
    return key


def check_strength(key: str) -> None:
    """Raise WeakKey for a chosen key that is not acceptable."""
    if len(key) < MIN_KEY:
        raise WeakKey(f"An API key needs at least {MIN_KEY} characters.")
    for start, meaning in RESERVED_PREFIXES.items():
        if key.startswith(start):
            raise WeakKey(f"{start} is the prefix of {meaning}: choose another API key.")


def issue(
    tenant: Tenant, name: str, *, key: str | None = None, model: type[ApiKey] = ApiKey, prefix: str = "", **fields: Any
) -> tuple[ApiKey, str]:
    """Store a new key of `tenant`. Return its row and the key itself, which cannot be retrieved later.

    `fields` are those of the model: SETTINGS, `expires_at`, `created_by` and `acts_for_creator`. `model` and `prefix`
    are of keys whose value no client has. Raises WeakKey for a given `key` of fewer than 32 characters or one that
    looks like another credential, and ValidationError for an invalid field.
    """
    if fields.get("acts_for_creator") and fields.get("created_by") is None:
        raise ValidationError({"acts_for_creator": "A key that acts for a person needs one who creates it."})
    if key is None:
        key = new_key()
    else:
        check_strength(key)
    row = model(tenant=tenant, name=name, prefix=prefix or key[:PREFIX_LENGTH], digest=digest_of(key), **fields)
    # The rows that it refers to exist, and its digest is no other's.
    related = [field.name for field in model._meta.concrete_fields if field.is_relation]
    row.full_clean(exclude=related, validate_unique=False)
    row.save()
    return row, key


def foreign_person(row: ApiKey, by: User | None) -> str | None:
    """Return the username of the person for whom a key acts; None if that is `by`, or no person."""
    person = row.created_by if row.acts_for_creator else None
    if person is None or (by is not None and by.pk == person.pk):
        return None
    return str(person.get_username())


def check_editor(row: ApiKey, by: User | None, fields: Iterable[str]) -> None:
    """Raise ValidationError for each of the `fields` of a key that `by` changes, but may not.

    A key that acts for a person is an account of theirs in other apps: no other person decides what it can do, from
    where and for how long. Others may rename and revoke it.
    """
    name = foreign_person(row, by)
    refused = [field for field in fields if field not in RENAMING] if name is not None else []
    if refused:
        message = f"Only {name} can change a key that acts for them. Revoke it instead."
        raise ValidationError(dict.fromkeys(refused, message))


def revoke(row: ApiKey) -> bool:
    """Revoke a key immediately. Return False if it was already revoked. All processes apply it within a second."""
    now = timezone.now()
    with changes.change_log_transaction():
        if not ApiKey.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=now):
            return False
        row.revoked_at = now
        # The end of a connection is recorded as its own.
        if row.prefix != CONNECTION_PREFIX:
            changes.record(Action.REVOKED, row, after={"revoked_at": now.isoformat()})
    return True


def rotate(row: ApiKey, overlap: timedelta, by: User | None = None) -> tuple[ApiKey, str]:
    """Issue the key that replaces `row`; both are valid for `overlap`, or less if `row` expires before.

    The new key has the same name, settings and lifetime; it acts for its creator only if that is the same person.
    Return its row and the key itself, which cannot be retrieved later. Raises NotRotatable.
    """
    with changes.change_log_transaction():
        # It may have been narrowed while this waited for the lock.
        row.refresh_from_db()
        now, before = timezone.now(), _expiry_of(row)
        new, key = issue(
            row.tenant,
            row.name,
            expires_at=now + (row.expires_at - row.created_at) if row.expires_at else None,
            created_by=by,
            # The new key is shown to `by`, who must not come to act for somebody else by it.
            acts_for_creator=row.acts_for_creator and by is not None and by.pk == row.created_by_id,
            **{name: getattr(row, name) for name in SETTINGS},
        )
        ends = now + bounded_overlap(overlap)
        if row.expires_at:
            ends = min(row.expires_at, ends)
        if not rotatable_keys(ApiKey.objects.filter(pk=row.pk), now).update(expires_at=ends, replaced_by=new):
            raise NotRotatable("Only a valid key can be rotated, and only once: issue a new key instead.")
        row.expires_at, row.replaced_by = ends, new
        changes.record(Action.ROTATED, row, before=before, after={**_expiry_of(row), "replaced_by": str(new)})
    return new, key


def set_overlap(row: ApiKey, overlap: timedelta, by: User | None = None) -> bool:
    """Keep a replaced key valid for `overlap` from now on, longer or shorter than before; zero ends it.

    Return False if it was not replaced, or is revoked. Raises ValidationError if the key acts for another person than
    `by`, and `overlap` is not zero.
    """
    with changes.change_log_transaction():
        row.refresh_from_db()
        if overlap > timedelta():
            check_editor(row, by, ["expires_at"])
        ends, before = timezone.now() + bounded_overlap(overlap), _expiry_of(row)
        replaced = ApiKey.objects.filter(pk=row.pk, revoked_at=None, replaced_by__isnull=False)
        if not replaced.update(expires_at=ends):
            return False
        row.expires_at = ends
        changes.record(Action.CHANGED, row, before=before, after=_expiry_of(row))
    return True


def _expiry_of(row: ApiKey) -> dict[str, str | None]:
    return {"expires_at": row.expires_at.isoformat() if row.expires_at else None}


def rotatable_keys(rows: QuerySet[ApiKey], now: datetime | None = None) -> QuerySet[ApiKey]:
    """Return those of `rows` that are valid now and have no valid successor."""
    return valid_keys(rows, now).filter(Q(replaced_by=None) | Q(replaced_by__revoked_at__isnull=False))


def without_connections(rows: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
    """Return those of `rows` that somebody holds, without the keys behind OAuth connections."""
    return rows.exclude(prefix=CONNECTION_PREFIX)


def valid_keys(rows: QuerySet[ApiKey], now: datetime | None = None) -> QuerySet[ApiKey]:
    """Return those of `rows` that are valid now, as far as the key itself determines it."""
    now = now or timezone.now()
    return rows.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)


def with_status(rows: QuerySet[ApiKey], status: str | None) -> QuerySet[ApiKey]:
    """Return those of `rows` that are `active`, expire `soon`, or are `replaced`, `expired` or `revoked`; None: all."""
    match status:
        case "active":
            return valid_keys(rows)
        case "soon":
            return expiring_soon(rows)
        case "replaced":
            return rows.filter(revoked_at=None, replaced_by__isnull=False)
        case "expired":
            return rows.filter(revoked_at=None, expires_at__lte=timezone.now())
        case "revoked":
            return rows.exclude(revoked_at=None)
    return rows


def bounded_overlap(overlap: timedelta) -> timedelta:
    """Limit an overlap to the allowed range."""
    return min(max(overlap, timedelta()), MAX_OVERLAP)


def expiring_soon(rows: QuerySet[ApiKey] | None = None, within: timedelta = EXPIRES_SOON) -> QuerySet[ApiKey]:
    """Return those of `rows`, or of all keys, that expire `within` this time and have no successor, earliest first."""
    now = timezone.now()
    every = ApiKey.objects.all() if rows is None else rows
    return (
        valid_keys(without_connections(every), now)
        .filter(expires_at__lte=now + within, replaced_by=None)
        .order_by("expires_at")
    )
