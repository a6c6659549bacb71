"""Members of a tenant: finding a person by name, and keeping the last admin."""

from django.contrib.auth.models import User

from tools_app.models import Membership, Role
from tools_app.tenants import permissions

# The role of a new member unless another one is selected.
DEFAULT_ROLE = Role.OPERATOR
SUPERUSERS_ADD = "Only superusers add an account that exists. Invite the person instead: POST /api/v1/invitations/."
# Tenants of a person whose admins a page names, and the admins of all of them.
MAX_TENANTS_NAMED = 3
MAX_ADMINS_NAMED = 9
IS_MEMBER = "This person is already a member."
LAST_ADMIN = "This is the tenant's last admin. Make somebody else an admin first."


class UnknownPerson(ValueError):
    """There is no such person."""


def person_named(text: str) -> User:
    """Return the active account with exactly this username, unless an issuer made it. Raises UnknownPerson.

    For superusers only: others must not learn who has an account. An e-mail is not accepted: it is not verified.
    """
    found = User.objects.filter(is_active=True, username=text.strip(), identity=None).first()
    if found is None:
        raise UnknownPerson("There is no user with this name. Send an invitation instead.")
    return found


def is_last_admin(member: Membership) -> bool:
    """Whether removing this member would leave the tenant without an admin who can log in."""
    if member.role != Role.ADMIN:
        return False
    others = Membership.objects.filter(tenant=member.tenant_id, role=Role.ADMIN, user__is_active=True)
    return not others.exclude(pk=member.pk).exists()


def admins_to_ask(person: User) -> list[tuple[str, list[str]]]:
    """Return the names of the other active admins of the person's tenants, by the name of the tenant."""
    tenants = permissions.tenants_seen_by(person).order_by("name")[:MAX_TENANTS_NAMED]
    rows = Membership.objects.filter(tenant__in=list(tenants), role=Role.ADMIN, user__is_active=True)
    others = rows.exclude(user=person).order_by("tenant__name", "user__username")
    named: dict[str, list[str]] = {}
    for tenant, name in others.values_list("tenant__name", "user__username")[:MAX_ADMINS_NAMED]:
        named.setdefault(tenant, []).append(name)
    return list(named.items())
