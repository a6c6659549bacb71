"""Invitations: single-use links, valid for some days, that make the person who opens one a member of a tenant.

The token in a link has 256 random bits, of which only a digest is stored. An invitation depends on its inviter: it is
void once that person is no longer an admin of the tenant.

A link sent by e-mail carries a proof beside the token, which the inviter never sees: it shows that the person who
opens the link reads the mail of the invited address.

Callers that act for a person use `tenants.invitation_changes`, which records the changes.
"""

import base64
import hmac
import secrets
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac

from tools_app.models import Identity, Invitation, Membership, Role, Tenant
from tools_app.tenants import permissions
from tools_app.tenants.keys import digest_of
from tools_app.tenants.models import INVITATION_DAYS

TOKEN_BYTES: Final = 32
MAX_TOKEN_LENGTH: Final = 100
PROOF_SALT: Final = "tools_app.auth.invitations.proof"


class State(Enum):
    """The state of an invitation."""

    OPEN = "Open"
    ACCEPTED = "Accepted"
    REVOKED = "Revoked"
    EXPIRED = "Expired"
    VOID = "Void"


class InvitationError(ValueError):
    """The invitation cannot be created or accepted; the message says why."""


def create(tenant: Tenant, email: str, role: str, by: User) -> tuple[Invitation, str]:
    """Create an invitation. Return it and the token of its link, which cannot be retrieved later.

    Raises InvitationError for somebody who is already a member or invited.
    """
    email = email.strip()
    check(tenant, email)
    token = _new_token()
    row = Invitation.objects.create(
        tenant=tenant, email=email, role=role, digest=digest_of(token), invited_by=by, expires_at=_new_expiry()
    )
    return row, token


def check(tenant: Tenant, email: str) -> None:
    """Raise InvitationError for somebody who is already a member or invited."""
    if Membership.objects.filter(tenant=tenant, user__email__iexact=email).exists():
        raise InvitationError("Somebody with this e-mail is a member already: change the role on the member's page.")
    if _open_invitations(tenant).filter(email__iexact=email, expires_at__gt=timezone.now()).exists():
        raise InvitationError("This e-mail is invited already: make a new link on the invitation's page, or revoke it.")


def renew(row: Invitation, by: User) -> str | None:
    """Return a new link for an unaccepted invitation, replacing the previous one; None if it can no longer be accepted.

    `by` becomes its inviter.
    """
    token = _new_token()
    fields = {"digest": digest_of(token), "expires_at": _new_expiry(), "invited_by": by}
    return token if _open_invitations(row.tenant).filter(pk=row.pk).update(**fields) else None


def revoke(row: Invitation) -> bool:
    """Revoke an invitation. Return False if it was already accepted or revoked."""
    return bool(_open_invitations(row.tenant).filter(pk=row.pk).update(revoked_at=timezone.now()))


def find(token: str) -> Invitation | None:
    """Return the invitation of a link, in any state; None also if the proof is wrong."""
    if len(token) > MAX_TOKEN_LENGTH:
        return None
    digest = digest_of(token.partition(".")[0])
    row = Invitation.objects.select_related("tenant", "invited_by").filter(digest=digest).first()
    if row is None or not hmac.compare_digest(row.digest, digest):
        return None
    return row if "." not in token or proves_address(row, token) else None


def note_mailed(row: Invitation, token: str) -> str:
    """Return the token with its proof, for the e-mail to the invited address only."""
    return f"{token}.{_proof(row, settings.SECRET_KEY)}"


def proves_address(row: Invitation, token: str) -> bool:
    """Whether a token includes the proof that its bearer reads the mail of the invited address."""
    proof = token.partition(".")[2].encode()
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return any(hmac.compare_digest(_proof(row, key).encode(), proof) for key in keys)


def state_of(row: Invitation) -> State:
    """Return the state of an invitation."""
    if row.accepted_at:
        return State.ACCEPTED
    if row.revoked_at:
        return State.REVOKED
    if row.expires_at <= timezone.now():
        return State.EXPIRED
    return State.OPEN if _is_backed(row) else State.VOID


def is_for(row: Invitation, person: User) -> bool:
    """Whether this account may accept an invitation: its e-mail is the invited one."""
    is_same = bool(person.email) and person.email.strip().casefold() == row.email.casefold()
    # What an issuer states proves no address.
    return is_same and not Identity.objects.filter(person=person).exists()


def belongs_elsewhere(row: Invitation, person: User) -> bool:
    """Whether another tenant's issuer decides who uses this account, so that it must not reach this tenant."""
    return Identity.objects.filter(person=person).exclude(issuer__tenant=row.tenant_id).exists()


def accept(row: Invitation, person: User, *, confirmed: bool = False) -> bool:
    """Make `person` a member with the role of the invitation; an existing member keeps their role.

    Call it in a transaction. Return False if the invitation was accepted meanwhile or is no longer open. Raises
    InvitationError for an account with another e-mail, unless its owner `confirmed` that the invitation is for them.
    """
    if belongs_elsewhere(row, person):
        raise InvitationError(
            f"{person.get_username()} is an account of another company's sign-in. Use another account."
        )
    if not confirmed and not is_for(row, person):
        raise InvitationError(f"This invitation is for {row.email}, and this account has another e-mail.")
    if state_of(row) is not State.OPEN:
        return False
    now = timezone.now()
    unanswered = _open_invitations(row.tenant).filter(pk=row.pk, digest=row.digest, expires_at__gt=now)
    if not unanswered.update(accepted_at=now, accepted_by=person):
        return False
    Membership.objects.get_or_create(user=person, tenant=row.tenant, defaults={"role": row.role})
    return True


def has_account(row: Invitation) -> bool:
    """Whether an account has the invited e-mail. Disclose it only to a person who proved that the address is theirs."""
    return User.objects.filter(email__iexact=row.email, identity=None).exists()


def masked_address(row: Invitation) -> str:
    """Return the invited address as shown to a person who has not proved that it is theirs."""
    name, _, host = row.email.partition("@")
    return f"{name[:1]}…@{host}"


def _is_backed(row: Invitation) -> bool:
    """Whether the inviter is still an admin of the tenant; lists prefetch the memberships."""
    by = row.invited_by
    if by is None or permissions.is_superuser(by):
        return by is not None
    roles = {(member.tenant_id, member.role) for member in by.memberships.all()}
    return by.is_active and (row.tenant_id, Role.ADMIN) in roles


def _open_invitations(tenant: Tenant) -> QuerySet[Invitation]:
    return Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None)


def _proof(row: Invitation, key: str) -> str:
    """Return a proof bound to the link and the address."""
    subject = f"{row.pk}:{row.digest}:{row.email}"
    digest = salted_hmac(PROOF_SALT, subject, secret=key, algorithm="sha256").digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def _new_expiry() -> datetime:
    return timezone.now() + timedelta(days=INVITATION_DAYS)
