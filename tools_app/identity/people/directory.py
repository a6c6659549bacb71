"""The directory of an issuer: its token, and what it says of the people who sign in.

The directory decides about groups: a person whom it knows has the groups that it says, and not those of a token. It
knows people by an external ID, which one claim of their tokens has. Names and e-mails are never compared: in some
companies, people choose theirs.
"""

import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.signals import m2m_changed
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.core.ids import new_id
from tools_app.identity.principal import rate_limit_key
from tools_app.models import (
    Action,
    Directory,
    DirectoryGroup,
    DirectoryUser,
    Identity,
    Issuer,
    IssuerUse,
    Membership,
)
from tools_app.tenants.keys import KEY_BYTES, digest_of
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit

START: Final = "mcphub_scim_"
PREFIX_LENGTH: Final = 17
MAX_TOKEN: Final = 200
# Bytes of a request of a directory: a group with its members.
MAX_REQUEST_BYTES: Final = 1024 * 1024
USE_NOTED_EVERY: Final = timedelta(minutes=1)
# Requests of an address without a valid token, in FAILURE_SECONDS.
MAX_FAILURES: Final = 60
FAILURE_SECONDS: Final = 60.0
MAX_ACCEPTED: Final = 1000
# As many members are named in a change of a group.
MAX_NAMED: Final = 50
_NOBODYS: Final = digest_of("")


class AccountConflict(Exception):
    """The directory gives the external ID of a token to another account."""


class TooManyFailures(Exception):
    """An address has sent too many requests without a valid token."""


# --- The token ------------------------------------------------------------------------------------------------


def issue(issuer: Issuer) -> str:
    """Store a new token of an issuer's directory in place of an earlier one; return it. It is shown once."""
    token = START + secrets.token_urlsafe(KEY_BYTES)
    columns = {"prefix": token[:PREFIX_LENGTH], "digest": digest_of(token), "created_at": timezone.now()}
    with changes.change_log_transaction():
        Directory.objects.update_or_create(issuer=issuer, defaults={**columns, "last_used_at": None})
        changes.record(Action.ROTATED, issuer, after={"directory token": "changed"})
    return token


def withdraw(issuer: Issuer) -> bool:
    """Withdraw the token. What the directory said stays. Return False if there was none."""
    with changes.change_log_transaction():
        if not Directory.objects.filter(issuer=issuer).delete()[0]:
            return False
        changes.record(Action.REVOKED, issuer, after={"directory token": "withdrawn"})
        return True


def find(issuer_id: UUID, token: str) -> Issuer | None:
    """Return the issuer to whose directory a token belongs, in constant time for those that do not."""
    rows = Directory.objects.filter(issuer__tenant__is_active=True, issuer__use=IssuerUse.PEOPLE)
    row = rows.filter(pk=issuer_id).select_related("issuer__tenant").first()
    digest = digest_of(token[:MAX_TOKEN])
    if not hmac.compare_digest(row.digest if row else _NOBODYS, digest) or row is None or len(token) > MAX_TOKEN:
        return None
    noted_until = timezone.now() - USE_NOTED_EVERY
    if row.last_used_at is None or row.last_used_at <= noted_until:
        unnoted = Q(last_used_at=None) | Q(last_used_at__lte=noted_until)
        Directory.objects.filter(unnoted, pk=row.pk).update(last_used_at=timezone.now())
    return row.issuer


def admit(issuer_id: UUID, token: str, address: str) -> Issuer | None:
    """Return the issuer to whose directory a token belongs; None for other tokens, which are counted by address.

    An address that has sent too many of those is refused before the token is looked up, unless this process has
    accepted the token before: directories share addresses with strangers. Raises TooManyFailures.
    """
    place = ConcurrencyLimit("address", "directory", MAX_FAILURES, f"scim:{rate_limit_key(address)}")
    has_form = token.startswith(START) and len(token) <= MAX_TOKEN and token.isascii()
    accepted = (issuer_id, digest_of(token)) if has_form else None
    if accepted is not None and accepted in _accepted:
        found = find(issuer_id, token)
        if found is not None:
            return found
        with _accepting:
            _accepted.pop(accepted, None)
    id = str(new_id())
    if limits.acquire_blocking([place], id, FAILURE_SECONDS) is not None:
        raise TooManyFailures
    found = find(issuer_id, token) if accepted is not None else None
    if found is not None and accepted is not None:
        limits.release_of([place.key], id)
        with _accepting:
            while len(_accepted) >= MAX_ACCEPTED:
                del _accepted[next(iter(_accepted))]
            _accepted[accepted] = None
    return found


# The digests of tokens that this process has accepted, the oldest first. Each is looked up again whenever it comes.
_accepted: Final[dict[tuple[UUID, str], None]] = {}
_accepting: Final = Lock()


class State(NamedTuple):
    """How a directory is connected, and how much it has said. The prefix is of its token."""

    connected: bool
    token_prefix: str
    token_created_at: datetime | None
    last_used_at: datetime | None
    users: int
    groups: int


def state_of(issuer: Issuer) -> State:
    """Return how the directory of an issuer is connected."""
    row: Directory | None = getattr(issuer, "directory", None)
    return State(
        connected=row is not None,
        token_prefix=row.prefix if row else "",
        token_created_at=row.created_at if row else None,
        last_used_at=row.last_used_at if row else None,
        users=issuer.directory_users.count(),
        groups=issuer.directory_groups.count(),
    )


