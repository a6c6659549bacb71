"""`tools/call` (tools, §Calling Tools): results, refusals, and the form of the answer."""

import json
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.wire.client import (
    ACCEPT_BOTH,
    WAIT_SECONDS,
    Peer,
    RawClient,
    call_params,
    error_of,
    message_of,
    modern_request,
    text_of,
)
from tools_app.catalog import authoring
from tools_app.models import Tenant
from tools_app.transport import delivery

JSON, STREAM = "application/json", "text/event-stream"


@pytest.fixture(autouse=True)
def demo(offer: Callable[..., object]) -> None:
    offer("calculator", "count", "echo", "echo_ip", "search_docs", "test_throw")


@pytest.mark.shows(
    "base.answer-id", "base.result-type", "streamable-http.json-or-stream", "streamable-http.post-address"
)
def test_echo_greets_back_in_one_json_body(peer: Peer) -> None:
    response = peer.call("echo", {"message": "wörld"}, id="a-1")
    assert response.status_code == 200
    assert response.headers["content-type"] == JSON
    assert response.headers["cache-control"] == "no-store"
    message = response.json()
    assert (message["jsonrpc"], message["id"]) == ("2.0", "a-1")
    assert message["result"]["content"] == [{"type": "text", "text": "hello wörld"}]
    assert message["result"]["isError"] is False
    assert message["result"].get("resultType") == ("complete" if peer.is_modern else None)


@pytest.mark.parametrize("path", ["/t/acme/mcp", "/mcp/"])
def test_every_address_of_the_endpoint_serves_the_same(
    make_client: Callable[..., RawClient], key: str, path: str
) -> None:
    assert text_of(make_client(key, path).peer("2026-07-28").call("echo", {"message": "x"})) == "hello x"


@pytest.mark.shows("tools.structure-as-text")
@pytest.mark.parametrize(("operation", "expected"), [("add", 10), ("subtract", 4), ("multiply", 21), ("divide", 7 / 3)])
def test_the_calculator_gives_text_and_structured_content(client: RawClient, operation: str, expected: float) -> None:
    result = client.handshake().result("calculator", {"operation": operation, "a": 7, "b": 3})
    assert result["structuredContent"] == {"result": expected}
    assert json.loads(result["content"][0]["text"]) == {"result": expected}


@pytest.mark.shows("lifecycle.keeps-version", "lifecycle.must-keep-version")
def test_structured_content_is_left_out_where_the_revision_has_none(peer: Peer) -> None:
    result = peer.result("calculator", {"operation": "add", "a": 1, "b": 2})
    assert ("structuredContent" in result) is (peer.version >= "2025-06-18")
    assert result["content"][0]["type"] == "text"


def test_a_tool_may_fail_with_a_text_of_its_own(peer: Peer) -> None:
    result = peer.result("calculator", {"operation": "divide", "a": 1, "b": 0})
    assert result["isError"] is True
    assert result["content"][0]["text"] == "Cannot divide by zero."


@pytest.mark.shows("tools.outputs")
def test_internal_errors_of_a_tool_are_not_revealed(peer: Peer) -> None:
    response = peer.call("test_throw")
    assert response.status_code == 200
    result = message_of(response)["result"]
    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": "An error occurred invoking 'test_throw'."}]
    assert "RuntimeError" not in response.text
    assert "what it does" not in response.text


def test_echo_ip_returns_the_address_of_the_caller(peer: Peer) -> None:
    assert text_of(peer.call("echo_ip")) == "127.0.0.1"


def test_an_address_that_no_trusted_proxy_vouches_for_is_not_believed(client: RawClient) -> None:
    response = client.handshake().call("echo_ip", headers={"X-Forwarded-For": "203.0.113.9"})
    assert text_of(response) == "127.0.0.1"


def test_a_trusted_proxy_is_believed_about_the_last_address_alone(client: RawClient, settings: Any) -> None:
    settings.MCPHUB_TRUSTED_PROXIES = 1
    response = client.handshake().call("echo_ip", headers={"X-Forwarded-For": "198.51.100.1, 203.0.113.9"})
    assert text_of(response) == "203.0.113.9"


