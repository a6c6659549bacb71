"""Further rules of sign-in with SAML 2.0: one response to a request, session end, qualified names, safe pages."""

import base64
import secrets
import time
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.core import signing
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.identity.sign_in.provider import RULES
from tests.identity.sign_in.test_saml import (
    ENTITY,
    at,
    begin_sign_in,
    copy_of,
    issuer,
    metadata,
    post_response,
    saml_response,
)
from tools_app.identity import single_use
from tools_app.identity.issuers import setup
from tools_app.identity.oauth import pruning
from tools_app.identity.sign_in import company
from tools_app.models import Identity, Issuer, Membership, SignInEvent, SignInStep, Tenant, UsedAssertion
from tools_app.tenants.limits import limits

pytestmark = pytest.mark.slow

__all__ = ["issuer"]
EMAIL = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
SECURE_HOME = "https://testserver/sign-in/saml"
AUTHORIZE = "/oauth/authorize?" + "&".join(f"parameter_{number}=" + "x" * 60 for number in range(15))


def sign_in(browser: Client, row: Issuer, **lies: Any) -> Any:
    """Begin a sign-in, and post a response to it."""
    return post_response(browser, row, saml_response(row, begin_sign_in(browser, row), **lies))


def post_form(browser: Client, row: Issuer, xml: str, *, secure: bool = False, **more: str) -> Any:
    body = {"SAMLResponse": base64.b64encode(xml.encode()).decode(), **more}
    return browser.post(reverse("sign-in-saml", args=[row.pk]), body, secure=secure)


# --- The end of the session ---------------------------------------------------------------------------------------


def test_a_session_ends_when_the_provider_says(issuer: Issuer, client: Client) -> None:
    assert sign_in(client, issuer, session=f' SessionNotOnOrAfter="{at(600)}"').status_code == 302
    assert 0 < client.session.get_expiry_age() <= 600


def test_a_session_is_no_longer_than_the_hub_allows(issuer: Issuer, client: Client) -> None:
    assert sign_in(client, issuer, session=f' SessionNotOnOrAfter="{at(90_000)}"').status_code == 302
    assert client.session.get_expiry_age() <= 3600


@pytest.mark.parametrize(
    ("end", "message"),
    [("2020-01-01T00:00:00Z", "Your session at Acme has ended"), ("soon", "a time that cannot be read")],
)
def test_who_has_no_session_there_any_more_is_not_signed_in(
    issuer: Issuer, client: Client, end: str, message: str
) -> None:
    response = sign_in(client, issuer, session=f' SessionNotOnOrAfter="{end}"')
    assert response.status_code == 403
    assert message in response.content.decode()
    assert not Membership.objects.exists()


# --- Who somebody is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        {"qualifiers": ' NameQualifier="https://other.example"'},
        {"qualifiers": ' SPNameQualifier="https://other.example"'},
        {"format": EMAIL},
        {"format": "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified"},
    ],
)
def test_the_same_text_with_another_qualifier_or_format_is_another_person(
    issuer: Issuer, client: Client, other: dict[str, str]
) -> None:
    assert sign_in(client, issuer).status_code == 302
    assert sign_in(Client(), issuer, groups="staff-1", **other).status_code == 302
    first, second = Identity.objects.order_by("created_at")
    assert (first.subject, first.claims["name_id"]) == ("u1", "u1")
    assert second.subject.startswith("u1 ~")
    assert first.person_id != second.person_id
    assert Membership.objects.get(user=first.person_id).role == "admin"
    # The same person is recognized, with the same name qualifiers.
    assert sign_in(Client(), issuer, groups="staff-1", **other).status_code == 302
    assert Identity.objects.count() == 2


def test_qualifiers_that_say_what_is_meant_without_them_change_nothing(issuer: Issuer, client: Client) -> None:
    entity = f"http://testserver/sign-in/saml/{issuer.pk}/metadata/"
    assert sign_in(client, issuer).status_code == 302
    named = f' NameQualifier="{ENTITY}" SPNameQualifier="{entity}"'
    assert sign_in(Client(), issuer, qualifiers=named).status_code == 302
    assert Identity.objects.get().subject == "u1"


def test_nobody_takes_the_subject_of_somebody_else_by_a_text_that_looks_like_it(issuer: Issuer) -> None:
    sign_in(Client(), issuer, format=EMAIL, name="ann@acme.example")
    subject = Identity.objects.get().subject
    assert sign_in(Client(), issuer, name=subject).status_code == 302
    assert Identity.objects.count() == 2


