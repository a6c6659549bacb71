"""Stored credentials of upstreams: sealed for one upstream, one owner and one origin.

They are read from the database for each call that needs one, so that every process knows of a change at once.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.core import encryption, request_origin
from tools_app.core.config import config
from tools_app.core.encryption import DecryptionError
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.models import CredentialKind, Upstream, UpstreamCredential
from tools_app.upstreams.credentials.discovery import covers
from tools_app.upstreams.credentials.owners import is_usable

MAX_VALUE_LENGTH: Final = 16 * 1024
HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
PATH: Final = "/connections/upstreams"
# A token is refreshed when a fifth of its life is left, and at least this long before its end.
MIN_MARGIN: Final = timedelta(seconds=5)
MAX_MARGIN: Final = timedelta(minutes=5)
# Of tokens whose server does not say how long they are valid: they are refreshed, but not taken for expired.
DEFAULT_LIFETIME: Final = timedelta(hours=1)


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
