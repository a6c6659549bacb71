"""Actions on invitations, each recorded in its transaction. Signals record their creation."""

from django.contrib.auth.models import User

from tools_app.audit.changes import changes
from tools_app.models import Action, Invitation
from tools_app.tenants import invitations


def renew(row: Invitation, by: User) -> str | None:
    """Issue a new link for an invitation; see `invitations.renew`."""
    with changes.change_log_transaction():
        token = invitations.renew(row, by)
        if token is not None:
            row.refresh_from_db()
            changes.record(Action.CHANGED, row, after={"link": "changed", "expires_at": row.expires_at.isoformat()})
    return token


def revoke(row: Invitation) -> bool:
    """Revoke an invitation so that it cannot be accepted; see `invitations.revoke`."""
    with changes.change_log_transaction():
        revoked = invitations.revoke(row)
        if revoked:
            changes.record(Action.REVOKED, row)
    return revoked


def accept(row: Invitation, person: User, *, confirmed: bool = False) -> bool:
    """Make `person` a member; see `invitations.accept`."""
    with changes.change_log_transaction():
        accepted = invitations.accept(row, person, confirmed=confirmed)
        if accepted:
            other = {} if invitations.is_for(row, person) else {"account_with_the_invited_email": False}
            changes.record(Action.CHANGED, row, after={"accepted_by": person.get_username(), **other})
    return accepted
