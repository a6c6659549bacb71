"""Who is, and who stays, a member of a tenant."""

from django.contrib.auth.models import User

from tools_app.models import Membership, Role

ROLES_MEAN = (
    "An admin changes everything of the tenant. An auditor reads everything. An operator reads who called what, when,"
    " how long it took and how it ended; never arguments, events and results."
)
LAST_ADMIN = "This is the tenant's last admin. Make somebody else an admin first."


class NobodyNamed(ValueError):
    """There is no such person."""


def person_named(text: str) -> User:
    """The active account of this user name, written out in full. Raises NobodyNamed.

    An e-mail is no name: whoever was invited by any tenant has one that nobody proved.
    """
    found = User.objects.filter(is_active=True, username=text.strip()).first()
    if found is None:
        raise NobodyNamed("Nobody has this user name. Invite them by e-mail instead.")
    return found


def is_last_admin(member: Membership) -> bool:
    """Whether the tenant would be left without an admin who can log in."""
    if member.role != Role.ADMIN:
        return False
    others = Membership.objects.filter(tenant=member.tenant_id, role=Role.ADMIN, user__is_active=True)
    return not others.exclude(pk=member.pk).exists()
