"""Parameters that clients repeat in headers (2026-07-28, Streamable HTTP, §Custom Headers from Tool Parameters)."""

import base64
import json
from collections.abc import Callable
from typing import Annotated, Any

import httpx
import pytest
from django.core.exceptions import ImproperlyConfigured

from tests.wire.client import (
    MODERN,
    Peer,
    RawClient,
    call_params,
    error_of,
    head_of,
    modern_request,
    raw_connection,
    read_response,
    text_of,
)
from tools_app.models import Call
from tools_app.toolkit import header, tool

pytestmark = pytest.mark.servers

Offer = Callable[..., Any]
MISMATCH = -32020
SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "place": {
            "type": "object",
            "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "zone": {"type": ["string", "null"]},
            },
        },
        "note": {"type": "string"},
    },
}


@pytest.fixture(autouse=True)
def marked(registries: None, offer: Offer) -> None:
    @tool(name="place", input_schema=SCHEMA)
    async def take(count: Any = None, dry: Any = None, place: Any = None, note: Any = None) -> str:
        return json.dumps([count, dry, place, note])

    offer("place")


@pytest.fixture
def peer(client: RawClient) -> Peer:
    return client.peer(MODERN)


def called(peer: Peer, arguments: dict[str, Any], **headers: str) -> httpx.Response:
    fields = {f"Mcp-Param-{name.replace('_', '-')}": value for name, value in headers.items()}
    return peer.call("place", arguments, headers=fields)


def encoded(value: str) -> str:
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def is_taken(response: httpx.Response, *values: Any) -> bool:
    return json.loads(text_of(response)) == [*values, *[None] * (4 - len(values))]


def is_refused(response: httpx.Response) -> bool:
    return (response.status_code, error_of(response)["code"]) == (400, MISMATCH)


def test_headers_that_repeat_their_arguments_let_a_call_pass(peer: Peer) -> None:
    arguments = {"count": 42, "dry": True, "place": {"region": "eu", "zone": "b"}, "note": "n"}
    response = called(peer, arguments, Count="42", Dry_Run="true", Region="eu")
    assert is_taken(response, 42, True, {"region": "eu", "zone": "b"}, "n")


@pytest.mark.parametrize("note", [{}, {"note": "free"}])
def test_a_parameter_that_is_not_there_has_no_header(peer: Peer, note: dict[str, str]) -> None:
    assert is_taken(called(peer, note), None, None, None, note.get("note"))
    assert is_taken(called(peer, {"place": {}}), None, None, {})


@pytest.mark.parametrize("name", ["count", "dry", "place"])
def test_a_parameter_that_is_null_has_no_header(peer: Peer, name: str) -> None:
    response = called(peer, {name: None})
    assert response.status_code == 200
    assert "Invalid arguments" in text_of(response)
    assert is_refused(called(peer, {name: None}, Count="1", Dry_Run="true", Region="eu"))


def test_a_header_that_is_missing_or_says_something_else_is_refused(peer: Peer) -> None:
    cases: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"count": 42}, {}),
        ({"count": 42}, {"Count": "43"}),
        ({"count": 42}, {"Count": ""}),
        ({"count": 42}, {"Count": "forty-two"}),
        ({"count": 42}, {"Count": "0x2a"}),
        ({"count": 42}, {"Count": "4.2e1"}),
        ({"count": 42}, {"Count": "42.5"}),
        ({"count": 42}, {"Count": "4_2"}),
        ({"count": 2**53}, {"Count": str(2**53)}),
        ({}, {"Count": "42"}),
        ({}, {"Count": ""}),
        ({"note": "eu"}, {"Region": "eu"}),
        ({"place": {"zone": "eu"}}, {"Region": "eu"}),
        ({"place": {"region": "eu"}}, {}),
        ({"place": {"region": "eu"}}, {"Region": "EU"}),
        ({"place": {"region": "eu"}}, {"Region": "us"}),
        ({"place": {"region": "eu"}}, {"Region": "=?base64?!!!?="}),
        ({"place": {"region": "eu"}}, {"Region": "=?BASE64?ZXU=?="}),
        ({"place": {"region": "eu"}}, {"Region": encoded("us")}),
        ({"place": {"region": "=?base64?ZXU=?="}}, {"Region": "=?base64?ZXU=?="}),
        ({"dry": True}, {"Dry_Run": "True"}),
        ({"dry": True}, {"Dry_Run": "1"}),
        ({"dry": False}, {"Dry_Run": "true"}),
        ({"dry": False}, {}),
        ({"dry": True, "count": 1}, {"Dry_Run": "true", "Count": "2"}),
    ]
    for arguments, headers in cases:
        assert is_refused(called(peer, arguments, **headers)), (arguments, headers)
    records = list(Call.objects.values_list("outcome", "rpc_error", "http_status"))
    assert records == [("rejected", MISMATCH, 400)] * len(cases)


