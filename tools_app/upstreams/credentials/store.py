"""Stored credentials of upstreams: sealed for one upstream, one owner and one origin.

They are read from the database for each call that needs one, so that every process knows of a change at once.

A person who leaves the tenant or whose account is disabled loses theirs. Such a row counts as missing at once. It is
deleted with the membership or the account; what else is left, such as the row of a revoked key, is looked for once a
minute.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.signals import post_delete, post_save
from django.utils import timezone

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.core import encryption, request_origin
from tools_app.core.config import config
from tools_app.core.encryption import DecryptionError
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.models import CredentialKind, CredentialOwner, Membership, Upstream, UpstreamCredential
from tools_app.upstreams.credentials.discovery import covers

MAX_VALUE_LENGTH: Final = 16 * 1024
HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
PATH: Final = "/connections/upstreams"
# A token is refreshed when a fifth of its life is left, and at least this long before its end.
MIN_MARGIN: Final = timedelta(seconds=5)
MAX_MARGIN: Final = timedelta(minutes=5)
# Of tokens whose server does not say how long they are valid: they are refreshed, but not taken for expired.
DEFAULT_LIFETIME: Final = timedelta(hours=1)
DELETE_EVERY_SECONDS: Final = 60.0
BATCH: Final = 500
# What decides whether an account may use a tenant, besides its memberships.
ACCOUNT_FIELDS: Final = frozenset({"is_active", "is_superuser"})
# Credentials of one upstream that are named; the rest is counted.
MAX_NAMED: Final = 5
# Credentials that are examined together.
MAX_EXAMINED: Final = 10_000
MISSING: Final = {
    CredentialOwner.TENANT: "The tenant has no credential yet: calls are refused.",
    CredentialOwner.KEY: "No API key has a credential yet.",
    CredentialOwner.PERSON: "No person has entered a credential yet.",
}


class Owner(NamedTuple):
    """Whose a credential is: an API key's, a person's, or, without both, the tenant's."""

    key_id: UUID | None = None
    person_id: int | None = None

    def __str__(self) -> str:
        if self.key_id is not None:
            return f"key:{self.key_id}"
        return f"person:{self.person_id}" if self.person_id is not None else ""


TENANT: Final = Owner()


class InvalidCredential(ValueError):
    """The value cannot be a credential. The message says why."""


