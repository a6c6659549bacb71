"""API keys: what is stored, how long they are valid, and which expire soon."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from tools_app.models import ApiKey, Tenant, Toolset
from tools_app.tenants import keys

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """Freeze the time for keys."""
    moment = timezone.now()
    monkeypatch.setattr(keys.timezone, "now", lambda: moment)
    return moment


def is_valid(row: ApiKey) -> bool:
    return keys.valid_keys(ApiKey.objects.filter(pk=row.pk)).exists()


def test_a_key_is_kept_as_its_digest_with_all_that_was_said_of_it(tenant: Tenant) -> None:
    fields: dict[str, Any] = {
        "expires_at": timezone.now() + DAY,
        "created_by": User.objects.create_user("ada"),
        "tool_patterns": ["search_*"],
        "methods": ["tools/*"],
        "networks": ["192.0.2.0/24"],
    }
    limits = dict.fromkeys(keys.LIMITS, 7)
    row, key = keys.issue(tenant, "laptop", **fields, **limits)
    row.refresh_from_db()
    assert {name: getattr(row, name) for name in (*fields, *limits)} == {**fields, **limits}
    assert (row.tenant, row.name, row.digest) == (tenant, "laptop", keys.digest_of(key))
    assert key.startswith("mcphub_")
    # The prefix shows five characters of the secret, and leaves 226 bits unknown.
    assert (row.prefix, len(row.prefix), len(key)) == (key[:12], 12, 50)
    assert key not in str(ApiKey.objects.values())
    assert keys.issue(tenant, "laptop")[1] != key


@pytest.mark.parametrize("reserved", keys.RESERVED_PREFIXES)
def test_no_new_key_reads_as_another_credential(monkeypatch: pytest.MonkeyPatch, tenant: Tenant, reserved: str) -> None:
    # The random part of a key may begin like any other prefix.
    monkeypatch.setattr(keys, "KEY_PREFIX", "")
    parts = iter([f"{reserved}{'x' * 40}", "r" * 43])
    monkeypatch.setattr(keys.secrets, "token_urlsafe", lambda _: next(parts))
    assert keys.issue(tenant, "laptop")[1] == "r" * 43


@pytest.mark.parametrize(("length", "accepted"), [(31, False), (32, True)])
def test_a_chosen_key_has_at_least_32_characters(tenant: Tenant, *, length: int, accepted: bool) -> None:
    chosen = "k" * length
    if accepted:
        row, key = keys.issue(tenant, "chosen", key=chosen)
        assert (key, row.digest) == (chosen, keys.digest_of(chosen))
    else:
        with pytest.raises(keys.WeakKey, match="at least 32"):
            keys.issue(tenant, "chosen", key=chosen)
        assert not ApiKey.objects.exists()


def test_the_toolset_of_another_tenant_makes_no_key(tenant: Tenant, other_tenant: Tenant) -> None:
    theirs = Toolset.objects.create(tenant=other_tenant, name="theirs")
    with pytest.raises(ValidationError, match="toolset of the key's tenant") as refused:
        keys.issue(tenant, "laptop", toolset=theirs)
    assert set(refused.value.message_dict) == {"toolset"}
    assert not ApiKey.objects.exists()
    own = Toolset.objects.create(tenant=tenant, name="own")
    assert keys.issue(tenant, "laptop", toolset=own)[0].toolset == own


def test_a_key_that_acts_for_nobody_in_particular_is_refused_at_its_field(tenant: Tenant) -> None:
    with pytest.raises(ValidationError) as refused:
        keys.issue(tenant, "laptop", acts_for_creator=True)
    assert set(refused.value.message_dict) == {"acts_for_creator"}
    assert not ApiKey.objects.exists()


def test_rotating_hands_on_every_setting_of_a_key_and_touches_no_other(tenant: Tenant) -> None:
    scopes: dict[str, Any] = {
        "tool_patterns": ["a*"],
        "methods": ["tools/*"],
        "networks": ["192.0.2.0/24"],
        "toolset": Toolset.objects.create(tenant=tenant, name="few"),
        "presentation": "search",
    }
    settings = scopes | {name: number for number, name in enumerate(keys.LIMITS)}
    assert settings.keys() == set(keys.SETTINGS)
    row, other = keys.issue(tenant, "one", **settings)[0], keys.issue(tenant, "other")[0]
    ada = User.objects.create_user("ada")
    new, text = keys.rotate(row, DAY, ada)
    new.refresh_from_db()
    assert {name: getattr(new, name) for name in settings} == settings
    assert (new.tenant, new.name, new.created_by, new.digest) == (tenant, "one", ada, keys.digest_of(text))
    assert (row.replaced_by, new.expires_at) == (new, None)
    other.refresh_from_db()
    assert (other.replaced_by, other.expires_at) == (None, None)


@pytest.mark.parametrize("acts", [True, False])
def test_a_rotated_key_acts_for_its_person_only_if_it_did_before_and_they_rotate_it(
    tenant: Tenant, *, acts: bool
) -> None:
    ada, eve = (User.objects.create_user(name) for name in ("ada", "eve"))

    def rotated(by: User | None) -> bool:
        row = keys.issue(tenant, "laptop", created_by=ada, acts_for_creator=acts)[0]
        return keys.rotate(row, DAY, by)[0].acts_for_creator

    assert [rotated(by) for by in (ada, eve, None)] == [acts, False, False]


def test_revoking_says_whether_it_was_this_time_and_touches_no_other_key(tenant: Tenant) -> None:
    row, other = keys.issue(tenant, "one")[0], keys.issue(tenant, "other")[0]
    assert keys.revoke(row) is True
    row.refresh_from_db()
    first = row.revoked_at
    assert keys.revoke(row) is False
    row.refresh_from_db()
    assert row.revoked_at == first
    assert (is_valid(row), is_valid(other)) == (False, True)


def test_a_key_is_good_until_the_moment_at_which_it_expires(tenant: Tenant, now: datetime) -> None:
    assert is_valid(keys.issue(tenant, "one", expires_at=now + MICROSECOND)[0])
    assert not is_valid(keys.issue(tenant, "one", expires_at=now)[0])
    assert is_valid(keys.issue(tenant, "one")[0])
    tomorrow = keys.valid_keys(ApiKey.objects.all(), now + DAY)
    assert [row.expires_at for row in tomorrow] == [None]
    assert keys.rotatable_keys(ApiKey.objects.all(), now).count() == 2
    assert keys.rotatable_keys(ApiKey.objects.all(), now + DAY).count() == 1


@pytest.mark.parametrize(
    ("overlap", "expected"), [(DAY, DAY), (-DAY, timedelta()), (90 * DAY, 90 * DAY), (91 * DAY, 90 * DAY)]
)
def test_an_overlap_is_never_negative_and_90_days_at_most(
    tenant: Tenant, now: datetime, overlap: timedelta, expected: timedelta
) -> None:
    row, _ = keys.issue(tenant, "one")
    keys.rotate(row, overlap)
    stored = ApiKey.objects.get(pk=row.pk)
    assert row.expires_at == stored.expires_at == now + expected
    assert keys.set_overlap(row, DAY) is True
    assert row.expires_at == now + DAY
    assert keys.set_overlap(row, overlap) is True
    stored.refresh_from_db()
    assert row.expires_at == stored.expires_at == now + expected


def test_only_a_replaced_key_that_is_not_revoked_has_an_overlap(tenant: Tenant) -> None:
    plain, replaced, revoked = (keys.issue(tenant, name)[0] for name in ("plain", "replaced", "revoked"))
    for row in (replaced, revoked):
        keys.rotate(row, DAY)
    keys.revoke(revoked)
    ends = {row.name: ApiKey.objects.get(pk=row.pk).expires_at for row in (plain, replaced, revoked)}
    assert [keys.set_overlap(row, timedelta()) for row in (plain, revoked, replaced)] == [False, False, True]
    after = {row.name: ApiKey.objects.get(pk=row.pk).expires_at for row in (plain, replaced, revoked)}
    assert (after["plain"], after["revoked"]) == (ends["plain"], ends["revoked"])
    assert not is_valid(replaced)


def test_keys_that_expire_within_two_weeks_come_soonest_first(tenant: Tenant, now: datetime) -> None:
    lives = {"later": 14 * DAY, "first": DAY, "next": 3 * DAY, "not yet": 14 * DAY + MICROSECOND, "over": timedelta()}
    for name, life in lives.items():
        keys.issue(tenant, name, expires_at=now + life)
    keys.issue(tenant, "for ever")
    keys.revoke(keys.issue(tenant, "revoked", expires_at=now + DAY)[0])
    replaced, _ = keys.issue(tenant, "replaced", expires_at=now + 2 * DAY)
    keys.rotate(replaced, DAY)
    ApiKey.objects.filter(replaces=replaced).delete()
    ApiKey.objects.filter(pk=replaced.pk).update(replaced_by=keys.issue(tenant, "successor")[0])
    assert [row.name for row in keys.expiring_soon()] == ["first", "next", "later"]
    assert [row.name for row in keys.expiring_soon(within=3 * DAY)] == ["first", "next"]
    assert [row.name for row in keys.expiring_soon(ApiKey.objects.filter(name="next"))] == ["next"]


def test_the_successor_of_a_key_with_an_end_lives_as_long_as_it_did(tenant: Tenant, now: datetime) -> None:
    row, _ = keys.issue(tenant, "one", expires_at=now + 30 * DAY)
    ApiKey.objects.filter(pk=row.pk).update(created_at=now - 10 * DAY)
    row.refresh_from_db()
    new, _ = keys.rotate(row, 60 * DAY)
    # The overlap does not extend the old key.
    assert (row.expires_at, new.expires_at) == (now + 30 * DAY, now + 40 * DAY)


def test_the_overlap_of_a_key_is_prolonged_by_nobody_but_the_person_for_whom_it_acts(tenant: Tenant) -> None:
    ann, ben = User.objects.create_user("ann"), User.objects.create_user("ben")
    row, _ = keys.issue(tenant, "laptop", created_by=ann, acts_for_creator=True)
    keys.rotate(row, timedelta(), ben)
    with pytest.raises(ValidationError, match="Only ann can change"):
        keys.set_overlap(row, DAY, ben)
    assert keys.set_overlap(row, DAY, ann)
    assert keys.set_overlap(row, timedelta(), ben)
