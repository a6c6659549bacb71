"""Sign-in with a third-party SAML 2.0 identity provider: PyPI `pysaml2`."""

import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.identity.oauth.person import parse_form
from tests.services.conftest import Hub
from tests.services.provider import Provider
from tests.services.stack import ROOT, Stack, eventually, free_port

AFFILIATION = "urn:oid:1.3.6.1.4.1.5923.1.1.1.1"
MAIL = "urn:oid:0.9.2342.19200300.100.1.3"
RULES = [{"claims": {"groups": ["admins"]}, "role": "admin"}, {"claims": {"groups": ["staff"]}, "role": "auditor"}]
ISSUER = """
from tools_app.identity.issuers import setup
from tools_app.models import Issuer, Tenant
tenant = Tenant.objects.get(slug="demo")
tenant.allowed_networks = ["127.0.0.0/8", "::1/128"]
tenant.save()
row = Issuer(tenant=tenant, **{})
setup.check(row)
row.save()
"""


class SamlProvider(Provider):
    """The identity provider, and the hub with its issuer."""

    def login_page(self, browser: httpx.Client) -> httpx.Response:
        """Choose the company on the hub's page. Returns the provider's login page."""
        page = self.begin_sign_in(browser)
        assert str(page.url).startswith(self.url), page.text
        return page

    def saml_response(self, browser: httpx.Client, login: str, groups: str, **more: str) -> str:
        """Log in; return the response that the provider sends through the browser."""
        fields = {**parse_form(self.login_page(browser).text).fields, "login": login, "groups": groups, **more}
        page = browser.post(f"{self.url}/login", data=fields)
        assert page.status_code == 200, page.text
        assert f'action="{self.hub_url}/sign-in/saml/{self.issuer}/"' in page.text
        return parse_form(page.text).fields["SAMLResponse"]

    def post_response(self, browser: httpx.Client, saml_response: str) -> httpx.Response:
        """Post the response to the hub, as the browser does."""
        place = f"{self.hub_url}/sign-in/saml/{self.issuer}/"
        return browser.post(place, data={"SAMLResponse": saml_response}, headers={"Origin": self.url})

    def role(self, username: str) -> list[tuple[str, str]]:
        """The role and the first name of an account."""
        query = """SELECT m.role, u.first_name FROM tools_app_membership m JOIN auth_user u ON u.id = m.user_id
            WHERE u.username = %s"""
        return self.hub.stack.rows(query, username)


@pytest.fixture(scope="module")
def provider(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SamlProvider]:
    """The provider; it and the hub have each other's metadata."""
    hub, port, issuer = Hub(stack, [stack.web("uvicorn")], stack.worker()), free_port(), str(uuid4())
    program = str(Path(__file__).with_name("saml_provider.py"))
    place = str(tmp_path_factory.mktemp("provider"))
    command = [sys.executable, "-W", "ignore", program, str(port), place]
    process = subprocess.Popen(command, cwd=ROOT, env=stack.environment)
    found = SamlProvider(f"http://localhost:{port}", issuer, hub)
    try:
        eventually(lambda: _answers(found.url, process))
        fields = {
            "id": issuer,
            "name": "Acme Login",
            "protocol": "saml",
            "issuer": f"{found.url}/metadata",
            "metadata_url": f"{found.url}/metadata",
            "groups_attribute": AFFILIATION,
            "email_attribute": MAIL,
            "rules": RULES,
        }
        stack.shell(ISSUER.format(fields))
        yield found
    finally:
        process.kill()
        process.wait()


