"""Requests just within a bound of `docs/security.md` are answered, and those just beyond it refused."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.wire.channels import sse
from tests.wire.client import MODERN, Peer, RawClient, head_of, raw_connection, read_response
from tools_app.calls import sessions
from tools_app.catalog import authoring
from tools_app.catalog import search as tool_search
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.core import request_memory
from tools_app.core.request_memory import MemoryBudget
from tools_app.identity import personal_tokens as tokens
from tools_app.models import Prompt, PromptKind, Session, Tenant, Tool
from tools_app.protocol import jsonrpc
from tools_app.protocol.errors import OVER_LIMIT, RpcError
from tools_app.tenants import keys
from tools_app.toolkit import tool
from tools_app.transport import legacy_sse, page_guard, sse_mailbox

# These tests try every bound.
pytestmark = pytest.mark.slow

FORM = "application/x-www-form-urlencoded"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
def session(client: RawClient) -> Peer:
    return client.handshake()


def check(within: httpx.Response, beyond: httpx.Response, status: int, code: int | None = None) -> None:
    """Check that one request is answered, and the other one refused with these codes of HTTP and JSON-RPC."""
    assert within.status_code < 300
    assert "error" not in (within.json() if within.headers.get("content-type") == "application/json" else {})
    assert beyond.status_code == status
    assert code is None or beyond.json()["error"]["code"] == code


def post(session: Peer, body: Any) -> httpx.Response:
    return session.client.post(body, session.headers())


def get(client: RawClient, path: str = "/healthz", **headers: str) -> httpx.Response:
    return client.http.get(path, headers=headers)


def post_form(client: RawClient, path: str, size: int, **headers: str) -> httpx.Response:
    """Post a form of so many bytes with these headers."""
    all_headers = {"Content-Type": "application/json" if path.startswith("/api/") else FORM, **headers}
    return client.http.post(path, content=b"{}".ljust(size), headers=all_headers)


def person() -> User:
    return User.objects.create_superuser("root", password="correct horse")


@contextmanager
def without_memory(tenant: Tenant, monkeypatch: pytest.MonkeyPatch, budget: MemoryBudget) -> Iterator[None]:
    """Exhaust the memory budget of the tenant. Its requests do not wait for it."""
    monkeypatch.setattr(request_memory, "WAIT_SECONDS", 0.01)
    assert budget.try_hold(tenant.pk, 2**40)
    yield
    budget.free(tenant.pk, 2**40)


def text_of_bytes(limit: int) -> tuple[str, str]:
    """Texts of exactly `limit` bytes of JSON, and of one more."""
    return "x" * (limit - 2), "x" * (limit - 1)


def object_of_bytes(limit: int, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for objects."""
    empty = len(json.dumps({"x": "", **more}, separators=(",", ":")))
    return {"x": "x" * (limit - empty), **more}, {"x": "x" * (limit - empty + 1), **more}


def test_a_request_names_one_host(client: RawClient) -> None:
    host_name = urlsplit(client.url).netloc
    with raw_connection(client.url) as connection:
        connection.sendall(head_of(client.url, "GET", [("Host", host_name)], "/healthz"))
        with read_response(connection) as response:
            check(get(client), httpx.Response(response.status), 400)


def test_the_body_of_a_stranger_is_not_read(client: RawClient, session: Peer) -> None:
    stranger = RawClient(client.url, None)
    answer = stranger.post(b"{}".ljust(1_000_000))
    assert answer.headers["connection"] == "close"
    stranger.http.close()
    check(post(session, PING), answer, 401, -32003)


def test_an_upload_has_a_bound(client: RawClient) -> None:
    browser = Client()
    browser.force_login(person())
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    sizes = (page_guard.MAX_UPLOAD_BYTES, page_guard.MAX_UPLOAD_BYTES + 1)
    read, refused = (post_form(client, "/admin/tools_app/tool/add/", size, Cookie=cookie) for size in sizes)
    assert read.status_code == 403
    check(get(client), refused, 413)


