"""`tools/list` (tools, §Listing Tools)."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.client import MODERN, Peer, RawClient, error_of, message_of, text_of
from tools_app.catalog import authoring, compiled
from tools_app.methods import paging
from tools_app.models import Tenant, Tool

DEMO = ["calculator", "count", "echo", "echo_ip", "search_docs", "test_throw"]


def list_tools(peer: Peer, cursor: str | None = None) -> dict[str, Any]:
    response = peer.request("tools/list", {"cursor": cursor} if cursor else {})
    assert response.status_code == 200
    return message_of(response)["result"]


def names(result: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in result["tools"]]


@pytest.mark.shows("tools.list", "tools.order")
def test_tools_come_in_the_order_of_their_names(peer: Peer, offer: Callable[..., object]) -> None:
    offer(*reversed(DEMO))
    result = list_tools(peer)
    assert names(result) == DEMO
    assert "nextCursor" not in result


@pytest.mark.shows("tools.access")
def test_tools_of_another_tenant_and_disabled_ones_are_not_shown(
    peer: Peer, offer: Callable[..., Any], other_tenant: Tenant
) -> None:
    authoring.add_code_tools(other_tenant, ["calculator"])
    _, disabled = offer("count", "echo")
    authoring.set_enabled(disabled, enabled=False)
    assert names(list_tools(peer)) == ["count"]


def test_a_stored_tool_whose_pattern_is_refused_by_now_is_left_out_and_takes_no_other_with_it(
    client: RawClient, offer: Callable[..., object], tenant: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    offer("echo")
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "(?=.*x)z"}}}
    for number in range(5):
        name = f"find{number or ''}"
        authoring.save_tool(
            Tool(tenant=tenant, name=name, kind="http", input_schema=schema, config={"base_url": "https://a.example"})
        )
    peer = client.peer(MODERN)
    assert names(list_tools(peer)) == ["echo"]
    assert error_of(peer.call("find", {"x": "x" * 60_000}))["code"] == -32602
    assert text_of(peer.call("echo", {"message": "hello"})) == "hello hello"
    (record,) = [record for record in caplog.records if record.name == compiled.__name__]
    assert record.levelname == "WARNING"
    # One line, whatever the number of rows.
    assert record.getMessage().startswith("5 rows of tenant acme are not offered: tool find: ")
    assert record.getMessage().count("properties.x.pattern") == 3
    assert record.getMessage().endswith("; and 2 more")


@pytest.mark.shows("pagination.stable-cursors")
def test_pages_hold_each_tool_once(peer: Peer, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 4)
    offer(*DEMO)
    first = list_tools(peer)
    second = list_tools(peer, first["nextCursor"])
    assert (names(first), names(second)) == (DEMO[:4], DEMO[4:])
    assert "nextCursor" not in second


def test_a_last_page_that_is_full_has_no_successor(
    client: RawClient, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 3)
    offer(*DEMO)
    peer = client.handshake()
    assert "nextCursor" not in list_tools(peer, list_tools(peer)["nextCursor"])


@pytest.mark.shows("pagination.stable-cursors")
def test_a_page_goes_on_after_a_tool_that_is_gone(
    client: RawClient, offer: Callable[..., Any], eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    tools = offer(*DEMO)
    peer = client.handshake()
    cursor = list_tools(peer)["nextCursor"]
    authoring.delete(tools[1])
    eventually(lambda: "count" not in names(list_tools(peer)))
    assert names(list_tools(peer, cursor)) == ["echo", "echo_ip"]


@pytest.mark.shows("pagination.bad-cursor")
@pytest.mark.parametrize("cursor", ["", "echo", "eyJhIjoxfQ", 5, ["echo"], {"a": 1}])
def test_a_cursor_that_the_hub_did_not_give_is_refused(client: RawClient, cursor: object) -> None:
    refusal = {"code": -32602, "message": "params.cursor is not one that this hub gave."}
    modern, session = client.modern("tools/list", {"cursor": cursor}), client.handshake()
    assert (modern.status_code, error_of(modern)) == (400, refusal)
    in_session = session.request("tools/list", {"cursor": cursor})
    assert (in_session.status_code, error_of(in_session)) == (200, refusal)


def test_a_cursor_that_was_changed_is_refused(
    peer: Peer, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 1)
    offer(*DEMO)
    cursor = list_tools(peer)["nextCursor"]
    tampered = ("A" if cursor[0] != "A" else "B") + cursor[1:]
    assert error_of(peer.request("tools/list", {"cursor": tampered}))["code"] == -32602


@pytest.mark.shows("lifecycle.keeps-version", "lifecycle.must-keep-version")
def test_each_revision_gets_the_fields_that_it_knows(peer: Peer, offer: Callable[..., object]) -> None:
    offer("calculator")
    (tool,) = list_tools(peer)["tools"]
    expected = {"name", "description", "inputSchema"}
    expected |= {"annotations"} if peer.version >= "2025-03-26" else set()
    expected |= {"title", "outputSchema"} if peer.version >= "2025-06-18" else set()
    assert tool.keys() == expected
    assert tool["inputSchema"]["required"] == ["operation", "a", "b"]


def test_annotations_title_and_output_schema_are_those_of_the_code(
    client: RawClient, offer: Callable[..., object]
) -> None:
    offer("calculator")
    (tool,) = list_tools(client.peer("2025-11-25"))["tools"]
    assert tool["title"] == "Calculator"
    assert tool["annotations"] == {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
    assert tool["outputSchema"]["properties"]["result"]["type"] == "number"


def test_caching_hints_are_for_the_modern_era_alone(peer: Peer) -> None:
    result = list_tools(peer)
    own = {"ttlMs", "cacheScope", "resultType", "_meta"} if peer.is_modern else set()
    assert result.keys() == {"tools"} | own
    assert result["tools"] == []
    if peer.is_modern:
        assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (60_000, "private", "complete")


def test_a_change_is_seen_within_a_second(
    peer: Peer, offer: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    assert names(list_tools(peer)) == []
    offer("echo")
    eventually(lambda: names(list_tools(peer)) == ["echo"], 1.0)
