"""Shaped results, and how clients read the whole result."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.client import MODERN, Peer, RawClient, error_of, message_of
from tests.wire.task_tools import EXTENSION, get_task
from tools_app.catalog import authoring, shaping
from tools_app.catalog.tool_api.results import ToolResult, text
from tools_app.core.process.fair_threads import FairThreads, QueueFull
from tools_app.methods.permissions import item_of
from tools_app.models import Call, CallPayload, Resource, Tenant, Tool
from tools_app.tenants import keys
from tools_app.toolkit import tool

PEOPLE = {"people": [{"id": number, "name": f"Zoë {number}", "api_key": "k-1234"} for number in range(50)]}
MASK = "people[*].{id: id}"
VERSIONS = pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", MODERN])


@pytest.fixture
def shape(registries: None, offer: Callable[..., list[Tool]]) -> Callable[..., Tool]:
    """Set how the results of a tool are shaped: `shape("people", result_items=2)`."""

    @tool(read_only=True)
    def people() -> dict[str, Any]:
        """List people."""
        return PEOPLE

    @tool(read_only=True)
    def blocks() -> ToolResult:
        """Answer with many texts that are JSON."""
        return ToolResult([text(json.dumps({"id": f"{10**24 + number}", "a": ["x"] * 9})) for number in range(300)])

    @tool(read_only=True)
    def essay() -> str:
        """Write much."""
        return "é" * 100

    def shaped(name: str, **settings: Any) -> Tool:
        (row,) = offer(name)
        for field, value in settings.items():
            setattr(row, field, value)
        return authoring.save_tool(row)

    return shaped


def uri_in(result: dict[str, Any]) -> str:
    last = result["content"][-1]
    return last["uri"] if last["type"] == "resource_link" else f"result://{last['text'].partition('result://')[2]}"


def whole_of(name: str) -> Any:
    call = Call.objects.get(tool_name=name)
    return json.loads(CallPayload.objects.get(pk=call.pk).texts().result)


def read(peer: Peer, uri: str) -> list[str]:
    response = message_of(peer.request("resources/read", {"uri": uri}))
    return [one["text"] for one in response["result"]["contents"]]


@VERSIONS
def test_a_client_receives_what_the_mask_selects_and_reads_the_whole(
    client: RawClient, shape: Callable[..., Tool], version: str
) -> None:
    row = shape("people", result_mask=MASK, result_items=2)
    peer = client.peer(version)
    result = peer.result("people")
    assert json.loads(result["content"][0]["text"]) == [{"id": 0}, {"id": 1}]
    (listed,) = message_of(peer.request("tools/list"))["result"]["tools"]
    assert "outputSchema" not in listed
    call = Call.objects.get(tool_name="people")
    assert (call.outcome, call.tool_revision, call.is_error) == ("ok", row.revision, False)
    assert 0 < (call.shaped_size or 0) < call.result_size
    assert json.loads(CallPayload.objects.get(pk=call.pk).texts().result)["structuredContent"]["people"][49]["id"] == 49
    (whole,) = read(peer, uri_in(result))
    found = json.loads(whole)["structuredContent"]["people"]
    assert len(found) == 50
    assert {one["api_key"] for one in found} == {"[redacted]"}


def test_a_whole_result_is_read_in_parts_of_whole_characters(client: RawClient, shape: Callable[..., Tool]) -> None:
    shape("people", result_mask=MASK)
    peer = client.peer(MODERN)
    uri = uri_in(peer.result("people"))
    (whole,) = read(peer, uri)
    collected, offset = b"", 0
    while offset < len(whole.encode()):
        text, position = read(peer, f"{uri}?offset={offset}&length=1501")
        assert len(text.encode()) <= 1501
        collected += text.encode()
        offset = int(position.partition(" to ")[2].partition(" of ")[0])
    assert collected.decode() == whole


def test_a_long_text_is_cut_between_characters_and_says_so(client: RawClient, shape: Callable[..., Tool]) -> None:
    shape("essay", result_bytes=101)
    first, _ = client.peer(MODERN).result("essay")["content"]
    assert first["text"] == f"{'é' * 50}\n[The text was cut after 101 of 200 bytes.]"


def test_a_result_within_the_bounds_is_sent_as_it_is(client: RawClient, shape: Callable[..., Tool]) -> None:
    shape("essay", result_bytes=200, result_mask="people", result_items=1)
    assert client.peer(MODERN).result("essay")["content"] == [{"type": "text", "text": "é" * 100}]
    call = Call.objects.get()
    assert call.shaped_size is None
    assert error_of(client.peer(MODERN).request("resources/read", {"uri": f"result://{call.pk}"}))["code"] == -32602


def test_a_mask_that_does_not_fit_a_result_is_reported_beside_it(client: RawClient, shape: Callable[..., Tool]) -> None:
    shape("people", result_mask="sort(people)", result_items=1)
    result = client.peer(MODERN).result("people")
    assert result["structuredContent"] == {"people": PEOPLE["people"][:1]}
    assert "was not filtered" in result["content"][1]["text"]
    assert "not applied" in Call.objects.get().cause


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("|".join(["[@,@]"] * 14), "takes more than"),
        ("to_number(id)", "cannot be written"),
    ],
    ids=["too large", "too long a number"],
)
def test_a_mask_that_makes_too_much_of_a_result_fails_no_call(
    client: RawClient, shape: Callable[..., Tool], mask: str, message: str
) -> None:
    shape("blocks", result_mask=mask)
    result = client.peer(MODERN).result("blocks")
    assert [block["text"] for block in result["content"][:300]] == [
        block["text"] for block in whole_of("blocks")["content"]
    ]
    assert message in result["content"][300]["text"]
    assert Call.objects.get().outcome == "ok"


def test_only_its_caller_reads_a_whole_result_while_it_may_use_the_tool(
    client: RawClient, shape: Callable[..., Tool], tenant: Tenant, make_client: Callable[..., RawClient]
) -> None:
    row = shape("people", result_mask=MASK)
    peer = client.peer(MODERN)
    uri = uri_in(peer.result("people"))
    other = make_client(keys.issue(tenant, "other")[1]).peer(MODERN)
    error_of_other = error_of(other.request("resources/read", {"uri": uri}))
    error_of_unknown = error_of(
        peer.request("resources/read", {"uri": "result://00000000-0000-0000-0000-000000000000"})
    )
    assert (error_of_other["code"], error_of_other["message"]) == (
        error_of_unknown["code"],
        error_of_unknown["message"],
    )
    payload = CallPayload.objects.get(pk=Call.objects.get(tool_name="people").pk)
    CallPayload.objects.filter(pk=payload.pk).delete()
    assert error_of(peer.request("resources/read", {"uri": uri}))["message"] == error_of_unknown["message"]
    payload.save(force_insert=True)
    assert len(read(peer, uri)) == 1
    authoring.set_enabled(row, enabled=False)
    assert error_of(peer.request("resources/read", {"uri": uri}))["message"] == error_of_unknown["message"]


@pytest.mark.parametrize("background", [False, True], ids=["here", "in-a-worker"])
@pytest.mark.parametrize("task", ["never", "required"])
def test_results_of_background_calls_and_tasks_are_shaped(
    client: RawClient, shape: Callable[..., Tool], eventually: Callable[..., Any], background: bool, task: Any
) -> None:
    @tool(name="labour", background=background, task=task)
    def labour() -> dict[str, Any]:
        """List people, somewhere else."""
        return PEOPLE

    shape("labour", result_mask=MASK, result_items=2)
    peer = client.peer(MODERN, EXTENSION)
    result = peer.result("labour")
    if task == "required":
        task_id = result["taskId"]
        eventually(lambda: get_task(peer, task_id)["status"] == "completed")
        result = get_task(peer, task_id)["result"]
    assert json.loads(result["content"][0]["text"]) == [{"id": 0}, {"id": 1}]
    call = Call.objects.get(tool_name="labour")
    assert 0 < (call.shaped_size or 0) < call.result_size
    (whole,) = read(peer, uri_in(result))
    assert len(json.loads(whole)["structuredContent"]["people"]) == 50


def test_a_result_that_the_log_cuts_is_offered_as_what_is_kept(
    client: RawClient, shape: Callable[..., Tool], settings: Any
) -> None:
    settings.MCPHUB_MAX_PAYLOAD_BYTES = 1000
    shape("people", result_mask=MASK)
    peer = client.peer(MODERN)
    link = peer.result("people")["content"][-1]
    assert (link["name"].startswith("First 1000 bytes of "), link["size"]) == (True, 1000)
    text, position = read(peer, link["uri"])
    assert len(text.encode()) <= 1000
    kept = len(text.encode())
    assert f"The audit log keeps no more than the first {kept} of " in position
    for uri in (f"{link['uri']}?offset={kept}", f"{link['uri']}?offset={kept + 100}&length=10"):
        error = error_of(peer.request("resources/read", {"uri": uri}))
        assert (error["code"], error["data"]["kept"]) == (-32602, kept)
        assert "MCPHUB_MAX_PAYLOAD_BYTES" in error["message"]
        assert error["data"]["size"] > kept


def test_a_resource_of_a_similar_name_needs_its_own_permission(client: RawClient, tenant: Tenant) -> None:
    authoring.save_resource(Resource(tenant=tenant, uri="result://own", name="own", kind="text", text="words"))
    assert read(client.peer(MODERN), "result://own") == ["words"]
    assert item_of("resources/read", {"uri": "result://own"}) == ("resource", "result://own")
    assert not item_of("resources/read", {"uri": "result://00000000-0000-0000-0000-000000000000?length=5"})


def test_while_too_many_results_are_shaped_a_further_one_is_not_shown(
    client: RawClient, shape: Callable[..., Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raise_queue_full(*_about: object) -> object:
        raise QueueFull

    shape("people", result_mask=MASK)
    monkeypatch.setattr(FairThreads, "run", raise_queue_full)
    peer = client.peer("2026-07-28")
    result = peer.result("people")
    assert result["content"][0]["text"] == shaping.BUSY
    assert "structuredContent" not in result
    assert "people" in read(peer, uri_in(result))[0]
    call = Call.objects.get(tool_name="people")
    assert (call.outcome, call.cause) == ("ok", "Too many results of the tenant waited to be shaped.")
