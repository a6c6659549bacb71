"""Definitions and results that are not as the specification has them: clients of every revision accept what is left."""

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.upstreams.scripted import discovered, reply
from tests.web_services import Received, Service
from tests.wire.client import ALL_VERSIONS, MODERN, Peer, RawClient, message_of
from tests.wire.valid import check_valid
from tools_app.models import Resource, Tenant, Tool, Upstream, UpstreamItem
from tools_app.upstreams import service

# As zod writes it.
EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
NULLS = {"title": None, "description": None, "icons": None, "annotations": None, "_meta": None}
IMAGE = "data:image/png;base64,AAAA"
ICON = {"src": IMAGE, "mimeType": None, "sizes": None, "theme": "sepia"}
OBJECT = {"type": "object"}
TEXT = {"type": "string"}
LINK = {"type": "resource_link", "uri": "docs://a", "name": "A", **NULLS}
TOOLS: dict[str, dict[str, Any]] = {
    "untyped": {"inputSchema": {"properties": {"a": TEXT}}, "outputSchema": {"anyOf": [OBJECT, {"type": "null"}]}},
    "nullable": {"inputSchema": {"type": ["object", "null"]}, "outputSchema": {"type": ["object", "null"]}},
    "booleans": {"inputSchema": {**OBJECT, "properties": {"a": True, "b": False}}},
    "nulls": {
        **NULLS,
        "inputSchema": {**OBJECT, "properties": {"a": None, "b": {**TEXT, "default": None}}, "required": None},
        "outputSchema": None,
        "annotations": {"title": None, "readOnlyHint": None},
        "execution": None,
        "icons": [ICON],
    },
    "list": {"inputSchema": OBJECT, "outputSchema": {"type": "array", "items": TEXT}},
    "foreign": {
        "inputSchema": OBJECT,
        "outputSchema": {
            **OBJECT,
            "properties": {"a": {**TEXT, "pattern": r"(?i)a\-b"}, "b": {"anyOf": [TEXT], "nullable": True}},
        },
    },
    "email": {"inputSchema": {**OBJECT, "properties": {"e": {**TEXT, "pattern": EMAIL, "maxLength": 5}}}},
}
REFUSED: dict[str, dict[str, Any]] = {
    "no schema": {},
    "no object": {"inputSchema": TEXT},
    "a title": {"inputSchema": OBJECT, "title": 5},
    "a theme of descriptions": {"inputSchema": OBJECT, "description": ["x"]},
}
RATED = {"audience": None, "priority": None, "lastModified": "yesterday"}
LISTS = {
    "tools/list": {"tools": [{"name": name, **tool} for name, tool in {**TOOLS, **REFUSED}.items()]},
    "prompts/list": {
        "prompts": [
            {"name": "p", **NULLS, "arguments": None, "icons": [ICON]},
            {"name": "q", "arguments": [{"name": "a", "description": None, "required": None}]},
            {"name": "r", "arguments": [{"name": "a", "required": "yes"}]},
        ]
    },
    "resources/list": {
        "resources": [
            {"uri": "docs://a", "name": "A", **NULLS, "mimeType": None, "size": None, "annotations": RATED},
            {"uri": "docs://b", "name": "B", "annotations": {"priority": 5}},
            {"uri": "docs://c", "name": "C", "mimeType": 5},
        ],
        "nextCursor": None,
    },
    "resources/templates/list": {"resourceTemplates": None},
}


class OddServer:
    """A modern upstream that lists LISTS, and answers all else with `result`."""

    result: Any = None

    def answer(self, request: Received) -> bytes:
        message = json.loads(request.body)
        if message["method"] == "server/discover":
            return reply(message["id"], discovered({"tools": {}, "prompts": {}, "resources": {}}))
        return reply(message["id"], {"resultType": "complete", **(LISTS.get(message["method"]) or self.result)})


@pytest.fixture
def server() -> OddServer:
    return OddServer()


@pytest.fixture
def upstream(serve: Callable[..., Service], server: OddServer, loopback_tenant: Tenant) -> Upstream:
    """The upstream, of which all is accepted that can be offered."""
    url = f"{serve(server.answer).url}/mcp"
    upstream = Upstream.objects.create(tenant=loopback_tenant, name="odd", url=url)
    good, _ = service.partition_acceptable(service.discover(upstream).items)
    service.accept(good)
    return upstream


