"""Invitations: issued by admins, and accepted once, by the invited person only."""

import re
import secrets
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tests.tenants.admin.test_roles import MAX_QUERIES
from tests.worlds import person
from tools_app.core.telemetry.scrubbing import scrubbed
from tools_app.models import Action, Change, Invitation, Membership, Role
from tools_app.tenants import invitations
from tools_app.tenants import views as invitation_views
from tools_app.tenants.keys import digest_of
from tools_app.tenants.views import MAX_TRIES

EMAIL = "ann@example.com"
PASSWORD = "a long enough pass phrase"
CHOSEN = {"username": "ann", "password1": PASSWORD, "password2": PASSWORD}

pytestmark = pytest.mark.usefixtures("no_tries_yet")


@pytest.fixture
def issued(acme: Any, people: Any) -> tuple[Invitation, str]:
    """An invitation by acme's admin, and the token in its link."""
    return invitations.create(acme.tenant, EMAIL, Role.AUDITOR, people["admin"])


def link(token: str) -> str:
    return reverse("invitation", args=[token])


def invite(client: Any, page: Any, tenant: Any, email: str = EMAIL, role: str = "operator") -> Any:
    return client.post(page("invitation", "add"), {"tenant": tenant.pk, "email": email, "role": role}, follow=True)


def shown_link(response: Any) -> str:
    found = re.search(r"http://testserver(/invitations/[\w-]{43}/)", response.content.decode())
    assert found
    return found.group(1)


def sent_path(message: Any) -> str:
    found = re.search(r"http://testserver(/invitations/[\w.-]+/)", message.body)
    assert found
    return found.group(1)


def test_an_invitation_offers_the_least_role(as_: Any, page: Any, acme: Any) -> None:
    response = as_("admin").get(page("invitation", "add"))
    assert response.context["adminform"].form["role"].value() == Role.OPERATOR
    created = as_("admin").post("/api/v1/invitations/", {"tenant": "acme", "email": EMAIL}, "application/json")
    assert (created.status_code, created.json()["role"]) == (201, "operator")


def proven_link(issued: tuple[Invitation, str]) -> str:
    """The link that is sent by e-mail."""
    return link(invitations.with_proof(*issued))


def log_in(client: Any, path: str, name: str, password: str = PASSWORD) -> Any:
    return client.post(path, {"login-username": name, "login-password": password})


def roles(tenant: Any, name: str = "ann") -> list[str]:
    return list(Membership.objects.filter(tenant=tenant, user__username=name).values_list("role", flat=True))


# --- Inviting ---------------------------------------------------------------------------------------------------------


