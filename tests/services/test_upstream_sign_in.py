"""Sign-in for upstreams with complete authorization servers: another hub, and npm `oidc-provider`."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from tests.conftest import hub
from tests.identity.oauth.person import Person, parse_form
from tests.services.conftest import node_program
from tests.services.stack import ROOT, Running, Stack, eventually, free_port
from tests.upstreams.conftest import fresh_connections
from tests.wire.client import RawClient, message_of
from tests.wire.conftest import client, make_client
from tools_app.models import Membership, Role, Tenant, Upstream, UpstreamCredential
from tools_app.server.embedded import EmbeddedHub
from tools_app.upstreams.credentials import refresh, store
from tools_app.upstreams.credentials.store import Tokens

__all__ = ["client", "fresh_connections", "hub", "make_client"]

PASSWORD = "a-long-enough-password"
PAGE = "/connections/upstreams"
SETUP = """
from django.contrib.auth.models import User
from tools_app.models import Membership, Role, Tenant
person = User.objects.create_user("ben", password="{password}")
Membership.objects.create(user=person, tenant=Tenant.objects.get(slug="demo"), role=Role.OPERATOR)
"""
END = """
from tools_app.identity.oauth import connections
from tools_app.models import Connection
for connection in Connection.objects.all():
    connections.revoke(connection)
"""


@pytest.fixture
def near(tenant: Tenant) -> Tenant:
    """The tenant, which may call loopback addresses."""
    tenant.allowed_networks = ["127.0.0.0/8", "::1/128"]
    tenant.save()
    return tenant


@pytest.fixture
def ann(hub: EmbeddedHub, near: Tenant) -> Iterator[Person]:
    """An admin of the tenant, with a browser."""
    user = User.objects.create_user("ann", password=PASSWORD)
    Membership.objects.create(user=user, tenant=near, role=Role.ADMIN)
    person = Person(hub.url, "ann", PASSWORD)
    yield person
    person.close()


@pytest.fixture(scope="module")
def other(stack: Stack) -> Running:
    """The other hub, with an account for Ann's colleague Ben."""
    stack.shell(SETUP.format(password=PASSWORD))
    return stack.web("uvicorn")


@pytest.fixture(scope="module")
def protected(node: Path) -> Iterator[str]:
    """The URL of a server of the Python SDK that accepts tokens of the npm provider only."""
    ports = free_port(), free_port()
    issuer, url = f"http://localhost:{ports[0]}", f"http://127.0.0.1:{ports[1]}/mcp"
    commands = (
        [node_program(node), str(node / "issuer.mjs"), str(ports[0]), "http://localhost/nowhere", "http://localhost"],
        [sys.executable, str(Path(__file__).parent / "protected.py"), issuer, url],
    )
    started = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    try:
        for one in (f"{issuer}/.well-known/openid-configuration", url):
            eventually(lambda url=one: _answers(url))
        yield url
    finally:
        for process in started:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code < 500
    except httpx.TransportError:
        return False


@pytest.fixture
def add(near: Tenant) -> Callable[..., Upstream]:
    """Add an upstream with the command: `add(url)`, and `add(url, "--accept")` after the sign-in."""

    def run(url: str, *more: str) -> Upstream:
        call_command("add_upstream", "--tenant", near.slug, "--name", "far", "--url", url, *more, stdout=StringIO())
        return Upstream.objects.get(name="far")

    return run


def leave(person: Person, upstream: Upstream) -> str:
    """Press *Sign in*, and return the redirect URL."""
    place = f"{person.base}{PAGE}/{upstream.pk}"
    fields = parse_form(person.open(place).text).fields
    data = {**fields, "entry": f"{upstream.pk}/", "save": "1"}
    response = person.browser.post(place, data=data, headers={"Origin": person.base})
    if response.is_redirect:
        response = person.open(urljoin(place, response.headers["location"]))
    found = re.search(r'href="([^"]*code_challenge[^"]*)"', response.text)
    assert found, re.sub(r"<[^>]*>|\s+", " ", response.text)[-1500:]
    return unescape(found[1])


def called(client: RawClient, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    result: dict[str, Any] = message_of(client.modern("tools/call", params))["result"]
    return result


def token_of(upstream: Upstream) -> str:
    return Tokens.read(store.unseal(UpstreamCredential.objects.get(upstream=upstream))).access_token


def refreshed(upstream: Upstream) -> None:
    """Make the token due, and refresh it as the hub's housekeeping does."""
    UpstreamCredential.objects.filter(upstream=upstream).update(refresh_at=timezone.now() - timedelta(seconds=1))
    async_to_sync(refresh.refresh_due)()


def test_another_hub_is_an_upstream_with_its_own_sign_in(
    other: Running, stack: Stack, ann: Person, add: Callable[..., Upstream], client: RawClient
) -> None:
    url = f"{other.url}/t/demo/mcp"
    upstream = add(url)
    assert upstream.credential == "oauth"
    ben = Person(other.url, "ben", PASSWORD)
    try:
        back = ben.connect(leave(ann, upstream))
    finally:
        ben.close()
    assert "Signed in for far" in ann.open(back).text

    add(url, "--accept")
    assert called(client, "echo", message="Ann")["content"][0]["text"] == "hello Ann"
    first = token_of(upstream)
    refreshed(upstream)
    assert token_of(upstream) != first
    assert called(client, "echo", message="again")["content"][0]["text"] == "hello again"

    stack.shell(stack.shell(END))
    ended = eventually(lambda: (result := called(client, "echo", message="no")).get("isError") and result)
    assert f"{PAGE}/{upstream.pk}" in ended["content"][0]["text"]


def test_a_server_of_the_python_sdk_takes_the_tokens_of_a_provider_of_npm(
    protected: str, ann: Person, add: Callable[..., Upstream], client: RawClient
) -> None:
    upstream = add(protected)
    with httpx.Client(follow_redirects=False, trust_env=False, timeout=30) as browser:
        page = browser.get(leave(ann, upstream))
        while not page.headers.get("location", "").startswith(ann.base):
            if page.is_redirect:
                page = browser.get(urljoin(str(page.url), page.headers["location"]))
                continue
            assert page.status_code == 200, page.text
            action = re.search(r'<form[^>]*action="([^"]+)"', page.text)
            fields = {**parse_form(page.text).fields, "login": "ann", "password": "any"}
            page = browser.post(urljoin(str(page.url), action[1] if action else ""), data=fields)
    assert "Signed in for far" in ann.open(page.headers["location"]).text

    add(protected, "--accept")
    assert called(client, "who")["content"][0]["text"] == "ann"
    first = token_of(upstream)
    refreshed(upstream)
    assert token_of(upstream) != first
    assert called(client, "who")["content"][0]["text"] == "ann"
