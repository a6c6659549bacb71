"""Sign-in with a company's OpenID Connect provider: accounts, roles, and leaving."""

import base64
import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from html import unescape
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from joserfc.jwk import OKPKey

from tests.identity.sign_in.provider import LOOPBACK, RULES, Provider, issuer_of, new_key, running_provider, sign_in
from tools_app.audit.changes import changes
from tools_app.identity.admin.sign_ins import COLOURS
from tools_app.identity.issuers import configuration, directory, provider, setup
from tools_app.identity.people import directory as directory_access
from tools_app.identity.people import people, rules
from tools_app.identity.sign_in.company import LIFETIME_SECONDS
from tools_app.models import Change, Directory, Identity, Issuer, Membership, Role, SignInEvent, SignInStep, Tenant
from tools_app.tenants import invitations
from tools_app.tenants.members import UnknownPerson, person_named

PASSWORD = "correct horse battery"


@pytest.fixture
def company() -> Iterator[Provider]:
    with running_provider() as found:
        yield found


@pytest.fixture
def acme(db: None) -> Tenant:
    return Tenant.objects.create(slug="acme", name="Acme")


@pytest.fixture
def issuer(acme: Tenant, company: Provider) -> Issuer:
    return issuer_of(acme, company.url)


def role_of(name: str) -> str | None:
    return Membership.objects.filter(user__username=name).values_list("role", flat=True).first()


def test_a_person_signs_in_with_the_companys_account_and_gets_the_role_of_the_first_rule_that_fits(
    client: Client, issuer: Issuer, company: Provider
) -> None:
    company.set("u1", email="ann@acme.example", preferred_username="ann", groups=["mcp-admins", "staff-x"])
    response = sign_in(client, issuer, company, "u1", "/admin/tools_app/tool/")
    assert (response.status_code, response["Location"]) == (302, "/admin/tools_app/tool/")
    person = User.objects.get()
    assert (person.username, person.email, role_of("ann@acme")) == ("ann@acme", "ann@acme.example", Role.ADMIN)
    assert not person.has_usable_password()
    assert client.get("/admin/tools_app/tool/").status_code == 200
    change = Change.objects.filter(kind="membership").get()
    assert (change.person_name, change.via, change.tenant) == ("Acme Login", "sign_in", issuer.tenant)
    step = SignInEvent.objects.get(step=SignInStep.SIGNED_IN)
    assert (step.person_name, step.client_name, step.tenant) == ("ann@acme", "Acme Login", issuer.tenant)
    assert step.reason == "By rule 1 of Acme Login: admin."


def test_the_second_time_it_is_the_same_account_in_the_role_of_now(
    client: Client, issuer: Issuer, company: Provider
) -> None:
    company.set("u1", preferred_username="ann", groups=["mcp-admins"])
    sign_in(client, issuer, company, "u1")
    company.set("u1", preferred_username="anna", groups=["staff-1"])
    sign_in(Client(), issuer, company, "u1")
    assert [user.username for user in User.objects.all()] == ["ann@acme"]
    assert role_of("ann@acme") == Role.AUDITOR