def test_a_link_is_shown_once_and_only_its_digest_is_kept(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    assert page("invitation", "add") in client.get(page("membership", "invite")).headers["Location"]
    response = invite(client, page, acme.tenant)
    token = shown_link(response).split("/")[2]
    row = Invitation.objects.get()
    assert (row.digest, row.invited_by.username, row.role) == (digest_of(token), "admin", "operator")
    assert timedelta(days=6, hours=23) < row.expires_at - timezone.now() <= timedelta(days=7)
    assert "no-store" in response["Cache-Control"]
    assert "MCPHUB_EMAIL_URL" in response.content.decode()
    for view, of in (("changelist", None), ("change", row), ("history", row)):
        shown = client.get(page("invitation", view, of)).content.decode()
        assert token not in shown
        assert row.digest not in shown
    assert not mail.outbox


def test_a_link_is_sent_where_the_hub_can_send(as_: Any, page: Any, acme: Any, settings: Any) -> None:
    settings.MCPHUB_EMAIL_URL = "smtp://mail.example.com"
    response = invite(as_("admin"), page, acme.tenant)
    (message,) = mail.outbox
    assert message.to == [EMAIL]
    assert shown_link(response) not in message.body
    assert shown_link(response).removesuffix("/") + "." in message.body
    assert Client().get(sent_path(message)).status_code == 200
    assert "was also sent" in response.content.decode()


def test_no_tenant_sends_mail_without_end(issued: Any, settings: Any) -> None:
    settings.MCPHUB_EMAIL_URL = "memorymail://"
    row, _ = issued
    for _ in range(invitations.MAX_AN_HOUR):
        invitations.send(row, "x", "https://hub.example/")
    with pytest.raises(invitations.NotSent, match="in an hour"):
        invitations.send(row, "x", "https://hub.example/")
    assert len(mail.outbox) == invitations.MAX_AN_HOUR


def test_the_mail_is_sent_when_nobody_waits_any_more(
    as_: Any, page: Any, acme: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MCPHUB_EMAIL_URL = "memorymail://"
    held: list[int] = []
    monkeypatch.setattr(invitations, "send", lambda *_: held.append(len(connection.savepoint_ids)))
    outside = len(connection.savepoint_ids)
    invite(as_("admin"), page, acme.tenant)
    client = as_("admin")
    body = {"tenant": "acme", "email": "other@example.com", "role": "auditor"}
    assert client.post("/api/v1/invitations/", body, content_type="application/json").status_code == 201
    assert held == [outside, outside]


def test_a_link_that_was_replaced_while_it_was_taken_is_not_taken(issued: Any, people: Any) -> None:
    stale, _ = issued
    invitations.renew(Invitation.objects.get(pk=stale.pk), people["admin"])
    people["outsider"].email = stale.email
    assert not invitations.accept(stale, people["outsider"])


def test_a_mail_server_that_does_not_answer_is_no_harm(as_: Any, page: Any, acme: Any, settings: Any) -> None:
    settings.MCPHUB_EMAIL_URL = "smtp://127.0.0.1:9"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    response = invite(as_("admin"), page, acme.tenant)
    assert "The e-mail was not sent" in response.content.decode()
    assert Client().get(shown_link(response)).status_code == 200


@pytest.mark.parametrize("email", ["auditor@example.com", "AUDITOR@Example.com"])
def test_a_member_is_not_invited(as_: Any, page: Any, acme: Any, email: str) -> None:
    assert "is a member already" in invite(as_("admin"), page, acme.tenant, email).content.decode()
    assert not Invitation.objects.exists()


def test_nobody_is_invited_twice_at_a_time(as_: Any, page: Any, acme: Any, issued: Any) -> None:
    client = as_("admin")
    assert "is invited already" in invite(client, page, acme.tenant, EMAIL.upper()).content.decode()
    Invitation.objects.update(expires_at=timezone.now())
    shown_link(invite(client, page, acme.tenant))


def test_nobody_invites_to_a_foreign_tenant(as_: Any, page: Any, globex: Any) -> None:
    assert "Select a valid choice" in invite(as_("admin"), page, globex.tenant).content.decode()
    assert not Invitation.objects.exists()


@pytest.mark.parametrize("view", ["renew_link", "revoke_invitation"])
@pytest.mark.parametrize(("role", "status"), [("auditor", 403), ("stranger", 404), ("anonymous", 302)])
def test_nobody_else_revokes_or_renews(as_: Any, page: Any, issued: Any, view: str, role: str, status: int) -> None:
    row, token = issued
    for method in ("get", "post"):
        assert getattr(as_(role), method)(page("invitation", view, row)).status_code == status
    assert Client().get(link(token)).status_code == 200


def test_a_new_link_takes_the_place_of_the_one_before(as_: Any, page: Any, issued: Any) -> None:
    row, token = issued
    Invitation.objects.update(expires_at=timezone.now())
    client = as_("admin")
    assert "Create a new link?" in client.get(page("invitation", "renew_link", row)).content.decode()
    new = shown_link(client.post(page("invitation", "renew_link", row), follow=True))
    assert Client().get(link(token)).status_code == 404
    assert Client().get(new).status_code == 200


# --- Accepting --------------------------------------------------------------------------------------------------------


def test_who_has_no_account_makes_one_and_is_logged_in(acme: Any, issued: Any) -> None:
    row, token = issued
    client = Client()
    assert "Create an account" in client.get(link(token)).content.decode()
    assert not User.objects.filter(username="ann").exists()
    response = client.post(link(token), CHOSEN)
    assert (response.status_code, response["Location"]) == (302, reverse("admin:index"))
    ann = User.objects.get(username="ann")
    assert (ann.email, ann.is_staff, ann.is_superuser) == ("", False, False)
    assert ann.check_password(PASSWORD)
    assert roles(acme.tenant) == ["auditor"]
    row.refresh_from_db()
    assert row.accepted_by == ann
    assert "Welcome to Acme" in client.get(reverse("admin:index")).content.decode()


def test_only_the_link_that_came_by_e_mail_gives_the_account_the_address(acme: Any, issued: Any) -> None:
    client = Client()
    assert EMAIL not in client.get(link(issued[1])).content.decode()
    assert f"e-mail address is {EMAIL}" in client.get(proven_link(issued)).content.decode()
    assert client.post(proven_link(issued), CHOSEN).status_code == 302
    assert User.objects.get(username="ann").email == EMAIL


@pytest.mark.parametrize("change", [lambda proof: proof[:-2] + "AA", lambda proof: "x", lambda proof: ""])
def test_a_proof_that_is_wrong_leads_nowhere(issued: Any, change: Any) -> None:
    token, _, proof = invitations.with_proof(*issued).partition(".")
    assert Client().get(link(f"{token}.{change(proof)}")).status_code == 404


def test_a_proof_is_good_for_one_link_of_one_invitation(acme: Any, people: Any, issued: Any) -> None:
    proof = invitations.with_proof(*issued).partition(".")[2]
    _, other = invitations.create(acme.tenant, "bob@example.com", Role.AUDITOR, people["admin"])
    renewed = invitations.renew(issued[0], people["admin"])
    for token in (other, renewed):
        assert Client().get(link(f"{token}.{proof}")).status_code == 404


def test_a_proof_outlives_a_change_of_the_secret_key(issued: Any, settings: Any) -> None:
    path = proven_link(issued)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another"
    assert Client().get(path).status_code == 200


def test_who_proved_the_address_of_an_account_logs_in_with_it(issued: Any) -> None:
    User.objects.create_user("old", EMAIL, PASSWORD)
    response = Client().post(proven_link(issued), CHOSEN)
    assert "An account with this e-mail address already exists" in response.content.decode()
    assert not User.objects.filter(username="ann").exists()


def test_whoever_has_the_link_does_not_learn_whether_the_address_has_an_account(issued: Any) -> None:
    def shown() -> list[str]:
        responses = [Client().get(link(issued[1])), Client().post(link(issued[1]), CHOSEN | {"username": ""})]
        return [re.sub(r'csrfmiddlewaretoken" value="\w+"', "", response.content.decode()) for response in responses]

    before = shown()
    User.objects.create_user("old", EMAIL, PASSWORD)
    assert shown() == before
    assert Client().post(link(issued[1]), CHOSEN).status_code == 302


def test_names_are_tried_so_often_by_the_links_of_a_tenant(
    acme: Any, issued: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invitation_views, "MAX_NAMES", 3)
    tried = [Client().post(link(issued[1]), CHOSEN | {"username": "admin"}).content.decode() for _ in range(4)]
    assert ["already taken" in text for text in tried] == [True, True, True, False]
    assert "Too many usernames" in Client().post(link(issued[1]), CHOSEN).content.decode()
    assert not User.objects.filter(username="ann").exists()


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"password1": "short", "password2": "short"}, "too short"),
        ({"password2": "another long pass phrase"}, "match"),
        ({"password1": "password1234", "password2": "password1234"}, "too common"),
        ({"password1": "ann@example.com", "password2": "ann@example.com"}, "too similar"),
        ({"username": "ADMIN"}, "already"),
        ({"username": ""}, "required"),
    ],
)
def test_an_account_follows_the_rules_of_accounts(issued: Any, invalid: dict[str, str], message: str) -> None:
    response = Client().post(proven_link(issued), CHOSEN | invalid)
    assert message in response.content.decode()
    assert not User.objects.filter(email=EMAIL).exists()
    assert invitations.state_of(issued[0]) is invitations.State.OPEN