@pytest.mark.shows("streamable-http.parameter-numbers")
@pytest.mark.parametrize(
    ("value", "sent"),
    [(42, "42.0"), (42, "+42"), (42, "042"), (-7, "-7"), (0, "-0"), (2**53 - 1, "9007199254740991"), (42.0, "42")],
)
def test_whole_numbers_are_compared_as_numbers(peer: Peer, value: float, sent: str) -> None:
    assert is_taken(called(peer, {"count": value}, Count=sent), value)


@pytest.mark.parametrize("value", ["eu", "", "Hello, 世界", " padded ", "line\nbreak", "=?base64?ZXU=?=", "a, b"])
def test_any_text_may_come_in_base64(peer: Peer, value: str) -> None:
    response = called(peer, {"place": {"region": value}}, Region=encoded(value))
    assert is_taken(response, None, None, {"region": value})


def test_names_of_headers_have_no_case_and_other_parameters_are_left_alone(peer: Peer) -> None:
    headers = {"MCP-PARAM-COUNT": "42", "mcp-param-other": "ignored"}
    assert is_taken(peer.call("place", {"count": 42}, headers=headers), 42)


def sent_raw(client: RawClient, region: str, *headers: tuple[str, str]) -> tuple[int, dict[str, Any]]:
    """The response to a call with exactly these headers in addition to the common ones."""
    body, fields = modern_request("tools/call", call_params("place", {"place": {"region": region}}))
    content = json.dumps(body).encode()
    known = client.headers({**fields, "Content-Length": str(len(content))})
    with raw_connection(client.url) as connection:
        connection.sendall(head_of(client.url, "POST", [*known.items(), *headers]) + content)
        with read_response(connection) as response:
            return response.status, json.loads(response.read())


@pytest.mark.parametrize("values", [("eu", "us"), ("us", "eu"), ("eu", "eu")])
def test_a_header_that_comes_twice_is_not_what_either_of_them_says(client: RawClient, values: tuple[str, str]) -> None:
    status, body = sent_raw(client, "eu", *(("Mcp-Param-Region", value) for value in values))
    assert (status, body["error"]["code"]) == (400, MISMATCH)


def test_a_header_with_characters_that_none_may_have_is_refused(client: RawClient) -> None:
    status, body = sent_raw(client, "café", ("Mcp-Param-Region", "café"))
    assert (status, body["error"]["code"]) == (400, MISMATCH)
    assert sent_raw(client, "cafe", ("Mcp-Param-Region", "cafe"))[0] == 200


def test_clients_of_the_handshake_era_know_nothing_of_it(session: Peer) -> None:
    assert is_taken(called(session, {"count": 42}), 42)
    assert is_taken(called(session, {"count": 42}, Count="43"), 42)


def test_the_marks_stand_in_the_list_of_tools(peer: Peer) -> None:
    (listed,) = peer.request("tools/list").json()["result"]["tools"]
    assert listed["inputSchema"] == SCHEMA


@pytest.mark.shows("streamable-http.parameter-annotations")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "two words"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "line\r\nbreak"}}},
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"properties": {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}},
        {"properties": {name: {"type": "string", "x-mcp-header": name} for name in ("a", "A")}},
    ],
)
def test_a_tool_with_a_mark_that_cannot_be_is_not_taken(schema: dict[str, Any]) -> None:
    with pytest.raises(ImproperlyConfigured, match="x-mcp-header"):

        @tool(input_schema={"type": "object", **schema})
        async def marked_badly(a: Any = None) -> str:
            return str(a)


@pytest.mark.shows("streamable-http.parameter-annotations")
def test_a_hint_can_be_marked_if_a_header_can_hold_its_values(peer: Peer, offer: Offer) -> None:
    @tool
    async def hinted(region: Annotated[str, header("Region")]) -> str:
        return region

    offer("hinted")
    assert text_of(peer.call("hinted", {"region": "eu"}, headers={"Mcp-Param-Region": "eu"})) == "eu"
    assert is_refused(peer.call("hinted", {"region": "eu"}))
    with pytest.raises(ImproperlyConfigured, match="x-mcp-header"):

        @tool
        async def weighed(weight: Annotated[float, header("Weight")]) -> float:
            return weight
