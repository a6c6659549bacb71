"""Passes: what lets a person act as an API key for a while, without knowing the key.

A pass is a bearer credential that names a key and a person, sealed so that only the hub can make one. It opens as
long as that person runs the key's tenant; all that holds for the key then holds for it too.
"""

import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from django.contrib.auth.models import User

from tools_app.auth import access, vault
from tools_app.auth.keys import ACTING_START
from tools_app.auth.ring import Ring
from tools_app.models import ApiKey, Membership, Role

START: Final = ACTING_START
SECONDS: Final = 900.0
LONGEST = 400
MOST_OPENED = 1000
_PURPOSE = "pass"


class NotAllowed(Exception):
    """Whoever asks for a pass does not run the tenant of the key."""


class Pass(msgspec.Struct, frozen=True, array_like=True):
    """Who acts as which key, and until when, in seconds since 1970."""

    key_id: UUID
    person_id: int
    expires: float


class Holder(NamedTuple):
    """A person who may act as a key now: the key's digest, and the person's user name."""

    digest: str
    username: str


def issue(key: ApiKey, person: access.Person) -> str:
    """A new pass for `person` to act as `key`, good for SECONDS. Raises NotAllowed."""
    if not access.may_change(person, key.tenant):
        raise NotAllowed
    return sealed(Pass(key.pk, int(person.pk or 0), time.time() + SECONDS))


def sealed(said: Pass) -> str:
    """A pass as it is carried."""
    raw = vault.seal(msgspec.json.encode(said), _PURPOSE)
    return START + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def is_pass(credential: str) -> bool:
    """Whether a credential says that it is a pass."""
    return credential.startswith(START)


async def holder_of(credential: str) -> Holder | None:
    """Who carries a pass; None for one that is forged or over, and for a person who does not run the tenant any more.

    Whether the key itself is good must be asked by its digest. Raises the database's error if it has to be asked and
    does not answer.
    """
    opened = _opened(credential)
    if opened is None or opened.expires <= time.time():
        return None
    return await holders.get((opened.key_id, opened.person_id))


_known: dict[bytes, Pass] = {}


def _opened(credential: str) -> Pass | None:
    """What a pass says. Those that are in use are unsealed once."""
    if len(credential) > LONGEST:
        return None
    digest = hashlib.sha256(credential.encode()).digest()
    opened = _known.get(digest)
    if opened is None and (opened := _unsealed(credential)) is not None:
        _known[digest] = opened
        if len(_known) > MOST_OPENED:
            _known.pop(next(iter(_known)))
    return opened


def _unsealed(credential: str) -> Pass | None:
    text = credential.removeprefix(START)
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(vault.unseal(raw, _PURPOSE), type=Pass)
    except (ValueError, vault.Unsealable):
        return None


_Who = tuple[UUID, int]


def _load(asked: Sequence[_Who]) -> Mapping[_Who, Holder]:
    people = User.objects.filter(pk__in={person for _, person in asked}, is_active=True).in_bulk()
    rows = ApiKey.objects.filter(pk__in={key for key, _ in asked}).in_bulk()
    tenants = {row.tenant_id for row in rows.values()}
    admins = Membership.objects.filter(user__in=people, tenant__in=tenants, role=Role.ADMIN)
    run = set(admins.values_list("user_id", "tenant_id"))
    found: dict[_Who, Holder] = {}
    for key_id, person_id in asked:
        row, person = rows.get(key_id), people.get(person_id)
        if row and person and (person.is_superuser or (person_id, row.tenant_id) in run):
            found[key_id, person_id] = Holder(row.digest, person.get_username())
    return found


holders: Ring[_Who, Holder] = Ring(_load)


def forget_all() -> None:
    """Drop what this process remembers of the database."""
    holders.forget_all()