def test_search_docs_finds_sections_and_says_how_many_there_are(client: RawClient) -> None:
    found = client.handshake().result("search_docs", {"query": "key", "limit": 2})["structuredContent"]
    assert found.keys() == {"result", "totalCount"}
    assert 0 < len(found["result"]) <= 2 <= found["totalCount"]


def test_an_unknown_tool_is_named_and_no_other(peer: Peer) -> None:
    response = peer.call("no_such", id=5)
    assert response.status_code == (400 if peer.is_modern else 200)
    assert message_of(response) == {
        "jsonrpc": "2.0",
        "id": 5,
        "error": {"code": -32602, "message": "Unknown tool: 'no_such'", "data": {"tool": "no_such"}},
    }


@pytest.mark.shows("caching.access", "tools.access")
def test_a_foreign_or_disabled_tool_looks_like_an_unknown_one(peer: Peer, other_tenant: Tenant, tenant: Tenant) -> None:
    foreign = authoring.add_code_tools(other_tenant, ["echo"])[0]
    foreign.name = "their_echo"
    authoring.save_tool(foreign)
    authoring.set_enabled(tenant.tools.get(name="echo_ip"), enabled=False)
    for name in ("their_echo", "echo_ip"):
        error = error_of(peer.call(name))
        assert error == {"code": -32602, "message": f"Unknown tool: '{name}'", "data": {"tool": name}}


@pytest.mark.shows("tools.inputs")
def test_bad_arguments_name_every_field_in_the_way_of_the_revision(peer: Peer) -> None:
    response = peer.call("calculator", {"operation": "power", "a": "one", "extra": 1})
    assert response.status_code == (400 if peer.version < "2025-11-25" and peer.is_modern else 200)
    if peer.version >= "2025-11-25":
        result = message_of(response)["result"]
        assert result["isError"] is True
        explained = result["content"][0]["text"]
        assert explained.startswith("Invalid arguments for 'calculator':")
        assert all(f"- {field}: " in explained for field in ("operation", "a", "b", "extra"))
        return
    error = error_of(response)
    assert error["code"] == -32602
    assert error["data"]["tool"] == "calculator"
    problems = {problem["field"]: problem for problem in error["data"]["errors"]}
    assert problems.keys() == {"operation", "a", "b", "extra"}
    assert problems["a"]["received"] == "one"
    assert problems["b"]["message"] == "'b' is required"
    assert problems["extra"]["message"] == "'extra' is not expected"


@pytest.mark.parametrize(
    ("params", "field"),
    [({}, "name"), ({"name": 5}, "name"), ({"name": None}, "name"), ({"name": "echo", "arguments": [1]}, "arguments")],
)
def test_parameters_of_the_wrong_kind_are_named(peer: Peer, params: dict[str, object], field: str) -> None:
    response = peer.request("tools/call", params)
    assert response.status_code == (400 if peer.is_modern else 200)
    assert error_of(response)["code"] == -32602
    assert error_of(response)["data"] == {"field": field}


@pytest.mark.shows("streamable-http.buffering", "streamable-http.json-or-stream")
@pytest.mark.parametrize("accept", [STREAM, "text/*"])
def test_a_client_that_takes_only_streams_gets_one(peer: Peer, accept: str) -> None:
    response = peer.call("echo", {"message": "x"}, headers={"Accept": accept})
    assert response.status_code == 200
    assert response.headers["content-type"] == STREAM
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["cache-control"] == "no-store, no-transform"
    assert text_of(response) == "hello x"


@pytest.mark.parametrize("accept", [JSON, "application/*", "*/*", ACCEPT_BOTH, None])
def test_a_quick_answer_is_json_for_whoever_takes_it(peer: Peer, accept: str | None) -> None:
    del peer.client.http.headers["accept"]
    response = peer.call("echo", {"message": "x"}, headers={"Accept": accept})
    assert response.headers["content-type"] == JSON
    assert text_of(response) == "hello x"


