"""Changes of companies' directories (SCIM): their tokens by people of the hub, and the members of their groups.

Signals record users and groups.
"""

from typing import Any, Final
from uuid import UUID

from django.db.models.signals import m2m_changed

from tools_app.audit.changes import changes
from tools_app.identity.people import directory
from tools_app.models import Action, DirectoryGroup, DirectoryUser, Issuer

# As many members are named in a change.
MAX_NAMED: Final = 50
DONE: Final = {"post_add": "members added", "post_remove": "members removed"}


def issue_token(issuer: Issuer) -> str:
    """Return a new token of an issuer's directory, in place of an earlier one; see `directory.issue`."""
    with changes.change_log_transaction():
        token = directory.issue(issuer)
        changes.record(Action.ROTATED, issuer, after={"directory token": "changed"})
    return token


def withdraw_token(issuer: Issuer) -> bool:
    """Withdraw the token of an issuer's directory. Return False if there was none."""
    with changes.change_log_transaction():
        if not directory.withdraw(issuer):
            return False
        changes.record(Action.REVOKED, issuer, after={"directory token": "withdrawn"})
        return True


def connect() -> None:
    """Record who is added to a group and removed from it. A sign-in that gives a role waits for other changes."""
    directory.joining.connect(_wait, dispatch_uid="people who get a role or an account")
    m2m_changed.connect(
        _members_changed, sender=DirectoryGroup.members.through, dispatch_uid="members of directory groups"
    )


def _wait(**_options: Any) -> None:
    changes.lock_change_log()


def _members_changed(instance: Any, action: str, pk_set: set[UUID] | None, **_options: Any) -> None:
    if action in DONE and pk_set and isinstance(instance, DirectoryGroup):
        named = DirectoryUser.objects.filter(pk__in=sorted(pk_set)[:MAX_NAMED]).order_by("user_name")
        names = list(named.values_list("user_name", flat=True))
        more = [f"and {len(pk_set) - len(names)} more"] if len(pk_set) > len(names) else []
        changes.record(Action.CHANGED, instance, after={DONE[action]: [*names, *more]})
