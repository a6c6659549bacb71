"""Impersonation tokens: who may get one, what it gives access to, and when it ends."""

import asyncio
import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tools_app.identity import principal
from tools_app.identity.principal import Credential, Principal
from tools_app.models import ApiKey, Membership, Role, Tenant
from tools_app.tenants import impersonation, keys
from tools_app.tenants.impersonation import ImpersonationToken, NotAllowed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def row(tenant: Tenant) -> ApiKey:
    return keys.issue(tenant, "laptop")[0]


@pytest.fixture
def admin(tenant: Tenant) -> User:
    user = User.objects.create_user("ada")
    Membership.objects.create(user=user, tenant=tenant, role=Role.ADMIN)
    return user


def opens(credential: str, *, from_query: bool = False) -> Principal | None:
    """The principal of a credential, in a process with empty caches."""

    async def authenticate() -> Principal | None:
        return await principal.authenticate(Credential(credential, from_query=from_query))

    principal.cache.forget_all()
    impersonation.forget_all()
    return asyncio.run(authenticate())


def test_a_pass_acts_as_the_key_and_says_who_it_is(row: ApiKey, admin: User) -> None:
    ApiKey.objects.filter(pk=row.pk).update(calls_per_minute=7)
    found = opens(impersonation.issue(row, admin))
    assert found
    assert (found.key_id, found.tenant_id, found.person) == (row.pk, row.tenant_id, "ada")
    assert found.allowed.calls, "the limits of the key hold"
    assert found.recorded_name("Claude Code") == "playground (ada)"


def made_for(row: ApiKey, person: User) -> str:
    """A valid token, apart from the person's role."""
    return impersonation.sealed(ImpersonationToken(row.pk, person.pk, time.time() + 60, person.get_session_auth_hash()))


@pytest.mark.parametrize("role", [Role.AUDITOR, Role.OPERATOR])
def test_who_is_no_admin_any_more_has_no_use_of_a_pass_and_gets_no_other_one(
    row: ApiKey, admin: User, role: Role
) -> None:
    held = impersonation.issue(row, admin)
    assert opens(held)
    Membership.objects.filter(user=admin).update(role=role)
    assert opens(held) is None
    with pytest.raises(NotAllowed):
        impersonation.issue(row, admin)
    Membership.objects.filter(user=admin).update(role=Role.ADMIN)
    assert opens(held), "it was the role that was missing"


@pytest.mark.parametrize("role", [Role.AUDITOR, Role.OPERATOR, None])
def test_only_who_runs_the_tenant_gets_a_pass(
    row: ApiKey, tenant: Tenant, other_tenant: Tenant, role: Role | None
) -> None:
    person = User.objects.create_user("eve")
    Membership.objects.create(user=person, tenant=other_tenant, role=Role.ADMIN)
    if role:
        Membership.objects.create(user=person, tenant=tenant, role=role)
    with pytest.raises(NotAllowed):
        impersonation.issue(row, person)
    # Nor is a token accepted that was made for such a person.
    assert opens(made_for(row, person)) is None


def test_a_superuser_gets_one(row: ApiKey) -> None:
    found = opens(impersonation.issue(row, User.objects.create_superuser("root")))
    assert found
    assert found.person == "root"


def changed(credential: str, place: int) -> str:
    other = "A" if credential[place] != "A" else "B"
    return credential[:place] + other + credential[place + 1 :]


