"""Permissions on tenants, which the admin and the REST API use."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User

from tools_app.models import Membership, Role, Secret, Tenant
from tools_app.tenants import permissions
from tools_app.tenants.permissions import TenantPermissions

pytestmark = pytest.mark.django_db


class May(NamedTuple):
    """A user's permissions in one tenant."""

    see: bool
    audit: bool
    change: bool


NOTHING = May(see=False, audit=False, change=False)
EVERYTHING = May(see=True, audit=True, change=True)
# For each user: permissions in acme, in globex, and access to the admin and the REST API.
PEOPLE = {
    "superuser": (EVERYTHING, EVERYTHING, True),
    "superuser who is switched off": (NOTHING, NOTHING, False),
    "admin": (EVERYTHING, NOTHING, True),
    "admin who is switched off": (NOTHING, NOTHING, False),
    "auditor": (May(see=True, audit=True, change=False), NOTHING, True),
    "operator": (May(see=True, audit=False, change=False), NOTHING, True),
    "admin here, operator there": (EVERYTHING, May(see=True, audit=False, change=False), True),
    "member of nothing": (NOTHING, NOTHING, False),
    "anonymous": (NOTHING, NOTHING, False),
}


@pytest.fixture
def acme(db: None) -> Tenant:
    return Tenant.objects.create(slug="acme", name="Acme")


@pytest.fixture
def globex(db: None) -> Tenant:
    return Tenant.objects.create(slug="globex", name="Globex")


def build(who: str, acme: Tenant, globex: Tenant) -> permissions.Person:
    if who == "anonymous":
        return AnonymousUser()
    person = User.objects.create_user(
        "ada", is_superuser=who.startswith("superuser"), is_active=not who.endswith("switched off")
    )
    role = who.replace(",", " ").split()[0]
    if role in Role.values:
        Membership.objects.create(user=person, tenant=acme, role=role)
    if who.endswith("operator there"):
        Membership.objects.create(user=person, tenant=globex, role=Role.OPERATOR)
    # Roles of other users do not count.
    other = User.objects.create_user("eve")
    for tenant in (acme, globex):
        Membership.objects.create(user=other, tenant=tenant, role=Role.ADMIN)
    return person


@pytest.mark.parametrize(("who", "in_acme", "in_globex", "enters"), [(who, *may) for who, may in PEOPLE.items()])
def test_a_person_may_what_its_roles_say_and_nothing_elsewhere(
    acme: Tenant, globex: Tenant, who: str, in_acme: May, in_globex: May, *, enters: bool
) -> None:
    person = build(who, acme, globex)
    reach = TenantPermissions(person)
    for tenant, may in ((acme, in_acme), (globex, in_globex)):
        Secret.objects.create(tenant=tenant, name=f"of_{tenant.slug}")
        assert permissions.tenants_seen_by(person).contains(tenant) is may.see
        assert permissions.tenants_run_by(person).contains(tenant) is may.change
        assert permissions.may_change(person, tenant) is may.change
        assert permissions.rows_seen_by(person, Secret.objects.all()).filter(tenant=tenant).exists() is may.see
        assert permissions.rows_seen_by(person, Tenant.objects.all(), "pk").contains(tenant) is may.see
        assert May(reach.sees(tenant.pk), reach.audits(tenant.pk), reach.changes(tenant.pk)) == may
    assert permissions.may_enter_admin(person) is enters
    assert reach.has_access is enters
    assert reach.is_superuser is permissions.is_superuser(person) is (who == "superuser")
    assert reach.is_admin_anywhere is (in_acme.change or in_globex.change)
    assert reach.sees_several_tenants is (in_acme.see and in_globex.see)


def test_a_superuser_enters_a_hub_without_tenants() -> None:
    root = User.objects.create_superuser("root")
    assert permissions.may_enter_admin(root)
    assert TenantPermissions(root).has_access


def test_a_superusers_own_roles_are_not_asked_for(acme: Tenant) -> None:
    root = User.objects.create_superuser("root")
    Membership.objects.create(user=root, tenant=acme, role=Role.OPERATOR)
    reach = TenantPermissions(root)
    assert (reach.roles, reach.audits(acme.pk), reach.changes(acme.pk)) == ((), True, True)


def test_what_belongs_to_no_tenant_is_for_superusers_alone(acme: Tenant, globex: Tenant) -> None:
    root = TenantPermissions(User.objects.create_superuser("root"))
    assert (root.sees(None), root.audits(None), root.changes(None)) == (True, True, True)
    admin = TenantPermissions(build("admin", acme, globex))
    assert (admin.sees(None), admin.audits(None), admin.changes(None)) == (False, False, False)


def test_the_tenants_of_a_person_come_by_name_with_its_role_in_each(acme: Tenant, globex: Tenant) -> None:
    Tenant.objects.filter(pk=acme.pk).update(name="Zulu")
    person = build("admin here, operator there", acme, globex)
    roles = permissions.tenant_roles_of(person)
    assert [(role.id, role.slug, role.name, role.role) for role in roles] == [
        (globex.pk, "globex", "Globex", "operator"),
        (acme.pk, "acme", "Zulu", "admin"),
    ]
    assert permissions.tenant_roles_of(AnonymousUser()) == ()


def test_one_request_asks_once_what_a_person_may(acme: Tenant, globex: Tenant, django_assert_num_queries: Any) -> None:
    reach = TenantPermissions(build("auditor", acme, globex))
    with django_assert_num_queries(1):
        for tenant in (acme, globex):
            _ = (
                reach.has_access,
                reach.sees(tenant.pk),
                reach.audits(tenant.pk),
                reach.changes(tenant.pk),
                reach.is_admin_anywhere,
            )


def test_a_second_factor_is_asked_of_members_for_their_tenants_and_of_superusers_for_any(
    acme: Tenant, globex: Tenant
) -> None:
    person, root = build("auditor", acme, globex), User.objects.create_superuser("root")
    Tenant.objects.filter(pk=globex.pk).update(requires_second_factor=True)
    assert TenantPermissions(person).requiring_second_factor == []
    assert TenantPermissions(root).requiring_second_factor == ["Globex"]
    Tenant.objects.filter(pk=acme.pk).update(requires_second_factor=True)
    assert TenantPermissions(person).requiring_second_factor == ["Acme"]
    assert TenantPermissions(root).requiring_second_factor == ["Acme", "Globex"]


def test_an_account_of_another_kind_is_no_superuser() -> None:
    """Such as `django.contrib.auth.models.AbstractBaseUser`, which lacks Django's permissions."""
    assert AbstractBaseUser.is_active
    assert not hasattr(AbstractBaseUser, "is_superuser")
    account: Any = SimpleNamespace(is_active=True)
    assert not permissions.is_superuser(account)