def test_a_directory_knows_people_by_the_text_of_a_name_only_if_the_provider_gave_it(issuer: Issuer) -> None:
    sign_in(Client(), issuer, format=EMAIL, name="ann@acme.example")
    sign_in(Client(), issuer, qualifiers=' NameQualifier="https://other.example"', name="ann@acme.example")
    names = [row.claims["name_id"] for row in Identity.objects.order_by("created_at")]
    assert names == ["ann@acme.example", ""]


# --- Once ---------------------------------------------------------------------------------------------------------


def test_an_answer_counts_once_in_all_processes_without_redis(issuer: Issuer, client: Client) -> None:
    Issuer.objects.update(allows_unasked=True)
    xml = saml_response(issuer, "")
    assert post_response(client, issuer, xml).status_code == 302
    # As in another process, or after a restart: nothing is remembered in memory.
    limits.forget_all()
    assert "used before" in post_response(Client(), issuer, xml).content.decode()


def test_a_request_is_answered_once_also_by_a_browser_that_keeps_its_cookie(issuer: Issuer, client: Client) -> None:
    request = begin_sign_in(client, issuer)
    copied = copy_of(client)
    assert post_response(client, issuer, saml_response(issuer, request)).status_code == 302
    response = post_response(copied, issuer, saml_response(issuer, request, name="u2"))
    assert "used before" in response.content.decode()
    assert Identity.objects.get().subject == "u1"


def test_a_refused_answer_ends_its_request_and_no_other(issuer: Issuer, client: Client) -> None:
    first, second = begin_sign_in(client, issuer), begin_sign_in(client, issuer)
    assert (
        "another certificate"
        in post_response(client, issuer, saml_response(issuer, first, signer="other")).content.decode()
    )
    assert "began in another browser" in post_response(client, issuer, saml_response(issuer, first)).content.decode()
    assert post_response(client, issuer, saml_response(issuer, second)).status_code == 302
    gone = client.cookies["mcphub_saml"]
    assert (gone.value, gone["max-age"], gone["path"]) == ("", 0, "/sign-in/")


def test_what_was_used_is_remembered_until_it_expires(issuer: Issuer, client: Client) -> None:
    sign_in(client, issuer)
    assert UsedAssertion.objects.count() == 2
    assert min(UsedAssertion.objects.values_list("expires_at", flat=True)) >= timezone.now() + timedelta(minutes=10)
    pruning.prune()
    assert UsedAssertion.objects.count() == 2
    UsedAssertion.objects.update(expires_at=timezone.now())
    pruning.prune()
    assert not UsedAssertion.objects.exists()
    # A sign-in also deletes expired rows.
    sign_in(Client(), issuer)
    UsedAssertion.objects.update(expires_at=timezone.now())
    sign_in(Client(), issuer)
    assert UsedAssertion.objects.count() == 2


def test_two_issuers_may_use_the_same_id(issuer: Issuer) -> None:
    tenant = Tenant.objects.create(slug="other", name="Other")
    other = Issuer(tenant=tenant, name="Other", protocol="saml", issuer=ENTITY, metadata=metadata(), rules=RULES)
    setup.check(other)
    other.save()
    ends = timezone.now() + timedelta(hours=1)
    assert single_use.use(issuer, ["assertion a"], ends)
    assert single_use.use(other, ["assertion a"], ends)
    assert not single_use.use(issuer, ["assertion b", "assertion a"], ends)
    # Neither was stored.
    assert single_use.use(issuer, ["assertion b"], ends)


def test_a_provider_whose_memory_is_full_is_told_so(
    issuer: Issuer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_use, "MAX_REMEMBERED", 2)
    assert sign_in(client, issuer).status_code == 302
    assert "Too many people of Acme sign in now" in sign_in(Client(), issuer).content.decode()
    UsedAssertion.objects.update(expires_at=timezone.now())
    assert sign_in(Client(), issuer).status_code == 302


# --- The cookie ---------------------------------------------------------------------------------------------------


def test_on_https_the_cookie_is_of_this_host_alone(issuer: Issuer, client: Client) -> None:
    begin = reverse("sign-in-begin", args=["acme", issuer.pk])
    morsel = client.post(begin, {"next": "/docs/"}, secure=True).cookies["__Host-mcphub_saml"]
    assert (morsel["secure"], morsel["path"], morsel["domain"]) == (True, "/", "")
    assert (morsel["httponly"], morsel["samesite"]) == (True, "None")
    ((request, _, to, _),) = signing.loads(morsel.value, salt="mcphub_saml")
    assert to == "/docs/"
    lies = {"acs": f"{SECURE_HOME}/{issuer.pk}/", "audience": f"{SECURE_HOME}/{issuer.pk}/metadata/"}
    xml = saml_response(issuer, request, **lies)
    # A cookie that a sibling domain or plain HTTP could set is ignored.
    planted = Client()
    planted.cookies["mcphub_saml"] = morsel.value
    assert "began in another browser" in post_form(planted, issuer, xml, secure=True).content.decode()
    response = post_form(client, issuer, xml, secure=True)
    assert (response.status_code, response["Location"]) == (302, "/docs/")
    gone = response.cookies["__Host-mcphub_saml"]
    # Browsers do not delete a __Host- cookie without these attributes.
    assert (gone.value, gone["max-age"], gone["secure"], gone["path"]) == ("", 0, True, "/")