@dataclass(frozen=True)
class Tokens:
    """What an authorization server issued, and where it is refreshed."""

    access_token: str
    refresh_token: str
    token_endpoint: str
    client_id: str
    client_secret: str
    auth_method: str
    issuer: str
    resource: str

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "Tokens":
        """Return the tokens of an opened credential."""
        return cls(**{name: str(content.get(name) or "") for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Grant:
    """How long tokens are valid, and what for. `seconds` is None if the server does not say."""

    seconds: int | None = None
    scopes: str = ""


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a URL; "" for an invalid one."""
    try:
        parsed = parse_url(url)
    except InvalidUrl:
        return ""
    return f"{parsed.scheme}://{parsed.host}:{parsed.port}"


def of_owner(upstream_id: UUID, owner: Owner) -> "QuerySet[UpstreamCredential]":
    """Return the credential of an owner for an upstream: one row, or none, which an owner who has left has."""
    return _rows_of(upstream_id, owner).filter(is_usable()).select_related("upstream", "key", "person")


def owner_of(row: UpstreamCredential) -> Owner:
    """Return whose a credential is."""
    return Owner(row.key_id, row.person_id)


def unseal(row: UpstreamCredential) -> dict[str, Any]:
    """Return what a credential contains; nothing if it cannot be decrypted any more."""
    try:
        content: dict[str, Any] = orjson.loads(encryption.unseal(bytes(row.ciphertext), _purpose(row)))
    except DecryptionError:
        return {}
    return content


def header_of(row: UpstreamCredential | None, kind: str, url: str) -> str:
    """Return the value of the header that a credential stands for; "" if there is none that can be sent there."""
    if row is None or row.kind != kind or row.origin != origin_of(url):
        return ""
    content = unseal(row)
    if kind == CredentialKind.HEADER:
        return str(content.get("value") or "")
    if (row.expires_at is not None and row.expires_at <= timezone.now()) or not covers(content.get("resource"), url):
        return ""
    token = content.get("access_token")
    return f"Bearer {token}" if token else ""


def save_value(upstream: Upstream, owner: Owner, value: str) -> UpstreamCredential:
    """Store the value of a header. Raises InvalidCredential."""
    if upstream.credential != CredentialKind.HEADER:
        raise InvalidCredential("Calls of this upstream need no value of a header.")
    text = value.strip()
    if not text or len(text) > MAX_VALUE_LENGTH or not HEADER_VALUE.fullmatch(text):
        raise InvalidCredential(f"Enter visible ASCII characters, at most {MAX_VALUE_LENGTH}.")
    return _save(upstream, owner, CredentialKind.HEADER, {"value": text})


def save_tokens(upstream: Upstream, owner: Owner, tokens: Tokens, grant: Grant) -> UpstreamCredential:
    """Store the tokens of a sign-in."""
    return _save(
        upstream, owner, CredentialKind.OAUTH, vars(tokens), **expiry_fields(tokens, grant), scopes=grant.scopes
    )


def expiry_fields(tokens: Tokens, grant: Grant) -> dict[str, datetime | None]:
    """Return when tokens expire, and when they are refreshed."""
    now = timezone.now()
    lifetime = DEFAULT_LIFETIME if grant.seconds is None else timedelta(seconds=grant.seconds)
    margin = min(MAX_MARGIN, max(MIN_MARGIN, lifetime / 5))
    refresh_at = now + max(lifetime - margin, timedelta(seconds=1))
    return {
        "expires_at": None if grant.seconds is None else now + lifetime,
        "refresh_at": refresh_at if tokens.refresh_token else None,
    }


def seal(row: UpstreamCredential, content: Mapping[str, Any]) -> bytes:
    """Return the content of a credential, sealed for its upstream, owner and origin."""
    return encryption.seal(orjson.dumps(dict(content)), _purpose(row))


def delete(row: UpstreamCredential) -> None:
    """Delete a credential. Calls need another one from then on."""
    with change_log_transaction():
        row.delete()


def credential_url(upstream_id: UUID, owner: Owner, base: str = "") -> str:
    """Return the address of the page where a credential is entered, at MCPHUB_PUBLIC_URL or where the request came.

    Without a request, and if the hub's address is not set, only its path.
    """
    key = f"?key={owner.key_id}" if owner.key_id is not None else ""
    origin = base or config.MCPHUB_PUBLIC_URL.rstrip("/") or request_origin.current()
    return f"{origin}{PATH}/{upstream_id}{key}"


def _save(
    upstream: Upstream, owner: Owner, kind: CredentialKind, content: Mapping[str, Any], **fields: Any
) -> UpstreamCredential:
    with change_log_transaction():
        row = _rows_of(upstream.pk, owner).select_for_update(of=("self",)).first()
        row = row or UpstreamCredential(upstream=upstream, key_id=owner.key_id, person_id=owner.person_id)
        row.tenant_id, row.kind, row.origin = upstream.tenant_id, kind, origin_of(upstream.url)
        row.ciphertext = seal(row, content)
        row.expires_at = row.refresh_at = row.claimed_until = None
        row.failures, row.problem, row.wanted_scopes, row.scopes = 0, "", "", ""
        for name, value in fields.items():
            setattr(row, name, value)
        row.updated_at = timezone.now()
        row.save()
    return row


def _rows_of(upstream_id: UUID, owner: Owner) -> "QuerySet[UpstreamCredential]":
    return UpstreamCredential.objects.filter(upstream_id=upstream_id, key_id=owner.key_id, person_id=owner.person_id)


def _purpose(row: UpstreamCredential) -> str:
    return f"upstream credential:{row.upstream_id}:{owner_of(row)}:{row.origin}"


def is_usable() -> Q:
    """Return the condition that a credential is the tenant's, or of a key or a person who may use the tenant."""
    is_unexpired = Q(key__expires_at=None) | Q(key__expires_at__gt=timezone.now())
    has_valid_key = Q(key__isnull=False, key__revoked_at=None) & is_unexpired
    # Also true without a connection, and of a service client.
    has_valid_connection = Q(key__connection__person=None) | _may_use_tenant("key__connection__person")
    return Q(key=None, person=None) | (has_valid_key & has_valid_connection) | _may_use_tenant("person")


def _may_use_tenant(person: str) -> Q:
    members = Membership.objects.filter(user=OuterRef(person), tenant=OuterRef("tenant"))
    has_access = Q(**{f"{person}__is_superuser": True}) | Q(Exists(members))
    return Q(**{f"{person}__is_active": True}) & has_access


def delete_unusable(**owner: Any) -> None:
    """Delete the credentials whose owners may not use them any more: all, or those of one owner."""
    usable = UpstreamCredential.objects.filter(is_usable()).values("pk")
    rows = UpstreamCredential.objects.filter(**owner).exclude(pk__in=usable)
    if not rows.exists():
        return
    with change_log_transaction():
        for row in rows.select_related("upstream", "key", "person")[:BATCH]:
            row.delete()


def connect_signals() -> None:
    """Delete credentials with the membership or the account that they depend on."""
    post_delete.connect(_delete_of_member, sender=Membership, dispatch_uid="credentials of a member who left")
    post_save.connect(_delete_of_account, sender=User, dispatch_uid="credentials of a disabled account")


def _delete_of_member(instance: Membership, **_options: Any) -> None:
    delete_unusable(person=instance.user_id, tenant=instance.tenant_id)


def _delete_of_account(
    instance: User, created: bool, update_fields: frozenset[str] | None = None, **_options: Any
) -> None:
    if not created and (update_fields is None or ACCOUNT_FIELDS & update_fields):
        delete_unusable(person=instance.pk)


def problems_of(upstreams: Iterable[Upstream]) -> Mapping[UUID, list[str]]:
    """Return what is wrong with the credentials of each upstream that needs some, for a tenant's admins."""
    by_id = {upstream.pk: upstream for upstream in upstreams if upstream.credential}
    rows = UpstreamCredential.objects.filter(is_usable(), upstream__in=by_id).defer("ciphertext")
    by_upstream: defaultdict[UUID, list[UpstreamCredential]] = defaultdict(list)
    for row in rows.select_related("key", "person").order_by("upstream", "created_at")[:MAX_EXAMINED]:
        by_upstream[row.upstream_id].append(row)
    return {pk: problems for pk, upstream in by_id.items() if (problems := _problems(upstream, by_upstream[pk]))}


def _problems(upstream: Upstream, rows: Iterable[UpstreamCredential]) -> list[str]:
    owner = CredentialOwner(upstream.credential_owner)
    # An upstream whose owner was changed may have others.
    used = [row for row in rows if ("key" if row.key_id else "person" if row.person_id else "tenant") == owner]
    if not used:
        return [MISSING[owner]]
    problems = [f"Of {row.owner_name}: {problem}" for row in used if (problem := _problem(upstream, row))]
    unnamed = len(problems) - MAX_NAMED
    return [*problems[:MAX_NAMED], *([f"And {unnamed} more."] if unnamed > 0 else [])]


def _problem(upstream: Upstream, row: UpstreamCredential) -> str:
    if row.kind != upstream.credential or row.origin != origin_of(upstream.url):
        return "It is for other settings or another address of the upstream. Enter it again."
    if row.expires_at is not None and row.expires_at <= timezone.now() and row.refresh_at is None:
        return f"It has expired. {row.problem or 'Sign in again.'}"
    if row.wanted_scopes and row.kind == CredentialKind.OAUTH:
        return f"{row.problem} Sign in again to allow: {row.wanted_scopes}."
    return row.problem