def connect_signals() -> None:
    """Record who is added to a group and removed from it. Other signals record users and groups."""
    m2m_changed.connect(
        _record_members, sender=DirectoryGroup.members.through, dispatch_uid="members of directory groups"
    )


def _record_members(instance: Any, action: str, pk_set: set[UUID] | None, **_options: Any) -> None:
    change = {"post_add": "members added", "post_remove": "members removed"}.get(action)
    if change and pk_set and isinstance(instance, DirectoryGroup):
        rows = DirectoryUser.objects.filter(pk__in=sorted(pk_set)[:MAX_NAMED]).order_by("user_name")
        names = list(rows.values_list("user_name", flat=True))
        more = [f"and {len(pk_set) - len(names)} more"] if len(pk_set) > len(names) else []
        changes.record(Action.CHANGED, instance, after={change: [*names, *more]})


# --- What it says of people -----------------------------------------------------------------------------------


def external_ids(issuer_id: UUID) -> dict[str, UUID]:
    """Return the external IDs of an issuer's groups, with the groups' keys."""
    rows = DirectoryGroup.objects.filter(issuer=issuer_id).exclude(external_id="")
    return dict(rows.values_list("external_id", "pk"))


def claims_of(entry: DirectoryUser, known_ids: Mapping[str, UUID] | None = None) -> dict[str, Any]:
    """Return what the directory says of a person as claims. Groups have their names, then their external IDs.

    A name that is the external ID of another group does not count: a person who may rename groups must not pass one off
    as another. `known_ids`: see `external_ids`, which is asked if they are not given.
    """
    groups = list(entry.groups.all())
    if known_ids is None:
        known_ids = external_ids(entry.issuer_id) if groups else {}
    known = [group.display_name for group in groups if known_ids.get(group.display_name, group.pk) == group.pk]
    known += [group.external_id for group in groups if group.external_id]
    return {**{claim: value for claim, value in profile_of(entry).items() if value}, "groups": known}


def profile_of(entry: DirectoryUser) -> dict[str, Any]:
    """Return what the directory says of a person as claims, but for groups. The e-mail is the primary or first one."""
    name, emails = entry.resource.get("name") or {}, entry.resource.get("emails") or []
    email = next((email for email in emails if email.get("primary")), emails[0] if emails else {})
    return {
        "preferred_username": entry.user_name,
        "email": str(email.get("value") or ""),
        "given_name": name.get("givenName"),
        "family_name": name.get("familyName"),
    }


def entry_of(identity: Identity) -> DirectoryUser | None:
    """Return what the directory says of a person; None if it does not know them."""
    return DirectoryUser.objects.filter(identity=identity).first()


def entry_for(issuer: Issuer, claims: Mapping[str, Any]) -> DirectoryUser | None:
    """Return what the directory says of the person of these claims, by the external ID."""
    external_id = claims.get(issuer.directory_claim)
    if isinstance(external_id, list) and len(external_id) == 1:
        # An attribute of SAML is a list.
        external_id = external_id[0]
    if not isinstance(external_id, str) or not external_id:
        return None
    rows = DirectoryUser.objects.filter(issuer=issuer, external_id=external_id)
    return rows.select_related("identity__person", "identity__issuer").first()


def joined(
    issuer: Issuer, subject: str, claims: Mapping[str, Any], identity: Identity | None
) -> tuple[Identity | None, DirectoryUser | None]:
    """Return the identity of a person who signs in, and what the directory says of them.

    Who was provisioned before gets the account that was made then. Raises AccountConflict.
    """
    entry = entry_for(issuer, claims)
    if entry is None:
        return identity, entry_of(identity) if identity is not None else None
    if identity is not None and entry.identity.pk == identity.pk:
        return identity, entry
    with transaction.atomic():
        # The directory may change at this moment: its changes wait for one another, and for this.
        changes.lock_change_log()
        return _join(issuer, subject, claims)


def _join(issuer: Issuer, subject: str, claims: Mapping[str, Any]) -> tuple[Identity | None, DirectoryUser | None]:
    """Do what `joined` says, by rows that do not change meanwhile."""
    identity = Identity.objects.filter(issuer=issuer, subject=subject).select_related("person", "issuer").first()
    entry = entry_for(issuer, claims)
    if entry is None:
        return identity, entry_of(identity) if identity is not None else None
    known = entry.identity
    if identity is not None and known.pk == identity.pk:
        return identity, entry
    if known.subject or (identity is not None and entry_of(identity) is not None):
        raise AccountConflict(f"The directory of {issuer.tenant.name} gives your external ID to another account.")
    if identity is not None:
        link(entry, identity)
        return identity, entry
    if not Identity.objects.filter(pk=known.pk, subject="").update(subject=subject):
        raise AccountConflict("You signed in twice at the same moment. Try again.")
    known.subject = subject
    return known, entry


def link(entry: DirectoryUser, identity: Identity) -> None:
    """Give a person of the directory the account that they use, in place of the one that was made for them."""
    unused = entry.identity
    entry.identity = identity
    entry.save(update_fields=["identity"])
    discard(unused)


def discard(identity: Identity) -> None:
    """Delete an account that the directory provisioned and that was never used, unless it has access elsewhere."""
    person = identity.person
    elsewhere = Membership.objects.filter(user=person).exclude(tenant=identity.issuer.tenant_id)
    if identity.subject or person.is_superuser or person.last_login or elsewhere.exists():
        return
    person.delete()