@pytest.mark.parametrize("other", ["first sign-in", "end of access"])
def test_a_sign_in_that_waits_for_another_change_of_the_role_finds_what_it_left(
    client: Client, issuer: Issuer, company: Provider, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Another tab creates the membership while this one waits for the lock, or a check deletes it."""
    company.set("u1", preferred_username="ann", groups=["staff-1"])
    if other == "end of access":
        sign_in(Client(), issuer, company, "u1")
        company.set("u1", preferred_username="ann", groups=["mcp-admins"])
    lock = changes.lock_change_log

    def waited() -> None:
        lock()
        monkeypatch.setattr(changes, "lock_change_log", lock)
        identity = Identity.objects.get()
        if other == "end of access":
            people.end(identity)
        else:
            Membership.objects.create(user=identity.person, tenant=issuer.tenant, role=Role.OPERATOR)

    set_role = people._set_role

    def slow(identity: Identity, role: str) -> None:
        monkeypatch.setattr(people, "_set_role", set_role)
        monkeypatch.setattr(changes, "lock_change_log", waited)
        set_role(identity, role)

    monkeypatch.setattr(people, "_set_role", slow)
    assert sign_in(client, issuer, company, "u1").status_code == 302
    assert role_of("ann@acme") == (Role.ADMIN if other == "end of access" else Role.AUDITOR)
    assert client.get("/admin/").status_code == 200


def test_who_is_deleted_during_the_sign_in_is_told_to_sign_in_again(
    client: Client, issuer: Issuer, company: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.set("u1", preferred_username="ann", groups=["staff-1"])
    set_role = people._set_role

    def slow(identity: Identity, role: str) -> None:
        User.objects.get(pk=identity.person_id).delete()
        set_role(identity, role)

    monkeypatch.setattr(people, "_set_role", slow)
    response = sign_in(client, issuer, company, "u1")
    assert (response.status_code, "has just been deleted" in response.content.decode()) == (403, True)
    assert not Membership.objects.exists()


def test_no_rule_that_fits_is_said_with_the_persons_groups(client: Client, issuer: Issuer, company: Provider) -> None:
    company.set("u2", email="ben@acme.example", groups=["g1", "g2"])
    response = sign_in(client, issuer, company, "u2")
    assert response.status_code == 403
    assert "No rule of Acme fits your groups (g1, g2). Ask one of its admins." in response.content.decode()
    assert not User.objects.exists()
    assert "g1, g2" in SignInEvent.objects.get(step=SignInStep.REJECTED).reason


UNMATCHED: list[Any] = [
    None,
    1,
    "",
    "*",
    "MCP-ADMINS",
    "mcp-admins-not",
    {},
    {"mcp-admins": True},
    [],
    [None],
    [[]],
    [["mcp-admins"]],
    [{"name": "mcp-admins"}],
    ["*"],
    ["xmcp-admins"],
    ["mcp-admins2"],
]


@pytest.mark.parametrize("claims", [{}, *({"groups": groups} for groups in UNMATCHED)], ids=str)
def test_groups_that_do_not_name_a_rule_make_nobody_an_admin(
    client: Client, issuer: Issuer, company: Provider, claims: dict[str, Any]
) -> None:
    """ContextForge #2120: a mapping of groups made everybody an admin."""
    company.set("u2", preferred_username="ben", **claims)
    assert sign_in(client, issuer, company, "u2").status_code == 403
    assert not User.objects.exists()
    assert not Membership.objects.exists()


def test_an_issuer_reaches_no_account_that_exists(client: Client, issuer: Issuer, company: Provider) -> None:
    root = User.objects.create_superuser("root", "root@hub.example")
    User.objects.create_user("ann@acme")
    company.set("u3", email="root@hub.example", preferred_username="root", groups=["mcp-admins"])
    sign_in(client, issuer, company, "u3")
    company.set("u4", preferred_username="ann@evil", groups=["mcp-admins"])
    sign_in(Client(), issuer, company, "u4")
    assert role_of("root@acme") == role_of("ann2@acme") == Role.ADMIN
    assert not root.memberships.exists()


def test_a_person_who_refuses_at_the_provider_comes_back_to_a_page_that_says_so(
    client: Client, issuer: Issuer, company: Provider
) -> None:
    response = sign_in(client, issuer, company, None)
    assert (response.status_code, "You did not sign in." in response.content.decode()) == (403, True)


def test_an_answer_counts_once_and_in_the_browser_that_asked(client: Client, issuer: Issuer, company: Provider) -> None:
    company.set("u1", groups=["mcp-admins"])
    begin = reverse("sign-in-begin", args=["acme", issuer.pk])
    back = urlsplit(company.authorize(client.post(begin)["Location"], "u1"))
    url = f"{back.path}?{back.query}"
    assert Client().get(url).status_code == 400
    assert client.get(url).status_code == 302
    assert client.get(url).status_code == 400


def test_what_is_stored_for_strangers_does_not_last(client: Client, issuer: Issuer, company: Provider) -> None:
    begin, callback = reverse("sign-in-begin", args=["acme", issuer.pk]), reverse("sign-in-callback", args=[issuer.pk])
    assert Client().get(callback, {"state": "unknown"}).status_code == 400
    assert not Session.objects.exists()
    client.post(begin)
    assert client.session.get_expiry_age() <= LIFETIME_SECONDS
    # Whoever then logs in with a password stays logged in.
    User.objects.create_superuser("root", password=PASSWORD)
    client.post("/admin/login/", {"username": "root", "password": PASSWORD})
    assert client.session.get_expiry_age() > LIFETIME_SECONDS
    client.post(begin)
    assert client.session.get_expiry_age() > LIFETIME_SECONDS


def test_the_request_has_pkce_a_state_and_a_nonce_and_the_provider_is_the_only_place_it_leads_to(
    client: Client, issuer: Issuer, company: Provider
) -> None:
    location = client.post(reverse("sign-in-begin", args=["acme", issuer.pk]))["Location"]
    query = {name: value[0] for name, value in parse_qs(urlsplit(location).query).items()}
    assert location.startswith(company.url)
    assert query["code_challenge_method"] == "S256"
    assert len({query["state"], query["nonce"], query["code_challenge"]}) == 3
    assert query["redirect_uri"] == f"http://testserver/sign-in/callback/{issuer.pk}/"


@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_nobody_is_sent_to_another_site_afterwards(client: Client, issuer: Issuer, company: Provider, to: str) -> None:
    company.set("u1", groups=["mcp-admins"])
    assert sign_in(client, issuer, company, "u1", to)["Location"] == reverse("admin:index")


def test_the_answer_of_another_issuer_is_refused(client: Client, issuer: Issuer, company: Provider) -> None:
    begin = reverse("sign-in-begin", args=["acme", issuer.pk])
    back = urlsplit(company.authorize(client.post(begin)["Location"], "u1"))
    response = client.get(f"{back.path}?{back.query}&iss=https://evil.example")
    assert "The answer is of another issuer." in response.content.decode()


def test_an_issuer_that_sends_people_on_to_another_one_gets_nothing_of_it(
    client: Client, issuer: Issuer, company: Provider
) -> None:
    globex = Tenant.objects.create(slug="globex", name="Globex")
    other = issuer_of(globex, company.url, name="Acme Login")
    theirs = client.post(reverse("sign-in-begin", args=["globex", other.pk]))["Location"]
    ours = urlsplit(
        company.authorize(client.post(reverse("sign-in-begin", args=["acme", issuer.pk]))["Location"], "u1")
    )
    state = parse_qs(urlsplit(theirs).query)["state"][0]
    code = parse_qs(ours.query)["code"][0]
    assert client.get(ours.path, {"state": state, "code": code}).status_code == 400
    assert company.seen == []


def test_an_account_of_an_issuer_reaches_no_other_tenant(client: Client, issuer: Issuer, company: Provider) -> None:
    company.set("u1", preferred_username="ann", email="ann@globex.example", groups=["mcp-admins"])
    sign_in(client, issuer, company, "u1")
    globex = Tenant.objects.create(slug="globex", name="Globex")
    boss = User.objects.create_superuser("boss")
    row, token = invitations.create(globex, "ann@globex.example", Role.ADMIN, boss)
    assert client.post(reverse("invitation", args=[token]), {"confirm": "on"}).status_code == 403
    assert not invitations.has_account(row)
    with pytest.raises(UnknownPerson):
        person_named("ann@acme")
    Membership.objects.create(user=User.objects.get(username="ann@acme"), tenant=globex, role=Role.ADMIN)
    response = sign_in(Client(), issuer, company, "u1")
    assert "access that this company does not decide about" in response.content.decode()


def test_the_page_lets_the_form_lead_to_the_provider(client: Client, issuer: Issuer, company: Provider) -> None:
    policy = client.get("/sign-in/acme/")["Content-Security-Policy"]
    assert f"form-action 'self' https: {company.url}" in policy


@pytest.mark.parametrize("claims", [{"big": 10**30}, {"name": "a\0b"}, {"sub": "a\0b"}, {"deep": [[[[]]]] * 3}])
def test_strange_claims_are_no_failure(
    client: Client, issuer: Issuer, company: Provider, claims: dict[str, Any]
) -> None:
    company.set("u1", groups=["mcp-admins"])
    company.lies = claims
    assert sign_in(client, issuer, company, "u1").status_code in {302, 403}


def test_a_strange_name_of_a_company_is_no_failure(client: Client, db: None) -> None:
    assert client.get("/sign-in/", {"tenant": "\0"}).status_code == 200


def test_each_step_of_a_sign_in_has_a_colour() -> None:
    assert set(COLOURS) == set(SignInStep)


def test_the_page_of_an_issuer_shows_its_redirect_uri_before_there_is_a_client_id(
    client: Client, acme: Tenant, company: Provider
) -> None:
    boss = User.objects.create_superuser("boss")
    client.force_login(boss)
    data = {**issuer_fields(company, acme, client_id="", secret="")}
    del data["is_active"]
    assert client.post(reverse("admin:tools_app_issuer_add"), data).status_code == 302
    row = Issuer.objects.get()
    page = client.get(reverse("admin:tools_app_issuer_change", args=[row.pk])).content.decode()
    assert f"http://testserver/sign-in/callback/{row.pk}/" in page


def test_the_page_of_a_tenant_offers_its_issuers_only(client: Client, issuer: Issuer) -> None:
    globex = Tenant.objects.create(slug="globex", name="Globex")
    Issuer.objects.create(tenant=globex, name="Globex Login", issuer="https://globex.example", client_id="x")
    page = client.get("/sign-in/acme/").content.decode()
    assert "Continue with Acme Login" in page
    assert "Globex" not in page
    assert client.post(reverse("sign-in-begin", args=["globex", issuer.pk])).status_code == 404


@pytest.mark.parametrize("slug", ["nobody", "plain"])
def test_a_tenant_without_an_issuer_is_answered_as_one_that_does_not_exist(client: Client, db: None, slug: str) -> None:
    Tenant.objects.create(slug="plain", name="Plain")
    page = client.get("/sign-in/", {"tenant": slug}).content.decode()
    assert "No company sign-in is set up under this name." in page
    assert client.get(f"/sign-in/{slug}/").status_code == 302


def test_a_client_secret_that_cannot_be_read_is_said(client: Client, issuer: Issuer, company: Provider) -> None:
    Issuer.objects.update(ciphertext=b"sealed with another key")
    response = sign_in(client, issuer, company, "u1")
    assert response.status_code == 403
    assert "The client secret of Acme Login cannot be read. Enter it again." in response.content.decode()


def test_a_provider_that_cannot_be_reached_is_named(client: Client, issuer: Issuer) -> None:
    Issuer.objects.update(issuer="http://localhost:9")
    response = client.post(reverse("sign-in-begin", args=["acme", issuer.pk]))
    assert response.status_code == 403
    assert "Acme Login could not be reached" in response.content.decode()


def test_a_private_address_is_reached_from_the_tenants_allowed_networks_only(client: Client, issuer: Issuer) -> None:
    Tenant.objects.update(allowed_networks=[])
    response = client.post(reverse("sign-in-begin", args=["acme", issuer.pk]))
    assert "Acme Login could not be reached" in response.content.decode()


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"iss": "https://evil.example"}, "The token is of another issuer."),
        ({"aud": "another"}, "The token is for another audience."),
        ({"aud": ["another", "third"]}, "The token is for another audience."),
        ({"aud": ["hub", "third"], "azp": "third"}, "The token was issued to another client (azp)."),
        ({"exp": 1}, "The token has expired."),
        ({"exp": 10**11}, "The token is valid for more than a day."),
        ({"nbf": 10**11}, "The token is not valid yet."),
        ({"nonce": "of another sign-in"}, "The answer belongs to another sign-in."),
        ({"sub": ""}, "its token has no subject"),
        ({"sub": "x" * 256}, "its token has no subject"),
    ],
)
def test_a_token_that_lies_lets_nobody_in(
    client: Client, issuer: Issuer, company: Provider, lie: dict[str, Any], message: str
) -> None:
    company.set("u1", groups=["mcp-admins"])
    company.lies = lie
    response = sign_in(client, issuer, company, "u1")
    assert response.status_code == 403
    assert message in response.content.decode()
    assert not User.objects.exists()


