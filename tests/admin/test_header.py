"""The header of a page: its breadcrumbs, which end with the page's own title."""

import re
from html import unescape
from typing import Any

import pytest
from django.urls import reverse

from tests.admin.conftest import World


def path_of(response: Any) -> list[str]:
    """The breadcrumbs, without the icons between them."""
    (heading,) = re.findall(r"<h1.*?</h1>", response.content.decode(), re.DOTALL)
    without_icons = re.sub(r'<span class="[^"]*material-symbols.*?</span>', "|", heading, flags=re.DOTALL)
    return [unescape(part).strip() for part in re.sub(r"<[^>]+>", "", without_icons).split("|")]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tools_app_tool_changelist", ["Tools"]),
        ("tools_app_tool_add", ["Tools", "Add HTTP tool"]),
        ("tools_app_resource_add_python_resources", ["Resources", "Add Python resources"]),
        ("tools_app_call_changelist", ["Calls"]),
        ("tools_app_personaltoken_changelist", ["Personal tokens"]),
        ("retention", ["Retention"]),
        ("index", ["Overview"]),
    ],
)
def test_the_path_ends_with_the_page(as_: Any, acme: World, name: str, path: list[str]) -> None:
    assert path_of(as_("admin").get(reverse(f"admin:{name}"))) == path


def test_the_path_of_an_object_ends_with_its_name(as_: Any, page: Any, acme: World) -> None:
    assert path_of(as_("admin").get(page("tool", "change", acme.tool))) == ["Tools", "acme_find"]
    url = reverse("admin:tools_app_apikey_revoke_key", args=[acme.apikey.pk])
    assert path_of(as_("admin").get(url)) == ["API keys", "Revoke API key?"]


def test_a_list_counts_its_results_when_it_is_filtered(as_: Any, page: Any, acme: World) -> None:
    client, address = as_("admin"), page("session", "changelist")
    assert path_of(client.get(address)) == ["Sessions"]
    (filtered,) = path_of(client.get(address, {"q": "acme"}))
    assert "1 result (Show all)" in filtered


def test_the_buttons_of_the_sidebar_are_buttons(as_: Any, acme: World) -> None:
    text = as_("operator").get("/admin/").content.decode()
    for label in ("Show or hide the sidebar", "Open the menu"):
        assert re.search(rf'<button type="button"[^>]* aria-label="{label}"', text)


def test_the_sidebar_marks_the_page_that_is_open(as_: Any, page: Any, acme: World) -> None:
    def marked(address: str) -> list[str]:
        return re.findall(r'<a href="([^"]*)"[^>]* aria-current="page"', as_("admin").get(address).content.decode())

    tools = page("tool", "changelist")
    assert marked("/admin/") == ["/admin/"]
    assert marked(tools) == [tools]
    assert marked(page("tool", "change", acme.tool)) == [tools]
    assert marked("/docs/") == ["/docs/"]