def _answers(url: str, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None
    try:
        return httpx.get(f"{url}/metadata", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    with httpx.Client(follow_redirects=True, trust_env=False, timeout=30) as client:
        yield client


@pytest.mark.parametrize(("groups", "role"), [("admins", "admin"), ("guests staff", "auditor")])
def test_a_person_of_the_company_reaches_the_admin_in_the_role_of_the_rule(
    provider: SamlProvider, browser: httpx.Client, groups: str, role: str
) -> None:
    saml_response = provider.saml_response(browser, role, groups)
    page = provider.post_response(browser, saml_response)
    assert page.status_code == 200, page.text
    assert str(page.url) == f"{provider.hub_url}/admin/tools_app/tool/"
    assert provider.role(f"{role}@demo") == [(role, role.capitalize())]
    steps = provider.hub.stack.rows("SELECT reason FROM tools_app_signinevent WHERE person_name = %s", f"{role}@demo")
    assert steps == [(f"By rule {1 if role == 'admin' else 2} of Acme Login: {role}.",)]
    # The same account is used the next time, also in another browser.
    with httpx.Client(follow_redirects=True, trust_env=False, timeout=30) as other:
        assert provider.post_response(other, provider.saml_response(other, role, groups)).status_code == 200
    subject = provider.hub.stack.rows("SELECT subject FROM tools_app_identity WHERE subject LIKE %s", f"id-{role}%")
    assert subject == [(f"id-{role}",)]


def test_a_person_whom_no_rule_fits_is_told_which_groups_were_looked_at(
    provider: SamlProvider, browser: httpx.Client
) -> None:
    page = provider.post_response(browser, provider.saml_response(browser, "gus", "guests"))
    assert page.status_code == 403
    assert "No rule of Demo fits your groups (guests)." in page.text


def test_the_login_ends_with_the_session_at_the_provider(provider: SamlProvider, browser: httpx.Client) -> None:
    assert (
        provider.post_response(browser, provider.saml_response(browser, "sue", "staff", session="5")).status_code == 200
    )
    (cookie,) = [one for one in browser.cookies.jar if one.name == "sessionid"]
    assert cookie.expires is not None
    assert 0 < cookie.expires - time.time() <= 301


def tampered(saml_response: str) -> str:
    """The response with another group."""
    text = base64.b64decode(saml_response).decode()
    assert ">staff<" in text
    return base64.b64encode(text.replace(">staff<", ">admins<").encode()).decode()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"minutes": "-5"}, "The answer has expired."),
        ({"audience": "other"}, "The answer is for another audience."),
        ({}, "The signature of Acme Login is of another certificate"),
    ],
    ids=["expired", "foreign audience", "tampered"],
)
def test_an_answer_that_is_not_good_is_refused_on_a_page_that_says_why(
    provider: SamlProvider, browser: httpx.Client, fields: dict[str, str], message: str
) -> None:
    saml_response = provider.saml_response(browser, "eve", "staff", **fields)
    page = provider.post_response(browser, saml_response if fields else tampered(saml_response))
    assert page.status_code == 403
    assert message in page.text
    assert "Try again" in page.text
    assert provider.role("eve@demo") == []
    reasons = provider.hub.stack.rows("SELECT reason FROM tools_app_signinevent WHERE step = %s", "rejected")
    assert any(message in reason for (reason,) in reasons)


def test_an_answer_that_was_used_is_refused_in_the_browser_that_keeps_its_cookies(
    provider: SamlProvider, browser: httpx.Client
) -> None:
    saml_response = provider.saml_response(browser, "rob", "staff")
    with httpx.Client(cookies=browser.cookies, follow_redirects=True, trust_env=False, timeout=30) as thief:
        assert provider.post_response(browser, saml_response).status_code == 200
        page = provider.post_response(thief, saml_response)
        assert page.status_code == 403
        assert "This answer was used before. Sign in again." in page.text
    again = provider.post_response(browser, saml_response)
    assert again.status_code == 403
    assert "began in another browser" in again.text


def test_an_answer_for_another_browser_is_refused(provider: SamlProvider, browser: httpx.Client) -> None:
    with httpx.Client(follow_redirects=True, trust_env=False, timeout=30) as victim:
        page = provider.post_response(victim, provider.saml_response(browser, "mal", "admins"))
        assert page.status_code == 403
        assert "began in another browser" in page.text
        assert victim.get(f"{provider.hub_url}/admin/tools_app/tool/").url.path.endswith("/login/")