def test_what_is_smuggled_into_the_form_is_ignored(acme: Any, issued: Any) -> None:
    smuggled = {"email": "eve@example.com", "is_superuser": "on", "is_staff": "on", "role": "admin", "tenant": "x"}
    Client().post(link(issued[1]), CHOSEN | smuggled)
    ann = User.objects.get(username="ann")
    assert (ann.email, ann.is_superuser, ann.is_staff) == ("", False, False)
    assert roles(acme.tenant) == ["auditor"]


def test_who_has_an_account_logs_in_on_the_page(acme: Any, issued: Any) -> None:
    User.objects.create_user("ann", EMAIL.upper(), PASSWORD)
    client = Client()
    wrong = log_in(client, link(issued[1]), "ann", "wrong")
    assert "Please enter a correct username" in wrong.content.decode()
    assert roles(acme.tenant) == []
    assert log_in(client, link(issued[1]), "ann").status_code == 302
    assert roles(acme.tenant) == ["auditor"]
    assert client.get(reverse("admin:index")).status_code == 200


def test_who_is_logged_in_joins_by_a_button_and_not_by_looking(acme: Any, issued: Any) -> None:
    client = Client()
    client.force_login(User.objects.create_user("ann", EMAIL))
    assert "You are logged in as ann" in client.get(link(issued[1])).content.decode()
    assert roles(acme.tenant) == []
    assert client.post(link(issued[1])).status_code == 302
    assert roles(acme.tenant) == ["auditor"]


