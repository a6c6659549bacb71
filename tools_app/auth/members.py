"""Who is, and who stays, a member of a tenant."""

from django.contrib.auth.models import User

from tools_app.models import Membership, Role

ROLES_MEAN = (
    "An admin changes everything of the tenant. An auditor reads everything. An operator reads who called what, when,"
    " how long it took and how it ended; never arguments, events and results."
)
LAST_ADMIN = "This is the tenant's last admin. Make somebody else an admin first."


class NotOnePerson(ValueError):
    """A user name or e-mail names nobody, or more than one person."""


def person_named(text: str) -> User:
    """The active account of this user name or e-mail, written out in full. Raises NotOnePerson."""
    text = text.strip()
    active = User.objects.filter(is_active=True)
    found = list(active.filter(username=text) or active.filter(email__iexact=text)[:2])
    if not found:
        raise NotOnePerson("Nobody has this user name or e-mail. Invite them, or let a superuser add an account.")
    if len(found) > 1:
        raise NotOnePerson("Several people have this e-mail: write the user name.")
    return found[0]


def is_last_admin(member: Membership) -> bool:
    """Whether the tenant would be left without an admin who can log in."""
    if member.role != Role.ADMIN:
        return False
    others = Membership.objects.filter(tenant=member.tenant_id, role=Role.ADMIN, user__is_active=True)
    return not others.exclude(pk=member.pk).exists()