def test_browsers_take_the_cookie_however_much_somebody_begins(issuer: Issuer, client: Client) -> None:
    begin = reverse("sign-in-begin", args=["acme", issuer.pk])
    for number in range(12):
        client.post(begin, {"next": f"/docs/?{number}=" + secrets.token_urlsafe(1500)})
        assert len(client.cookies["mcphub_saml"].OutputString()) < 4096
    # The newest is there.
    assert sign_in(client, issuer).status_code == 302


def test_a_sign_in_that_began_too_long_ago_has_expired_though_others_began_since(
    issuer: Issuer, client: Client
) -> None:
    request, now = begin_sign_in(client, issuer), time.time()
    with mock.patch("time.time", return_value=now + 599):
        later = begin_sign_in(client, issuer)
    with mock.patch("time.time", return_value=now + 605):
        assert "has expired" in post_response(client, issuer, saml_response(issuer, request)).content.decode()
        assert post_response(client, issuer, saml_response(issuer, later)).status_code == 302


# --- Where it leads -----------------------------------------------------------------------------------------------


def leads_to(browser: Client, row: Issuer, next_page: str) -> str:
    url = browser.post(reverse("sign-in-begin", args=["acme", row.pk]), {"next": next_page})["Location"]
    assert url.startswith("https://idp.acme.example/sso?")
    ((request, *_),) = signing.loads(browser.cookies["mcphub_saml"].value, salt="mcphub_saml")
    response = post_response(browser, row, saml_response(row, request))
    assert response.status_code == 302
    return str(response["Location"])


def test_an_authorization_request_is_continued_whole(issuer: Issuer, client: Client) -> None:
    assert len(AUTHORIZE) > 1000
    assert leads_to(client, issuer, AUTHORIZE) == AUTHORIZE


def test_the_longest_page_has_room_in_the_cookie(issuer: Issuer, client: Client) -> None:
    next_page = ("/docs/?state=" + secrets.token_urlsafe(company.MAX_NEXT_BYTES))[: company.MAX_NEXT_BYTES]
    assert leads_to(client, issuer, next_page) == next_page


@pytest.mark.parametrize(
    "next_page",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "javascript:alert(1)",
        "http:///evil.example",
        "/docs/" + "x" * company.MAX_NEXT_BYTES,
        "/docs/" + "\u00e9" * (company.MAX_NEXT_BYTES // 6),
        "/docs/\0",
        "",
    ],
)
def test_another_place_and_a_page_that_is_too_long_lead_to_the_first_page(
    issuer: Issuer, client: Client, next_page: str
) -> None:
    assert leads_to(client, issuer, next_page) == "/admin/"


def test_a_page_is_measured_as_it_is_sent(issuer: Issuer, client: Client) -> None:
    most = (company.MAX_NEXT_BYTES - len("/docs/")) // len("%C3%A9")
    assert leads_to(client, issuer, "/docs/" + "\u00e9" * most) == "/docs/" + "%C3%A9" * most


@pytest.mark.parametrize(
    ("state", "to"),
    [
        ("/docs/", "/docs/"),
        ("https://evil.example/", "/admin/"),
        ("//evil.example", "/admin/"),
        ("/docs/" + "x" * company.MAX_NEXT_BYTES, "/admin/"),
        ("", "/admin/"),
    ],
)
def test_a_provider_says_where_a_sign_in_that_began_there_leads(
    issuer: Issuer, client: Client, state: str, to: str
) -> None:
    Issuer.objects.update(allows_unasked=True)
    response = post_form(client, issuer, saml_response(issuer, ""), RelayState=state)
    assert (response.status_code, response["Location"]) == (302, to)


def test_where_a_sign_in_that_began_here_leads_is_not_changed_on_the_way(issuer: Issuer, client: Client) -> None:
    xml = saml_response(issuer, begin_sign_in(client, issuer))
    assert post_form(client, issuer, xml, RelayState="/admin/tools_app/tool/")["Location"] == "/docs/"
    assert SignInEvent.objects.filter(step=SignInStep.SIGNED_IN).count() == 1