@pytest.fixture
def peers(upstream: Upstream, client: RawClient) -> list[Peer]:
    return [client.peer(version) for version in ALL_VERSIONS]


def valid_result(peer: Peer, method: str, params: Any) -> dict[str, Any]:
    message = message_of(peer.request(method, params))
    assert "result" in message, message
    check_valid(method, peer.version, message["result"])
    return dict(message["result"])


def test_what_an_upstream_lists_is_valid_in_every_revision(peers: list[Peer]) -> None:
    for peer in peers:
        tools = {one["name"]: one for one in valid_result(peer, "tools/list", {})["tools"]}
        assert tools.keys() == TOOLS.keys()
        assert tools["booleans"]["inputSchema"]["properties"] == {"a": {}, "b": {"not": {}}}
        assert tools["nulls"]["inputSchema"] == {**OBJECT, "properties": {"a": {}, "b": {**TEXT, "default": None}}}
        assert tools["email"]["inputSchema"] == TOOLS["email"]["inputSchema"]
        has_output = {name for name, one in tools.items() if "outputSchema" in one}
        expected = {"untyped", "nullable", "foreign"} if peer.version >= "2025-06-18" else set()
        if expected:
            assert tools["foreign"]["outputSchema"]["properties"] == {"a": TEXT, "b": {"anyOf": [TEXT]}}
        assert has_output == expected | ({"list"} if peer.is_modern else set())
        assert [one["name"] for one in valid_result(peer, "prompts/list", {})["prompts"]] == ["p", "q"]
        assert [one["uri"] for one in valid_result(peer, "resources/list", {})["resources"]] == ["docs://a"]
        assert valid_result(peer, "resources/templates/list", {})["resourceTemplates"] == []


def test_what_cannot_be_offered_or_is_not_checked_says_so(upstream: Upstream) -> None:
    _, bad = service.partition_acceptable(UpstreamItem.objects.select_related("upstream").order_by("kind", "name"))
    assert {item.name: problem.partition(": ")[2] for item, problem in bad.items()} == {
        "no schema": "its schemas cannot be used: the tool has no inputSchema",
        "no object": "its schemas cannot be used: the inputSchema describes no object, which arguments are",
        "a title": "its title is invalid.",
        "a theme of descriptions": "its description is invalid.",
        "r": "its arguments are invalid.",
        "docs://b": "its annotations are invalid: priority: must be a number from 0 to 1.",
        "docs://c": "its mimeType is invalid.",
    }
    warnings = {item.name: item.warnings for item in UpstreamItem.objects.all() if item.warnings}
    assert warnings.keys() == {"email", "docs://a"}
    assert warnings["email"][0].startswith("inputSchema, properties.e.pattern: the hub does not check")


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
def test_all_but_a_pattern_with_look_around_is_checked(
    upstream: Upstream, server: OddServer, client: RawClient, version: str
) -> None:
    peer = client.peer(version)
    server.result = {"content": []}
    assert message_of(peer.call("email", {"e": "no@"}))["result"]["content"] == []
    refused = message_of(peer.call("email", {"e": "a@b.example"}))
    assert "longer than 5 characters" in json.dumps(refused)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def odd(block: Any) -> dict[str, Any]:
    what = f"content of the type {block['type']!r}" if "type" in block else "content without a type"
    return text(f"({what}, which is not valid in this protocol) {orjson.dumps(block).decode()}")


UNKNOWN: list[dict[str, Any]] = [
    {"type": "widget", "html": "<b>"},
    {"text": "no type"},
    {"type": "text", "text": None},
    {"type": "image", "data": "not Base64!", "mimeType": "image/png"},
    {"type": "image", "data": "AAAA"},
    {"type": "resource", "resource": {"uri": "docs://a"}},
    {"type": "resource_link", "uri": "relative", "name": "x"},
]


RESULTS: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({"content": None, "isError": None, "_meta": None, "structuredContent": None}, []),
    ({"content": UNKNOWN}, [odd(block) for block in UNKNOWN]),
    ({"content": [{**text("a"), "annotations": None, "_meta": None}]}, [text("a")]),
    (
        {"content": [{**text("a"), "annotations": {"priority": 2, "audience": ["user"], "lastModified": "2026"}}]},
        [{**text("a"), "annotations": {"audience": ["user"]}}],
    ),
    (
        {"content": [{"type": "image", "data": "_-8=\n", "mimeType": "image/png"}]},
        [{"type": "image", "data": "/+8=", "mimeType": "image/png"}],
    ),
    (
        {"content": [{"type": "resource", "resource": {"uri": "docs://a", "text": None, "blob": "AA=="}}]},
        [{"type": "resource", "resource": {"uri": "docs://a", "blob": "AA=="}}],
    ),
    ({"structuredContent": {"a": "é"}}, [text('{"a":"é"}')]),
    ({"structuredContent": {"a": 1}, "content": None, "isError": True}, [text('{"a":1}')]),
    ({"structuredContent": [1], "content": []}, [text("[1]")]),
]


