"""Passes: who may have one, what they open, and when they stop opening it."""

import asyncio
import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tools_app.auth import keys, passes, principal
from tools_app.auth.passes import NotAllowed, Pass
from tools_app.auth.principal import Credential, Principal
from tools_app.models import ApiKey, Membership, Role, Tenant

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
    """What a credential opens for a process that remembers nothing."""

    async def ask() -> Principal | None:
        return await principal.authenticate(Credential(credential, from_query))

    principal.ring.forget_all()
    passes.forget_all()
    return asyncio.run(ask())


def test_a_pass_acts_as_the_key_and_says_who_it_is(row: ApiKey, admin: User) -> None:
    ApiKey.objects.filter(pk=row.pk).update(calls_per_minute=7)
    found = opens(passes.issue(row, admin))
    assert found
    assert (found.key_id, found.tenant_id, found.person) == (row.pk, row.tenant_id, "ada")
    assert found.allowed.calls, "the limits of the key hold"
    assert found.named("Claude Code") == "playground (ada)"


@pytest.mark.parametrize("role", [Role.AUDITOR, Role.OPERATOR, None])
def test_only_who_runs_the_tenant_gets_a_pass(row: ApiKey, tenant: Tenant, role: Role | None) -> None:
    person = User.objects.create_user("eve")
    if role:
        Membership.objects.create(user=person, tenant=tenant, role=role)
    with pytest.raises(NotAllowed):
        passes.issue(row, person)
    # Nor is one good that somebody made for such a person.
    assert opens(passes.sealed(Pass(row.pk, person.pk, time.time() + 60))) is None


def test_an_admin_of_another_tenant_gets_none(row: ApiKey, other_tenant: Tenant) -> None:
    person = User.objects.create_user("eve")
    Membership.objects.create(user=person, tenant=other_tenant, role=Role.ADMIN)
    with pytest.raises(NotAllowed):
        passes.issue(row, person)
    assert opens(passes.sealed(Pass(row.pk, person.pk, time.time() + 60))) is None


def test_a_superuser_gets_one(row: ApiKey) -> None:
    found = opens(passes.issue(row, User.objects.create_superuser("root")))
    assert found
    assert found.person == "root"


def changed(credential: str, place: int) -> str:
    other = "A" if credential[place] != "A" else "B"
    return credential[:place] + other + credential[place + 1 :]


def test_a_forged_pass_opens_nothing(row: ApiKey, admin: User) -> None:
    good = passes.issue(row, admin)
    assert opens(good)
    for forged in (changed(good, 20), changed(good, len(good) // 2), good[:-8], good + "A" * 500):
        assert opens(forged) is None
    for nonsense in ("", "ä", "AAAA", "A" * 100, "=" * 40):
        assert opens(passes.START + nonsense) is None


def test_an_expired_pass_opens_nothing(row: ApiKey, admin: User, monkeypatch: pytest.MonkeyPatch) -> None:
    good = passes.issue(row, admin)
    assert opens(good)
    later = time.time() + passes.SECONDS
    monkeypatch.setattr(passes.time, "time", lambda: later)
    assert opens(good) is None


def test_a_pass_in_a_url_opens_nothing(row: ApiKey, admin: User, tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(allow_query_key=True)
    assert opens(passes.issue(row, admin), from_query=True) is None


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


ENDS = [revoke_key, let_key_expire, switch_tenant_off, demote, dismiss, switch_person_off]


@pytest.mark.parametrize("end", ENDS)
def test_a_pass_ends_with_its_key_its_tenant_and_its_persons_role(
    row: ApiKey, admin: User, end: Callable[[ApiKey, User], None]
) -> None:
    good = passes.issue(row, admin)
    assert opens(good)
    end(row, admin)
    assert opens(good) is None


def test_a_pass_is_unsealed_once_and_no_more_are_remembered_than_that(
    row: ApiKey, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "MOST_OPENED", 2)
    passes._known.clear()
    good = passes.issue(row, admin)
    assert opens(good)
    monkeypatch.setattr(passes.vault, "unseal", lambda *_: pytest.fail("unsealed again"))
    assert opens(good)
    monkeypatch.undo()
    monkeypatch.setattr(passes, "MOST_OPENED", 2)
    for _ in range(4):
        assert opens(passes.issue(row, admin))
    assert len(passes._known) == 2


def test_passes_leave_the_memory_of_keys_alone(row: ApiKey, admin: User) -> None:
    good = passes.issue(row, admin)
    assert opens(good)
    assert set(principal.ring._entries) == {row.digest}
    assert opens(passes.START + "A" * 60) is None
    assert not principal.ring._entries


def test_nobody_chooses_a_key_that_looks_like_a_pass(tenant: Tenant) -> None:
    with pytest.raises(keys.WeakKey):
        keys.issue(tenant, "mine", key=passes.START + "x" * 40)


def test_a_pass_of_a_key_that_never_was_opens_nothing(admin: User) -> None:
    assert opens(passes.sealed(Pass(uuid4(), admin.pk, time.time() + 60))) is None
