"""Second factors of local accounts: at login, where a tenant requires one, and in the records."""

import re
from ast import literal_eval
from gettext import GNUTranslations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal import auth
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from tests.identity.sign_in.provider import issuer_of, running_provider, sign_in
from tools_app.identity.sign_in import accounts
from tools_app.models import Change, Membership, Role, Tenant
from tools_app.tenants import invitations
from tools_app.tenants.limits import limits

PASSWORD = "correct horse battery"
NOW = 1_800_000_000.0
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


@pytest.fixture(autouse=True)
def _one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes of apps end after half a minute: on a busy machine, that may be within a test."""
    monkeypatch.setattr(auth, "time", SimpleNamespace(time=lambda: NOW))


@pytest.fixture
def acme(db: None) -> Tenant:
    cache.clear()
    return Tenant.objects.create(slug="acme", name="Acme")


@pytest.fixture
def ann(acme: Tenant) -> User:
    user = User.objects.create_user("ann", "ann@example.com", PASSWORD)
    Membership.objects.create(user=user, tenant=acme, role=Role.ADMIN)
    return user


@pytest.fixture
def app(ann: User) -> User:
    """Ann, with an authenticator app."""
    TOTP.activate(ann, SECRET)
    return ann


def code(steps: int = 0) -> str:
    return format_hotp_value(hotp_value(SECRET, int(NOW) // 30 + steps))


def log_in(client: Client, to: str = "/admin/tools_app/tool/") -> Any:
    data = {"username": "ann", "password": PASSWORD, "next": to}
    return client.post(reverse("admin:login"), data)


def test_a_password_alone_lets_nobody_in_who_has_an_authenticator_app(client: Client, app: User) -> None:
    response = log_in(client)
    assert (response.status_code, response["Location"]) == (302, reverse("mfa_authenticate"))
    assert client.get("/admin/tools_app/tool/").status_code == 302
    assert "Enter the code of your authenticator app" in client.get(response["Location"]).content.decode()


def test_the_code_leads_to_the_page_that_was_asked_for(client: Client, app: User) -> None:
    response = client.post(log_in(client)["Location"], {"code": code()})
    assert (response.status_code, response["Location"]) == (302, "/admin/tools_app/tool/")
    assert client.get(response["Location"]).status_code == 200


def test_a_code_counts_once(client: Client, app: User) -> None:
    now = code()
    client.post(log_in(client)["Location"], {"code": now})
    other = Client()
    assert other.post(log_in(other)["Location"], {"code": now}).status_code == 200


def test_a_code_that_is_still_valid_counts_in_no_other_process(client: Client, app: User) -> None:
    now = code(-1)
    client.post(log_in(client)["Location"], {"code": now})
    # What is counted in memory or in Redis does not decide.
    cache.clear()
    limits.forget_all()
    other = Client()
    place = log_in(other)["Location"]
    for written in (now, f" {now[:3]}-{now[3:]}"):
        assert "This code was used." in other.post(place, {"code": written}).content.decode()
        cache.clear()
    # Before factors are changed, it does not count again either.
    assert "This code was used." in client.post(reverse("mfa_reauthenticate"), {"code": now}).content.decode()


def test_a_person_who_sent_wrong_codes_waits_the_longer_the_more_there_were(
    client: Client, app: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MAX_WRONG_CODES", ((2, 0.0), (3, 3600.0)))
    where = log_in(client)["Location"]
    for number in range(3):
        address = f"198.51.100.{number}"
        assert "The code is wrong." in client.post(where, {"code": "000000"}, REMOTE_ADDR=address).content.decode()
    told = client.post(where, {"code": code()}, REMOTE_ADDR="198.51.100.9").content.decode()
    assert "Too many wrong codes." in told
    monkeypatch.setattr(accounts, "MAX_WRONG_CODES", ((4, 300.0),))
    assert client.post(where, {"code": code()}).status_code == 302


def test_a_recovery_code_lets_somebody_in_once_who_lost_the_app(client: Client, app: User) -> None:
    spare = RecoveryCodes.activate(app).get_unused_codes()[0]
    assert client.post(log_in(client)["Location"], {"code": spare}).status_code == 302
    other = Client()
    assert other.post(log_in(other)["Location"], {"code": spare}).status_code == 200


def test_an_invitation_is_no_way_around_the_second_factor(client: Client, app: User) -> None:
    globex = Tenant.objects.create(slug="globex", name="Globex")
    boss = User.objects.create_superuser("boss")
    _, token = invitations.create(globex, "ann@example.com", Role.AUDITOR, boss)
    page = reverse("invitation", args=[token])
    response = client.post(page, {"login-username": "ann", "login-password": PASSWORD})
    assert response["Location"] == reverse("mfa_authenticate")
    assert not globex.memberships.exists()
    assert client.post(response["Location"], {"code": code()})["Location"] == page
    client.post(page)
    assert globex.memberships.get().user == app


def test_what_proves_a_factor_is_encrypted_at_rest(app: User) -> None:
    RecoveryCodes.activate(app)
    stored = str(list(Authenticator.objects.values_list("data", flat=True)))
    assert SECRET not in stored


def enter(client: Client) -> None:
    """Log in and confirm the password, as the pages of second factors require."""
    log_in(client)
    client.post(reverse("account_reauthenticate"), {"password": PASSWORD})


def test_a_person_sets_an_app_up_gets_recovery_codes_and_both_are_recorded(client: Client, ann: User) -> None:
    enter(client)
    page = client.get(reverse("mfa_activate_totp")).content.decode()
    found = re.search(r'value="([A-Z2-7]{32})"', page)
    assert found, page
    now = format_hotp_value(hotp_value(found[1], int(NOW) // 30))
    response = client.post(reverse("mfa_activate_totp"), {"code": now})
    assert response["Location"] == reverse("mfa_view_recovery_codes")
    assert re.search(r"\b[0-9]{8}\b", client.get(response["Location"]).content.decode())
    changes = [change.after for change in Change.objects.filter(kind="user", person_name="ann")]
    assert any("authenticator app added" in str(after) for after in changes)


# --- Where a tenant requires one -----------------------------------------------------------------------------------


@pytest.fixture
def strict(acme: Tenant) -> Tenant:
    acme.requires_second_factor = True
    acme.save()
    return acme


def test_a_member_without_a_factor_is_led_to_set_one_up_and_nowhere_else(
    client: Client, ann: User, strict: Tenant
) -> None:
    log_in(client)
    for page in ("/admin/", "/admin/tools_app/tool/", "/connections"):
        response = client.get(page)
        assert (response.status_code, response["Location"]) == (302, reverse("mfa_index"))
    shown = client.get(reverse("mfa_index")).content.decode()
    assert "Acme requires a second factor" in shown
    problem = client.get("/api/v1/me/")
    assert (problem.status_code, problem["Content-Type"]) == (403, "application/problem+json")
    assert client.post("/admin/logout/").status_code in {200, 302}


def test_who_set_a_factor_up_goes_on_to_the_page_that_was_opened(client: Client, ann: User, strict: Tenant) -> None:
    log_in(client)
    page = "/admin/tools_app/tool/?q=a%22%3E"
    assert client.get(page)["Location"] == reverse("mfa_index")
    link = 'href="/admin/tools_app/tool/?q=a%22%3E"'
    assert link not in client.get(reverse("mfa_index")).content.decode()
    TOTP.activate(ann, SECRET)
    assert link in client.get(reverse("mfa_index")).content.decode()
    assert client.get(page).status_code == 200
    assert link not in client.get(reverse("mfa_index")).content.decode()


def test_a_path_that_looks_like_another_host_is_no_way_out(client: Client, ann: User, strict: Tenant) -> None:
    log_in(client)
    client.get("//evil.example/admin/")
    TOTP.activate(ann, SECRET)
    shown = client.get(reverse("mfa_index")).content.decode()
    assert 'href="//' not in shown
    assert 'href="http://evil' not in shown


def test_a_member_with_a_factor_goes_on(client: Client, app: User, strict: Tenant) -> None:
    client.post(log_in(client)["Location"], {"code": code()})
    assert client.get("/admin/").status_code == 200


def test_the_last_factor_stays_while_one_is_required(client: Client, app: User, strict: Tenant) -> None:
    client.post(log_in(client)["Location"], {"code": code()})
    client.post(reverse("mfa_reauthenticate"), {"code": code(1)})
    response = client.post(reverse("mfa_deactivate_totp"))
    assert "A tenant requires a second factor" in response.content.decode()
    assert Authenticator.objects.filter(user=app, type="totp").exists()


def test_a_person_whose_company_vouches_needs_no_second_one(client: Client, strict: Tenant) -> None:
    with running_provider() as company:
        company.set("u1", groups=["mcp-admins"])
        sign_in(client, issuer_of(strict, company.url), company, "u1")
    assert client.get("/admin/").status_code == 200


def test_a_company_vouches_for_its_own_tenant_only(client: Client, acme: Tenant) -> None:
    globex = Tenant.objects.create(slug="globex", name="Globex", requires_second_factor=True)
    with running_provider() as company:
        company.set("u1", groups=["mcp-admins"])
        sign_in(client, issuer_of(acme, company.url), company, "u1")
    Membership.objects.create(user=User.objects.get(), tenant=globex, role=Role.ADMIN)
    assert client.get("/admin/")["Location"] == reverse("mfa_index")


def test_a_superuser_needs_one_as_soon_as_a_tenant_requires_it(client: Client, strict: Tenant) -> None:
    client.force_login(User.objects.create_superuser("root"))
    assert client.get("/admin/")["Location"] == reverse("mfa_index")


def test_pages_of_second_factors_speak_as_the_hub_does(client: Any, db: None) -> None:
    client.force_login(User.objects.create_superuser("ann", password=PASSWORD))
    shown = client.get("/account/factors/").content.decode()
    for words in ("Second factor", "Authenticator app", "You have no security keys.", "Recovery codes"):
        assert words in shown
    for words in ("Two-Factor", "Authenticator App", "Security Keys", "Recovery Codes"):
        assert words not in shown


def test_the_hubs_words_for_texts_of_packages_are_compiled() -> None:
    folder = Path(settings.LOCALE_PATHS[0]) / "en" / "LC_MESSAGES"
    with (folder / "django.mo").open("rb") as compiled:
        catalog = GNUTranslations(compiled)
    entry = re.compile(r'^msgid "(.+)"\nmsgstr "(.+)"$', re.MULTILINE)
    found = entry.findall((folder / "django.po").read_text())
    words = {literal_eval(f'"{old}"'): literal_eval(f'"{new}"') for old, new in found}
    assert len(words) > 30
    assert {old: catalog.gettext(old) for old in words} == words
