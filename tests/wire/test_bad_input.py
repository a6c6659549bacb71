"""Invalid requests, and requests that contradict their headers: a clear error and never a 500."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.client import (
    ACCEPT_BOTH,
    MODERN,
    SESSION,
    RawClient,
    call_params,
    error_of,
    head_of,
    modern_request,
    raw_connection,
    read_response,
    rpc,
)

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.shows("base.unreadable-id", "base.utf-8")
def test_what_is_not_json_is_a_parse_error(client: RawClient) -> None:
    for body in [
        b"",
        b"{",
        b"nonsense",
        b'{"jsonrpc":"2.0",}',
        b'"\xff\xfe"',
        b'{"a":"\\ud800"}',
        b"NaN",
        b"\xef\xbb\xbf{}",
    ]:
        response = client.post(body)
        assert response.status_code == 400, body
        assert error_of(response)["code"] == -32700, body
        assert "id" not in response.json(), body


@pytest.mark.parametrize("bomb", [b"[" * 100_000, b"[" * 70 + b"]" * 70, b'{"a":' * 70 + b"1" + b"}" * 70])
def test_a_nesting_bomb_is_a_parse_error(client: RawClient, bomb: bytes) -> None:
    response = client.post(bomb)
    assert response.status_code == 400
    assert error_of(response)["code"] == -32700


@pytest.mark.shows("base.json-rpc", "base.request-id")
def test_an_invalid_message_is_an_invalid_request(client: RawClient) -> None:
    bodies: list[Any] = [
        5,
        "text",
        None,
        True,
        {},
        {**PING, "jsonrpc": "1.0"},
        {**PING, "jsonrpc": 2.0},
        {"id": 1, "method": "ping"},
        {**PING, "method": 7},
        {**PING, "params": [1]},
        {**PING, "id": None},
        {**PING, "id": True},
        {**PING, "id": 1.5},
        {**PING, "id": {}},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
        {"jsonrpc": "2.0", "result": {}},
    ]
    for body in bodies:
        response = client.post(body)
        assert response.status_code == 400, body
        assert error_of(response)["code"] == -32600, body
        assert "Invalid request" in error_of(response)["message"], body


@pytest.mark.shows("base.unreadable-id")
def test_an_invalid_request_is_answered_under_its_id_if_it_has_one(client: RawClient) -> None:
    assert client.post({**PING, "id": "mine", "params": 1}).json()["id"] == "mine"
    assert "id" not in client.post({**PING, "id": 1.5}).json()


@pytest.mark.shows("base.answer-id", "base.request-id")
@pytest.mark.parametrize("id", ["", "é\x00", 0, -1, 2**63])
def test_any_text_and_any_whole_number_is_an_id(client: RawClient, id: Any) -> None:
    response = client.handshake().request("ping", id=id)
    assert response.status_code == 200
    assert response.json()["id"] == id


@pytest.mark.parametrize("number", ["1" * 30, "1" * 5000, "-" + "9" * 400])
def test_a_huge_number_is_answered(client: RawClient, number: str) -> None:
    response = client.post(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % number.encode())
    assert response.status_code == 400
    assert error_of(response)["code"] in {-32600, -32700}


@pytest.mark.shows("base.error-code", "base.error-members", "streamable-http.method-404")
def test_an_unknown_method_has_the_status_of_its_era(client: RawClient) -> None:
    refusal = {"code": -32601, "message": "Method not found: 'no/such'", "data": {"method": "no/such"}}
    for response, status in (
        (client.modern("no/such"), 404),
        (client.handshake().request("no/such"), 200),
    ):
        assert response.status_code == status
        assert error_of(response) == refusal


@pytest.mark.parametrize("name", ["a\x00b", "ünïcode", "\u202e", "x" * 10_000, "'; DROP TABLE", ""])
def test_a_strange_tool_name_is_an_unknown_tool(client: RawClient, name: str) -> None:
    response = client.handshake().call(name)
    assert response.status_code == 200
    assert error_of(response)["message"] == f"Unknown tool: '{name}'"


@pytest.mark.shows("streamable-http.refused")
def test_a_response_from_the_client_is_accepted_in_a_session_only(client: RawClient) -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
    session = client.handshake()
    assert client.post(answer, session.headers()).status_code == 202
    assert client.post(answer, {"MCP-Protocol-Version": MODERN}).status_code == 400


# --- Batches (2025-03-26, base protocol, §Batching) ---------------------------------------------------------------


@pytest.mark.shows("batch.received")
def test_a_batch_is_answered_in_one_array(client: RawClient) -> None:
    session = client.handshake("2025-03-26")
    answer = {"jsonrpc": "2.0", "id": 8, "result": {}}
    notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    bad = {**PING, "id": 4, "params": 1}
    response = client.post([PING, notification, answer, {**PING, "id": 2}, bad, 7], session.headers())
    assert response.status_code == 200
    assert [item["id"] for item in response.json() if "result" in item] == [1, 2]
    assert [(item.get("id"), item["error"]["code"]) for item in response.json() if "error" in item] == [
        (4, -32600),
        (None, -32600),
    ]


@pytest.mark.shows("base.notification-unanswered", "streamable-http.accepted")
def test_a_batch_that_wants_no_answer_gets_none(client: RawClient) -> None:
    session = client.handshake("2025-03-26")
    response = client.post([{"jsonrpc": "2.0", "method": "notifications/initialized"}] * 2, session.headers())
    assert (response.status_code, response.content) == (202, b"")


@pytest.mark.shows("batch.initialize-alone")
def test_initialize_stands_alone(client: RawClient) -> None:
    session = client.handshake("2025-03-26")
    response = client.post([rpc("initialize", {"protocolVersion": "2025-03-26"}, id=3)], session.headers())
    assert [(item["id"], item["error"]["code"]) for item in response.json()] == [(3, -32600)]
    assert SESSION not in response.headers


@pytest.mark.parametrize("size", [0, 51])
def test_a_batch_that_is_empty_or_too_large_is_refused(client: RawClient, size: int) -> None:
    response = client.post([PING] * size, client.handshake("2025-03-26").headers())
    assert response.status_code == 400
    assert error_of(response)["message"] == "Invalid request: a batch has 1 to 50 messages."


@pytest.mark.shows("streamable-http.one-message")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_other_revisions_have_no_batches(client: RawClient, version: str) -> None:
    response = client.post([PING], client.handshake(version).headers())
    assert response.status_code == 400
    assert error_of(response)["code"] == -32600


def test_without_a_session_there_are_no_batches(client: RawClient) -> None:
    assert client.post([PING]).status_code == 400


# --- Size ---------------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_rejected_by_its_content_length(client: RawClient, settings: Any) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 1000
    response = client.post(b" " * 1001)
    assert response.status_code == 413
    assert error_of(response) == {"code": -32600, "message": "The body is larger than 1000 bytes."}


def test_a_body_of_the_largest_size_is_read(client: RawClient, settings: Any) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 1000
    assert client.post(json.dumps(PING).encode().ljust(1000), client.handshake().headers()).status_code == 200


def chunked(client: RawClient, chunks: list[bytes], headers: dict[str, str]) -> tuple[int, bytes]:
    fields = {**client.headers(headers), "Transfer-Encoding": "chunked", "Connection": "close"}
    with raw_connection(client.url) as connection:
        connection.sendall(head_of(client.url, "POST", list(fields.items())))
        for chunk in [*chunks, b""]:
            connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        with read_response(connection) as response:
            return response.status, response.read()


def test_a_chunked_body_is_read(client: RawClient) -> None:
    body = json.dumps(PING).encode()
    status, answer = chunked(client, [body[:5], body[5:20], body[20:]], dict(client.handshake().headers()))
    assert (status, json.loads(answer)) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})


def test_a_chunked_body_that_grows_too_large_is_refused(client: RawClient, settings: Any) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 1000
    status, answer = chunked(client, [b" " * 600, b" " * 600], {})
    assert status == 413
    assert json.loads(answer)["error"]["code"] == -32600


def test_a_client_that_leaves_in_the_middle_of_its_body_disturbs_nobody(client: RawClient) -> None:
    with raw_connection(client.url) as connection:
        fields = {**client.headers(), "Content-Length": "500"}
        connection.sendall(head_of(client.url, "POST", list(fields.items())) + b'{"jsonrpc"')
    assert client.modern("server/discover").status_code == 200


# --- Headers of the modern era (2026-07-28, Streamable HTTP, §Server Validation) ----------------------------------


@pytest.mark.shows("streamable-http.headers-match", "streamable-http.version-matches")
def test_a_header_that_disagrees_with_the_body_is_refused(client: RawClient) -> None:
    cases: list[tuple[dict[str, str | None], str]] = [
        ({"Mcp-Method": None}, "Mcp-Method"),
        ({"Mcp-Method": "tools/list"}, "Mcp-Method"),
        ({"Mcp-Method": "TOOLS/CALL"}, "Mcp-Method"),
        ({"Mcp-Name": None}, "Mcp-Name"),
        ({"Mcp-Name": "other"}, "Mcp-Name"),
        ({"Mcp-Name": "=?base64?b3RoZXI=?="}, "Mcp-Name"),
        ({"Mcp-Name": "=?base64?!!?="}, "Mcp-Name"),
        ({"MCP-Protocol-Version": None}, "MCP-Protocol-Version"),
        ({"MCP-Protocol-Version": "2025-11-25"}, "MCP-Protocol-Version"),
    ]
    for headers, named in cases:
        response = client.modern("tools/call", {"name": "echo", "arguments": {"message": "x"}}, headers=headers)
        assert response.status_code == 400, headers
        assert error_of(response)["code"] == -32020, headers
        assert error_of(response)["message"].startswith(f"Header mismatch: {named} "), headers


@pytest.mark.shows("streamable-http.base64-headers")
def test_a_name_may_come_in_base64(client: RawClient) -> None:
    response = client.modern("tools/call", {"name": "é"}, headers={"Mcp-Name": "=?base64?w6k=?="})
    assert error_of(response)["message"] == "Unknown tool: 'é'"


def test_white_space_around_a_header_is_no_part_of_it(client: RawClient, offer: Callable[..., Any]) -> None:
    offer("echo")
    message, fields = modern_request("tools/call", call_params("echo", {"message": "x"}))
    body = json.dumps(message).encode()
    padded = {name: f" \t{value}\t " for name, value in client.headers(fields).items()}
    all_headers = [*padded.items(), ("Content-Length", str(len(body))), ("Connection", "close")]
    with raw_connection(client.url) as connection:
        connection.sendall(head_of(client.url, "POST", all_headers) + body)
        with read_response(connection) as response:
            assert (response.status, json.loads(response.read())["result"]["isError"]) == (200, False)


@pytest.mark.parametrize("header", ["Mcp-Method", "Mcp-Name", "MCP-Protocol-Version"])
def test_a_routing_header_that_comes_twice_is_refused(client: RawClient, header: str) -> None:
    message, fields = modern_request("tools/call", {"name": "echo"})
    body = json.dumps(message).encode()
    all_headers = [*client.headers(fields).items(), ("Content-Length", str(len(body))), ("Connection", "close")]
    all_headers.append((header, str(fields[header])))
    with raw_connection(client.url) as connection:
        connection.sendall(head_of(client.url, "POST", all_headers) + body)
        with read_response(connection) as response:
            assert response.status == 400
            assert json.loads(response.read())["error"]["code"] == -32020


@pytest.mark.shows("meta.complete")
@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
def test_metadata_that_is_missing_is_named(client: RawClient, missing: str) -> None:
    message, fields = modern_request("server/discover")
    del message["params"]["_meta"][f"io.modelcontextprotocol/{missing}"]
    response = client.post(message, fields)
    assert response.status_code == 400
    assert error_of(response)["code"] == -32602
    assert error_of(response)["data"] == {"missing": [f"io.modelcontextprotocol/{missing}"]}


@pytest.mark.parametrize(("name", "value"), [("protocolVersion", 1), ("clientCapabilities", []), ("clientInfo", "me")])
def test_metadata_of_the_wrong_kind_is_named(client: RawClient, name: str, value: object) -> None:
    response = client.modern("server/discover", {"_meta": {f"io.modelcontextprotocol/{name}": value}})
    assert response.status_code == 400
    assert error_of(response)["code"] == -32602
    assert name in error_of(response)["message"]


@pytest.mark.shows("streamable-http.version-400", "streamable-http.version-unsupported", "versioning.unsupported")
def test_an_unsupported_revision_is_rejected_with_the_supported_ones(client: RawClient) -> None:
    every = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
    meta = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    future = {"MCP-Protocol-Version": "2099-01-01"}
    modern = client.modern("server/discover", {"_meta": meta}, headers=future)
    handshake = client.handshake().request("ping", headers=future)
    for response, supported in ((modern, every[:1]), (handshake, every)):
        assert response.status_code == 400
        assert error_of(response) == {
            "code": -32022,
            "message": "Unsupported protocol version",
            "data": {"supported": supported, "requested": "2099-01-01"},
        }


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "HEAD"])
def test_another_method_is_rejected_with_the_allowed_ones(client: RawClient, verb: str) -> None:
    response = client.http.request(verb, "/mcp", headers={**client.headers(), "Accept": ACCEPT_BOTH})
    assert response.status_code == 405
    assert response.headers["allow"] == "POST, GET, DELETE, OPTIONS"


def test_the_modern_era_has_no_get(client: RawClient) -> None:
    response = client.http.get("/mcp", headers=client.headers({"MCP-Protocol-Version": MODERN}))
    assert response.status_code == 405