def test_a_forged_pass_opens_nothing(row: ApiKey, admin: User) -> None:
    good = impersonation.issue(row, admin)
    assert opens(good)
    inserted = [good[:30] + letter + good[30:] for letter in ("!", "!!!!", "\n", " ", "=", ".")]
    for forged in (changed(good, 20), changed(good, len(good) // 2), good[:-8], good + "A" * 500, *inserted):
        assert opens(forged) is None
    for nonsense in ("", "ä", "AAAA", "A" * 100, "=" * 40):
        assert opens(impersonation.PREFIX + nonsense) is None


def test_a_pass_opens_for_a_quarter_of_an_hour(row: ApiKey, admin: User, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(impersonation.time, "time", lambda: now)
    good = impersonation.issue(row, admin)
    monkeypatch.setattr(impersonation.time, "time", lambda: now + 899.9)
    assert opens(good)
    monkeypatch.setattr(impersonation.time, "time", lambda: now + 900)
    assert opens(good) is None


def test_only_what_this_process_has_opened_is_known(row: ApiKey, admin: User) -> None:
    """Known credentials have priority over strangers' requests: invalid tokens must not become known."""
    good, unused = impersonation.issue(row, admin), impersonation.issue(row, admin)
    forged = changed(good, 30)
    assert not impersonation.is_known(good)
    assert opens(forged) is None
    assert opens(good)
    assert [impersonation.is_known(credential) for credential in (good, unused, forged)] == [True, False, False]
    assert principal.is_known(Credential(good), None)
    assert not principal.is_known(Credential(forged), None)
    impersonation.forget_all()
    assert not impersonation.is_known(good)


def test_a_pass_in_a_url_opens_nothing(row: ApiKey, admin: User, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(allow_query_key=True)
    assert opens(impersonation.issue(row, admin), from_query=True) is None


def revoke_key(row: ApiKey, person: User) -> None:
    keys.revoke(row)


def let_key_expire(row: ApiKey, person: User) -> None:
    ApiKey.objects.filter(pk=row.pk).update(expires_at=timezone.now())


def switch_tenant_off(row: ApiKey, person: User) -> None:
    Tenant.objects.filter(pk=row.tenant_id).update(is_active=False)


def demote(row: ApiKey, person: User) -> None:
    Membership.objects.filter(user=person).update(role=Role.AUDITOR)


def dismiss(row: ApiKey, person: User) -> None:
    Membership.objects.filter(user=person).delete()


def switch_person_off(row: ApiKey, person: User) -> None:
    User.objects.filter(pk=person.pk).update(is_active=False)


def change_password(row: ApiKey, person: User) -> None:
    person.set_password("another one")
    person.save()


ENDS = [change_password, revoke_key, let_key_expire, switch_tenant_off, demote, dismiss, switch_person_off]


@pytest.mark.parametrize("end", ENDS)
def test_a_pass_ends_with_its_key_its_tenant_and_its_persons_role_and_password(
    row: ApiKey, admin: User, end: Callable[[ApiKey, User], None]
) -> None:
    good = impersonation.issue(row, admin)
    assert opens(good)
    end(row, admin)
    assert opens(good) is None


def test_a_pass_is_unsealed_once_and_no_more_are_remembered_than_that(
    row: ApiKey, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(impersonation, "MAX_CACHED", 2)
    impersonation._known.clear()
    good = impersonation.issue(row, admin)
    assert opens(good)
    monkeypatch.setattr(impersonation.encryption, "unseal", lambda *_: pytest.fail("unsealed again"))
    assert opens(good)
    monkeypatch.undo()
    monkeypatch.setattr(impersonation, "MAX_CACHED", 2)
    for _ in range(4):
        assert opens(impersonation.issue(row, admin))
    assert len(impersonation._known) == 2


def test_passes_leave_the_memory_of_keys_alone(row: ApiKey, admin: User) -> None:
    good = impersonation.issue(row, admin)
    assert opens(good)
    assert set(principal.cache._entries) == {row.digest}
    assert opens(impersonation.PREFIX + "A" * 60) is None
    assert not principal.cache._entries


def test_nobody_chooses_a_key_that_looks_like_a_pass(tenant: Tenant) -> None:
    with pytest.raises(keys.WeakKey):
        keys.issue(tenant, "mine", key=impersonation.PREFIX + "x" * 40)


def test_a_pass_of_a_key_that_never_was_opens_nothing(admin: User) -> None:
    assert opens(impersonation.sealed(ImpersonationToken(uuid4(), admin.pk, time.time() + 60))) is None
