"""Invitations: links that make whoever opens them a member of a tenant, once and for some days.

What stands in a link has 256 random bits, of which only a digest is kept. An invitation is worth as much as the one
who made it: it is void as soon as that person does not run the tenant any more.

Whoever changes them for a person calls `audit.invitation_changes`, which records what is done here.
"""

import hmac
import secrets
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.auth import access
from tools_app.auth.keys import digest_of
from tools_app.models import Invitation, Membership, Role, Tenant
from tools_app.models.people import INVITATION_DAYS

TOKEN_BYTES: Final = 32
LONGEST: Final = 100


class State(Enum):
    """What has become of an invitation."""

    OPEN = "Open"
    ACCEPTED = "Accepted"
    REVOKED = "Revoked"
    EXPIRED = "Expired"
    VOID = "Void"


class NotInvited(ValueError):
    """Nobody can be invited like this, or an invitation cannot be taken; the message says why."""


def make(tenant: Tenant, email: str, role: str, by: User) -> tuple[Invitation, str]:
    """Invite somebody and give back the invitation and what stands in its link, which cannot be had again.

    Raises NotInvited for somebody who is a member or invited already.
    """
    email = email.strip()
    check(tenant, email)
    token = _new_token()
    row = Invitation.objects.create(
        tenant=tenant, email=email, role=role, digest=digest_of(token), invited_by=by, expires_at=_some_days_on()
    )
    return row, token


def check(tenant: Tenant, email: str) -> None:
    """Raise NotInvited for somebody who is a member or invited already."""
    if Membership.objects.filter(tenant=tenant, user__email__iexact=email).exists():
        raise NotInvited("Somebody with this e-mail is a member already: change the role on the member's page.")
    if _unanswered(tenant).filter(email__iexact=email, expires_at__gt=timezone.now()).exists():
        raise NotInvited("This e-mail is invited already: make a new link on the invitation's page, or revoke it.")


def renew(row: Invitation, by: User) -> str | None:
    """A new link for an invitation that nobody took, in place of the one before; None if it cannot be taken any more.

    `by` answers for it from now on.
    """
    token = _new_token()
    fields = {"digest": digest_of(token), "expires_at": _some_days_on(), "invited_by": by}
    return token if _unanswered(row.tenant).filter(pk=row.pk).update(**fields) else None


def revoke(row: Invitation) -> bool:
    """Let nobody take an invitation any more. False if somebody had, or it was revoked before."""
    return bool(_unanswered(row.tenant).filter(pk=row.pk).update(revoked_at=timezone.now()))


def find(token: str) -> Invitation | None:
    """The invitation of a link, whatever has become of it."""
    if len(token) > LONGEST:
        return None
    digest = digest_of(token)
    row = Invitation.objects.select_related("tenant", "invited_by").filter(digest=digest).first()
    return row if row is not None and hmac.compare_digest(row.digest, digest) else None


def state_of(row: Invitation) -> State:
    """What has become of an invitation."""
    if row.accepted_at:
        return State.ACCEPTED
    if row.revoked_at:
        return State.REVOKED
    if row.expires_at <= timezone.now():
        return State.EXPIRED
    return State.OPEN if _is_backed(row) else State.VOID


def is_for(row: Invitation, person: User) -> bool:
    """Whether this account may take an invitation: its e-mail is the one that was invited."""
    return bool(person.email) and person.email.strip().casefold() == row.email.casefold()


def accept(row: Invitation, person: User) -> bool:
    """Make `person` a member with the role of the invitation; who is one already keeps the role.

    To be called in a transaction. False if somebody took it meanwhile, or it is not open any more. Raises NotInvited
    for an account with another e-mail.
    """
    if not is_for(row, person):
        raise NotInvited(f"This invitation is for {row.email}, and this account has another e-mail.")
    if state_of(row) is not State.OPEN:
        return False
    now = timezone.now()
    unanswered = _unanswered(row.tenant).filter(pk=row.pk, digest=row.digest, expires_at__gt=now)
    if not unanswered.update(accepted_at=now, accepted_by=person):
        return False
    Membership.objects.get_or_create(user=person, tenant=row.tenant, defaults={"role": row.role})
    return True


def account_for(row: Invitation) -> User | None:
    """The account that has the e-mail that was invited, if there is one; of several, one that is active."""
    return User.objects.filter(email__iexact=row.email).order_by("-is_active", "pk").first()


def _is_backed(row: Invitation) -> bool:
    """Whether the one who answers for an invitation still runs the tenant; lists fetch the memberships beforehand."""
    by = row.invited_by
    if by is None or access.is_superuser(by):
        return by is not None
    roles = {(member.tenant_id, member.role) for member in by.memberships.all()}
    return by.is_active and (row.tenant_id, Role.ADMIN) in roles


def _unanswered(tenant: Tenant) -> QuerySet[Invitation]:
    return Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None)


def _new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def _some_days_on() -> datetime:
    return timezone.now() + timedelta(days=INVITATION_DAYS)
