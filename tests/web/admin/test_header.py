"""The header of a page: its breadcrumbs, which end with the page's own title."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles.finders import find
from django.urls import reverse

from tests.worlds import World


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


def test_the_number_of_results_is_apart_from_the_name_of_the_list(as_: Any, page: Any, acme: World) -> None:
    text = as_("admin").get(page("tool", "changelist"), {"q": "zzz"}).content.decode()
    (heading,) = re.findall(r"<h1.*?</h1>", text, re.DOTALL)
    # The style sheet lets the one give way, and not the other.
    (counted,) = re.findall(r'<span class="hub-count[^>]*>(.*?)</span>', heading, re.DOTALL)
    assert "0 results" in counted
    assert "Tools" not in counted
    rules = Path(find("tools_app/web/admin.css")).read_text()
    assert "h1:has(> .hub-count) > :not(.hub-count) { flex-shrink: 0;" in rules


def test_the_buttons_of_the_sidebar_are_buttons(as_: Any, acme: World) -> None:
    text = as_("operator").get("/admin/").content.decode()
    for label in ("Show or hide the sidebar", "Open the menu"):
        assert re.search(rf'<button type="button"[^>]* aria-label="{label}"', text)


def test_the_sidebar_scrolls_to_the_open_page_when_a_phone_opens_it(as_: Any, acme: World) -> None:
    client = as_("operator")
    for address in ("/admin/", "/docs/"):
        assert "$watch('sidebarMobileOpen', () => $nextTick(scrollSidebarNav))" in client.get(address).content.decode()
    # A function of unfold's, without a promise that it stays.
    assert "function scrollSidebarNav()" in Path(find("unfold/js/app.js")).read_text()


def test_each_link_of_the_sidebar_has_an_icon_of_its_own(as_: Any, acme: World) -> None:
    groups = as_("superuser").get("/admin/").context["sidebar_navigation"]
    icons = [link["icon"] for group in groups for link in group["items"]]
    assert len(set(icons)) == len(icons)


def test_the_sidebar_marks_the_page_that_is_open(as_: Any, page: Any, acme: World) -> None:
    def marked(address: str) -> list[str]:
        return re.findall(r'<a href="([^"]*)"[^>]* aria-current="page"', as_("admin").get(address).content.decode())

    tools = page("tool", "changelist")
    assert marked("/admin/") == ["/admin/"]
    assert marked(tools) == [tools]
    assert marked(page("tool", "change", acme.tool)) == [tools]
    assert marked("/docs/") == ["/docs/"]
