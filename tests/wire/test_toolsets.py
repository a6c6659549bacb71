"""Toolsets of keys, and the search tools of tenants and keys with a search presentation."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import reset_process_state
from tests.wire.channels import OPENERS, TRANSPORTS
from tests.wire.client import MODERN, Peer, RawClient, error_of, message_of
from tests.wire.task_tools import EXTENSION, NAME_FORM, Gate, register
from tests.wire.test_public_tenants import listening_stream
from tools_app.catalog import authoring, compiled
from tools_app.methods.permissions import item_of
from tools_app.models import ApiKey, Call, CallPayload, Tenant, Tool, Toolset
from tools_app.tenants import keys
from tools_app.toolkit import ToolContext, tool

VERSIONS = pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", MODERN])
SEARCH_TOOLS = ["call_tool", "describe_tool", "find_tools"]

MakeClient = Callable[..., RawClient]
MakeKey = Callable[..., RawClient]


@pytest.fixture(autouse=True)
def catalog(tenant: Tenant, offer: Callable[..., object]) -> None:
    """More tools than a toolset has."""
    offer("echo", "calculator", "search_docs", "count")


@pytest.fixture
def reading(tenant: Tenant) -> Toolset:
    """A toolset of an exact name and a pattern."""
    return Toolset.objects.create(tenant=tenant, name="Reading", tools=["echo", "search_*"])


@pytest.fixture
def with_key(make_client: MakeClient, tenant: Tenant) -> MakeKey:
    """A client of a new key: `with_key(toolset=reading)`."""
    return lambda **settings: make_client(keys.issue(tenant, "client", **settings)[1])


def tool_names(peer: Peer) -> list[str]:
    return [one["name"] for one in message_of(peer.request("tools/list"))["result"]["tools"]]


def search_names(peer: Peer, query: str, **more: Any) -> list[str]:
    result = message_of(peer.call("find_tools", {"query": query, **more}))["result"]
    assert not result["isError"], result
    body = result.get("structuredContent") or json.loads(result["content"][0]["text"])
    return [one["name"] for one in body["tools"]]


def call_by_name(peer: Peer, name: str, /, **arguments: Any) -> dict[str, Any]:
    return message_of(peer.call("call_tool", {"name": name, "arguments": arguments}))


# --- Toolsets ---------------------------------------------------------------------------------------------------------


@VERSIONS
def test_a_key_with_a_toolset_lists_and_calls_only_its_tools(with_key: MakeKey, reading: Toolset, version: str) -> None:
    peer = with_key(toolset=reading).peer(version)
    assert tool_names(peer) == ["echo", "search_docs"]
    assert peer.result("echo", {"message": "x"})["content"][0]["text"] == "hello x"
    response_for_hidden, response_for_unknown = (peer.call(name, {}) for name in ("calculator", "never"))
    assert response_for_hidden.text.replace("calculator", "never") == response_for_unknown.text
    assert error_of(response_for_hidden)["code"] == -32602


def test_a_toolset_never_gives_a_key_more_than_its_names(with_key: MakeKey, reading: Toolset) -> None:
    peer = with_key(toolset=reading, tool_patterns=["count", "echo"]).peer(MODERN)
    assert tool_names(peer) == ["echo"]
    assert {error_of(peer.call(name, {}))["code"] for name in ("count", "search_docs")} == {-32602}


def test_the_toolset_of_another_tenant_gives_nothing(
    with_key: MakeKey, reading: Toolset, other_tenant: Tenant, make_client: MakeClient, other_key: str
) -> None:
    authoring.add_code_tools(other_tenant, ["echo"])
    ApiKey.objects.filter(digest=keys.digest_of(other_key)).update(toolset=reading)
    reset_process_state()
    peer = make_client(other_key).peer(MODERN)
    assert tool_names(peer) == []
    assert error_of(peer.call("echo", {"message": "x"}))["code"] == -32602


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_clients_with_a_toolset_are_notified_of_its_changes_and_others_are_not(
    with_key: MakeKey, reading: Toolset, tenant: Tenant, version: str
) -> None:
    other = Toolset.objects.create(tenant=tenant, name="Counting", tools=["count"])
    client = with_key(toolset=reading)
    with listening_stream(client, version) as stream:
        other.tools = ["echo"]
        other.save()
        reading.tools = ["count"]
        reading.save()
        assert stream.next()["method"] == "notifications/tools/list_changed"
        assert tool_names(client.peer(version)) == ["count"]
        authoring.set_enabled(Tool.objects.get(name="echo"), enabled=False)
        # The change of the other toolset would have come first.
        assert stream.next()["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_another_toolset_of_a_key_ends_its_streams_and_holds_within_a_second(
    with_key: MakeKey, reading: Toolset, eventually: Callable[..., object], version: str
) -> None:
    client = with_key()
    with listening_stream(client, version) as stream:
        ApiKey.objects.filter(digest=keys.digest_of(client.key or "")).update(toolset=reading)
        stream.read_to_end()
    eventually(lambda: tool_names(client.peer(version)) == ["echo", "search_docs"], 1.5)


def test_a_key_finds_no_task_of_a_tool_that_its_toolset_lost(
    registries: None, with_key: MakeKey, offer: Callable[..., object], tenant: Tenant
) -> None:
    register(Gate(), background=False)
    offer("quick")
    toolset = Toolset.objects.create(tenant=tenant, name="Tasks", tools=["quick"])
    peer = with_key(toolset=toolset).handshake("2025-11-25")
    params = {"name": "quick", "arguments": {"word": "x"}, "task": {}}
    task = message_of(peer.request("tools/call", params))["result"]["task"]["taskId"]
    assert "result" in message_of(peer.request("tasks/get", {"taskId": task}))
    toolset.tools = ["echo"]
    toolset.save()
    reset_process_state()
    assert error_of(peer.request("tasks/get", {"taskId": task}))["code"] == -32602
    assert message_of(peer.request("tasks/list"))["result"]["tasks"] == []


# --- Search -----------------------------------------------------------------------------------------------------------


@VERSIONS
def test_where_tools_are_searched_they_are_found_described_and_called(with_key: MakeKey, version: str) -> None:
    peer = with_key(presentation="search").peer(version)
    listed = message_of(peer.request("tools/list"))["result"]["tools"]
    assert [one["name"] for one in listed] == SEARCH_TOOLS
    assert search_names(peer, "search the documentation")[0] == "search_docs"
    list_peer = with_key().peer(version)
    definition = next(
        one for one in message_of(list_peer.request("tools/list"))["result"]["tools"] if one["name"] == "echo"
    )
    described = peer.result("describe_tool", {"name": "echo"})
    assert json.loads(described["content"][0]["text"]) == definition
    assert call_by_name(peer, "echo", message="x")["result"] == peer.result("echo", {"message": "x"})


def test_a_call_by_call_tool_is_recorded_as_a_call_of_its_target(with_key: MakeKey) -> None:
    peer = with_key(presentation="search").peer(MODERN)
    call_by_name(peer, "echo", message="x")
    row = Call.objects.get(tool_name="echo")
    assert (row.method, row.tool.name, row.outcome) == ("tools/call (call_tool)", "echo", "ok")
    assert '"message":"x"' in CallPayload.objects.get(call=row).texts().arguments
    search_names(peer, "echo")
    row = Call.objects.get(tool_name="find_tools")
    assert (row.method, row.tool_id, row.outcome) == ("tools/call", None, "ok")


def test_only_permitted_tools_are_found_described_and_called(with_key: MakeKey, reading: Toolset) -> None:
    peer = with_key(presentation="search", toolset=reading, tool_patterns=["search_*", "count"]).peer(MODERN)
    words = "echo calculator search docs count numbers"
    assert search_names(peer, words) == ["search_docs"]
    for name in ("echo", "count", "calculator", "never"):
        assert peer.result("describe_tool", {"name": name})["isError"]
        assert call_by_name(peer, name)["error"]["message"] == f"Unknown tool: '{name}'"
    assert not Call.objects.filter(outcome="ok", tool__isnull=False).exists()


def test_a_key_that_may_not_list_tools_neither_searches_nor_describes_them_but_calls(with_key: MakeKey) -> None:
    peer = with_key(presentation="search", methods=["tools/call"]).peer(MODERN)
    for name, arguments in (("find_tools", {"query": "echo"}), ("describe_tool", {"name": "echo"})):
        assert error_of(peer.call(name, arguments))["data"] == {"scope": "methods", "method": "tools/list"}
    assert not call_by_name(peer, "echo", message="x")["result"]["isError"]


def test_the_score_of_a_tool_does_not_depend_on_tools_that_are_hidden(
    with_key: MakeKey, tenant: Tenant, offer: Callable[..., object]
) -> None:
    peer = with_key(presentation="search", tool_patterns=["echo", "count"]).peer(MODERN)

    def search() -> Any:
        return peer.result("find_tools", {"query": "echo count message"})["structuredContent"]

    before = search()
    Tool.objects.exclude(name__in=["echo", "count"]).delete()
    reset_process_state()
    assert search() == before
    assert len(before["tools"]) == 2


@pytest.mark.parametrize(("name", "arguments"), [("find_tools", {}), ("describe_tool", {"name": 1}), ("call_tool", {})])
def test_invalid_arguments_of_the_search_tools_are_refused_like_those_of_any_tool(
    with_key: MakeKey, name: str, arguments: dict[str, Any]
) -> None:
    client = with_key(presentation="search")
    assert client.peer(MODERN).result(name, arguments)["isError"]
    assert error_of(client.handshake("2025-06-18").call(name, arguments))["code"] == -32602
    assert Call.objects.filter(tool_name=name, outcome="rejected").count() == 2


def test_call_tool_calls_no_search_tool_and_search_tools_are_none_elsewhere(with_key: MakeKey) -> None:
    peer = with_key(presentation="search").peer(MODERN)
    assert "Unknown tool" in call_by_name(peer, "call_tool", name="echo")["error"]["message"]
    listing = with_key().peer(MODERN)
    assert {error_of(listing.call(name, {}))["code"] for name in SEARCH_TOOLS} == {-32602}


def test_aliases_find_a_tool_and_pinned_tools_are_listed(with_key: MakeKey, eventually: Callable[..., object]) -> None:
    client = with_key(presentation="search")
    peer = client.peer(MODERN)
    assert search_names(peer, "reverberation") == []
    row = Tool.objects.get(name="echo")
    with listening_stream(client, MODERN) as stream:
        row.aliases, row.pinned = ["reverberations"], True
        row.save()
        assert stream.next()["method"] == "notifications/tools/list_changed"
    assert search_names(peer, "reverberation") == ["echo"]
    assert tool_names(peer) == ["call_tool", "describe_tool", "echo", "find_tools"]
    assert row.revision == Tool.objects.get(name="echo").revision


def test_auto_searches_only_lists_above_the_threshold_of_the_tenant(
    with_key: MakeKey, tenant: Tenant, reading: Toolset, eventually: Callable[..., object]
) -> None:
    peer_of_all, peer_of_few = with_key().peer(MODERN), with_key(toolset=reading).peer(MODERN)
    assert len(tool_names(peer_of_all)) == 4
    Tenant.objects.filter(pk=tenant.pk).update(presentation="auto", search_above_tokens=300)
    cost = sum(one.tokens for one in tools_of(tenant))
    of_few = sum(one.tokens for one in tools_of(tenant) if one.name in ("echo", "search_docs"))
    Tenant.objects.filter(pk=tenant.pk).update(search_above_tokens=cost - 1)
    assert of_few < cost
    eventually(lambda: tool_names(peer_of_all) == SEARCH_TOOLS, 1.5)
    assert tool_names(peer_of_few) == ["echo", "search_docs"]
    Tenant.objects.filter(pk=tenant.pk).update(search_above_tokens=cost)
    eventually(lambda: len(tool_names(peer_of_all)) == 4, 1.5)


def tools_of(tenant: Tenant) -> list[Any]:
    tenant.refresh_from_db()
    return list(compiled.of_tenant(tenant).tools.values())


@VERSIONS
def test_a_target_reports_progress_asks_and_fails_as_if_it_was_called_directly(
    registries: None, with_key: MakeKey, offer: Callable[..., object], version: str
) -> None:
    @tool
    async def steps(count: int, context: ToolContext) -> dict[str, int]:
        for number in range(count):
            context.progress(number + 1, count)
            await asyncio.sleep(0)
        if count == 1:
            raise ValueError("one")
        return {"count": count}

    offer("steps")
    peer = with_key(presentation="search").peer(version)
    params = {
        "name": "call_tool",
        "arguments": {"name": "steps", "arguments": {"count": 2}},
        "_meta": {"progressToken": "p"},
    }
    with peer.stream("tools/call", params) as stream:
        messages = stream.read_to_end()
    assert messages[0]["params"] == {"progressToken": "p", "progress": 1, "total": 2}
    assert messages[-1]["result"] == peer.result("steps", {"count": 2})
    assert call_by_name(peer, "steps", count=1)["result"]["isError"]


def test_a_target_asks_and_goes_on_in_a_second_round(
    registries: None, with_key: MakeKey, offer: Callable[..., object]
) -> None:
    register(Gate(), background=False)

    @tool
    async def greet(context: ToolContext) -> str:
        answer = await context.elicit("Who?", NAME_FORM)
        return f"hello {answer.content['name']}"

    offer("greet", "must")
    peer = with_key(presentation="search").peer(MODERN, {"elicitation": {}})
    params = {"name": "call_tool", "arguments": {"name": "greet", "arguments": {}}}
    input_required = message_of(peer.request("tools/call", params))["result"]
    assert input_required["resultType"] == "input_required", input_required
    answers = {name: {"action": "accept", "content": {"name": "Ann"}} for name in input_required["inputRequests"]}
    retry_params = {**params, "requestState": input_required["requestState"], "inputResponses": answers}
    result = message_of(peer.request("tools/call", retry_params))["result"]
    assert result["content"][0]["text"] == "hello Ann", result
    task_peer = with_key(presentation="search").peer(MODERN, EXTENSION)
    task = call_by_name(task_peer, "must", word="x")["result"]
    assert task["resultType"] == "task", task


def test_a_scope_decides_about_the_target_of_a_call_and_not_about_the_search_tools() -> None:
    assert item_of("tools/call", {"name": "call_tool", "arguments": {"name": "echo"}}) == ("tool", "echo")
    assert item_of("tools/call", {"name": "call_tool", "arguments": {"name": 1}}) is None
    assert item_of("tools/call", {"name": "find_tools", "arguments": {"name": "echo"}}) is None
    assert item_of("prompts/get", {"name": "find_tools"}) == ("prompt", "find_tools")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_channels_search_too(with_key: MakeKey, transport: str) -> None:
    with OPENERS[transport](with_key(presentation="search")) as channel:
        channel.negotiate("2024-11-05")
        assert [one["name"] for one in channel.response_to("tools/list")["result"]["tools"]] == SEARCH_TOOLS
        called = channel.tool_response("call_tool", {"name": "echo", "arguments": {"message": "x"}}, id=2)
        assert called["result"]["content"][0]["text"] == "hello x"
