"""A new kind of tools is its folder and a line in the registry: everything else asks the kind."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests.rest import Api
from tests.wire.client import MODERN, RawClient, message_of
from tools_app.catalog import compiled
from tools_app.catalog.kinds import registry
from tools_app.catalog.revisions import source_of
from tools_app.catalog.serializers import ToolDocument, tool_contents
from tools_app.identity import personal_tokens
from tools_app.models import Call, Tenant, Tool
from tools_app.server.embedded import EmbeddedHub
from tools_app.tenant_config.document import read
from tools_app.tenant_config.export import export
from tools_app.tenant_config.plan import apply, plan

SCHEMA = '{"type": "object"}'


@pytest.fixture
def constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind `constant`, as if its line were in the registry when the hub started."""
    monkeypatch.setitem(registry.KINDS, "constant", ("Constant", "tests.catalog.constant"))
    monkeypatch.setattr(Tool._meta.get_field("kind"), "choices", registry.choices())
    monkeypatch.setattr(ToolDocument, "contents", tool_contents())


@pytest.fixture
def said(hub: EmbeddedHub, key: str) -> Callable[[str], str]:
    """Call a tool over Streamable HTTP, and return the text of its result."""

    def call(name: str) -> str:
        peer = RawClient(hub.url, key).peer(MODERN)
        text: str = message_of(peer.request("tools/call", {"name": name}))["result"]["content"][0]["text"]
        return text

    return call


def test_a_tool_of_a_new_kind_is_created_over_rest_and_called(
    constants: None, tenant: Tenant, said: Callable[[str], str]
) -> None:
    token = personal_tokens.issue(User.objects.create_superuser("root"), "script")[1]
    api = Api({"Authorization": f"Bearer {token}"})
    body = {"tenant": tenant.slug, "name": "hello", "kind": "constant", "config": {"answer": 1}}
    assert "Write a text." in api.request("POST", "tools/", body).content.decode()
    created = api.post("tools/", body | {"config": {"answer": "Hello!"}})
    assert api.get("tools/?kind=python")["results"] == []
    assert created["config"] == {"answer": "Hello!"}
    assert said("hello") == "Hello!"
    assert source_of(Call.objects.get()) == "a constant"


def test_it_is_created_on_its_page_and_cloned(constants: None, tenant: Tenant, said: Callable[[str], str]) -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    form = {"tenant": tenant.pk, "name": "hello", "enabled": "on", "answer": "Hi!", "input_schema": SCHEMA}
    form |= {"task": "never", "timeout_seconds": "10"}
    assert browser.post(f"{reverse('admin:tools_app_tool_add')}?kind=constant", form).status_code == 302
    tool = Tool.objects.get()
    assert "Hi!" in browser.get(reverse("admin:tools_app_tool_change", args=[tool.pk])).content.decode()
    copy = {"tenant": tenant.pk, "name": "again", "enabled": "on"}
    assert browser.post(reverse("admin:tools_app_tool_clone_tool", args=[tool.pk]), copy).status_code == 302
    assert (said("hello"), said("again")) == ("Hi!", "Hi!")


def test_a_tenants_file_describes_it(constants: None, tenant: Tenant, said: Callable[[str], str]) -> None:
    text = "mcphub: 1\ntools:\n  hello:\n    description: Greets.\n    answer: Hey!\n"
    planned = plan(tenant, read(text), None)
    assert not planned.problems
    apply(planned)
    tenant.refresh_from_db()
    assert "    answer: Hey!\n" in export(tenant)
    assert said("hello") == "Hey!"


def test_a_tool_of_a_kind_that_is_gone_is_left_out_with_the_reason(tenant: Tenant, offer: Callable[..., Any]) -> None:
    offer("echo")
    gone = Tool.objects.create(tenant=tenant, name="hello", kind="constant", config={"answer": "Hello!"})
    tenant.refresh_from_db()
    catalog = compiled.of_tenant(tenant)
    assert list(catalog.tools) == ["echo"]
    assert catalog.not_offered[gone.pk] == "This hub has no tools of the kind 'constant'."
