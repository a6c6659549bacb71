"""Third-party OpenID Connect providers: npm `oidc-provider` and PyPI `oidc-provider-mock`.

Users sign in on their pages, and programs connect with their tokens.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit
from uuid import uuid4

import httpx
import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.streamable_http import streamable_http_client

from tests.identity.oauth.person import Application, parse_form
from tests.identity.oauth.test_sdk import Storage
from tests.services.conftest import Hub, node_program
from tests.services.provider import Provider
from tests.services.stack import ROOT, Stack, eventually, free_port

ISSUER = """
from tools_app.identity.issuers import provider, setup
from tools_app.models import Issuer, Tenant
tenant = Tenant.objects.get(slug="demo")
tenant.allowed_networks = ["127.0.0.0/8", "::1/128"]
tenant.save()
for fields in {}:
    row = Issuer(tenant=tenant, **fields)
    provider.seal_secret(row, "a secret of the hub")
    setup.check(row)
    row.save()
"""
PEOPLE = [{"claims": {"groups": ["admins"]}, "role": "admin"}, {"claims": {"groups": ["staff"]}, "role": "auditor"}]
ROBOTS = [{"claims": {"client_id": ["robot"]}, "names": ["echo"]}]


class OidcProvider(Provider):
    """A running OpenID Connect provider."""

    @property
    def endpoint(self) -> str:
        return f"{self.hub_url}/t/demo/mcp"

    def token(self, audience: str, **claims: str) -> str:
        """A token of the program "robot" for a resource."""
        response = httpx.post(
            f"{self.url}/token",
            data={"grant_type": "client_credentials", "resource": audience, "scope": "mcp:read mcp:call"},
            auth=("robot", "a secret of the robot"),
            headers={"x-claims": json.dumps(claims)},
            trust_env=False,
        )
        assert response.status_code == 200, response.text
        token: str = response.json()["access_token"]
        return token


@pytest.fixture(scope="module")
def running(stack: Stack) -> Hub:
    """A hub with one web process; several are tested elsewhere."""
    return Hub(stack, [stack.web("uvicorn")], stack.worker())


def _started(running: Hub, issuer: str, command: list[str], port: int) -> Iterator[OidcProvider]:
    process = subprocess.Popen(command, cwd=ROOT, env=running.stack.environment)
    company = OidcProvider(f"http://localhost:{port}", issuer, running)
    try:
        eventually(lambda: _answers(company.url, process))
        login = {"id": issuer, "name": f"Login {port}", "client_id": "hub", "rules": PEOPLE, "accepts_assertions": True}
        direct = {"name": f"Acme Tokens {port}", "use": "direct", "rules": ROBOTS}
        running.stack.shell(ISSUER.format([{"issuer": company.url, **fields} for fields in (login, direct)]))
        yield company
    finally:
        process.kill()
        process.wait()


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    try:
        return httpx.get(f"{url}/.well-known/openid-configuration", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def npm(running: Hub, node: Path) -> Iterator[OidcProvider]:
    """The provider of the npm package."""
    port, issuer = free_port(), str(uuid4())
    hub_url = running.webs[0].url
    arguments = [str(port), f"{hub_url}/sign-in/callback/{issuer}/", hub_url]
    yield from _started(running, issuer, [node_program(node), str(node / "issuer.mjs"), *arguments], port)


@pytest.fixture(scope="module")
def pypi(running: Hub) -> Iterator[OidcProvider]:
    """The provider of the package for Python."""
    port = free_port()
    people = [{"sub": f"{name}@acme", "groups": [name], "preferred_username": name} for name in ("admins", "guests")]
    users = [part for person in people for part in ("--user-claims", json.dumps(person))]
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port), "--host", "localhost"]
    yield from _started(running, str(uuid4()), [*command, *users], port)


def signed_in(company: OidcProvider, browser: httpx.Client, **fields: str) -> httpx.Response:
    """Sign in on the provider's pages; return the hub's last page."""
    page = company.begin_sign_in(browser)
    while not str(page.url).startswith(company.hub_url):
        assert page.status_code == 200, page.text
        action = re.search(r'<form[^>]*action="([^"]+)"', page.text)
        where = urljoin(str(page.url), action[1] if action else "")
        page = browser.post(where if action else str(page.url), data={**parse_form(page.text).fields, **fields})
    return page


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    with httpx.Client(follow_redirects=True, trust_env=False, timeout=30) as client:
        yield client


def steps(company: OidcProvider, step: str) -> list[tuple[str, str]]:
    """The persons and reasons of the recorded events of a step."""
    return company.hub.stack.rows("SELECT person_name, reason FROM tools_app_signinevent WHERE step = %s", step)


@pytest.mark.parametrize("kind", ["npm", "pypi"])
def test_a_person_of_the_company_reaches_the_admin_in_the_role_of_the_rule(
    request: pytest.FixtureRequest, browser: httpx.Client, kind: str
) -> None:
    company: OidcProvider = request.getfixturevalue(kind)
    name = "admins-ann" if kind == "npm" else "admins"
    page = signed_in(company, browser, login=name, password="x", sub="admins@acme")
    assert page.status_code == 200
    assert str(page.url) == f"{company.hub_url}/admin/tools_app/tool/"
    assert "echo" in page.text
    who = f"{name}@demo"
    query = "SELECT role FROM tools_app_membership m JOIN auth_user u ON u.id = m.user_id WHERE u.username = %s"
    assert company.hub.stack.rows(query, who) == [("admin",)]
    rule = f"By rule 1 of Login {urlsplit(company.url).port}: admin."
    assert (who, rule) in steps(company, "signed_in")


@pytest.mark.parametrize("kind", ["npm", "pypi"])
def test_a_person_whom_no_rule_fits_is_told_which_groups_were_looked_at(
    request: pytest.FixtureRequest, browser: httpx.Client, kind: str
) -> None:
    company: OidcProvider = request.getfixturevalue(kind)
    page = signed_in(company, browser, login="guests-bob", password="x", sub="guests@acme")
    assert page.status_code == 403
    assert "No rule of Demo fits your groups (guests)." in page.text


def test_who_is_known_at_the_next_check_stays_with_the_groups_of_now(npm: OidcProvider, browser: httpx.Client) -> None:
    """The provider refreshes and rotates the person's tokens, without a browser."""
    signed_in(npm, browser, login="staff-cleo", password="x")
    npm.hub.stack.execute("UPDATE tools_app_identity SET checked_at = now() - interval '1 hour'")
    npm.hub.stack.shell("from tools_app.identity.issuers import directory; directory.check(lambda: True)")
    found = npm.hub.stack.rows("SELECT verified_at > now() - interval '1 minute', ended_at FROM tools_app_identity")
    assert found
    assert set(found) == {(True, None)}