@pytest.mark.shows("tools.structure-as-text")
def test_a_result_of_a_tool_is_valid_in_every_revision(server: OddServer, peers: list[Peer]) -> None:
    for server.result, expected in RESULTS:
        for peer in peers:
            result = valid_result(peer, "tools/call", {"name": "booleans"})
            assert result["content"] == expected
            assert result["isError"] is (server.result.get("isError") is True)
            structured = server.result.get("structuredContent")
            is_carried = peer.is_modern or (peer.version >= "2025-06-18" and isinstance(structured, dict))
            assert result.get("structuredContent") == (structured if is_carried else None)


def test_content_that_a_revision_does_not_know_becomes_text_there(server: OddServer, peers: list[Peer]) -> None:
    sound = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
    server.result = {"content": [sound, LINK], "structuredContent": {"a": 1}}
    for peer in peers:
        first, second, *more = valid_result(peer, "tools/call", {"name": "booleans"})["content"]
        assert first["type"] == ("audio" if peer.version >= "2025-03-26" else "text")
        link = {"type": "resource_link", "uri": "docs://a", "name": "A"}
        assert second == (link if peer.version >= "2025-06-18" else text("A: docs://a"))
        assert more == []
    server.result = {"content": [sound], "structuredContent": {"a": 1}}
    for peer in peers[1:]:
        more = valid_result(peer, "tools/call", {"name": "booleans"})["content"][1:]
        assert more == ([] if peer.version >= "2025-06-18" else [text('{"a":1}')])


def test_messages_and_contents_are_valid_in_every_revision(server: OddServer, peers: list[Peer]) -> None:
    for peer in peers:
        server.result = {
            "description": None,
            "messages": [
                {"role": "user", "content": "words"},
                {"role": "assistant", "content": [{**text("a"), "annotations": None}, UNKNOWN[0]]},
                {"role": "user", "content": LINK},
            ],
        }
        messages = valid_result(peer, "prompts/get", {"name": "p"})["messages"]
        assert [message["content"].get("text", "") for message in messages[:3]] == [
            "words",
            "a",
            odd(UNKNOWN[0])["text"],
        ]
        server.result = {"messages": [{"role": "system", "content": text("a")}]}
        error = message_of(peer.request("prompts/get", {"name": "p"}))["error"]
        assert "a message has the role 'system', which is neither user nor assistant" in error["message"]
        server.result = {
            "contents": [
                {"text": "a", "mimeType": None, "_meta": None},
                {"uri": "docs://a", "blob": "AA", "text": None},
                {"uri": "docs://a"},
            ],
            "ttlMs": 0,
            "cacheScope": "private",
        }
        assert valid_result(peer, "resources/read", {"uri": "docs://a"})["contents"] == [
            {"uri": "docs://a", "text": "a"},
            {"uri": "docs://a", "blob": "AA=="},
            {"uri": "docs://a", "text": ""},
        ]


def test_what_was_stored_before_is_valid_too(upstream: Upstream, client: RawClient, tenant: Tenant) -> None:
    """Rows as they could be accepted or written once."""
    schema = {"properties": {"a": True}, "required": None}
    Tool.objects.filter(name="booleans").update(
        input_schema=schema, output_schema={"type": ["object", "null"]}, annotations={"title": None}, icons=[ICON]
    )
    Tool.objects.filter(name="nulls").update(input_schema=TEXT)
    Resource.objects.update(annotations={"lastModified": "2026-01-31", "priority": "high"}, icons=["x"])
    for version in ALL_VERSIONS:
        peer = client.peer(version)
        tools = valid_result(peer, "tools/list", {})["tools"]
        assert {one["name"] for one in tools} == TOOLS.keys() - {"nulls"}
        assert valid_result(peer, "resources/list", {})["resources"] == [{"uri": "docs://a", "name": "A"}]