@pytest.mark.parametrize("email", ["eve@example.com", ""])
@pytest.mark.parametrize("by_mail", [True, False])
def test_an_account_with_another_e_mail_takes_it_only_when_that_is_confirmed(
    acme: Any, issued: Any, email: str, by_mail: bool
) -> None:
    path = proven_link(issued) if by_mail else link(issued[1])
    client = Client()
    client.force_login(User.objects.create_user("eve", email))
    for response in (client.get(path), client.post(path)):
        assert "was sent to another e-mail address" in response.content.decode()
        assert f"your account has {'a different one' if email else 'none'}." in response.content.decode()
    assert "Confirm that the invitation is for you" in client.post(path).content.decode()
    assert roles(acme.tenant, "eve") == []
    assert client.post(path, {"confirm": "on"}).status_code == 302
    assert roles(acme.tenant, "eve") == ["auditor"]
    assert User.objects.get(username="eve").email == email


def test_the_login_of_an_account_with_another_e_mail_does_not_take_it(acme: Any, issued: Any) -> None:
    User.objects.create_user("ann", EMAIL, PASSWORD)
    User.objects.create_user("eve", "eve@example.com", PASSWORD)
    client = Client()
    response = log_in(client, link(issued[1]), "eve")
    assert (response.status_code, response["Location"]) == (302, link(issued[1]))
    assert roles(acme.tenant, "eve") == []
    assert client.get(reverse("admin:index")).status_code == 302
    assert "was sent to another e-mail address" in client.get(link(issued[1])).content.decode()


def test_a_member_who_was_invited_meanwhile_keeps_the_role(acme: Any, issued: Any) -> None:
    ann = person("ann", acme.tenant, Role.ADMIN)
    client = Client()
    client.force_login(ann)
    assert client.post(link(issued[1])).status_code == 302
    assert roles(acme.tenant) == ["admin"]


def test_an_invitation_whose_inviter_is_demoted_while_its_answer_waits_lets_nobody_in(
    acme: Any, issued: Any, people: Any, while_waiting: Any
) -> None:
    client = Client()
    client.force_login(User.objects.create_user("ann", EMAIL, PASSWORD))
    inviter = Membership.objects.filter(tenant=acme.tenant, user=people["admin"])
    while_waiting(lambda: inviter.update(role=Role.OPERATOR))
    client.post(link(issued[1]))
    assert roles(acme.tenant) == []
    assert Invitation.objects.get().accepted_at is None
    inviter.update(role=Role.ADMIN)
    client.post(link(issued[1]))
    assert roles(acme.tenant) == ["auditor"]


def accepted(row: Invitation, by: User) -> None:
    Invitation.objects.filter(pk=row.pk).update(accepted_at=timezone.now(), accepted_by=by)


