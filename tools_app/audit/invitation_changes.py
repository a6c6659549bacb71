"""What becomes of invitations, done and recorded in one transaction. That one was made is recorded as every row is."""

from django.contrib.auth.models import User

from tools_app.audit import changes
from tools_app.auth import invitations
from tools_app.models import Action, Invitation


def renew(row: Invitation, by: User) -> str | None:
    """A new link for an invitation, see `invitations.renew`."""
    with changes.in_turn():
        token = invitations.renew(row, by)
        if token is not None:
            row.refresh_from_db()
            changes.record(Action.CHANGED, row, after={"link": "changed", "expires_at": row.expires_at.isoformat()})
    return token


def revoke(row: Invitation) -> bool:
    """Let nobody take an invitation any more, see `invitations.revoke`."""
    with changes.in_turn():
        revoked = invitations.revoke(row)
        if revoked:
            changes.record(Action.REVOKED, row)
    return revoked


def accept(row: Invitation, person: User) -> bool:
    """Make `person` a member, see `invitations.accept`."""
    with changes.in_turn():
        accepted = invitations.accept(row, person)
        if accepted:
            changes.record(Action.CHANGED, row, after={"accepted_by": person.get_username()})
    return accepted