async def seen_by(url: str, auth: Any) -> tuple[list[str], str]:
    """The tools and a result that the official SDK gets with this authentication."""
    async with (
        httpx2.AsyncClient(auth=auth) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("echo", {"message": "world"})
        return tools, result.content[0].text  # type: ignore[union-attr]


def test_an_application_that_the_company_manages_connects_without_asking_the_person(npm: OidcProvider) -> None:
    """With the official SDK, which requests an identity assertion (ID-JAG) each time."""
    with closing(Application(npm.hub_url, npm.endpoint)) as application:
        grants = ["authorization_code", "urn:ietf:params:oauth:grant-type:jwt-bearer"]
        metadata = {"token_endpoint_auth_method": "client_secret_post", "grant_types": grants}
        response = application.register(**metadata)
        assert response.status_code == 201, response.text
        requested: list[tuple[str, str]] = []

        async def assertion(audience: str, resource: str) -> str:
            requested.append((audience, resource))
            about = {"sub": "staff-dora", "groups": "staff", "client_id": application.client_id, "resource": resource}
            return await asyncio.to_thread(npm.token, audience, **about)

        auth = IdentityAssertionOAuthProvider(
            npm.endpoint, Storage(), application.client_id, application.secret, npm.hub_url, assertion
        )
        tools, text = asyncio.run(seen_by(npm.endpoint, auth))
    assert "echo" in tools
    assert text == "hello world"
    assert requested == [(npm.hub_url, npm.endpoint)]
    query = "SELECT role FROM tools_app_membership m JOIN auth_user u ON u.id = m.user_id WHERE u.username = %s"
    assert npm.hub.stack.rows(query, "person@demo") == [("auditor",)]


def test_a_program_connects_with_a_token_of_the_company_as_it_is(npm: OidcProvider) -> None:
    """An access token of RFC 9068 for the tenant's endpoint."""
    token = npm.token(npm.endpoint)

    async def seen() -> tuple[list[str], str]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
            Client(streamable_http_client(npm.endpoint, http_client=http)) as client,
        ):
            listed = [tool.name for tool in (await client.list_tools()).tools]
            result = await client.call_tool("echo", {"message": "world"})
            return listed, result.content[0].text  # type: ignore[union-attr]

    assert asyncio.run(seen()) == (["echo"], "hello world")
    query = "SELECT DISTINCT k.name FROM tools_app_call c JOIN tools_app_apikey k ON k.id = c.api_key_id"
    eventually(lambda: (f"Acme Tokens {urlsplit(npm.url).port}: robot",) in npm.hub.stack.rows(query))
