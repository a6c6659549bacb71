"""The documentation that the hub serves: permissions, links, search, and the links from pages to it."""

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import pytest
from django.conf import settings
from django.urls import reverse

from tests.tenants.admin.matrix import READ, ROLES
from tools_app.web.documentation import pages
from tools_app.web.documentation.links import HISTORY, LINKS, address_of, link_to
from tools_app.web.documentation.search import MAX_QUERY_LENGTH
from tools_app.web.documentation.views import MAX_RESULTS

START = "/docs/"
SLUGS = list(pages.pages())
README = Path(settings.BASE_DIR, "README.md").read_text()


class Anchors(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "a" and attributes.get("href"):
            self.links.append(str(attributes["href"]))
        if attributes.get("id"):
            self.ids.append(str(attributes["id"]))


@pytest.mark.parametrize("role", ROLES)
def test_whoever_may_enter_the_admin_may_read_it(as_: Any, role: str) -> None:
    may_read = role in READ | {"stranger"}
    for address in (START, "/docs/keys/", "/docs/?q=key"):
        response = as_(role).get(address)
        assert response.status_code == (200 if may_read else 302)
        assert may_read or response["Location"].startswith("/admin/login/?next=/docs/")


def test_a_page_that_does_not_exist_is_not_found(as_: Any) -> None:
    for slug in ("nothing", "CONTRIBUTING", "..%2Fmanage.py"):
        assert as_("operator").get(f"/docs/{slug}/").status_code == 404


def test_every_file_has_its_place_in_the_groups_of_the_readme() -> None:
    files = {path.stem for path in Path(settings.BASE_DIR, "docs").glob("*.md")}
    rows = re.findall(r"^\| (\w[\w ]*) \| (\[.*) \|$", README, re.MULTILINE)
    topics = {topic: re.findall(r"\(docs/([\w-]+)\.md\)", cell) for topic, cell in rows}

    assert {slug for slugs in pages.GROUPS.values() for slug in slugs} == files | {pages.INTRODUCTION}
    assert {topic: list(slugs) for topic, slugs in pages.GROUPS.items() if topic} == topics


def test_every_page_is_in_the_sidebar_and_on_the_start_page(as_: Any) -> None:
    text = as_("operator").get(START).content.decode()
    for slug in SLUGS:
        assert text.count(f'href="{reverse("docs-page", args=[slug])}"') == 2, slug


@pytest.mark.parametrize("slug", SLUGS)
def test_every_link_of_a_page_leads_somewhere(slug: str) -> None:
    here = reverse("docs-page", args=[slug])
    found = Anchors(pages.pages()[slug].html)
    ids = {reverse("docs-page", args=[each]): {h.anchor for h in page.headings} for each, page in pages.pages().items()}
    lost = []
    for link in found.links:
        place, anchor = urldefrag(urljoin(here, link))
        if not place.startswith("http") and (place not in ids or (anchor and anchor not in ids[place])):
            lost.append(link)

    assert lost == []
    assert len(found.ids) == len(set(found.ids))
    assert {heading.anchor for heading in pages.pages()[slug].headings} <= set(found.ids)


@pytest.mark.slow
@pytest.mark.parametrize("slug", SLUGS)
def test_a_page_is_shown_with_its_contents(as_: Any, slug: str) -> None:
    page = pages.pages()[slug]
    text = as_("operator").get(reverse("docs-page", args=[slug])).content.decode()

    assert f"<title> {page.title} | Documentation | mcphub</title>" in unescape(text)
    assert page.html in text
    for heading in page.sections:
        assert f'<a href="#{heading.anchor}">' in text
    assert "```" not in text
    assert "<!-- " not in page.html


def test_search_finds_sections_and_marks_the_words(as_: Any) -> None:
    text = as_("operator").get(START, {"q": "rotate a key"}).content.decode()

    assert 'href="/docs/keys/#rotate-an-api-key"' in text
    assert re.search(r"<mark>[Rr]otate</mark>", text)
    assert 'value="rotate a key"' in text


def test_search_escapes_what_was_asked_for(as_: Any) -> None:
    text = as_("operator").get(START, {"q": "<script>alert(1)</script> key"}).content.decode()

    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_search_is_bounded(as_: Any) -> None:
    client = as_("operator")
    found = client.get(START, {"q": "x" * MAX_QUERY_LENGTH + " key"})
    assert not found.context["results"]
    assert "No section has these words" in found.content.decode()
    assert len(client.get(START, {"q": "the hub"}).context["results"]) == MAX_RESULTS
    assert client.get(START, {"q": "\0"}).context["query"] == ""


def test_pages_load_nothing_from_other_hosts(as_: Any) -> None:
    text = as_("operator").get("/docs/architecture/").content.decode()
    loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"', text)

    assert len(loaded) > 5
    assert all(address.startswith("/static/") for pair in loaded for address in pair if address)


@pytest.mark.parametrize("name", [*LINKS, "tools_app_tool_history"])
def test_what_a_page_links_to_exists(name: str) -> None:
    address = address_of(name)
    assert address
    slug, _, anchor = address.partition("#")
    assert slug in SLUGS
    assert not anchor or pages.pages()[slug].heading(anchor), address
    found = link_to(address)
    assert found
    assert found.url == f"/docs/{slug}/" + (f"#{anchor}" if anchor else "")


def test_a_models_page_links_to_the_closest_section() -> None:
    assert address_of("tools_app_tool_clone_tool") == LINKS["tools_app_tool"]
    assert address_of("tools_app_alertdelivery_change") == LINKS["tools_app_alertdelivery"]
    assert address_of("tools_app_apikey_history") == HISTORY
    assert address_of("unknown") is None


def test_pages_work_where_no_documentation_is_installed(as_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "pages", dict)
    client = as_("admin")

    assert client.get(START).status_code == 200
    assert client.get("/docs/keys/").status_code == 404
    assert client.get("/admin/").context["documentation"] is None


def test_the_api_browser_leads_to_the_documentation_and_back(as_: Any) -> None:
    browser = as_("operator").get("/api/v1/docs/").content.decode()
    assert {'href="/docs/api/"', 'href="/admin/"'} <= set(re.findall(r'href="[^"]+"', browser))
    assert 'href="/api/v1/docs/"' in as_("operator").get("/docs/api/").content.decode()


def test_error_pages_lead_to_the_documentation_for_those_who_may_read_it(as_: Any, page: Any, acme: Any) -> None:
    refused = as_("auditor").get(page("tool", "delete", acme.tool)).content.decode()
    assert 'href="/docs/people/#roles"' in refused
    assert 'href="/docs/"' in as_("auditor").get("/nothing/").content.decode()
    assert "/docs/" not in as_("anonymous").get("/nothing/").content.decode()
