"""The page with connection instructions for a key, and the same on the page of a new key."""

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse

from tools_app.tenants import keys
from tools_app.tenants.snippets import clients


def connect(client: Any, world: Any) -> Any:
    return client.get(reverse("admin:connect", args=[world.apikey.pk]))


@pytest.mark.parametrize("who", ["superuser", "admin", "auditor", "operator"])
def test_every_member_reads_how_to_connect(as_: Any, acme: Any, who: str) -> None:
    response = connect(as_(who), acme)
    text = response.content.decode()
    assert response.status_code == 200
    for snippet in clients.for_key("acme", "http://testserver/t/acme/mcp"):
        assert f'data-snippet="{snippet.id}"' in text
    assert acme.key not in text
    assert acme.apikey.digest not in text


@pytest.mark.parametrize(("who", "there"), [("admin", True), ("auditor", False), ("operator", False)])
def test_only_who_runs_the_tenant_may_test_with_a_pass(as_: Any, acme: Any, who: str, there: bool) -> None:
    text = connect(as_(who), acme).content.decode()
    assert (reverse("admin:playground_pass") in text) is there
    assert (f"{reverse('admin:playground')}?key={acme.apikey.pk}" in text) is there


@pytest.mark.parametrize(("who", "status"), [("stranger", 404), ("outsider", 302), ("anonymous", 302)])
def test_nobody_else_does(as_: Any, acme: Any, who: str, status: int) -> None:
    assert connect(as_(who), acme).status_code == status


def test_a_key_that_is_no_good_is_said_to_be(as_: Any, acme: Any) -> None:
    assert "is revoked or expired" not in connect(as_("admin"), acme).content.decode()
    keys.revoke(acme.apikey)
    assert "is revoked or expired" in connect(as_("admin"), acme).content.decode()


def test_a_keys_page_leads_there(as_: Any, page: Any, acme: Any) -> None:
    address = re.search(
        r'href="([^"]*/connect/?)"', as_("admin").get(page("apikey", "change", acme.apikey)).content.decode()
    )
    assert address
    assert as_("admin").get(address[1], follow=True).redirect_chain[-1:] in ([], [(connect_address(acme), 302)])


def connect_address(world: Any) -> str:
    return reverse("admin:connect", args=[world.apikey.pk])


def test_the_page_of_a_new_key_shows_every_snippet_with_the_key(as_: Any, page: Any, acme: Any) -> None:
    form = {"tenant": acme.tenant.pk, "name": "CI robot", "expires_at_0": "", "expires_at_1": ""}
    response = as_("admin").post(page("apikey", "add"), form, follow=True)
    text = response.content.decode()
    key = re.search(r'id="issued-key"[^>]*>(mcphub_[\w-]{43})<', text)
    assert key
    blocks = dict(re.findall(r'data-snippet="([\w-]+)".*?<pre[^>]*>(.*?)</pre>', text, re.DOTALL))
    expected = clients.for_key("acme", "http://testserver/t/acme/mcp", key[1])
    assert list(blocks) == [snippet.id for snippet in expected]
    assert {name for name, block in blocks.items() if key[1] in block} == {one.id for one in expected if one.has_key}
    link = re.search(r'href="(cursor://[^"]+)"', text)
    assert link
    assert parse_qs(urlsplit(link[1].replace("&amp;", "&")).query)["name"] == ["acme"]
    assert "no-store" in response["Cache-Control"]