def test_the_body_of_a_rest_request_has_a_bound(client: RawClient, settings: Any) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 100_000
    bearer = f"Bearer {tokens.issue(person(), 'test')[1]}"
    read, refused = (post_form(client, "/api/v1/tools/", size, Authorization=bearer) for size in (100_000, 100_001))
    assert read.status_code == 400
    check(get(client), refused, 413)


def test_large_bodies_of_a_tenant_wait_for_memory(
    session: Peer, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.dumps(PING).encode().ljust(1_000_000)
    with without_memory(tenant, monkeypatch, request_memory._bodies):
        assert post(session, PING).status_code == 200
        refused = post(session, content)
    check(post(session, content), refused, 429, -32004)


def test_large_answers_to_a_tenant_wait_for_memory(
    client: RawClient, session: Peer, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    authoring.add_code_tools(tenant, ["echo"])
    authoring.save_tool(
        Tool(
            tenant=tenant,
            name="wordy",
            kind="http",
            input_schema={"type": "object", "properties": {"q": {"type": "string", "description": "x" * 100_000}}},
            config={"method": "GET", "base_url": "https://api.example.com", "path": "first"},
        )
    )
    with without_memory(tenant, monkeypatch, request_memory._results):
        assert session.result("echo", {"message": "x"})["isError"] is False
        refused = session.result("echo", {"message": "x" * 100_000})
        assert "Too many large" in refused["content"][0]["text"]
        page = client.modern("tools/list")
        assert (page.status_code, page.json()["error"]["code"]) == (429, OVER_LIMIT)
    assert session.result("echo", {"message": "x" * 100_000})["isError"] is False
    assert client.modern("tools/list").status_code == 200


def test_the_body_of_a_request_has_a_bound(session: Peer, settings: Any) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 1000
    content = json.dumps(PING).encode()
    check(post(session, content.ljust(1000)), post(session, content.ljust(1001)), 413, -32600)


def test_deeply_nested_json_is_refused(session: Peer) -> None:
    deep = [b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%b%b}}' % (b"[" * n, b"]" * n) for n in (62, 63)]
    assert jsonrpc.MAX_DEPTH == 64
    check(post(session, deep[0]), post(session, deep[1]), 400, -32700)


def test_a_message_of_too_many_objects_and_lists_is_refused(session: Peer) -> None:
    # The message, its params and the list in them count as well.
    limit = jsonrpc.MAX_CONTAINERS
    bodies = [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[%b[]]}}' % (b"[]," * (limit - 4 + more))
        for more in (0, 1)
    ]
    check(post(session, bodies[0]), post(session, bodies[1]), 400, -32700)


def test_a_batch_of_too_many_messages_is_refused(client: RawClient, session: Peer) -> None:
    session, limit = client.handshake("2025-03-26"), jsonrpc.MAX_BATCH
    first, second = (client.post([PING] * size, session.headers()) for size in (limit, limit + 1))
    check(first, second, 400, -32600)


def test_a_long_id_is_refused(session: Peer) -> None:
    within, beyond = text_of_bytes(jsonrpc.MAX_ID_BYTES)
    answer = post(session, {**PING, "id": within})
    assert answer.json()["id"] == within
    assert post(session, {**PING, "id": 2**63}).status_code == 200
    assert post(session, b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % 2**64).json()["error"]["code"] == -32600
    check(answer, post(session, {**PING, "id": beyond}), 400, -32600)


def test_a_long_method_is_refused(session: Peer) -> None:
    within = post(session, {**PING, "method": "x" * jsonrpc.MAX_METHOD_LENGTH})
    assert within.json()["error"]["code"] == -32601
    check(post(session, PING), post(session, {**PING, "method": "x" * (jsonrpc.MAX_METHOD_LENGTH + 1)}), 400, -32600)


def test_a_large_meta_is_refused(session: Peer) -> None:
    first, second = (
        session.request("ping", {"_meta": meta_value}) for meta_value in object_of_bytes(jsonrpc.MAX_META_BYTES)
    )
    check(first, second, 400, -32602)


def test_a_long_progress_token_is_refused(session: Peer) -> None:
    tokens = text_of_bytes(jsonrpc.MAX_PROGRESS_TOKEN_BYTES)
    first, second = (session.request("ping", {"_meta": {"progressToken": token}}) for token in tokens)
    check(first, second, 400, -32602)


