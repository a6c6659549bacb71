"""Personal tokens: what is stored, their user, and expiry."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tools_app.identity import personal_tokens as tokens
from tools_app.models import PersonalToken

pytestmark = pytest.mark.django_db


@pytest.fixture
def person() -> User:
    return User.objects.create_user("ada")


def test_a_token_is_kept_as_its_digest_under_its_name_with_its_first_letters(person: User) -> None:
    expires = timezone.now() + timedelta(days=1)
    row, token = tokens.issue(person, "laptop", expires_at=expires)
    row.refresh_from_db()
    assert (row.person, row.name, row.expires_at) == (person, "laptop", expires)
    assert (token[:8], len(token)) == ("mcphubt_", 51)
    # The prefix shows five characters of the secret, and leaves 226 bits unknown.
    assert row.prefix == token[:13]
    assert token not in str(PersonalToken.objects.values())
    assert tokens.issue(person, "laptop")[1] != token


def test_each_token_is_its_own_persons(person: User) -> None:
    other = User.objects.create_user("eve")
    carried = [(owner, *tokens.issue(owner, "script")) for owner in (person, other, person)]
    for owner, row, token in carried:
        found = tokens.find(token)
        assert found == row
        assert found.person == owner


def test_a_token_is_good_until_the_moment_at_which_it_expires(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    expires = timezone.now() + timedelta(seconds=60)
    _, token = tokens.issue(person, "script", expires_at=expires)
    monkeypatch.setattr(tokens.timezone, "now", lambda: expires - timedelta(seconds=1))
    assert tokens.find(token)
    monkeypatch.setattr(tokens.timezone, "now", lambda: expires)
    assert tokens.find(token) is None


def test_revoking_says_whether_it_was_this_time_and_keeps_the_first_moment(person: User) -> None:
    row, token = tokens.issue(person, "script")
    assert tokens.revoke(row) is True
    row.refresh_from_db()
    first = row.revoked_at
    assert tokens.revoke(row) is False
    row.refresh_from_db()
    assert row.revoked_at == first
    assert tokens.find(token) is None


def test_what_cannot_be_a_token_is_not_looked_up(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert tokens.find(tokens.PREFIX + "x" * 10_000) is None
        assert tokens.find("mcphub_" + "x" * 43) is None


def test_the_last_use_is_noted_again_after_a_minute(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    row, token = tokens.issue(person, "script")
    began = timezone.now()
    noted = []
    for seconds in (0, 59, 60, 119, 121):
        monkeypatch.setattr(tokens.timezone, "now", partial(began.__add__, timedelta(seconds=seconds)))
        assert tokens.find(token)
        row.refresh_from_db()
        assert row.last_used_at is not None
        noted.append((row.last_used_at - began).total_seconds())
    assert noted == [0, 0, 60, 60, 121]


def test_the_use_of_one_token_is_not_that_of_another(person: User) -> None:
    used, unused = tokens.issue(person, "used"), tokens.issue(person, "unused")
    assert tokens.find(used[1])
    unused[0].refresh_from_db()
    assert unused[0].last_used_at is None
