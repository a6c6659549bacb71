"""Results of tools: each kind of content, structured content, and what earlier revisions get instead (tools)."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import orjson
import pytest

from tests.wire.client import MODERN, Peer, RawClient, message_of
from tests.wire.valid import check_valid
from tools_app.catalog import authoring
from tools_app.models import Call, Tenant, Tool
from tools_app.toolkit import ToolResult, audio, embedded, image, link, text, tool

EVERY_BYTE = bytes(range(256))
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
BROKEN = "The tool 'give' returned a result that does not match its output schema."

Offer = Callable[..., list[Tool]]


@pytest.fixture
def offer_give(registries: None, offer: Offer) -> Callable[..., None]:
    """Offer a tool `give` that returns `value`. The options are those of its decorator."""

    def make(value: Any, **options: Any) -> None:
        @tool(**options)
        def give():  # type: ignore[no-untyped-def] # no hint: whatever it returns is passed on
            return value

        offer("give")

    return make


def result_of(peer: Peer) -> dict[str, Any]:
    response = peer.call("give")
    assert response.status_code == 200, response.text
    result = dict(message_of(response)["result"])
    check_valid("tools/call", peer.version, result)
    result.pop("_meta", None)
    result.pop("resultType", None)
    return result


def listed_tool(peer: Peer, name: str) -> dict[str, Any]:
    result = message_of(peer.request("tools/list"))["result"]
    check_valid("tools/list", peer.version, result)
    return {one["name"]: one for one in result["tools"]}[name]


def test_each_content_comes_as_the_revision_knows_it(peer: Peer, offer_give: Callable[..., None]) -> None:
    reference = link("docs://c", "C", mimeType="text/plain", annotations={"audience": ["user"]})
    offer_give(
        ToolResult(
            [
                {**text("words"), "annotations": {"priority": 1.0, "audience": ["assistant"]}},
                image(EVERY_BYTE, "image/png"),
                audio(EVERY_BYTE, "audio/wav"),
                embedded("docs://a", text="inner", mime_type="text/plain"),
                embedded("docs://b", blob=EVERY_BYTE),
                reference,
            ]
        )
    )
    encoded = base64.b64encode(EVERY_BYTE).decode()
    expected_audio: dict[str, Any] = {"type": "audio", "data": encoded, "mimeType": "audio/wav"}
    if peer.version < "2025-03-26":
        expected_audio = text("(a sound of the type audio/wav, which this revision of the protocol cannot carry)")
    assert result_of(peer) == {
        "content": [
            {"type": "text", "text": "words", "annotations": {"priority": 1.0, "audience": ["assistant"]}},
            {"type": "image", "data": encoded, "mimeType": "image/png"},
            expected_audio,
            {"type": "resource", "resource": {"uri": "docs://a", "mimeType": "text/plain", "text": "inner"}},
            {"type": "resource", "resource": {"uri": "docs://b", "blob": encoded}},
            reference if peer.version >= "2025-06-18" else text("C: docs://c"),
        ],
        "isError": False,
    }


def test_content_that_no_revision_knows_becomes_a_text(peer: Peer, offer_give: Callable[..., None]) -> None:
    offer_give(ToolResult([{"type": "widget"}, {**text("a"), "annotations": None}]))
    widget = '(content of the type \'widget\', which is not valid in this protocol) {"type":"widget"}'
    assert result_of(peer)["content"] == [text(widget), text("a")]


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (None, []),
        ("words", ["words"]),
        ({"a": 1}, ['{"a":1}']),
        ([1, "b"], ['[1,"b"]']),
        (date(2026, 1, 31), ['"2026-01-31"']),
    ],
)
def test_a_value_without_a_declaration_is_a_text(
    client: RawClient, offer_give: Callable[..., None], value: object, texts: list[str]
) -> None:
    offer_give(value)
    assert result_of(client.handshake()) == {"content": [text(one) for one in texts], "isError": False}


@pytest.mark.shows("tools.output-schema")
def test_structured_content_fits_its_schema_where_the_revision_has_any(
    peer: Peer, registries: None, offer: Offer
) -> None:
    @dataclass(frozen=True)
    class Shelf:
        label: str
        since: date

    @tool
    def give() -> list[Shelf]:
        return [Shelf("A", date(2026, 1, 31))]

    offer("give")
    structured = {"result": [{"label": "A", "since": "2026-01-31"}]}
    result = result_of(peer)
    assert [orjson.loads(block["text"]) for block in result["content"]] == [structured]
    if peer.version < "2025-06-18":
        assert result.keys() == {"content", "isError"}
        assert "outputSchema" not in listed_tool(peer, "give")
        return
    assert result["structuredContent"] == structured
    schema = listed_tool(peer, "give")["outputSchema"]
    assert (schema["type"], schema["required"]) == ("object", ["result"])


def test_structured_content_that_is_no_object_is_for_the_modern_era(
    peer: Peer, offer_give: Callable[..., None]
) -> None:
    offer_give(ToolResult([text("[1]")], structured=[1]))
    result = result_of(peer)
    assert result.pop("structuredContent", None) == ([1] if peer.version == MODERN else None)
    assert result == {"content": [text("[1]")], "isError": False}


def test_an_error_may_carry_structured_content(client: RawClient, offer_give: Callable[..., None]) -> None:
    offer_give(ToolResult([text("no")], structured={"why": "closed"}, is_error=True))
    result = result_of(client.handshake())
    assert result == {"content": [text("no")], "structuredContent": {"why": "closed"}, "isError": True}
    assert (Call.objects.get().outcome, Call.objects.get().is_error) == ("tool_error", True)


@pytest.mark.shows("tools.output-schema")
@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ({"n": "five"}, "n: "),
        ({}, "'n' is required"),
        ([1], "result: "),
        (None, "no structured content"),
        (ToolResult([text("5")]), "no structured content"),
        (ToolResult([text("5")], structured={"n": 5.5}), "n: "),
    ],
)
def test_a_result_that_does_not_fit_its_schema_is_an_error_of_the_tool(
    client: RawClient, offer_give: Callable[..., None], value: object, cause: str
) -> None:
    offer_give(value, output_schema=NUMBER)
    assert result_of(client.handshake()) == {"content": [text(BROKEN)], "isError": True}
    call = Call.objects.get()
    assert (call.outcome, call.is_error, call.rpc_error, call.http_status) == ("tool_error", True, None, 200)
    assert cause in call.cause
    assert orjson.loads(call.payload.texts().result)["isError"] is True


@pytest.mark.shows("tools.output-schema")
@pytest.mark.parametrize("value", [{"n": 5}, ToolResult([text("5")], structured={"n": 5, "more": True})])
def test_a_result_that_matches_its_schema_is_returned(peer: Peer, offer_give: Callable[..., None], value: Any) -> None:
    offer_give(value, output_schema=NUMBER)
    result = result_of(peer)
    assert result["isError"] is False
    structured = value.structured if isinstance(value, ToolResult) else value
    assert result.get("structuredContent") == (structured if peer.version >= "2025-06-18" else None)


@pytest.mark.shows("tools.output-schema")
def test_an_error_of_the_tool_needs_not_fit(client: RawClient, offer_give: Callable[..., None]) -> None:
    offer_give(ToolResult([text("closed")], is_error=True), output_schema=NUMBER)
    assert result_of(client.handshake()) == {"content": [text("closed")], "isError": True}


@pytest.mark.shows("tools.output-schema")
def test_the_answer_of_a_service_has_to_fit_too(client: RawClient, tenant: Tenant) -> None:
    config = {"base_url": "http://127.0.0.1:9"}
    authoring.save_tool(
        Tool(tenant=tenant, name="give", kind="http", config=config, output_schema=NUMBER, annotations={})
    )
    result = result_of(client.handshake())
    assert result["isError"] is True
    assert "structuredContent" not in result


@pytest.mark.parametrize("value", [object(), {1, 2}, {"a": object()}, {("a", "b"): 1}])
def test_a_result_that_is_no_json_is_an_error_of_the_tool(
    client: RawClient, offer_give: Callable[..., None], value: object
) -> None:
    offer_give(ToolResult([text("x")], structured=value))
    result = result_of(client.handshake())
    assert (result["isError"], result["content"]) == (True, [text(BROKEN)])
    call = Call.objects.get()
    assert (call.outcome, call.is_error) == ("tool_error", True)
    assert "not JSON" in call.cause


def test_an_output_schema_that_is_no_objects_is_for_the_modern_era(peer: Peer, offer_give: Callable[..., None]) -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    offer_give([1, 2], output_schema=numbers)
    assert listed_tool(peer, "give").get("outputSchema") == (numbers if peer.version == MODERN else None)
    result = result_of(peer)
    assert (result["content"], result["isError"]) == ([text("[1,2]")], False)
    assert result.get("structuredContent") == ([1, 2] if peer.version == MODERN else None)


# --- How a tool is listed ---------------------------------------------------------------------------------------------


def test_icons_are_listed_where_the_revision_knows_them(peer: Peer, offer_give: Callable[..., None]) -> None:
    icons = [{"src": "https://acme.example/icon.png", "mimeType": "image/png", "sizes": ["48x48"]}]
    offer_give("x", icons=icons)
    assert listed_tool(peer, "give").get("icons") == (icons if peer.version >= "2025-11-25" else None)


def test_annotations_are_listed_where_the_revision_knows_them(peer: Peer, offer_give: Callable[..., None]) -> None:
    offer_give("x", read_only=True, destructive=False, annotations={"title": "Give", "openWorldHint": True})
    expected = {"title": "Give", "openWorldHint": True, "readOnlyHint": True, "destructiveHint": False}
    assert listed_tool(peer, "give").get("annotations") == (expected if peer.version >= "2025-03-26" else None)