def test_a_long_protocol_version_is_refused(client: RawClient) -> None:
    limit = jsonrpc.MAX_VERSION_LENGTH
    meta = {"io.modelcontextprotocol/protocolVersion": "x" * (limit + 1)}
    assert client.modern("server/discover", {"_meta": meta}).json()["error"]["code"] == -32602
    check(client.initialize("x" * limit), client.initialize("x" * (limit + 1)), 400, -32602)


def test_capabilities_have_bounds_and_are_not_stored_beyond_them(client: RawClient) -> None:
    def levels(depth: int) -> dict[str, Any]:
        return {"x": levels(depth - 1)} if depth > 1 else {}

    def keys(count: int) -> dict[str, Any]:
        return {str(number): 0 for number in range(count)}

    pairs = [
        object_of_bytes(jsonrpc.MAX_CAPABILITIES_BYTES),
        (levels(jsonrpc.MAX_CAPABILITIES_DEPTH), levels(jsonrpc.MAX_CAPABILITIES_DEPTH + 1)),
        (keys(jsonrpc.MAX_CAPABILITIES_KEYS), keys(jsonrpc.MAX_CAPABILITIES_KEYS + 1)),
    ]
    for within, beyond in pairs:
        for send in (client.initialize, lambda **params: client.modern("server/discover", **params)):
            assert send(capabilities=within).status_code == 200
            assert send(capabilities=beyond).json()["error"]["code"] == -32602
    assert {len(json.dumps(row.client_capabilities)) < 20_000 for row in Session.objects.all()} == {True}
    within, beyond = pairs[0]
    check(client.initialize(capabilities=within), client.initialize(capabilities=beyond), 400, -32602)


def test_a_long_name_of_a_client_is_truncated(client: RawClient) -> None:
    response = client.initialize(clientInfo={"name": "n" * 100_000, "version": "v" * 100_000, "icons": ["i"] * 9})
    assert response.status_code == 200
    row = Session.objects.latest("created_at")
    assert row.client_name == "n" * jsonrpc.MAX_CLIENT_NAME_LENGTH
    assert row.client_version == "v" * jsonrpc.MAX_CLIENT_VERSION_LENGTH


def test_large_arguments_are_refused(session: Peer, tenant: Tenant, settings: Any) -> None:
    settings.MCPHUB_MAX_ARGUMENT_BYTES = 100
    authoring.add_code_tools(tenant, ["echo"])
    empty = len('{"message":""}')
    within, beyond = (session.call("echo", {"message": "x" * (size - empty)}) for size in (100, 101))
    check(within, beyond, 200, -32602)


def test_a_long_uri_of_a_subscription_is_refused(session: Peer) -> None:
    longest = "docs://" + "x" * (jsonrpc.MAX_URI_LENGTH - 7)
    assert session.request("resources/subscribe", {"uri": longest}).json()["error"]["code"] == -32002
    first, second = (
        session.request("resources/unsubscribe", {"uri": resource_uri}) for resource_uri in (longest, longest + "x")
    )
    check(first, second, 400, -32602)


def test_a_stream_listens_to_so_many_resources(client: RawClient) -> None:
    uris = [f"docs://{number}" for number in range(sessions.MAX_SUBSCRIPTIONS + 1)]
    params = [{"notifications": {"resourceSubscriptions": uris_listened}} for uris_listened in (uris[:-1], uris)]
    with client.peer("2026-07-28").stream("subscriptions/listen", params[0]) as stream:
        check(stream.response, client.modern("subscriptions/listen", params[1]), 400, -32602)


