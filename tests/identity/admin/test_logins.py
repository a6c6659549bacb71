"""Login throttling: guessing passwords is slowed down, a correct password is not."""

from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from tests.worlds import person
from tools_app.identity import logins
from tools_app.models import Role
from tools_app.tenants import invitations

PASSWORD = "a long enough pass phrase"
TOO_OFTEN = "Too many failed logins. Try again in five minutes."
IN = 302

pytestmark = pytest.mark.usefixtures("no_tries_yet")


@pytest.fixture(autouse=True)
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits: each attempt renders a page."""
    monkeypatch.setattr(logins, "MAX_OF_ADDRESS", 4)
    monkeypatch.setattr(logins, "MAX_OF_NAME", 6)


@pytest.fixture
def admin(people: Any) -> User:
    user: User = people["admin"]
    user.set_password(PASSWORD)
    user.save()
    return user


def log_in(name: str, password: str, address: str = "192.0.2.1") -> Any:
    return Client(REMOTE_ADDR=address).post("/admin/login/", {"username": name, "password": password})


def is_told_to_wait(response: Any) -> bool:
    return response.status_code == 200 and TOO_OFTEN in response.content.decode()


def test_an_address_that_guesses_is_refused_even_when_it_is_right_and_others_are_not(admin: User) -> None:
    guesses = [log_in(f"somebody{number}", "wrong") for number in range(logins.MAX_OF_ADDRESS)]
    assert not any(map(is_told_to_wait, guesses))
    assert is_told_to_wait(log_in(admin.username, PASSWORD))
    assert log_in(admin.username, PASSWORD, "192.0.2.2").status_code == IN


def test_a_name_is_not_guessed_at_from_many_addresses_in_whichever_letters(admin: User) -> None:
    for number in range(logins.MAX_OF_NAME):
        log_in(admin.username.upper() if number % 2 else admin.username, "wrong", f"198.51.100.{number}")
    assert is_told_to_wait(log_in(admin.username, PASSWORD))


@pytest.mark.parametrize(("one", "another"), [("2001:db8::{}", "2001:db8::ffff"), ("::ffff:192.0.2.1", "192.0.2.1")])
def test_addresses_that_one_host_has_count_as_one(admin: User, one: str, another: str) -> None:
    for number in range(logins.MAX_OF_ADDRESS):
        log_in(f"somebody{number}", "wrong", one.format(number))
    assert is_told_to_wait(log_in(admin.username, PASSWORD, another))
    assert log_in(admin.username, PASSWORD, "2001:db8:0:1::1").status_code == IN


def test_a_store_that_is_away_makes_no_guess_of_a_login(admin: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(User, "check_password", Mock(side_effect=OperationalError("away")))
        for _ in range(logins.MAX_OF_ADDRESS):
            with pytest.raises(OperationalError):
                log_in(admin.username, PASSWORD)
    assert log_in(admin.username, PASSWORD).status_code == IN


def test_a_failed_login_counts_for_a_while_only(admin: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "WAIT_SECONDS", 0.0)
    for _ in range(logins.MAX_OF_ADDRESS):
        log_in(admin.username, "wrong")
    assert log_in(admin.username, PASSWORD).status_code == IN


def test_a_login_that_succeeds_counts_for_nothing(admin: User) -> None:
    responses = {log_in(admin.username, PASSWORD).status_code for _ in range(logins.MAX_OF_ADDRESS + 1)}
    assert responses == {IN}


def test_a_form_without_a_password_is_no_try(admin: User) -> None:
    for _ in range(logins.MAX_OF_ADDRESS):
        log_in(admin.username, "")
    assert log_in(admin.username, PASSWORD).status_code == IN


def test_the_page_of_an_invitation_counts_along(acme: Any, people: Any) -> None:
    ann = person("ann", None)
    User.objects.filter(pk=ann.pk).update(email="ann@example.com")
    _, token = invitations.create(acme.tenant, "ann@example.com", Role.AUDITOR, people["admin"])
    for number in range(logins.MAX_OF_ADDRESS):
        log_in(f"somebody{number}", "wrong")
    client = Client(REMOTE_ADDR="192.0.2.1")
    form = {"login-username": "ann", "login-password": "whatever"}
    response = client.post(reverse("invitation", args=[token]), form)
    assert is_told_to_wait(response)
