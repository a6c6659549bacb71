"""Impersonation tokens, which let a person act as an API key for a limited time without knowing the key.

A token is a bearer credential that names a key and a person, sealed so that only the hub can create one. It is valid
as long as the person is an admin of the key's tenant and keeps their password; all limits of the key apply to it.
"""

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from django.contrib.auth.models import AnonymousUser, User

from tools_app.core import encryption
from tools_app.core.refresh_ahead_cache import RefreshAheadCache
from tools_app.models import ApiKey, Membership, Role
from tools_app.tenants import permissions
from tools_app.tenants.keys import IMPERSONATION_PREFIX, without_connections

PREFIX: Final = IMPERSONATION_PREFIX
LIFETIME_SECONDS: Final = 900.0
MAX_LENGTH = 500
MAX_CACHED = 1000
_PURPOSE = "pass"


class NotAllowed(Exception):
    """The person who asks for a token is not an admin of the key's tenant."""


class ImpersonationToken(msgspec.Struct, frozen=True, array_like=True):
    """Who acts as which key, and until when, in seconds since 1970. `login` changes with the person's password."""

    key_id: UUID
    person_id: int
    expires: float
    login: str = ""


class Holder(NamedTuple):
    """A person who may act as a key now: the key's digest, the username, the `login` of valid tokens, the user's id."""

    digest: str
    username: str
    login: str
    person_id: int


def issue(key: ApiKey, person: permissions.Person) -> str:
    """Return a new token for `person` to act as `key`, valid for SECONDS. Raises NotAllowed."""
    if isinstance(person, AnonymousUser) or not permissions.may_change(person, key.tenant):
        raise NotAllowed
    return sealed(
        ImpersonationToken(key.pk, int(person.pk or 0), time.time() + LIFETIME_SECONDS, person.get_session_auth_hash())
    )


def sealed(token: ImpersonationToken) -> str:
    """Return a token in its wire form."""
    raw = encryption.seal(msgspec.json.encode(token), _PURPOSE)
    return PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def is_known(credential: str) -> bool:
    """Whether a token was opened before and its holder found. Does not open the token."""
    opened = _known.get(_digest_of(credential))
    return opened is not None and holders.has_row((opened.key_id, opened.person_id))


async def holder_of(credential: str) -> Holder | None:
    """Return the holder of a token; None if it is forged or expired, or the person is no admin of the tenant now.

    The key itself must be checked by its digest. Raises the database's error if the database is needed and does not
    respond.
    """
    opened = _opened(credential)
    if opened is None or opened.expires <= time.time():
        return None
    holder = await holders.get((opened.key_id, opened.person_id))
    return holder if holder is not None and hmac.compare_digest(holder.login, opened.login) else None


_known: dict[bytes, ImpersonationToken] = {}


def _digest_of(credential: str) -> bytes:
    return hashlib.sha256(credential.encode()).digest()


def _opened(credential: str) -> ImpersonationToken | None:
    """Open a token. Tokens in use are opened once."""
    if len(credential) > MAX_LENGTH:
        return None
    digest = _digest_of(credential)
    opened = _known.get(digest)
    if opened is not None:
        return opened
    text = credential.removeprefix(PREFIX)
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        opened = msgspec.json.decode(encryption.unseal(raw, _PURPOSE), type=ImpersonationToken)
    except (ValueError, encryption.DecryptionError):
        return None
    _known[digest] = opened
    if len(_known) > MAX_CACHED:
        _known.pop(next(iter(_known)))
    return opened


_HolderId = tuple[UUID, int]


def _load(ids: Sequence[_HolderId]) -> Mapping[_HolderId, Holder]:
    people = User.objects.filter(pk__in={person for _, person in ids}, is_active=True).in_bulk()
    # A person cannot act as the connection of another person.
    rows = without_connections(ApiKey.objects.filter(pk__in={key for key, _ in ids})).in_bulk()
    tenants = {row.tenant_id for row in rows.values()}
    admins = Membership.objects.filter(user__in=people, tenant__in=tenants, role=Role.ADMIN)
    run = set(admins.values_list("user_id", "tenant_id"))
    found: dict[_HolderId, Holder] = {}
    for key_id, person_id in ids:
        row, person = rows.get(key_id), people.get(person_id)
        if row and person and (person.is_superuser or (person_id, row.tenant_id) in run):
            found[key_id, person_id] = Holder(
                row.digest, person.get_username(), person.get_session_auth_hash(), person_id
            )
    return found


holders: RefreshAheadCache[_HolderId, Holder] = RefreshAheadCache(_load)


def forget_all() -> None:
    """Clear this process's cache of holders."""
    holders.forget_all()