def test_a_large_answer_to_a_question_is_an_error_of_the_call(
    client: RawClient, tenant: Tenant, registries: None
) -> None:
    @tool
    async def roots(context: ToolContext) -> str:
        return str(len(await context.list_roots()))

    authoring.add_code_tools(tenant, ["roots"])
    peer = client.handshake(capabilities={"roots": {}})
    answers, texts = [], []
    empty = len(json.dumps({"roots": [{"uri": ""}]}, separators=(",", ":")))
    for more in (0, 1):
        with peer.stream("tools/call", {"name": "roots", "arguments": {}}) as stream:
            result = {"roots": [{"uri": "x" * (jsonrpc.MAX_ANSWER_BYTES - empty + more)}]}
            answers.append(peer.respond(stream.next()["id"], result))
            texts.append(stream.read_to_end()[-1]["result"]["content"][0]["text"])
    assert texts[0] == "1"
    assert f"has more than {jsonrpc.MAX_ANSWER_BYTES} bytes" in texts[1]
    check(answers[0], answers[1], 400, -32602)


def test_the_answers_of_one_request_have_bounds(client: RawClient, tenant: Tenant) -> None:
    authoring.add_code_tools(tenant, ["echo"])

    def send_answers(answers: dict[str, Any]) -> httpx.Response:
        params = {"name": "echo", "arguments": {"message": "x"}, "inputResponses": answers}
        return client.modern("tools/call", params, headers={"Mcp-Name": "echo"})

    empty = len(json.dumps({"x": ""}, separators=(",", ":")))
    for rejected in (
        {"x" * (jsonrpc.MAX_ANSWER_NAME_LENGTH + 1): {}},
        {"x": {"x": "x" * (jsonrpc.MAX_ANSWER_BYTES - empty + 1)}},
    ):
        assert send_answers(rejected).json()["error"]["code"] == -32602
    assert send_answers({"x": {"x": "x" * (jsonrpc.MAX_ANSWER_BYTES - empty)}}).status_code == 200
    first, second = (send_answers({str(n): {} for n in range(jsonrpc.MAX_ANSWERS + more)}) for more in (0, 1))
    check(first, second, 400, -32602)


def test_long_texts_of_a_completion_are_refused(session: Peer, tenant: Tenant) -> None:
    authoring.save_prompt(
        Prompt(
            tenant=tenant,
            name="greet",
            kind=PromptKind.TEMPLATE,
            arguments=[{"name": "who", "values": ["Ann"]}],
            messages=[{"role": "user", "text": "{who}"}],
        )
    )

    def complete(value: str, name: str = "who", prompt: str = "greet") -> httpx.Response:
        params = {"ref": {"type": "ref/prompt", "name": prompt}, "argument": {"name": name, "value": value}}
        return session.request("completion/complete", params)

    longer = "x" * (jsonrpc.MAX_COMPLETED_LENGTH + 1)
    for response in (complete("", longer), complete("", "who", longer), complete("\0")):
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32602)
    check(complete(longer[1:]), complete(longer), 400, -32602)


def test_messages_that_wait_for_a_stream_have_a_bound(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy_sse, "MAX_WAITING_BYTES", 1000)
    monkeypatch.setattr(sse_mailbox, "MAX_BYTES", 1000)
    message = json.dumps(PING).encode().ljust(1001)

    async def at_once() -> None:
        inbox = legacy_sse.Inbox(uuid4())
        monkeypatch.setattr(legacy_sse.Inbox, "fetch", AsyncMock())
        await inbox.put(message)
        with pytest.raises(RpcError) as rejection:
            await inbox.put(message)
        assert (rejection.value.status, rejection.value.retry_after) == (429, 1)

    asyncio.run(at_once())
    with sse(client) as stream:
        # As in a process without the stream, whose messages in the store nobody fetches.
        monkeypatch.setattr(legacy_sse, "_inboxes", {})
        first, second = stream.post(message), stream.post(message)
    assert second.headers["retry-after"] == "1"
    check(first, second, 429, -32004)


def test_a_long_query_for_tools_is_an_error(client: RawClient, tenant: Tenant) -> None:
    key = keys.issue(tenant, "searching", presentation="search")[1]
    peer = RawClient(client.url, key).peer(MODERN)
    assert not peer.result("find_tools", {"query": "x" * tool_search.MAX_QUERY_LENGTH})["isError"]
    assert peer.result("find_tools", {"query": "x" * (tool_search.MAX_QUERY_LENGTH + 1)})["isError"]
