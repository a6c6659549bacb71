"""Invitations: single-use links, valid for some days, that make the person who opens one a member of a tenant.

The token in a link has 256 random bits, of which only a digest is stored. An invitation depends on its inviter: it is
void once that person is no longer an admin of the tenant.

A link sent by e-mail carries a proof beside the token, which the inviter never sees: it shows that the person who
opens the link reads the mail of the invited address.
"""

import base64
import hmac
import secrets
import smtplib
from datetime import timedelta
from enum import Enum
from typing import Final
from urllib.parse import urljoin

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import send_mail
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import salted_hmac

from tools_app.audit.changes import changes
from tools_app.core.ids import new_id
from tools_app.models import Action, Identity, Invitation, Membership, Role, Tenant
from tools_app.tenants import permissions
from tools_app.tenants.keys import digest_of
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit
from tools_app.tenants.models import INVITATION_DAYS

TOKEN_BYTES: Final = 32
MAX_TOKEN_LENGTH: Final = 100
PROOF_SALT: Final = "tools_app.auth.invitations.proof"
ANSWERED: Final = "This invitation has already been accepted or revoked."
# E-mails of a tenant in an hour.
MAX_AN_HOUR: Final = 50
HOUR_SECONDS: Final = 3600.0
MAIL: Final = """\
{who} invites you to {tenant} on mcphub, as {role}.

Open this link to join; it works once, until {until} UTC:

{link}

Anyone with the link can use it: do not forward it. If you did not expect an invitation, ignore this message.
"""


class State(Enum):
    """The state of an invitation."""

    OPEN = "Open"
    ACCEPTED = "Accepted"
    REVOKED = "Revoked"
    EXPIRED = "Expired"
    VOID = "Void"


class InvitationError(ValueError):
    """The invitation cannot be created or accepted; the message says why."""


class NotSent(Exception):
    """The link was not sent by e-mail; the message says why."""


def create(tenant: Tenant, email: str, role: str, by: User) -> tuple[Invitation, str]:
    """Create an invitation. Return it and the token of its link, which cannot be retrieved later.

    Raises InvitationError for somebody who is already a member or invited.
    """
    email = email.strip()
    check(tenant, email)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    row = Invitation.objects.create(tenant=tenant, email=email, role=role, digest=digest_of(token), invited_by=by)
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
    token = secrets.token_urlsafe(TOKEN_BYTES)
    expires_at = timezone.now() + timedelta(days=INVITATION_DAYS)
    with changes.change_log_transaction():
        renewed = _open_invitations(row.tenant).filter(pk=row.pk)
        if not renewed.update(digest=digest_of(token), expires_at=expires_at, invited_by=by):
            return None
        row.refresh_from_db()
        changes.record(Action.CHANGED, row, after={"link": "changed", "expires_at": row.expires_at.isoformat()})
    return token


def revoke(row: Invitation) -> bool:
    """Revoke an invitation. Return False if it was already accepted or revoked."""
    with changes.change_log_transaction():
        revoked = _open_invitations(row.tenant).filter(pk=row.pk).update(revoked_at=timezone.now())
        if revoked:
            changes.record(Action.REVOKED, row)
    return bool(revoked)


def find(token: str) -> Invitation | None:
    """Return the invitation of a link, in any state; None also if the proof is wrong."""
    if len(token) > MAX_TOKEN_LENGTH:
        return None
    digest = digest_of(token.partition(".")[0])
    row = Invitation.objects.select_related("tenant", "invited_by").filter(digest=digest).first()
    if row is None or not hmac.compare_digest(row.digest, digest):
        return None
    return row if "." not in token or proves_address(row, token) else None


def with_proof(row: Invitation, token: str) -> str:
    """Return the token with its proof, for the e-mail to the invited address only."""
    return f"{token}.{_proof(row, settings.SECRET_KEY)}"


def link_of(token: str, base_url: str) -> str:
    """Return the link with a token, at the hub's URL."""
    return urljoin(base_url, reverse("invitation", args=[token]))


def send(row: Invitation, token: str, base_url: str) -> None:
    """Send the link, with the proof, by e-mail to the invited address.

    Raises NotSent if the hub cannot send e-mail, the mail server did not accept it, or the tenant has sent too many:
    the hub is no mail relay.
    """
    if not settings.MCPHUB_EMAIL_URL:
        raise NotSent("E-mail is not configured (MCPHUB_EMAIL_URL)")
    places = [ConcurrencyLimit("tenant", "invitations", MAX_AN_HOUR, f"mail:{row.tenant_id}")]
    if limits.acquire_blocking(places, str(new_id()), HOUR_SECONDS) is not None:
        raise NotSent(f"The e-mail was not sent: {MAX_AN_HOUR} invitations of a tenant are sent in an hour")
    tenant = " ".join(row.tenant.name.split())
    text = MAIL.format(
        who=row.invited_by.get_username() if row.invited_by else "Somebody",
        tenant=tenant,
        role=row.get_role_display().lower(),
        until=f"{row.expires_at:%Y-%m-%d %H:%M}",
        link=link_of(with_proof(row, token), base_url),
    )
    try:
        send_mail(f"Invitation to {tenant}", text, None, [row.email])
    except (OSError, smtplib.SMTPException) as error:
        raise NotSent(f"The e-mail was not sent: {error}") from error


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
    by = row.invited_by
    if by is None:
        return State.VOID
    # Lists prefetch the memberships.
    roles = {(member.tenant_id, member.role) for member in by.memberships.all()}
    is_admin = by.is_active and (row.tenant_id, Role.ADMIN) in roles
    return State.OPEN if permissions.is_superuser(by) or is_admin else State.VOID


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

    Return False if the invitation was accepted meanwhile or is no longer open. Raises InvitationError for an account
    with another e-mail, unless its owner `confirmed` that the invitation is for them.
    """
    # What allows it is read under the lock: the inviter may be demoted while this waits for it.
    with changes.change_log_transaction():
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
        other = {} if is_for(row, person) else {"account_with_the_invited_email": False}
        changes.record(Action.CHANGED, row, after={"accepted_by": person.get_username(), **other})
    return True


def has_account(row: Invitation) -> bool:
    """Whether an account has the invited e-mail. Disclose it only to a person who proved that the address is theirs."""
    return User.objects.filter(email__iexact=row.email, identity=None).exists()


def masked_address(row: Invitation) -> str:
    """Return the invited address as shown to a person who has not proved that it is theirs."""
    name, _, host = row.email.partition("@")
    return f"{name[:1]}…@{host}"


def _open_invitations(tenant: Tenant) -> QuerySet[Invitation]:
    return Invitation.objects.filter(tenant=tenant, accepted_at=None, revoked_at=None)


def _proof(row: Invitation, key: str) -> str:
    """Return a proof bound to the link and the address."""
    subject = f"{row.pk}:{row.digest}:{row.email}"
    digest = salted_hmac(PROOF_SALT, subject, secret=key, algorithm="sha256").digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