def test_a_client_that_takes_only_json_gets_it_from_a_tool_that_reports_progress(peer: Peer) -> None:
    params = call_params("count", {"n": 3}, {"progressToken": "t"})
    response = peer.request("tools/call", params, headers={"Accept": JSON})
    assert response.headers["content-type"] == JSON
    assert response.json()["result"]["content"][0]["text"] == "3"


def test_a_client_that_accepts_neither_is_rejected(peer: Peer) -> None:
    response = peer.call("echo", {"message": "x"}, headers={"Accept": "text/html"})
    assert response.status_code == 406
    assert "application/json" in error_of(response)["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_a_body_of_another_type_is_refused(peer: Peer, kind: str) -> None:
    response = peer.call("echo", {"message": "x"}, headers={"Content-Type": kind})
    assert response.status_code == 415
    assert error_of(response)["code"] == -32600


def test_a_content_type_may_have_parameters(peer: Peer) -> None:
    response = peer.call("echo", {"message": "x"}, headers={"Content-Type": "Application/JSON; charset=utf-8"})
    assert response.status_code == 200


def test_a_silent_call_becomes_a_stream_after_a_while(
    peer: Peer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "STREAM_AFTER_SECONDS", 0.1)
    settings.MCPHUB_KEEPALIVE_INTERVAL = 0.1
    response = peer.call("count", {"n": 8})
    assert response.headers["content-type"] == STREAM
    assert response.text.count(": keep-alive\n\n") >= 3
    assert text_of(response) == "8"


def posted(client: RawClient, tool: str, arguments: dict[str, Any], accept: list[str], meta: Any = None) -> Any:
    """The response to a call with exactly these `Accept` headers, without the default of an HTTP library."""
    body, fields = modern_request("tools/call", call_params(tool, arguments, meta))
    connection = HTTPConnection(urlsplit(client.url).netloc, timeout=WAIT_SECONDS)
    content = json.dumps(body)
    connection.putrequest("POST", "/mcp")
    for name, value in {**client.headers(fields), "Content-Length": str(len(content))}.items():
        if name != "Accept":
            connection.putheader(name, value)
    for value in accept:
        connection.putheader("Accept", value)
    connection.endheaders(content.encode())
    with closing(connection):
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"], answer.read().decode()


@pytest.mark.parametrize("accept", [[], ["*/*"], ["application/json, text/plain, */*"], ["application/json"]])
def test_a_client_that_does_not_accept_streams_gets_json_however_long_the_call_takes(
    client: RawClient, accept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "STREAM_AFTER_SECONDS", 0.01)
    for meta in (None, {"progressToken": 1}):
        status, kind, body = posted(client, "count", {"n": 2}, accept, meta)
        assert (status, kind) == (200, JSON)
        assert json.loads(body)["result"]["content"][0]["text"] == "2"


@pytest.mark.parametrize("accept", [["application/json", STREAM], [f"{STREAM};q=0.5, application/json"]])
def test_a_client_that_names_both_gets_what_fits(client: RawClient, accept: list[str]) -> None:
    assert posted(client, "echo", {"message": "x"}, accept)[1] == JSON
    assert posted(client, "count", {"n": 1}, accept, {"progressToken": 1})[1] == STREAM


@pytest.mark.parametrize("accept", [[STREAM], ["text/*"], [f"application/json;q=0.5, {STREAM}"]])
def test_a_client_that_names_or_prefers_streams_gets_one(client: RawClient, accept: list[str]) -> None:
    status, kind, body = posted(client, "echo", {"message": "x"}, accept)
    assert (status, kind) == (200, STREAM)
    assert '"result"' in body


@pytest.mark.parametrize("accept", [["nonsense"], ["*/*;q=0"], [";;;"]])
def test_an_accept_header_without_an_acceptable_type_is_rejected(client: RawClient, accept: list[str]) -> None:
    assert posted(client, "echo", {"message": "x"}, accept)[0] == 406