def revoked(row: Invitation, by: User) -> None:
    assert invitations.revoke(row)


def expired(row: Invitation, by: User) -> None:
    Invitation.objects.filter(pk=row.pk).update(expires_at=timezone.now())


def demoted(row: Invitation, by: User) -> None:
    Membership.objects.filter(user=by).update(role=Role.AUDITOR)


def switched_off(row: Invitation, by: User) -> None:
    User.objects.filter(pk=by.pk).update(is_active=False)


def removed(row: Invitation, by: User) -> None:
    by.delete()


@pytest.mark.parametrize("end", [accepted, revoked, expired, demoted, switched_off, removed])
def test_a_link_that_is_over_says_so_kindly_and_does_nothing(acme: Any, people: Any, issued: Any, end: Any) -> None:
    row, token = issued
    end(row, people["admin"])
    for response in (Client().get(link(token)), Client().post(link(token), CHOSEN)):
        assert response.status_code == 410
        assert "Invitation to mcphub" in response.content.decode()
    assert not User.objects.filter(username="ann").exists()


def test_a_link_works_once(acme: Any, issued: Any) -> None:
    assert Client().post(link(issued[1]), CHOSEN).status_code == 302
    assert Client().post(link(issued[1]), CHOSEN | {"username": "eve"}).status_code == 410
    assert not User.objects.filter(username="eve").exists()


def test_whoever_comes_second_makes_no_account(issued: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitations, "accept", lambda *_, **__: False)
    Client().post(link(issued[1]), CHOSEN)
    assert not User.objects.filter(username="ann").exists()


@pytest.mark.parametrize("token", ["wrong", "x" * 43, "x" * 500])
def test_a_link_that_never_was_leads_nowhere(issued: Any, token: str) -> None:
    assert Client().get(link(token)).status_code == 404


def test_a_page_wants_the_browsers_own_form(issued: Any) -> None:
    assert Client(enforce_csrf_checks=True).post(link(issued[1]), CHOSEN).status_code == 403


def test_tries_are_bounded_by_address(issued: Any) -> None:
    client = Client()
    responses = [client.get(link("wrong")).status_code for _ in range(MAX_TRIES + 1)]
    assert responses[-2:] == [404, 429]
    assert Client(REMOTE_ADDR="192.0.2.1").get(link(issued[1])).status_code == 200


def test_all_of_it_is_recorded_without_the_link(as_: Any, page: Any, acme: Any) -> None:
    token = shown_link(invite(as_("admin"), page, acme.tenant)).split("/")[2]
    Client().post(link(token), CHOSEN)
    changes = [(change.action, change.kind, change.person_name) for change in Change.objects.order_by("position")]
    assert changes == [
        (Action.CREATED, "invitation", "admin"),
        (Action.CREATED, "user", f"invited as {EMAIL}"),
        (Action.CREATED, "membership", "ann"),
        (Action.CHANGED, "invitation", "ann"),
    ]
    everything = "".join(change.before + change.after + change.object_name for change in Change.objects.all())
    assert token not in everything
    assert digest_of(token) not in everything


def test_a_link_is_kept_out_of_the_log() -> None:
    token = secrets.token_urlsafe(invitations.TOKEN_BYTES)
    row = Invitation(email=EMAIL, digest=digest_of(token))
    mailed = invitations.with_proof(row, token)
    for text in (token, mailed, mailed.partition(".")[2]):
        assert text not in scrubbed(f"Forbidden: {link(mailed)}")


def test_a_list_of_invitations_asks_the_database_a_few_times(as_: Any, page: Any, acme: Any) -> None:
    for number in range(20):
        by = person(f"admin{number}", acme.tenant)
        invitations.create(acme.tenant, f"guest{number}@example.com", Role.AUDITOR, by)
    client = as_("auditor")
    with CaptureQueriesContext(connection) as queries:
        assert "Open" in client.get(page("invitation", "changelist")).content.decode()
    assert len([query for query in queries if "SAVEPOINT" not in query["sql"]]) <= MAX_QUERIES
