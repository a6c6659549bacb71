"""Invitations in the REST API: links that are shown once, renewed and revoked."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client
from django.utils import timezone

from tests.rest import Api
from tests.worlds import World, person
from tools_app.models import Invitation, Membership
from tools_app.tenants import invitations

pytestmark = pytest.mark.usefixtures("no_tries_yet")

WANTED = {"tenant": "acme", "email": "ann@example.com", "role": "auditor"}


@pytest.fixture
def admin(as_: Any) -> Api:
    return as_("admin")


def opens(link: str) -> bool:
    """Whether a link leads to a form that accepts the invitation."""
    return b"<form" in Client().get(link.removeprefix("http://testserver")).content


def test_a_link_is_shown_when_it_is_made_and_a_new_one_takes_its_place(admin: Api) -> None:
    created = admin.post("invitations/", WANTED)
    path = f"invitations/{created['id']}/"
    assert (created["role"], created["status"], created["sent"]) == ("auditor", "open", False)
    assert opens(created["link"])
    renewed = admin.post(f"{path}renew/", status=200)
    assert (opens(created["link"]), opens(renewed["link"])) == (False, True)
    for shown in (admin.get(path), admin.get("invitations/")["results"][0]):
        assert "link" not in shown
        assert shown["role"] == "auditor"


def test_who_renews_an_invitation_becomes_its_inviter(as_: Any, admin: Api, people: dict[str, User]) -> None:
    path = f"invitations/{as_('superuser').post('invitations/', WANTED)['id']}/"
    assert admin.get(path)["invited_by"] == "superuser"
    assert admin.post(f"{path}renew/", status=200)["invited_by"] == "admin"
    Membership.objects.filter(user=people["admin"]).update(role="auditor")
    assert as_("superuser").get(path)["status"] == "void"


def test_a_revoked_invitation_stays_revoked(admin: Api) -> None:
    created = admin.post("invitations/", WANTED)
    path = f"invitations/{created['id']}/"
    revoked = admin.post(f"{path}revoke/", status=200)
    assert (revoked["status"], opens(created["link"])) == ("revoked", False)
    assert revoked["revoked_at"] is not None
    assert admin.post(f"{path}revoke/", status=200)["revoked_at"] == revoked["revoked_at"]
    assert "already been accepted or revoked" in admin.post(f"{path}renew/", status=409)["detail"]


def test_an_accepted_invitation_is_neither_revoked_nor_renewed(admin: Api) -> None:
    path = f"invitations/{admin.post('invitations/', WANTED)['id']}/"
    Invitation.objects.update(accepted_at=timezone.now())
    for action in ("revoke", "renew"):
        assert "already been accepted" in admin.post(f"{path}{action}/", status=409)["detail"]
    assert (admin.get(path)["status"], admin.get(path)["revoked_at"]) == ("accepted", None)


@pytest.mark.parametrize("email", ["nobody", "ann@", "a" * 243 + "@example.com", ""])
def test_only_an_e_mail_address_is_invited(admin: Api, email: str) -> None:
    assert list(admin.post("invitations/", {**WANTED, "email": email}, status=400)["errors"]) == ["email"]


def test_a_member_and_who_is_invited_already_are_not_invited(admin: Api, acme: World) -> None:
    person("ben", acme.tenant)
    admin.post("invitations/", WANTED)
    for email in ("ANN@example.com", "Ben@example.com"):
        assert list(admin.post("invitations/", {**WANTED, "email": email}, status=409)["errors"]) == ["email"]


@pytest.mark.parametrize("sent", [True, False])
def test_an_invitation_says_whether_its_mail_was_sent_and_is_made_in_any_case(
    admin: Api, settings: Any, monkeypatch: pytest.MonkeyPatch, *, sent: bool
) -> None:
    settings.MCPHUB_EMAIL_URL = "smtp://mail.example.com"
    if not sent:
        monkeypatch.setattr(invitations, "MAX_AN_HOUR", 0)
    created = admin.post("invitations/", WANTED)
    assert (created["sent"], opens(created["link"])) == (sent, True)
    assert [message.to for message in mail.outbox] == ([["ann@example.com"]] if sent else [])
    # With the proof that the person reads this mail.
    assert all(created["link"].removesuffix("/") + "." in message.body for message in mail.outbox)
