"""The search of the admin: by name or id, within the user's permissions."""

import re
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.urls import reverse

from tests.worlds import World
from tools_app.models import Membership, Tool
from tools_app.web.admin import search

MAX_QUERIES = 21
DOCS = "/docs/"


def everything(client: Any, text: str) -> list[tuple[str, str]]:
    """The titles of all results in order, with their URLs."""
    response = client.get(reverse("admin:search"), {"s": text, "extended": "1"})
    assert response.status_code == 200
    links = re.findall(r'href="([^"]*)"\s+data-title="([^"]*)"', response.content.decode())
    return [(unescape(title), unescape(link)) for link, title in links]


def results_of(client: Any, text: str) -> dict[str, str]:
    """The results without the documentation."""
    return {title: link for title, link in everything(client, text) if not link.startswith(DOCS)}


@pytest.mark.parametrize("who", ["superuser", "admin", "auditor", "operator"])
def test_rows_are_found_by_a_part_of_their_name(as_: Any, page: Any, acme: World, globex: World, who: str) -> None:
    client = as_(who)
    results = results_of(client, "ACME_")
    assert results["acme_find"] == page("tool", "change", acme.tool)
    assert str(acme.secret) in results
    assert str(acme.apikey) in results_of(client, "acme laptop")
    assert all(client.get(link).status_code == 200 for link in results.values())
    for model in ("toolset", "apisource", "upstream", "issuer"):
        row = acme.row(model)
        assert page(model, "change", row) in results_of(client, row.name).values()
    assert bool(results_of(client, "globex")) == (who == "superuser")


def test_pages_and_people_are_found(as_: Any, acme: World) -> None:
    results = results_of(as_("admin"), "play")
    assert results == {"Playground": reverse("admin:playground")}
    assert "Playground" not in results_of(as_("auditor"), "play")
    assert "teammate" in results_of(as_("auditor"), "teamm")
    assert "stranger" not in results_of(as_("auditor"), "strang")


def test_records_are_found_by_their_id(as_: Any, page: Any, acme: World, globex: World) -> None:
    for model in ("call", "runningcall", "session", "tool"):
        row = acme.row(model)
        assert page(model, "change", row) in results_of(as_("operator"), f" {row.pk} ").values()
        assert not results_of(as_("operator"), str(globex.row(model).pk))
    trace = uuid4().hex
    assert results_of(as_("operator"), trace) == {
        f"Calls of the trace {trace}": f"{reverse('admin:tools_app_call_changelist')}?trace={trace}"
    }


def test_documentation_is_found_after_everything_else(as_: Any, page: Any, acme: World) -> None:
    tool = Tool.objects.create(tenant=acme.tenant, name="rotate_logs", kind="python")
    results = everything(as_("operator"), "rotate")
    assert results[:2] == [
        ("rotate_logs", page("tool", "change", tool)),
        ("Rotate an API key", "/docs/keys/#rotate-an-api-key"),
    ]
    assert len(results) == 1 + search.MAX_SECTIONS
    assert ("Tamper evidence", "/docs/audit/#tamper-evidence") in everything(as_("operator"), "hash chain")


def test_a_role_that_was_withdrawn_finds_nothing_from_then_on(as_: Any, acme: World, globex: World) -> None:
    client = as_("stranger")
    assert results_of(client, "globex_find")
    Membership.objects.filter(user__username="stranger").update(tenant=acme.tenant)
    assert not results_of(client, "globex_find")


def test_a_search_is_bounded(as_: Any, acme: World, django_assert_max_num_queries: Any) -> None:
    rows = [Tool(tenant=acme.tenant, name=f"many_{number}", kind="python") for number in range(20)]
    Tool.objects.bulk_create(rows)
    client = as_("auditor")
    with django_assert_max_num_queries(MAX_QUERIES):
        assert len(results_of(client, "many_")) == search.MAX_OF_KIND
    assert not results_of(client, "m")
    assert not results_of(client, "x" * 100_000)
    assert "No results" in client.get(reverse("admin:search"), {"s": "quokka", "extended": "1"}).content.decode()


@pytest.mark.parametrize("who", ["outsider", "anonymous"])
def test_who_may_not_enter_finds_nothing(as_: Any, acme: World, who: str) -> None:
    assert as_(who).get(reverse("admin:search"), {"s": "acme"}).status_code == 302
