"""Upstreams in the REST API: creating, checking, and accepting reviewed items."""

from typing import Any

import pytest

from tests.rest import Api
from tests.upstreams import scripted
from tests.web_services import Service
from tests.worlds import LISTED, World
from tools_app.models import Tool, Upstream, UpstreamCredential, UpstreamItem


@pytest.fixture
def tools() -> list[dict[str, Any]]:
    return [LISTED]


@pytest.fixture
def upstream(rest: Any, acme: World, serve: Any, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """A reachable upstream, created and checked by the API."""
    server: Service = serve(scripted.modern(lambda _request, _message: "looked", lambda: tools))
    acme.tenant.allowed_networks = ["127.0.0.0/8"]
    acme.tenant.save()
    api: Api = rest("admin")
    row = api.post("upstreams/", {"tenant": "acme", "name": "far", "prefix": "far", "url": f"{server.url}/mcp"})
    assert row["status"] is None
    checked: dict[str, Any] = api.post(f"upstreams/{row['id']}/check/", status=200)
    return checked


def item_of(api: Api, upstream: dict[str, Any]) -> dict[str, Any]:
    (found,) = api.get(f"upstream-items/?upstream={upstream['id']}")["results"]
    item: dict[str, Any] = found
    return item


def test_what_an_upstream_offers_is_read_and_accepted(rest: Any, upstream: dict[str, Any]) -> None:
    api = rest("admin")
    status = upstream["status"]
    assert (status["problem"], status["era"], status["left_out"]) == ("", "modern", [])
    item = item_of(api, upstream)
    assert (item["state"], item["proposed"], item["accepted"]) == ("new", LISTED, None)
    accepted = api.post(f"upstream-items/{item['id']}/accept/", {"digest": item["digest"]}, status=200)
    assert (accepted["state"], accepted["proposed"], accepted["accepted"]) == ("accepted", None, LISTED)
    assert Tool.objects.get(kind="upstream").name == "far_lend"


def test_another_definition_than_the_reviewed_one_is_not_accepted(
    rest: Any, upstream: dict[str, Any], tools: list[dict[str, Any]]
) -> None:
    api = rest("admin")
    item = item_of(api, upstream)
    tools[0] = {**LISTED, "description": "Lends everything."}
    api.post(f"upstreams/{upstream['id']}/check/", status=200)
    api.post(f"upstream-items/{item['id']}/accept/", {"digest": item["digest"]}, status=409)
    assert not Tool.objects.filter(kind="upstream").exists()


def test_a_new_item_names_the_removed_one_that_it_may_be(
    rest: Any, upstream: dict[str, Any], tools: list[dict[str, Any]], django_assert_max_num_queries: Any
) -> None:
    api = rest("admin")
    item = item_of(api, upstream)
    assert item["former_name"] == ""
    api.post(f"upstream-items/{item['id']}/accept/", {"digest": item["digest"]}, status=200)
    other = {**LISTED, "name": "unlike_anything", "description": "Something else."}
    tools[:] = [{**LISTED, "name": "borrow_out"}, other]
    api.post(f"upstreams/{upstream['id']}/check/", status=200)

    shown = api.get(f"upstream-items/?upstream={upstream['id']}")["results"]
    assert {one["name"]: (one["state"], one["former_name"]) for one in shown} == {
        "lend": ("removed", ""),
        "borrow_out": ("new", "lend"),
        "unlike_anything": ("new", ""),
    }
    renamed = next(one for one in shown if one["name"] == "borrow_out")
    assert api.get(f"upstream-items/{renamed['id']}/")["former_name"] == "lend"
    # The number of queries does not grow with the number of items.
    tools += [{**other, "name": f"another_{at}"} for at in range(20)]
    api.post(f"upstreams/{upstream['id']}/check/", status=200)
    with django_assert_max_num_queries(12):
        api.get(f"upstream-items/?upstream={upstream['id']}")


def test_a_definition_of_a_tool_is_not_written_by_hand(rest: Any, upstream: dict[str, Any]) -> None:
    api = rest("admin")
    item = item_of(api, upstream)
    api.post(f"upstream-items/{item['id']}/accept/", {"digest": item["digest"]}, status=200)
    tool = Tool.objects.get(kind="upstream")
    assert api.patch(f"tools/{tool.pk}/", {"enabled": False, "timeout_seconds": 3.0})["timeout_seconds"] == 3.0
    problem = api.patch(f"tools/{tool.pk}/", {"description": "Mine."}, status=400)
    assert "Defined by the upstream" in str(problem)
    new = {"tenant": "acme", "name": "own", "kind": "upstream"}
    assert "Add the upstream" in str(api.post("tools/", new, status=400))


def test_a_failing_check_says_why(rest: Any, acme: World) -> None:
    checked = rest("admin").post(f"upstreams/{acme.upstream.pk}/check/", status=200)
    assert "its address is private or reserved" in checked["status"]["problem"]
    assert checked["status"]["reached_at"] is None


def test_an_upstream_is_deleted_with_its_items(rest: Any, upstream: dict[str, Any]) -> None:
    assert rest("admin").request("DELETE", f"upstreams/{upstream['id']}/").status_code == 204
    assert not UpstreamItem.objects.filter(upstream=upstream["id"]).exists()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"url": "nowhere"}, "url"),
        ({"url": "https://x.example", "command": ["sh"]}, "command"),
        ({"url": "", "transport": "stdio", "command": ["sh"]}, "command"),
        ({"url": "https://x.example", "headers": {"Mcp-Session-Id": "x"}}, "headers"),
        ({"url": "https://x.example", "prefix": "a b"}, "prefix"),
        ({"url": "http://testserver/t/acme/mcp"}, "url"),
    ],
)
def test_a_mistake_names_its_field(rest: Any, acme: World, fields: dict[str, Any], field: str) -> None:
    problem = rest("admin").post("upstreams/", {"tenant": "acme", "name": "new", **fields}, status=400)
    assert field in str(problem["errors"])


def test_only_admins_enter_the_credential_that_all_of_a_tenant_use(rest: Any, acme: World) -> None:
    Upstream.objects.filter(pk=acme.upstream.pk).update(credential="header", credential_owner="tenant")
    body = {"upstream": str(acme.upstream.pk), "value": "hush"}
    for role, status in {"stranger": 400, "auditor": 403, "operator": 403}.items():
        assert rest(role).request("POST", "upstream-credentials/", body).status_code == status, role
        assert not UpstreamCredential.objects.exists(), role
    for role in ("admin", "superuser"):
        created = rest(role).post("upstream-credentials/", body)
        assert (created["tenant"], created["person"], created["key"]) == ("acme", None, None)
        assert "hush" not in str(created)
    assert UpstreamCredential.objects.count() == 1