def test_a_token_that_another_key_signed_lets_nobody_in(client: Client, issuer: Issuer, company: Provider) -> None:
    company.set("u1", groups=["mcp-admins"])
    company.published = [new_key()]
    response = sign_in(client, issuer, company, "u1")
    assert "The signature of the token cannot be verified" in response.content.decode()


@pytest.mark.parametrize("name", ["EdDSA", "Ed25519"])
def test_a_provider_may_sign_with_ed25519_by_both_of_its_names(
    client: Client, issuer: Issuer, company: Provider, name: str
) -> None:
    company.set("u1", groups=["mcp-admins"])
    company.key, company.algorithm = OKPKey.generate_key("Ed25519", {"kid": "ed", "alg": name}), name
    assert sign_in(client, issuer, company, "u1").status_code == 302


def test_a_new_key_of_the_provider_is_read(
    client: Client, issuer: Issuer, company: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.set("u1", groups=["mcp-admins"])
    assert sign_in(client, issuer, company, "u1").status_code == 302
    company.key = new_key()
    monkeypatch.setattr(configuration, "KEYS_REFRESH_SECONDS", 0.0)
    assert sign_in(Client(), issuer, company, "u1").status_code == 302


def test_the_client_proves_itself_to_the_provider_by_its_secret(
    client: Client, issuer: Issuer, company: Provider
) -> None:
    company.set("u1", groups=["mcp-admins"])
    sign_in(client, issuer, company, "u1")
    assert company.seen == ["Basic aHViOmh1c2g="]


# --- Leaving -------------------------------------------------------------------------------------------------------


def checked(*, after: timedelta = timedelta(hours=1)) -> None:
    """Let time pass, then recheck everyone with the provider."""
    then = timezone.now() - after
    Identity.objects.update(checked_at=then)
    directory.check(lambda: True)


@pytest.fixture
def ann(client: Client, issuer: Issuer, company: Provider) -> Identity:
    company.set("u9", preferred_username="ann", groups=["mcp-admins"])
    sign_in(client, issuer, company, "u9")
    return Identity.objects.get()


def test_who_leaves_the_company_loses_access_at_the_next_check(
    client: Client, ann: Identity, company: Provider
) -> None:
    checked()
    assert role_of("ann@acme") == Role.ADMIN
    company.forget("u9")
    checked()
    assert role_of("ann@acme") is None
    assert client.get("/admin/").status_code == 302
    assert "invalid_grant" in SignInEvent.objects.get(step=SignInStep.LEFT).reason
    ann.refresh_from_db()
    assert (ann.ended_at is not None, ann.ciphertext) == (True, None)


def test_a_check_follows_the_groups_of_now(ann: Identity, company: Provider) -> None:
    company.set("u9", preferred_username="ann", groups=["staff-9"])
    checked()
    assert role_of("ann@acme") == Role.AUDITOR
    company.set("u9", preferred_username="ann", groups=[])
    checked()
    assert role_of("ann@acme") is None


def test_a_provider_that_cannot_be_reached_takes_no_access_until_the_hours_are_over(ann: Identity) -> None:
    Issuer.objects.update(issuer="http://localhost:9")
    checked()
    assert role_of("ann@acme") == Role.ADMIN
    Identity.objects.update(verified_at=timezone.now() - timedelta(hours=25))
    checked()
    assert role_of("ann@acme") is None


def test_access_ends_when_an_admin_asks_for_the_next_sign_in(ann: Identity, company: Provider) -> None:
    Issuer.objects.update(sign_in_minutes=600)
    # Not at the very end: SQLite rounds it to milliseconds.
    for minutes, role in ((599, Role.ADMIN), (601, None)):
        past = timezone.now() - timedelta(minutes=minutes)
        Identity.objects.update(signed_in_at=past, checked_at=past + timedelta(minutes=599, seconds=30))
        directory.check(lambda: True)
        assert role_of("ann@acme") == role
    reason = "Acme Login asks for a sign-in every 600 minutes: sign in again."
    assert SignInEvent.objects.get(step=SignInStep.LEFT).reason == reason


def test_a_check_with_the_issuer_is_no_sign_in(ann: Identity, company: Provider) -> None:
    before = timezone.now() - timedelta(minutes=5)
    Identity.objects.update(signed_in_at=before)
    checked()
    ann.refresh_from_db()
    assert (ann.signed_in_at, ann.verified_at > before) == (before, True)


def test_a_login_lasts_until_the_next_sign_in_that_an_admin_asks_for(
    client: Client, acme: Tenant, company: Provider, issuer: Issuer
) -> None:
    Issuer.objects.update(sign_in_minutes=20)
    company.set("u1", groups=["mcp-admins"])
    sign_in(client, issuer, company, "u1")
    assert 1190 <= client.session.get_expiry_age() <= 1200


def test_a_check_is_claimed_by_one_process(ann: Identity) -> None:
    assert people.claim_check(ann, timezone.now())
    assert not people.claim_check(ann, timezone.now())


def test_who_an_admin_removed_stays_removed(ann: Identity) -> None:
    Membership.objects.all().delete()
    checked()
    assert role_of("ann@acme") is None
    ann.refresh_from_db()
    assert ann.ended_at


def test_an_issuer_whose_answer_fails_holds_up_nobody_elses_check(
    ann: Identity, company: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_args: object) -> None:
        raise RecursionError

    monkeypatch.setattr(provider, "refresh", explode)
    checked()
    assert role_of("ann@acme") == Role.ADMIN


def test_a_check_that_took_long_gives_nothing_back_that_ended_meanwhile(ann: Identity, company: Provider) -> None:
    people.end(ann)
    people.confirm(ann, {"sub": "u9", "groups": ["mcp-admins"]}, "", claimed_at=ann.checked_at)
    assert role_of("ann@acme") is None


@pytest.mark.parametrize("answer", ["admin", "withdrawn", "no rule"])
def test_a_sign_in_while_the_issuer_is_asked_outlasts_what_the_issuer_said(
    client: Client, ann: Identity, company: Provider, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """The groups and the refresh token that the person came with stay, whatever the check got for the earlier token."""

    def asked(*_args: object) -> provider.SignInResult:
        company.set("u9", preferred_username="ann", groups=["staff-9"])
        sign_in(client, ann.issuer, company, "u9")
        if answer == "withdrawn":
            raise provider.AccessWithdrawn("invalid_grant")
        return provider.SignInResult({"sub": "u9", "groups": ["mcp-admins"] if answer == "admin" else []}, "older")

    monkeypatch.setattr(provider, "refresh", asked)
    checked()
    assert role_of("ann@acme") == Role.AUDITOR
    ann.refresh_from_db()
    assert (ann.ended_at, ann.claims["groups"]) == (None, ["staff-9"])
    assert people.refresh_token_of(ann) in company.refreshable
    assert client.get("/admin/").status_code == 200
    assert not SignInEvent.objects.filter(step=SignInStep.LEFT).exists()


def test_a_check_that_ends_access_during_a_sign_in_takes_nothing_of_what_the_sign_in_gives(
    client: Client, ann: Identity, company: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Access ends after the sign-in has found that the role stays the same, and before it locks the identity."""
    set_role, ends = people._set_role, [people.end]

    def slow(identity: Identity, role: str) -> None:
        set_role(identity, role)
        if ends:
            ends.pop()(ann)

    monkeypatch.setattr(people, "_set_role", slow)
    assert sign_in(client, ann.issuer, company, "u9").status_code == 302
    assert role_of("ann@acme") == Role.ADMIN
    assert client.get("/admin/").status_code == 200


@pytest.mark.parametrize("moment", [1, 2])
def test_an_assertion_gives_nothing_back_that_ended_while_it_was_evaluated(
    ann: Identity, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Access ends after the claims that the assertion leaves out were read: before a rule is found, or the role set."""
    find, calls = rules.find, count(1)

    def found(issuer: Issuer, claims: Any) -> rules.Rule:
        if next(calls) == moment:
            people.end(ann)
        return find(issuer, claims)

    monkeypatch.setattr(rules, "find", found)
    with pytest.raises(people.SignInRejected):
        people.sign_in(ann.issuer, {"sub": "u9"}, is_assertion=True)
    assert role_of("ann@acme") is None
    ann.refresh_from_db()
    assert (ann.ended_at is not None, ann.ciphertext) == (True, None)


def test_an_assertion_keeps_the_refresh_token_that_a_check_got_meanwhile(
    ann: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, calls = rules.find, count(1)

    def found(issuer: Issuer, claims: Any) -> rules.Rule:
        if next(calls) == 1:
            people.confirm(Identity.objects.get(), None, "newer", claimed_at=ann.checked_at)
        return find(issuer, claims)

    monkeypatch.setattr(rules, "find", found)
    people.sign_in(ann.issuer, {"sub": "u9"}, is_assertion=True)
    ann.refresh_from_db()
    assert (role_of("ann@acme"), people.refresh_token_of(ann)) == (Role.ADMIN, "newer")


@pytest.mark.parametrize("is_check", [True, False])
def test_an_issuer_that_is_turned_off_while_it_is_asked_gives_no_role(
    ann: Identity, monkeypatch: pytest.MonkeyPatch, is_check: bool
) -> None:
    """The issuer is turned off after its rules have matched and before the role is set."""
    find = rules.find

    def decided(issuer: Issuer, claims: Any) -> rules.Rule:
        rule = find(issuer, claims)
        row = Issuer.objects.get()
        if row.is_active:
            row.is_active = False
            row.save()
            setup.apply_changes(row)
        return rule

    monkeypatch.setattr(rules, "find", decided)
    # A recheck finds that the access has ended, and does not restore it.
    with nullcontext() if is_check else pytest.raises(rules.NoMatchingRule, match="turned off"):
        people.confirm(
            ann, {"sub": "u9", "groups": ["mcp-admins"]}, "", claimed_at=ann.checked_at if is_check else None
        )
    assert role_of("ann@acme") is None
    assert Identity.objects.get().ended_at


def test_rules_that_change_while_a_person_is_checked_decide_as_they_are_now(
    ann: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = rules.find

    def decided(issuer: Issuer, claims: Any) -> rules.Rule:
        rule = find(issuer, claims)
        now = [{"claims": {"groups": ["mcp-admins"]}, "role": "operator"}]
        Issuer.objects.update(rules=now)
        return rule

    monkeypatch.setattr(rules, "find", decided)
    people.confirm(ann, {"sub": "u9", "groups": ["mcp-admins"]}, "", claimed_at=ann.checked_at)
    assert role_of("ann@acme") == Role.OPERATOR


def test_changed_rules_count_at_once_for_everybody_who_came(ann: Identity) -> None:
    issuer = ann.issuer
    issuer.rules = [{"claims": {"groups": ["mcp-*"]}, "role": "operator"}]
    issuer.save()
    setup.apply_changes(issuer)
    assert role_of("ann@acme") == Role.OPERATOR
    issuer.rules = []
    setup.apply_changes(issuer)
    assert role_of("ann@acme") is None


@pytest.mark.parametrize("how", ["off", "deleted"])
def test_an_issuer_that_is_turned_off_or_deleted_takes_the_access_of_its_people(ann: Identity, how: str) -> None:
    issuer = ann.issuer
    if how == "deleted":
        setup.delete(issuer)
        assert not User.objects.get(username="ann@acme").is_active
    else:
        issuer.is_active = False
        issuer.save()
        setup.apply_changes(issuer)
    assert role_of("ann@acme") is None


# --- Setting up ----------------------------------------------------------------------------------------------------


@pytest.fixture
def admin(client: Client, acme: Tenant) -> Client:
    user = User.objects.create_user("boss")
    Membership.objects.create(user=user, tenant=acme, role=Role.ADMIN)
    client.force_login(user)
    return client


def issuer_fields(company: Provider, acme: Tenant, **more: Any) -> dict[str, Any]:
    return {
        "tenant": acme.pk,
        "name": "Acme Login",
        "use": "people",
        "protocol": "oidc",
        "issuer": company.url,
        "client_id": "hub",
        "secret": "hush-hush",
        "rules": '[{"claims": {"groups": ["x"]}, "role": "admin"}]',
        "recheck_hours": 24,
        "directory_claim": "sub",
        "is_active": "on",
        **more,
    }


def test_an_admin_sets_an_issuer_up_and_its_secret_is_never_shown(
    admin: Client, acme: Tenant, company: Provider
) -> None:
    Tenant.objects.update(allowed_networks=LOOPBACK)
    response = admin.post(reverse("admin:tools_app_issuer_add"), issuer_fields(company, acme))
    assert response.status_code == 302, response.content
    row = Issuer.objects.get()
    page = admin.get(reverse("admin:tools_app_issuer_change", args=[row.pk])).content.decode()
    assert f"http://testserver/sign-in/callback/{row.pk}/" in page
    assert "hush-hush" not in page
    assert b"hush-hush" not in bytes(row.ciphertext or b"")
    assert "hush-hush" not in str(list(Change.objects.values()))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"issuer": "http://idp.example.com"}, "Enter a URL that starts with https://."),
        ({"issuer": "http://localhost:9"}, "Its configuration could not be read"),
        ({"client_id": ""}, "Enter the client ID"),
        ({"rules": '[{"claims": {"groups": ["x"]}}]'}, "Each rule for people needs a role."),
        ({"rules": '[{"claims": {"groups": "x"}, "role": "admin"}]'}, "Rule 1: Must be a JSON list of strings."),
        ({"rules": '[{"who": 1}]'}, "Rule 1: Write an object with claims"),
        ({"use": "workloads", "rules": '[{"names": ["x"]}]'}, "Each rule for workloads needs claims"),
    ],
)
def test_what_cannot_work_is_said_when_it_is_saved(
    admin: Client, acme: Tenant, company: Provider, wrong: dict[str, str], message: str
) -> None:
    Tenant.objects.update(allowed_networks=LOOPBACK)
    response = admin.post(reverse("admin:tools_app_issuer_add"), issuer_fields(company, acme, **wrong))
    assert message in response.content.decode()
    assert not Issuer.objects.exists()


@pytest.mark.parametrize("way", ["admin", "rest"])
def test_an_issuer_with_another_url_gets_nothing_of_the_former_one(
    admin: Client, ann: Identity, acme: Tenant, company: Provider, way: str
) -> None:
    directory_access.issue(ann.issuer)
    admin.force_login(User.objects.get(username="boss"))

    def change(url: str, secret: str) -> str:
        if way == "admin":
            data = issuer_fields(company, acme, issuer=url, secret=secret, rules=json.dumps(RULES))
            response = admin.post(reverse("admin:tools_app_issuer_change", args=[ann.issuer_id]), data)
        else:
            body = {"issuer": url, **({"secret": secret} if secret else {})}
            path = f"/api/v1/issuers/{ann.issuer_id}/"
            response = admin.patch(path, body, content_type="application/json")
        return response.content.decode() if response.status_code in {200, 400} else ""

    with running_provider() as other:
        assert "Enter the client secret again: the stored one is for" in change(other.url, "")
        assert role_of("ann@acme") == Role.ADMIN
        assert "client secret again" not in change(company.url, "")
        assert role_of("ann@acme") == Role.ADMIN
        assert "client secret again" not in change(other.url, "another secret")
        assert role_of("ann@acme") is None
        assert not User.objects.get(username="ann@acme").is_active
        assert not Identity.objects.exists()
        assert not Directory.objects.exists()
        # The same subject is another person there.
        other.set("u9", preferred_username="ann", groups=["staff-1"])
        sign_in(Client(), Issuer.objects.get(), other, "u9")
        assert Membership.objects.get(role=Role.AUDITOR).user.username == "ann2@acme"
        assert [base64.b64decode(sent.removeprefix("Basic ")) for sent in other.seen] == [b"hub:another%20secret"]


def test_what_is_sealed_for_one_url_is_not_read_for_another(client: Client, ann: Identity, company: Provider) -> None:
    token = people.refresh_token_of(ann)
    assert token
    with running_provider() as other:
        Issuer.objects.update(issuer=other.url)
        moved = Identity.objects.select_related("issuer").get()
        assert people.refresh_token_of(moved) == ""
        response = sign_in(client, moved.issuer, other, "u9")
        assert "The client secret of Acme Login cannot be read. Enter it again." in response.content.decode()
        assert not other.seen


def test_claims_of_a_provider_whose_url_changes_meanwhile_let_nobody_in(
    client: Client, issuer: Issuer, company: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = provider.finish

    def finished(*arguments: Any) -> provider.SignInResult:
        result = finish(*arguments)
        Issuer.objects.update(issuer="https://another.example")
        return result

    monkeypatch.setattr(provider, "finish", finished)
    company.set("u1", groups=["mcp-admins"])
    assert "has just been changed" in sign_in(client, issuer, company, "u1").content.decode()
    assert not Membership.objects.exists()


def test_a_private_issuer_is_refused_with_who_may_allow_it(admin: Client, acme: Tenant, company: Provider) -> None:
    Tenant.objects.update(allowed_networks=[])
    data = issuer_fields(company, acme, issuer="https://10.0.0.1")
    response = unescape(admin.post(reverse("admin:tools_app_issuer_add"), data).content.decode())
    assert "its address is private or reserved. A hub admin can allow it under Tenant > Allowed networks." in response


def test_rules_can_be_tried_on_a_token_without_letting_anybody_in(
    admin: Client, acme: Tenant, company: Provider
) -> None:
    row = issuer_of(acme, company.url, rules=RULES)
    url = reverse("admin:tools_app_issuer_try_token", args=[row.pk])
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4iLCJncm91cHMiOlsic3RhZmYtNyJdfQ.c2ln"
    page = admin.post(url, {"token": token}).content.decode()
    assert "Rule 2" in page
    assert "The signature of the token cannot be verified" in page
    assert "This is not a signed JWT." in admin.post(url, {"token": "nonsense"}).content.decode()
    assert not Identity.objects.exists()


# --- What only UserInfo says ---------------------------------------------------------------------------------------


def test_groups_that_only_userinfo_states_count_as_those_of_the_token(
    client: Client, issuer: Issuer, company: Provider
) -> None:
    company.set("u1", preferred_username="ann")
    company.user_info = {"sub": "u1", "groups": ["mcp-admins"], "preferred_username": "somebody else"}
    assert sign_in(client, issuer, company, "u1").status_code == 302
    assert company.seen[-1] == "Bearer x"
    # Claims of the signed ID token take precedence over UserInfo.
    assert role_of("ann@acme") == Role.ADMIN
    company.user_info = {"sub": "u1", "groups": ["staff-it"]}
    checked()
    assert role_of("ann@acme") == Role.AUDITOR


def test_userinfo_is_not_asked_for_what_the_token_states(client: Client, issuer: Issuer, company: Provider) -> None:
    company.set("u1", groups=["mcp-admins"])
    company.user_info = {"sub": "u1", "groups": ["staff-it"]}
    sign_in(client, issuer, company, "u1")
    assert "Bearer x" not in company.seen


def test_userinfo_is_asked_again_when_a_renewal_has_no_token_of_the_person(
    client: Client, issuer: Issuer, company: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.set("u1", preferred_username="ann", groups=[])
    company.user_info = {"sub": "u1", "groups": ["mcp-admins"], "department": "x" * 5000, "iss": "evil"}
    assert sign_in(client, issuer, company, "u1").status_code == 302
    claims = Identity.objects.get().claims
    assert claims["groups"] == ["mcp-admins"]
    assert claims["iss"] == company.url
    assert "department" not in claims
    token_response = company.token_response

    def without_id_token(form: dict[str, str]) -> dict[str, Any] | None:
        response = token_response(form)
        return {name: value for name, value in response.items() if name != "id_token"} if response else None

    monkeypatch.setattr(company, "token_response", without_id_token)
    company.user_info = {"sub": "u1", "groups": ["staff-it"]}
    checked()
    assert role_of("ann@acme") == Role.AUDITOR
    # A response about another subject is ignored: the role stays.
    company.user_info = {"sub": "u2", "groups": ["mcp-admins"]}
    checked()
    assert role_of("ann@acme") == Role.AUDITOR


@pytest.mark.parametrize(
    ("user_info", "reason"),
    [
        ({"sub": "u2", "groups": ["mcp-admins"]}, "is not about you"),
        ({"groups": ["mcp-admins"]}, "is not about you"),
        ({"sub": "u1", "groups": ["mcp-admins"], "x": "\0"}, "is not about you"),
        (b"eyJhbGciOiJub25lIn0.e30.", "could not be read"),
    ],
)
def test_userinfo_of_somebody_else_or_that_cannot_be_read_lets_nobody_in(
    client: Client, issuer: Issuer, company: Provider, user_info: Any, reason: str
) -> None:
    company.set("u1")
    company.user_info = user_info
    response = sign_in(client, issuer, company, "u1")
    assert response.status_code == 403
    assert reason in response.content.decode()
    assert not User.objects.exists()


# --- What went wrong elsewhere -------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["javascript:alert(1)", "file:///etc/passwd", "calc.exe", "http://evil.example/"])
def test_no_browser_is_sent_to_what_is_no_website(
    client: Client, issuer: Issuer, company: Provider, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """CVE-2025-6514: clients opened any URL that a server's metadata named."""
    document = company.configuration() | {"authorization_endpoint": endpoint}
    monkeypatch.setattr(company, "configuration", lambda: document)
    response = client.post(reverse("sign-in-begin", args=["acme", issuer.pk]))
    assert "has no authorization_endpoint that starts with https" in response.content.decode()
