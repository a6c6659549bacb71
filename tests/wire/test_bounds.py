"""The table "Bounds" of `docs/security.md`: input within a bound is accepted, input beyond it rejected as stated.

Each row of the table has a probe named after its input. A probe sends both and returns both responses.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import orjson
import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from joserfc.jwk import ECKey

from tests.sign_in.scim import GROUP, PATCH, USER, ScimClient
from tests.sign_in.test_saml import pair
from tests.web_services import WAIT_SECONDS
from tests.wire.channels import sse
from tests.wire.client import MODERN, Peer, RawClient, head_of, raw_connection, read_response
from tools_app.access import keys, sessions, tokens
from tools_app.access.issuers import directory as scim_directory
from tools_app.access.issuers import people, provisioning
from tools_app.access.issuers.rules import Rule
from tools_app.access.keys import access_digest
from tools_app.access.limits import limits
from tools_app.access.oauth import (
    attempts,
    clients,
    devices,
    hosts,
    key_sets,
    redirects,
    service_clients,
    tenant_scopes,
    workloads,
)
from tools_app.access.oauth import tokens as oauth_tokens
from tools_app.api.scim import bounds as scim_bounds
from tools_app.api.scim import queries
from tools_app.catalog import authoring, compiled, shaping, skills, toolsets, uri_templates
from tools_app.catalog import search as tool_search
from tools_app.catalog.http.documents import DocumentError
from tools_app.catalog.kinds import curl, http_request, operation_styles, stored
from tools_app.catalog.kinds.http_config import HttpConfig
from tools_app.catalog.kinds.http_draft import draft_of
from tools_app.catalog.kinds.templates import Values
from tools_app.catalog.openapi import arguments as openapi_arguments
from tools_app.catalog.openapi import bundle as openapi_bundle
from tools_app.catalog.openapi import operations as openapi
from tools_app.catalog.openapi import reader as openapi_reader
from tools_app.catalog.openapi import selection
from tools_app.catalog.sources import settings as source_settings
from tools_app.catalog.validation import sizes
from tools_app.catalog.validation.items import prompt_faults, resource_faults, tool_faults
from tools_app.catalog.validation.resources import MAX_BYTES, MAX_CHARACTERS, file_fault, text_fault, uri_fault
from tools_app.core import field_mask, request_memory
from tools_app.core.request_memory import MemoryBudget
from tools_app.documentation import search
from tools_app.issuers import configuration, direct, provider, saml, saml_metadata, setup
from tools_app.issuers import tokens as issued
from tools_app.management.bound import Bound
from tools_app.management.commands.input_bounds import BEGIN, END
from tools_app.management.input_bounds import markdown, table
from tools_app.models import (
    MAX_TOOLSETS,
    AccessToken,
    ApiKey,
    ApiSource,
    ClientPolicy,
    Issuer,
    OAuthClient,
    Prompt,
    PromptKind,
    Resource,
    ResourceKind,
    RunningCall,
    Session,
    SignInEvent,
    Tenant,
    TenantScope,
    Tool,
    ToolKind,
    Toolset,
    Upstream,
    directory,
    issuers,
    validators,
    versioned,
)
from tools_app.oauth import authorize, device_page, endpoints, server
from tools_app.protocol import jsonrpc, schema_bounds
from tools_app.protocol.authoring_schema import check_schema
from tools_app.protocol.errors import OVER_LIMIT, RpcError
from tools_app.protocol.schema import TOO_MUCH_WORK, CompiledSchema
from tools_app.tenant_config import document, reader
from tools_app.tool_api.context import ToolContext
from tools_app.tool_api.results import ToolError
from tools_app.toolkit import tool
from tools_app.transport import legacy_sse, page_guard, request_head, sse_mailbox
from tools_app.upstreams import connections as upstream_connections
from tools_app.upstreams import drafts as upstream_drafts
from tools_app.upstreams import parked_rows
from tools_app.upstreams.credentials import store as upstream_store
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.exchanges import tasks
from tools_app.upstreams.parked_rows import Ticket
from tools_app.upstreams.updates import connection_updates

# These tests try every bound.
pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
FORM = "application/x-www-form-urlencoded"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@dataclass
class ProbeContext:
    """The fixtures of a probe: a client with a key, a session of it, and the means to change the hub."""

    client: RawClient
    session: Peer
    tenant: Tenant
    settings: Any
    monkeypatch: pytest.MonkeyPatch

    def post(self, body: Any) -> httpx.Response:
        """Send a message within the session."""
        return self.client.post(body, self.session.headers())

    def resources(self, *uris: str) -> None:
        for uri in uris:
            authoring.save_resource(
                Resource(tenant=self.tenant, uri=uri, name="own", kind=ResourceKind.TEXT, text="old")
            )


Answers = tuple[httpx.Response, httpx.Response]
Probe = Callable[[ProbeContext], Answers | None]
PROBES: dict[str, Probe] = {}


def probe(input_name: str) -> Callable[[Probe], Probe]:
    """Register a function as the probe of the row with this input."""

    def register_probe(function: Probe) -> Probe:
        assert input_name not in PROBES
        PROBES[input_name] = function
        return function

    return register_probe


@pytest.fixture
def ctx(
    client: RawClient, tenant: Tenant, settings: Any, monkeypatch: pytest.MonkeyPatch, registries: None
) -> ProbeContext:
    return ProbeContext(client, client.handshake(), tenant, settings, monkeypatch)


def text_of_bytes(limit: int) -> tuple[str, str]:
    """Texts of exactly `limit` bytes of JSON, and of one more."""
    return "x" * (limit - 2), "x" * (limit - 1)


def object_of_bytes(limit: int, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for objects."""
    empty = len(json.dumps({"x": "", **more}, separators=(",", ":")))
    return {"x": "x" * (limit - empty), **more}, {"x": "x" * (limit - empty + 1), **more}


def post_form(ctx: ProbeContext, path: str, size: int, **headers: str) -> httpx.Response:
    """Post a form of so many bytes with these headers."""
    all_headers = {"Content-Type": "application/json" if path.startswith("/api/") else FORM, **headers}
    return ctx.client.http.post(path, content=b"{}".ljust(size), headers=all_headers)


def get(ctx: ProbeContext, path: str = "/healthz", **headers: str) -> httpx.Response:
    return ctx.client.http.get(path, headers=headers)


def person(ctx: ProbeContext) -> User:
    return User.objects.create_superuser("root", password="correct horse")


@probe("headers of a request")
def headers(ctx: ProbeContext) -> Answers:
    usual = len(get(ctx).request.headers)
    first, second = (
        get(ctx, **{f"X-{number}": "y" for number in range(request_head.MAX_HEADERS - usual + more)}) for more in (0, 1)
    )
    return first, second


@probe("path of a request")
def path(ctx: ProbeContext) -> Answers:
    assert get(ctx, "/" + "x" * (request_head.MAX_PATH_BYTES - 1)).status_code == 404
    assert get(ctx, "/x%00").status_code == 400
    return get(ctx), get(ctx, "/" + "x" * request_head.MAX_PATH_BYTES)


@probe("query of a request")
def query(ctx: ProbeContext) -> Answers:
    assert get(ctx, "/healthz?x=%00").status_code == 400
    limit = request_head.MAX_QUERY_BYTES
    return get(ctx, f"/healthz?{'x' * limit}"), get(ctx, f"/healthz?{'x' * (limit + 1)}")


@probe("`Host` of a request")
def host(ctx: ProbeContext) -> Answers:
    host_name = urlsplit(ctx.client.url).netloc
    with raw_connection(ctx.client.url) as connection:
        connection.sendall(head_of(ctx.client.url, "GET", [("Host", host_name)], "/healthz"))
        with read_response(connection) as response:
            return get(ctx), httpx.Response(response.status)


@probe("body without a valid API key, to `/mcp`")
def strangers_body(ctx: ProbeContext) -> Answers:
    stranger = RawClient(ctx.client.url, None)
    answer = stranger.post(b"{}".ljust(1_000_000))
    assert answer.headers["connection"] == "close"
    stranger.http.close()
    return ctx.post(PING), answer


@probe("body without a login, to any other path")
def strangers_form(ctx: ProbeContext) -> Answers:
    # A body that is read fails the CSRF check.
    assert post_form(ctx, "/admin/login/", page_guard.MAX_FORM_BYTES).status_code == 403
    return get(ctx), post_form(ctx, "/admin/login/", page_guard.MAX_FORM_BYTES + 1)


@probe("body of a user's upload to `/admin/`")
def upload(ctx: ProbeContext) -> Answers:
    browser = Client()
    browser.force_login(person(ctx))
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    sizes = (page_guard.MAX_UPLOAD_BYTES, page_guard.MAX_UPLOAD_BYTES + 1)
    read, refused = (post_form(ctx, "/admin/tools_app/tool/add/", size, Cookie=cookie) for size in sizes)
    assert read.status_code == 403
    return get(ctx), refused


@probe("body of a user's request to `/api/`")
def api(ctx: ProbeContext) -> Answers:
    ctx.settings.MCPHUB_MAX_BODY_BYTES = 100_000
    bearer = f"Bearer {tokens.issue(person(ctx), 'test')[1]}"
    read, refused = (post_form(ctx, "/api/v1/tools/", size, Authorization=bearer) for size in (100_000, 100_001))
    assert read.status_code == 400
    return get(ctx), refused


@probe("time to receive a body")
def time_of_body(ctx: ProbeContext) -> Answers:
    ctx.monkeypatch.setattr(request_memory, "BODY_SECONDS", 0.2)
    ctx.monkeypatch.setattr(request_memory, "BYTES_PER_SECOND", 1024**3)
    over = threading.Event()

    def pieces(last: threading.Event) -> Iterator[bytes]:
        yield b'{"jsonrpc":"2.0",'
        last.wait(5.0)
        yield b'"id":1,"method":"ping"}'

    content = pieces(over)
    response = ctx.client.http.build_request(
        "POST", "/mcp", content=content, headers=ctx.client.headers(ctx.session.headers())
    )
    threading.Timer(1.0, over.set).start()
    return ctx.post(PING), ctx.client.http.send(response)


@probe("pause within a body")
def pause(ctx: ProbeContext) -> None:
    """Shown by `tests/server/test_boundary.py` with a shorter one."""


@probe("time in which a client reads nothing of what it is sent")
def reading(_ctx: ProbeContext) -> None:
    """Shown by `tests/server/test_boundary.py` with a shorter one."""


@contextmanager
def without_memory(ctx: ProbeContext, budget: MemoryBudget) -> Iterator[None]:
    """Exhaust the memory budget of the tenant. Its requests do not wait for it."""
    ctx.monkeypatch.setattr(request_memory, "WAIT_SECONDS", 0.01)
    assert budget.try_hold(ctx.tenant.pk, 2**40)
    yield
    budget.free(ctx.tenant.pk, 2**40)


@probe("bodies above 64 KiB that a tenant sends at once")
def bodies(ctx: ProbeContext) -> Answers:
    content = json.dumps(PING).encode().ljust(1_000_000)
    with without_memory(ctx, request_memory._bodies):
        assert ctx.post(PING).status_code == 200
        refused = ctx.post(content)
    return ctx.post(content), refused


@probe("answers above 64 KiB to a tenant, until they are read")
def results(ctx: ProbeContext) -> None:
    authoring.add_code_tools(ctx.tenant, ["echo"])
    authoring.save_tool(
        Tool(
            tenant=ctx.tenant,
            name="wordy",
            kind=ToolKind.HTTP,
            input_schema={"type": "object", "properties": {"q": {"type": "string", "description": "x" * 100_000}}},
            config={"method": "GET", "base_url": "https://api.example.com", "path": "first"},
        )
    )
    with without_memory(ctx, request_memory._results):
        assert ctx.session.result("echo", {"message": "x"})["isError"] is False
        refused = ctx.session.result("echo", {"message": "x" * 100_000})
        assert "Too many large" in refused["content"][0]["text"]
        page = ctx.client.modern("tools/list")
        assert (page.status_code, page.json()["error"]["code"]) == (429, OVER_LIMIT)
    assert ctx.session.result("echo", {"message": "x" * 100_000})["isError"] is False
    assert ctx.client.modern("tools/list").status_code == 200


@probe("queued requests of a tenant")
def waiting(_ctx: ProbeContext) -> None:
    """`tests/core/test_fair_scheduler.py` fills the line."""


@probe("queued requests without a known API key")
def waiting_strangers(_ctx: ProbeContext) -> None:
    """`tests/transport/test_refusals.py` fills the line."""


@probe("queued requests for pages")
def waiting_pages(_ctx: ProbeContext) -> None:
    """`tests/transport/test_pages_in_turn.py` fills the line."""


@probe("message over a WebSocket")
def message_over_a_websocket(ctx: ProbeContext) -> None:
    """Shown by `tests/wire/test_websocket.py`."""


@probe("body of a request to `/mcp`")
def body(ctx: ProbeContext) -> Answers:
    ctx.settings.MCPHUB_MAX_BODY_BYTES = 1000
    content = json.dumps(PING).encode()
    return ctx.post(content.ljust(1000)), ctx.post(content.ljust(1001))


@probe("nesting of JSON")
def nesting(ctx: ProbeContext) -> Answers:
    deep = [b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":%b%b}}' % (b"[" * n, b"]" * n) for n in (62, 63)]
    assert jsonrpc.MAX_DEPTH == 64
    return ctx.post(deep[0]), ctx.post(deep[1])


@probe("objects and lists in a message")
def containers(ctx: ProbeContext) -> Answers:
    # The message, its params and the list in them count as well.
    limit = jsonrpc.MAX_CONTAINERS
    bodies = [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[%b[]]}}' % (b"[]," * (limit - 4 + more))
        for more in (0, 1)
    ]
    return ctx.post(bodies[0]), ctx.post(bodies[1])


@probe("batch (2025-03-26)")
def batch(ctx: ProbeContext) -> Answers:
    session, limit = ctx.client.handshake("2025-03-26"), jsonrpc.MAX_BATCH
    first, second = (ctx.client.post([PING] * size, session.headers()) for size in (limit, limit + 1))
    return first, second


@probe("`id` of a request")
def request_id(ctx: ProbeContext) -> Answers:
    within, beyond = text_of_bytes(jsonrpc.MAX_ID_BYTES)
    answer = ctx.post({**PING, "id": within})
    assert answer.json()["id"] == within
    assert ctx.post({**PING, "id": 2**63}).status_code == 200
    assert ctx.post(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % 2**64).json()["error"]["code"] == -32600
    return answer, ctx.post({**PING, "id": beyond})


@probe("`method`")
def method(ctx: ProbeContext) -> Answers:
    within = ctx.post({**PING, "method": "x" * jsonrpc.MAX_METHOD_LENGTH})
    assert within.json()["error"]["code"] == -32601
    return ctx.post(PING), ctx.post({**PING, "method": "x" * (jsonrpc.MAX_METHOD_LENGTH + 1)})


@probe("`_meta` of a request")
def meta(ctx: ProbeContext) -> Answers:
    first, second = (
        ctx.session.request("ping", {"_meta": meta_value}) for meta_value in object_of_bytes(jsonrpc.MAX_META_BYTES)
    )
    return first, second


@probe("`progressToken`")
def progress_token(ctx: ProbeContext) -> Answers:
    tokens = text_of_bytes(jsonrpc.MAX_PROGRESS_TOKEN_BYTES)
    first, second = (ctx.session.request("ping", {"_meta": {"progressToken": token}}) for token in tokens)
    return first, second


@probe("`protocolVersion`")
def protocol_version(ctx: ProbeContext) -> Answers:
    limit = jsonrpc.MAX_VERSION_LENGTH
    meta = {"io.modelcontextprotocol/protocolVersion": "x" * (limit + 1)}
    assert ctx.client.modern("server/discover", {"_meta": meta}).json()["error"]["code"] == -32602
    return ctx.client.initialize("x" * limit), ctx.client.initialize("x" * (limit + 1))


@probe("capabilities of a client")
def capabilities(ctx: ProbeContext) -> Answers:
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
        for send in (ctx.client.initialize, lambda **params: ctx.client.modern("server/discover", **params)):
            assert send(capabilities=within).status_code == 200
            assert send(capabilities=beyond).json()["error"]["code"] == -32602
    assert {len(json.dumps(row.client_capabilities)) < 20_000 for row in Session.objects.all()} == {True}
    within, beyond = pairs[0]
    return ctx.client.initialize(capabilities=within), ctx.client.initialize(capabilities=beyond)


@probe("name and version of a client")
def client_name(ctx: ProbeContext) -> None:
    response = ctx.client.initialize(clientInfo={"name": "n" * 100_000, "version": "v" * 100_000, "icons": ["i"] * 9})
    assert response.status_code == 200
    row = Session.objects.latest("created_at")
    assert row.client_name == "n" * jsonrpc.MAX_CLIENT_NAME_LENGTH
    assert row.client_version == "v" * jsonrpc.MAX_CLIENT_VERSION_LENGTH


@probe("arguments of a tool call, prompt or resource read")
def arguments(ctx: ProbeContext) -> Answers:
    ctx.settings.MCPHUB_MAX_ARGUMENT_BYTES = 100
    authoring.add_code_tools(ctx.tenant, ["echo"])
    empty = len('{"message":""}')
    within, beyond = (ctx.session.call("echo", {"message": "x" * (size - empty)}) for size in (100, 101))
    return within, beyond


@probe("URI of a subscription")
def uri(ctx: ProbeContext) -> Answers:
    longest = "docs://" + "x" * (jsonrpc.MAX_URI_LENGTH - 7)
    assert ctx.session.request("resources/subscribe", {"uri": longest}).json()["error"]["code"] == -32002
    first, second = (
        ctx.session.request("resources/unsubscribe", {"uri": resource_uri}) for resource_uri in (longest, longest + "x")
    )
    return first, second


@probe("subscriptions of a session")
def subscriptions(ctx: ProbeContext) -> Answers:
    ctx.monkeypatch.setattr(sessions, "MAX_SUBSCRIPTIONS", 1)
    ctx.resources("docs://a", "docs://b")
    first, second = (
        ctx.session.request("resources/subscribe", {"uri": resource_uri}) for resource_uri in ("docs://a", "docs://b")
    )
    return first, second


@probe("URIs of all subscriptions of a session")
def subscribed_length(ctx: ProbeContext) -> Answers:
    ctx.monkeypatch.setattr(sessions, "MAX_SUBSCRIBED_LENGTH", len("docs://a"))
    ctx.resources("docs://a", "docs://b")
    first, second = (
        ctx.session.request("resources/subscribe", {"uri": resource_uri}) for resource_uri in ("docs://a", "docs://b")
    )
    return first, second


@probe("URIs of one `subscriptions/listen`")
def listened(ctx: ProbeContext) -> Answers:
    uris = [f"docs://{number}" for number in range(sessions.MAX_SUBSCRIPTIONS + 1)]
    params = [{"notifications": {"resourceSubscriptions": uris_listened}} for uris_listened in (uris[:-1], uris)]
    with ctx.client.peer("2026-07-28").stream("subscriptions/listen", params[0]) as stream:
        return stream.response, ctx.client.modern("subscriptions/listen", params[1])


@probe("answer to a request for input (elicitation, sampling, roots)")
def answer_to_a_question(ctx: ProbeContext) -> Answers:
    @tool
    async def roots(context: ToolContext) -> str:
        return str(len(await context.list_roots()))

    authoring.add_code_tools(ctx.tenant, ["roots"])
    peer = ctx.client.handshake(capabilities={"roots": {}})
    answers, texts = [], []
    empty = len(json.dumps({"roots": [{"uri": ""}]}, separators=(",", ":")))
    for more in (0, 1):
        with peer.stream("tools/call", {"name": "roots", "arguments": {}}) as stream:
            result = {"roots": [{"uri": "x" * (jsonrpc.MAX_ANSWER_BYTES - empty + more)}]}
            answers.append(peer.respond(stream.next()["id"], result))
            texts.append(stream.read_to_end()[-1]["result"]["content"][0]["text"])
    assert texts[0] == "1"
    assert f"has more than {jsonrpc.MAX_ANSWER_BYTES} bytes" in texts[1]
    return answers[0], answers[1]


@probe("answers of one request (2026-07-28)")
def answers_of_one_request(ctx: ProbeContext) -> Answers:
    authoring.add_code_tools(ctx.tenant, ["echo"])

    def send_answers(answers: dict[str, Any]) -> httpx.Response:
        params = {"name": "echo", "arguments": {"message": "x"}, "inputResponses": answers}
        return ctx.client.modern("tools/call", params, headers={"Mcp-Name": "echo"})

    empty = len(json.dumps({"x": ""}, separators=(",", ":")))
    for rejected in (
        {"x" * (jsonrpc.MAX_ANSWER_NAME_LENGTH + 1): {}},
        {"x": {"x": "x" * (jsonrpc.MAX_ANSWER_BYTES - empty + 1)}},
    ):
        assert send_answers(rejected).json()["error"]["code"] == -32602
    assert send_answers({"x": {"x": "x" * (jsonrpc.MAX_ANSWER_BYTES - empty)}}).status_code == 200
    first, second = (send_answers({str(n): {} for n in range(jsonrpc.MAX_ANSWERS + more)}) for more in (0, 1))
    return first, second


@probe("name, value and reference of a completion")
def completion(ctx: ProbeContext) -> Answers:
    authoring.save_prompt(
        Prompt(
            tenant=ctx.tenant,
            name="greet",
            kind=PromptKind.TEMPLATE,
            arguments=[{"name": "who", "values": ["Ann"]}],
            messages=[{"role": "user", "text": "{who}"}],
        )
    )

    def complete(value: str, name: str = "who", prompt: str = "greet") -> httpx.Response:
        params = {"ref": {"type": "ref/prompt", "name": prompt}, "argument": {"name": name, "value": value}}
        return ctx.session.request("completion/complete", params)

    longer = "x" * (jsonrpc.MAX_COMPLETED_LENGTH + 1)
    for response in (complete("", longer), complete("", "who", longer), complete("\0")):
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32602)
    return complete(longer[1:]), complete(longer)


@probe("queued messages of an HTTP+SSE stream")
def waiting_messages(ctx: ProbeContext) -> Answers:
    ctx.monkeypatch.setattr(legacy_sse, "MAX_WAITING_BYTES", 1000)
    ctx.monkeypatch.setattr(sse_mailbox, "MAX_BYTES", 1000)
    message = json.dumps(PING).encode().ljust(1001)

    async def at_once() -> None:
        inbox = legacy_sse.Inbox(uuid4())
        ctx.monkeypatch.setattr(legacy_sse.Inbox, "fetch", AsyncMock())
        await inbox.put(message)
        with pytest.raises(RpcError) as rejection:
            await inbox.put(message)
        assert (rejection.value.status, rejection.value.retry_after) == (429, 1)

    asyncio.run(at_once())
    with sse(ctx.client) as stream:
        # As in a process without the stream, whose messages in the store nobody fetches.
        ctx.monkeypatch.setattr(legacy_sse, "_inboxes", {})
        first, second = stream.post(message), stream.post(message)
    assert second.headers["retry-after"] == "1"
    return first, second


@probe("arguments repeated by a prompt")
def repeated_in_a_prompt(ctx: ProbeContext) -> None:
    ctx.settings.MCPHUB_MAX_RESULT_BYTES = 1000
    row = Prompt(arguments=[{"name": "a"}], messages=[{"role": "user", "text": "{a}" * 100}])
    render = stored.renderer(row)
    assert asyncio.run(render({"a": "x" * 10}, ToolContext.__new__(ToolContext))).messages
    with pytest.raises(ToolError, match="larger than the limit of 1000 bytes"):
        asyncio.run(render({"a": "x" * 11}, ToolContext.__new__(ToolContext)))


@probe("arguments repeated by the request of an HTTP tool")
def repeated_in_a_request(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(http_request, "MAX_REPEATED", 1000)
    config = HttpConfig(
        method="POST", base_url="https://api.example.com", body_mode="template", body={"x": "{a}" * 100}
    )
    assert http_request.build_request(config, Values({"a": "x" * 10}, {})).body
    with pytest.raises(ToolError, match="more than 1000 characters"):
        http_request.build_request(config, Values({"a": "x" * 11}, {}))


@probe("tenant configuration file (YAML), in the admin")
def tenant_file_in_the_admin(_ctx: ProbeContext) -> None:
    """Shown by `tests/admin/test_field_bounds.py`."""


@probe("tools, resources, prompts or secrets of a tenant")
def rows_of_a_tenant(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(versioned, "MAX_ROWS", 2)
    ctx.resources("docs://a")
    row = Resource(tenant=ctx.tenant, uri="docs://b", name="own", kind=ResourceKind.TEXT, text="new")
    row.clean()
    ctx.resources("docs://b")
    with pytest.raises(ValidationError, match="A tenant has at most 2 resources"):
        row.clean()
    rows = [f"  x{number}: {{function: echo}}\n" for number in range(3)]
    assert document.read(f"mcphub: 1\ntools:\n{''.join(rows[:2])}").sections["tools"]
    with pytest.raises(document.InvalidConfiguration, match="at most 2"):
        document.read(f"mcphub: 1\ntools:\n{''.join(rows)}")


@probe("upstreams of a tenant")
def upstreams_of_a_tenant(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(upstream_drafts, "MAX_UPSTREAMS", 1)
    row = Upstream(tenant=ctx.tenant, name="books", url="https://books.example.com/mcp")
    assert not upstream_drafts.upstream_faults(row)
    row.save()
    other = Upstream(tenant=ctx.tenant, name="more", url="https://books.example.com/mcp")
    too_many = "A tenant has at most 1 upstreams. Delete one first."
    assert upstream_drafts.upstream_faults(other) == {"name": [too_many]}


@probe("calls of upstreams that wait for answers of their clients")
def parked_calls(ctx: ProbeContext) -> None:
    names = ("MAX_PARKED_OF_KEY", "MAX_PARKED_OF_UPSTREAM", "MAX_PARKED_OF_TENANT", "MAX_PARKED")
    upstream = Upstream.objects.create(tenant=ctx.tenant, name="books", url="https://books.example/mcp")
    key = ApiKey.objects.filter(tenant=ctx.tenant).first()
    assert key is not None
    call = RunningCall.objects.create(
        tenant=ctx.tenant,
        api_key=key,
        tool_name="x",
        status="running",
        background=False,
        owner=uuid4(),
        timeout_seconds=60,
    )
    for number, name in enumerate(names, 1):
        parked_rows.insert(Ticket(uuid4(), 1), ctx.tenant.pk, upstream.pk, call.pk)
        with ctx.monkeypatch.context() as bound:
            bound.setattr(parked_rows, name, number)
            with pytest.raises(parked_rows.TooManyParked):
                parked_rows.insert(Ticket(uuid4(), 1), ctx.tenant.pk, upstream.pk, call.pk)


@probe("resources of an upstream that are subscribed to")
def subscribed_resources(_ctx: ProbeContext) -> None:
    updates = connection_updates.ConnectionUpdates(AsyncMock(), lambda _uris: None)
    updates._wake = lambda: None  # type: ignore[method-assign]
    updates.set_uris(f"docs://{number}" for number in range(connection_updates.MAX_URIS + 1))
    assert len(updates._uris) == connection_updates.MAX_URIS


@probe("credential for an upstream")
def credential_for_an_upstream(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(upstream_store, "MAX_VALUE_LENGTH", 3)
    url = "https://books.example.com/mcp"
    row = Upstream.objects.create(tenant=ctx.tenant, name="books", url=url, credential="header")
    upstream_store.save_value(row, upstream_store.TENANT, "abc")
    with pytest.raises(upstream_store.InvalidCredential, match="at most 3"):
        upstream_store.save_value(row, upstream_store.TENANT, "abcd")


@probe("fields of a form in the admin")
def fields_of_a_form(ctx: ProbeContext) -> Answers:
    browser = Client()
    browser.force_login(person(ctx))
    limit = ctx.settings.DATA_UPLOAD_MAX_NUMBER_FIELDS

    def post(fields: dict[str, str]) -> httpx.Response:
        return httpx.Response(browser.post(reverse("admin:filter_save"), fields, follow=True).status_code)

    assert post({"x": "x" * ctx.settings.DATA_UPLOAD_MAX_MEMORY_SIZE}).status_code == 400
    return post({f"x{n}": "" for n in range(limit)}), post({f"x{n}": "" for n in range(limit + 1)})


@probe("search in the documentation")
def documentation(ctx: ProbeContext) -> None:
    browser = Client()
    browser.force_login(person(ctx))
    assert browser.get("/docs/", {"q": "x" * (search.MAX_QUERY_LENGTH - 4) + " key"}).context["results"]
    assert not browser.get("/docs/", {"q": "x" * search.MAX_QUERY_LENGTH + " key"}).context["results"]


@probe("page of a list (REST)")
def rest_page(_ctx: ProbeContext) -> None:
    """Shown by `tests/api/test_page_bytes.py`."""


@probe("text of a REST field or a form")
def rest_text(_ctx: ProbeContext) -> None:
    """Shown for every field by `tests/api/test_field_bounds.py` and `tests/admin/test_field_bounds.py`."""


@probe("JSON of a REST field or a form")
def rest_json(_ctx: ProbeContext) -> None:
    """The same."""


@probe("description of a tool, a resource or a prompt")
def description(ctx: ProbeContext) -> None:
    limit = sizes.MAX_DESCRIPTION_LENGTH
    rows = [
        (Tool(tenant=ctx.tenant, name="x", kind="http", input_schema={"type": "object"}), tool_faults),
        (Resource(tenant=ctx.tenant, uri="docs://x", name="x", kind=ResourceKind.TEXT), resource_faults),
        (Prompt(tenant=ctx.tenant, name="x", kind=PromptKind.TEMPLATE), prompt_faults),
    ]
    for row, faults in rows:
        for length, is_fault in ((limit, False), (limit + 1, True)):
            row.description = "x" * length
            assert ("description" in faults(row)) == is_fault  # type: ignore[operator]


@probe("list of networks, patterns or names of keys")
def lists_of_texts(_ctx: ProbeContext) -> None:
    for check in (validators.validate_key_names, validators.validate_patterns):
        check(["x" * validators.MAX_ENTRY_LENGTH] * validators.MAX_ENTRIES)
        for rejected in (["x"] * (validators.MAX_ENTRIES + 1), ["x" * (validators.MAX_ENTRY_LENGTH + 1)], ["x\0"]):
            with pytest.raises(ValidationError):
                check(rejected)


@probe("list of permitted names")
def lists_of_names(_ctx: ProbeContext) -> None:
    longest = [f"tool={'x' * validators.MAX_ENTRY_LENGTH}"] * (validators.MAX_EXACT - validators.MAX_ENTRIES)
    validators.validate_names([*longest, *["x" * validators.MAX_ENTRY_LENGTH] * validators.MAX_ENTRIES])
    for rejected in (
        ["x"] * (validators.MAX_ENTRIES + 1),
        ["tool=x"] * (validators.MAX_EXACT + 1),
        ["x" * (validators.MAX_ENTRY_LENGTH + 1)],
        [f"{longest[0]}x"],
        ["tool=x\0"],
    ):
        with pytest.raises(ValidationError):
            validators.validate_names(rejected)


@probe("value of a secret")
def secret(_ctx: ProbeContext) -> None:
    """Shown by `tests/api/test_field_bounds.py` and `tests/admin/test_field_bounds.py`."""


@probe("files of a skill")
def files_of_a_skill(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(skills, "MAX_FILES", 2)
    head = "---\nname: own\ndescription: x\n---\n"

    def offer_files(*names: str) -> int:
        for name in names:
            authoring.save_resource(
                Resource(
                    tenant=ctx.tenant,
                    uri=f"skill://own/{name}",
                    name=name,
                    kind=ResourceKind.TEXT,
                    text=head if name == "SKILL.md" else "x",
                )
            )
        return len(skills.skills_of(compiled.load([ctx.tenant.pk])[ctx.tenant.pk]))

    assert offer_files("SKILL.md", "one.md") == 1
    assert offer_files("two.md") == 0


@probe("tenant configuration file (YAML)")
def tenant_file(_ctx: ProbeContext) -> None:
    limit = reader.MAX_BYTES
    assert reader.parse("a: x".ljust(limit)) == {"a": "x"}
    for rejected in ("a: x".ljust(limit + 1), "a: &a [x]\nb: *a"):
        with pytest.raises(reader.YamlError):
            reader.parse(rejected)


@probe("file of a resource")
def resource_file(_ctx: ProbeContext) -> None:
    assert file_fault(MAX_BYTES) is None
    assert "larger than 5 MB" in str(file_fault(MAX_BYTES + 1))


@probe("text of a resource")
def resource_text(_ctx: ProbeContext) -> None:
    assert text_fault("x" * MAX_CHARACTERS, "docs://own") is None
    assert "200000 characters" in str(text_fault("x" * (MAX_CHARACTERS + 1), "docs://own"))


@probe("frontmatter of a SKILL.md")
def skill_frontmatter(_ctx: ProbeContext) -> None:
    head = "name: own\ndescription: "
    text = "x" * (skills.MAX_FRONTMATTER - len(head))
    assert skills.frontmatter(f"---\n{head}{text}\n---\n", "skill://own/SKILL.md")
    for rejected in (f"{head}{text}x", "name: &a own\ndescription: *a"):
        with pytest.raises(skills.InvalidManifest):
            skills.frontmatter(f"---\n{rejected}\n---\n", "skill://own/SKILL.md")


@probe("URI template of a resource")
def uri_template(_ctx: ProbeContext) -> None:
    variables = "".join(f"{{v{number}}}-" for number in range(uri_templates.MAX_VARIABLES))
    fits = "x:" + variables
    assert uri_fault(fits.ljust(uri_templates.MAX_TEMPLATE_LENGTH, "x"), template=True) is None
    too_long = fits.ljust(uri_templates.MAX_TEMPLATE_LENGTH + 1, "x")
    assert "at most 500 characters" in str(uri_fault(too_long, template=True))
    assert "at most 16 variables" in str(uri_fault(fits + "{w}", template=True))


@probe("regular expressions in a schema")
def patterns(_ctx: ProbeContext) -> None:
    limit = schema_bounds.MAX_PATTERN_LENGTH
    assert check_schema({"pattern": "x" * limit}) == []
    assert "longer than 4000" in str(check_schema({"pattern": "x" * (limit + 1)}))
    assert check_schema({"patternProperties": {f"x{n}": {} for n in range(schema_bounds.MAX_PATTERNS)}}) == []
    assert "more than 500" in str(check_schema({"patternProperties": {f"x{n}": {} for n in range(501)}}))
    assert check_schema({"pattern": "^.{1,900}$"}) == []
    assert "too large when compiled" in str(check_schema({"pattern": "^.{1,9000}$"}))
    together = {"properties": {f"x{n}": {"pattern": f"^.{{1,{900 + n}}}$"} for n in range(5)}}
    assert "more than 4096 KiB together" in str(check_schema(together))


@probe("time to validate a value against a schema")
def work(_ctx: ProbeContext) -> None:
    schema = CompiledSchema({"pattern": "^.{1,900}$"})
    assert [len(schema.problems("x" * length)) for length in (900, 901, 100_000)] == [0, 1, 1]
    assert schema.problems("x" * 100_000)[0].message == TOO_MUCH_WORK


@probe("pasted cURL command or URL")
def pasted_text(_ctx: ProbeContext) -> None:
    url = "https://api.example.com/"
    assert draft_of(url.ljust(curl.MAX_PASTE_LENGTH, "x")).fields
    with pytest.raises(curl.InvalidPaste, match="The limit is"):
        draft_of(url.ljust(curl.MAX_PASTE_LENGTH + 1, "x"))
    headers = " -H a:b" * (curl.MAX_WORDS // 2 - 1)
    assert draft_of(f"curl {url}{headers}").fields
    with pytest.raises(curl.InvalidPaste):
        draft_of(f"curl {url}{headers} -s")


@probe("query or form of an operation of an API source")
def operation_query(_ctx: ProbeContext) -> None:
    def text(value: Any) -> str:
        return operation_styles.query_text(operation_styles.pairs(value, "x", "deepObject", explode=True))

    assert text(["a"] * operation_styles.MAX_PAIRS)
    nested: Any = "a"
    for _ in range(operation_styles.MAX_DEPTH + 1):
        nested = [nested]
    for value in (["a"] * (operation_styles.MAX_PAIRS + 1), {"n" * 100_000: ["a"] * 200}, nested):
        with pytest.raises(ToolError, match=r"more than|deeper than"):
            text(value)
    assert text(nested[0])


@probe("OpenAPI document")
def api_document(_ctx: ProbeContext) -> None:
    smallest = b'{"openapi": "3.1.0", "paths": {}}'
    assert openapi.parse(smallest.ljust(openapi_reader.MAX_BYTES)).operations == []
    values = openapi_reader.MAX_VALUES - 3
    for text in (
        smallest.ljust(openapi_reader.MAX_BYTES + 1),
        b'{"a":' + b"[" * (openapi_reader.MAX_DEPTH + 1) + b"]" * (openapi_reader.MAX_DEPTH + 1) + b"}",
        b'{"a":[' + b"1," * values + b"1,1,1]}",
    ):
        with pytest.raises(openapi_reader.UnreadableDocument, match=r"larger than|deeper than|more than"):
            openapi_reader.read(text)
    openapi_reader.read(b'{"a":' + b"[" * (openapi_reader.MAX_DEPTH - 2) + b"]" * (openapi_reader.MAX_DEPTH - 2) + b"}")
    paths = {f"/{number}": {"get": {}} for number in range(openapi.MAX_OPERATIONS + 1)}
    with pytest.raises(openapi_reader.UnreadableDocument, match="operations"):
        openapi.parse(json.dumps({"openapi": "3.1.0", "paths": paths}).encode())


@probe("documents that an OpenAPI document refers to")
def api_documents(_ctx: ProbeContext) -> None:
    def skipped(limit: int) -> list[str]:
        numbers = range(limit)
        paths = {f"/{number}": {"get": {"parameters": [{"$ref": f"{number}.json"}]}} for number in numbers}
        text = json.dumps({"openapi": "3.1.0", "paths": paths}).encode()
        other = b'{"name": "a", "in": "query"}'
        whole = openapi_bundle.bundled(text, "https://a/b", lambda _: other)
        return [operation.reason for operation in openapi.parse(whole).skipped]

    assert not skipped(openapi_bundle.MAX_DOCUMENTS)
    (reason,) = skipped(openapi_bundle.MAX_DOCUMENTS + 1)
    assert "more than 100 others" in reason


@probe("operation of an OpenAPI document")
def api_operation(_ctx: ProbeContext) -> None:
    def skipped(**operation: Any) -> list[str]:
        text = json.dumps({"openapi": "3.1.0", "paths": {"/a": {"post": operation}}}).encode()
        return [part.reason for part in openapi.parse(text).skipped]

    def parameters(number: int) -> list[Any]:
        return [{"in": "query", "name": f"p{at}"} for at in range(number)]

    assert skipped(parameters=parameters(openapi_arguments.MAX_PARTS)) == []
    assert "more than" in skipped(parameters=parameters(openapi_arguments.MAX_PARTS + 1))[0]
    large = [{**part, "schema": {"const": "x" * 3000}} for part in parameters(100)]
    assert "larger than" in skipped(parameters=large)[0]


@probe("documents that are read at once")
def documents_at_once(_ctx: ProbeContext) -> None:
    """Shown by `tests/runtime/test_api_sources.py`."""


@probe("upstreams of a tenant that people have listed at once")
def discoveries(_ctx: ProbeContext) -> None:
    """Shown by `tests/upstreams/test_bad_upstreams.py`."""


@probe("clients with a metadata document and without a connection")
def unused_documents(_ctx: ProbeContext) -> None:
    """Shown by `tests/oauth/test_rooms.py`."""


@probe("API sources of a tenant")
def api_sources(ctx: ProbeContext) -> None:
    tenant = ctx.tenant
    sources = [ApiSource(tenant=tenant, name=f"s{number}") for number in range(source_settings.MAX_SOURCES)]
    ApiSource.objects.bulk_create(sources[:-1])
    assert source_settings.source_faults(sources[-1]) == {}
    sources[-1].save()
    assert "name" in source_settings.source_faults(ApiSource(tenant=tenant, name="more"))


@probe("patterns of the selected operations of an API source")
def selected_operations(ctx: ProbeContext) -> None:
    def faults(*patterns: str) -> Any:
        return source_settings.source_faults(ApiSource(tenant=ctx.tenant, name="x", selection=list(patterns)))

    pattern = "/" + "x" * (selection.MAX_PATTERN - 1)
    assert "selection" not in faults(*[pattern] * selection.MAX_PATTERNS)
    assert "selection" in faults(*[pattern] * (selection.MAX_PATTERNS + 1))
    assert "selection" in faults(pattern + "x")


@probe("connections of a tenant to upstreams, in a process")
def connections_to_upstreams(ctx: ProbeContext) -> None:
    def endpoint(number: int, *command: str) -> Any:
        return Mock(tenant_id=ctx.tenant.pk, id=uuid4(), url=str(number), command=command)

    holder = upstream_connections.Connections()
    try:
        ctx.monkeypatch.setattr(upstream_connections, "MAX_PROCESSES", 1)
        holder._connection(endpoint(1, "run"))
        with pytest.raises(ToolError, match="already runs 1 upstreams as processes"):
            holder._connection(endpoint(2, "run"))
        ctx.monkeypatch.setattr(upstream_connections, "MAX_CONNECTIONS", 2)
        holder._connection(endpoint(3))
        with pytest.raises(ToolError, match="Too many credentials"):
            holder._connection(endpoint(4))
    finally:
        holder._by_endpoint.clear()
        holder.close()


@probe("id of a task of an upstream")
def task_of_an_upstream(_ctx: ProbeContext) -> None:
    def task_id(length: int) -> str:
        created = {"taskId": "x" * length}
        return tasks.UpstreamTask(Mock(), created, {}, Mock(), AsyncMock(), is_left=lambda: False).id

    assert len(task_id(tasks.MAX_ID_LENGTH)) == tasks.MAX_ID_LENGTH
    with pytest.raises(UpstreamFailed, match="without a valid id"):
        task_id(tasks.MAX_ID_LENGTH + 1)


@probe("list of an upstream")
@probe("message of an upstream")
@probe("notifications of an upstream's call")
@probe("questions of an upstream's call")
@probe("calls of one upstream at the same time, in a process")
@probe("tasks of a caller, with those that upstreams run")
def upstreams(_ctx: ProbeContext) -> None:
    """Shown by `tests/upstreams` (bounds, bad upstreams, question rules, questions, pool) and `tests/wire/tasks`."""


@probe("alert rules and destinations of a tenant")
@probe("emails about alerts of a tenant")
@probe("response of a webhook")
@probe("test messages of alerts of a tenant")
def alerts(_ctx: ProbeContext) -> None:
    """Shown by `tests/alerts`, `tests/admin/test_alerts.py` and `tests/api/test_alerts.py`."""


@probe("arguments of a trial of an HTTP tool")
@probe("trials of HTTP tools of a tenant")
@probe("response that a trial shows")
def trial(_ctx: ProbeContext) -> None:
    """Shown by `tests/admin/test_http_tool_builder.py`."""


def test_the_page_has_the_table_as_the_code_has_it() -> None:
    assert PAGE.partition(BEGIN)[2].partition(END)[0].strip() == markdown(), (
        "run: python manage.py input_bounds --write docs/security.md"
    )


def test_every_row_has_a_probe_and_every_probe_a_row() -> None:
    assert sorted(PROBES) == sorted(bound.input for bound in table())


@pytest.mark.parametrize("bound", table(), ids=lambda bound: bound.input)
def test_input_within_a_bound_is_accepted_and_beyond_it_rejected_as_the_table_says(
    ctx: ProbeContext, bound: Bound
) -> None:
    answers = PROBES[bound.input](ctx)
    if answers is None:
        assert (bound.status, bound.code) == (None, None), "a probe gives back answers, or checks a row without them"
        return
    within, beyond = answers
    assert within.status_code < 300
    assert "error" not in (within.json() if within.headers.get("content-type") == "application/json" else {})
    assert beyond.status_code == bound.status
    if bound.code is not None:
        assert beyond.json()["error"]["code"] == bound.code


# --- Signing in -----------------------------------------------------------------------------------------------------


@probe("parameter of an OAuth request")
def oauth_parameter(ctx: ProbeContext) -> Answers:
    def send(length: int) -> httpx.Response:
        fields = {"grant_type": "refresh_token", "refresh_token": "x" * length, "client_id": registered(ctx)}
        return ctx.client.http.post("/oauth/token", data=fields)

    within = send(server.MAX_PARAMETER)
    assert within.json()["error"] == "invalid_grant"
    beyond = send(server.MAX_PARAMETER + 1)
    assert "too long" in beyond.json()["error_description"]
    return httpx.Response(200), beyond


def registered(ctx: ProbeContext, **more: Any) -> str:
    client_id: str = register(ctx, 1, **more).json()["client_id"]
    return client_id


def register(ctx: ProbeContext, uris: int, **more: Any) -> httpx.Response:
    metadata = {
        "redirect_uris": [f"http://localhost/{number}" for number in range(uris)],
        "token_endpoint_auth_method": "none",
        **more,
    }
    return ctx.client.http.post("/oauth/register", json=metadata)


@probe("registration of a client")
def registration(ctx: ProbeContext) -> Answers:
    within = register(ctx, redirects.MAX_URIS)
    assert within.status_code == 201
    assert ctx.client.http.post("/oauth/register", json={"x": "x" * endpoints.MAX_REGISTRATION_BYTES}).is_error
    return within, register(ctx, redirects.MAX_URIS + 1)


@probe("registrations of an address")
def registrations(ctx: ProbeContext) -> Answers:
    *within, beyond = [register(ctx, 1) for _ in range(endpoints.MAX_REGISTRATIONS + 1)]
    return within[-1], beyond


@probe("registered clients without a connection")
def unused_clients(ctx: ProbeContext) -> Answers:
    rows = (OAuthClient(client_id=f"c{number}", source="dynamic") for number in range(clients.MAX_UNUSED - 1))
    OAuthClient.objects.bulk_create(rows)
    return register(ctx, 1), register(ctx, 1)


@probe("authorization requests of an address")
def authorizations(ctx: ProbeContext) -> Answers:
    *within, beyond = [ctx.client.http.get("/oauth/authorize") for _ in range(authorize.MAX_REQUESTS + 1)]
    assert within[-1].status_code == 400
    return httpx.Response(200), beyond


@probe("token requests of an address")
def token_requests(ctx: ProbeContext) -> Answers:
    ctx.monkeypatch.setattr(endpoints, "MAX_TOKEN_REQUESTS", 2)
    *within, beyond = [ctx.client.http.post("/oauth/token") for _ in range(3)]
    assert within[-1].status_code == 400
    return httpx.Response(200), beyond


def device_request(ctx: ProbeContext, client_id: str) -> httpx.Response:
    return ctx.client.http.post("/oauth/device_authorization", data={"client_id": client_id})


@probe("device requests of an address")
def device_requests(ctx: ProbeContext) -> Answers:
    client_id = registered(ctx, grant_types=[devices.GRANT])
    *within, beyond = [device_request(ctx, client_id) for _ in range(endpoints.MAX_DEVICE_REQUESTS + 1)]
    return within[-1], beyond


@probe("devices that wait to sign in")
def open_devices(ctx: ProbeContext) -> Answers:
    ctx.monkeypatch.setattr(devices, "MAX_OPEN_OF_NETWORK", 1)
    client_id = registered(ctx, grant_types=[devices.GRANT])
    return device_request(ctx, client_id), device_request(ctx, client_id)


@probe("codes of devices that a person enters")
def device_codes(ctx: ProbeContext) -> Answers:
    browser = Client()
    browser.force_login(person(ctx))
    *within, beyond = [browser.post("/device", {"user_code": "BCDF-GHJK"}) for _ in range(device_page.MAX_ATTEMPTS + 1)]
    assert within[-1].status_code == 400
    return httpx.Response(200), httpx.Response(beyond.status_code)


@probe("metadata document of a client")
def client_document(_ctx: ProbeContext) -> None:
    """Shown by `tests/oauth/test_discovery.py`, and for what is fetched by the tests of HTTP tools."""


@probe("live access tokens of a service client")
def live_tokens(ctx: ProbeContext) -> None:
    row, _ = service_clients.create(ctx.tenant, "job")
    issued = [oauth_tokens.issue_access(row.connection, "mcp:call").access for _ in range(oauth_tokens.MAX_LIVE + 1)]
    assert AccessToken.objects.count() == oauth_tokens.MAX_LIVE
    digests = AccessToken.objects.values_list("digest", flat=True)
    assert access_digest(issued[0]) not in digests
    assert access_digest(issued[-1]) in digests


@probe("public keys of a client that signs")
def public_keys(_ctx: ProbeContext) -> None:
    key = ECKey.generate_key("P-256").as_dict(private=False)
    key_sets.checked({"keys": [key] * key_sets.MAX_KEYS})
    with pytest.raises(ValidationError):
        key_sets.checked({"keys": [key] * (key_sets.MAX_KEYS + 1)})
    room = key_sets.MAX_KEYS_BYTES - len(orjson.dumps([{**key, "note": ""}]))
    key_sets.checked({**key, "note": "x" * room})
    with pytest.raises(ValidationError, match="more than 65536 bytes"):
        key_sets.checked({**key, "note": "x" * (room + 1)})


@probe("steps of sign-ins by strangers")
def steps_of_strangers(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(attempts, "MAX_OF_STRANGERS", 2)
    for _ in range(4):
        ctx.client.http.get("/oauth/authorize")
    assert SignInEvent.objects.count() == 2


@probe("valid tokens of one subject of an issuer, used as they are")
def tokens_of_a_subject(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(oauth_tokens, "MAX_SIGNED", 1)
    row = issuer(ctx, use="workloads")
    row.save()
    connection, ends = workloads.connect(row, "a", Rule(1, "", [], [])), timezone.now() + timedelta(hours=1)
    oauth_tokens.store_signed(connection, "eyJ.a.s", "", "mcp:read", ends)
    with pytest.raises(oauth_tokens.TooManyTokens):
        oauth_tokens.store_signed(connection, "eyJ.b.s", "", "mcp:read", ends)


@probe("scopes that a tenant names")
def scopes_of_tenant(ctx: ProbeContext) -> None:
    rows = [TenantScope(tenant=ctx.tenant, name=f"s{n}") for n in range(tenant_scopes.MAX_SCOPES - 1)]
    TenantScope.objects.bulk_create(rows)
    tenant_scopes.check_room(ctx.tenant)
    TenantScope.objects.create(tenant=ctx.tenant, name="last")
    with pytest.raises(ValidationError):
        tenant_scopes.check_room(ctx.tenant)


@probe("toolsets of a tenant")
def toolsets_of_tenant(ctx: ProbeContext) -> None:
    rows = [Toolset(tenant=ctx.tenant, name=f"s{n}", tools=["*"]) for n in range(MAX_TOOLSETS - 1)]
    Toolset.objects.bulk_create(rows)
    toolsets.check_room(ctx.tenant)
    Toolset.objects.create(tenant=ctx.tenant, name="last", tools=["*"])
    with pytest.raises(ValidationError):
        toolsets.check_room(ctx.tenant)


@probe("`*` in a pattern of a toolset")
def wildcards_of_toolset(_ctx: ProbeContext) -> None:
    toolsets.check_tools(["a*" * toolsets.MAX_WILDCARDS])
    with pytest.raises(ValidationError):
        toolsets.check_tools(["a*" * (toolsets.MAX_WILDCARDS + 1)])


@probe("words of a tool that a search finds it by")
def searched_words(ctx: ProbeContext) -> None:
    row = authoring.add_code_tools(ctx.tenant, ["echo"])[0]
    row.aliases = [f"w{n}x" for n in range(tool_search.MAX_TOOL_TERMS + 1)]
    row.save()
    ctx.tenant.refresh_from_db()
    found = compiled.of_tenant(ctx.tenant)
    index = tool_search.SearchIndex(found.version, {"echo": found.tools["echo"]})
    assert index.postings == tool_search.MAX_TOOL_TERMS


@probe("aliases of a tool")
def aliases_of_tool(_ctx: ProbeContext) -> None:
    longest = "x" * validators.MAX_ALIAS_LENGTH
    validators.validate_aliases([longest] * validators.MAX_ALIASES)
    for rejected in (
        [longest + "x"],
        ["x"] * (validators.MAX_ALIASES + 1),
        [" "],
        ["two\nlines"],
        ["\x00"],
        ["\ud800"],
        "x",
    ):
        with pytest.raises(ValidationError):
            validators.validate_aliases(rejected)


@probe("field mask of a tool")
def mask_of_tool(_ctx: ProbeContext) -> None:
    longest = "a" * field_mask.MAX_MASK_LENGTH
    field_mask.FieldMask(longest)
    with pytest.raises(field_mask.MaskError):
        field_mask.FieldMask(longest + "a")
    with pytest.raises(field_mask.MaskError, match="steps"):
        field_mask.FieldMask("|".join(["[@,@]"] * 40)).apply({})


@probe("results that wait to be shaped")
def results_to_shape(ctx: ProbeContext) -> None:
    async def scenario() -> tuple[object, object]:
        shaper = shaping._threads()
        started, released = threading.Event(), threading.Event()
        owner = ctx.tenant.pk

        def hold() -> None:
            started.set()
            released.wait(WAIT_SECONDS)

        first = asyncio.create_task(shaper.run(owner, hold))
        assert await asyncio.to_thread(started.wait, WAIT_SECONDS)
        items = shaping.Shaping(None, 1, None)
        waiting = [
            asyncio.create_task(shaping.shape_in_thread(owner, items, b'{"content":[]}'))
            for _ in range(shaping.MAX_WAITING_OF_TENANT)
        ]
        await asyncio.sleep(0)
        beyond = await shaping.shape_in_thread(owner, items, b'{"content":[]}')
        released.set()
        await asyncio.gather(first, *waiting)
        assert beyond is not None
        return beyond.result.content, beyond.result.structured

    assert asyncio.run(scenario()) == ([{"type": "text", "text": shaping.BUSY}], None)


@probe("part of a whole result")
def part_of_result(_ctx: ProbeContext) -> None:
    uri, limit = "result://00000000-0000-0000-0000-000000000000", shaping.MAX_PART_BYTES
    lengths = [shaping.part_of(f"{uri}?length={length}") for length in (limit, limit + 1)]
    assert [part and part.length for part in lengths] == [limit, limit]


@probe("query of a search for tools")
def query_of_tools(ctx: ProbeContext) -> None:
    key = keys.issue(ctx.tenant, "searching", presentation="search")[1]
    peer = RawClient(ctx.client.url, key).peer(MODERN)
    assert not peer.result("find_tools", {"query": "x" * tool_search.MAX_QUERY_LENGTH})["isError"]
    assert peer.result("find_tools", {"query": "x" * (tool_search.MAX_QUERY_LENGTH + 1)})["isError"]


def issuer(ctx: ProbeContext, **more: Any) -> Issuer:
    """An issuer that is off, so that its configuration is not read."""
    fields = {
        "name": str(uuid4()),
        "issuer": f"https://{uuid4()}.example",
        "client_id": "x",
        "is_active": False,
        **more,
    }
    return Issuer(tenant=ctx.tenant, **fields)


@probe("issuers of a tenant")
def issuers_of_a_tenant(ctx: ProbeContext) -> None:
    Issuer.objects.bulk_create(issuer(ctx) for _ in range(setup.MAX_ISSUERS - 1))
    setup.check(issuer(ctx))
    issuer(ctx).save()
    with pytest.raises(ValidationError):
        setup.check(issuer(ctx))


@probe("rules of an issuer")
def rules_of_an_issuer(ctx: ProbeContext) -> None:
    rule = {"role": "admin"}
    setup.check(issuer(ctx, rules=[rule] * issuers.MAX_RULES))
    with pytest.raises(ValidationError):
        setup.check(issuer(ctx, rules=[rule] * (issuers.MAX_RULES + 1)))


@probe("token of an issuer")
def token_of_an_issuer(_ctx: ProbeContext) -> None:
    for length, message in ((issued.MAX_TOKEN, "This is not a signed JWT."), (issued.MAX_TOKEN + 1, "too long")):
        with pytest.raises(issued.InvalidToken, match=message):
            issued.decode_unverified("x" * length)


@probe("SAML response")
def saml_response(_ctx: ProbeContext) -> None:
    for length, message in ((saml.MAX_RESPONSE, "It is not XML."), (saml.MAX_RESPONSE + 4, "has more than")):
        with pytest.raises(provider.SignInFailed, match=message):
            saml.parse_response("eHh4" * (length // 4))


@probe("page that a sign-in leads to")
@probe("sign-ins by SAML that a browser has begun")
@probe("used assertions of an issuer or client that are remembered")
def sign_in_by_saml(_ctx: ProbeContext) -> None:
    """Shown by `tests/sign_in/test_saml_hardening.py`."""


@probe("SAML metadata that is read")
def saml_metadata_that_is_read(_ctx: ProbeContext) -> None:
    for length, message in (
        (configuration.MAX_BYTES, "It is not XML."),
        (configuration.MAX_BYTES + 1, "has more than"),
    ):
        with pytest.raises(DocumentError, match=message):
            saml_metadata.parse(b"x" * length)


@probe("SAML metadata that is pasted")
def saml_metadata_that_is_pasted(ctx: ProbeContext) -> None:
    row = issuer(ctx, protocol="saml", metadata="x" * issuers.MAX_METADATA)
    setup.check(row)
    row.metadata += "x"
    with pytest.raises(ValidationError):
        setup.check(row)


@probe("certificates of a SAML issuer")
def certificates_of_a_saml_issuer(_ctx: ProbeContext) -> None:
    pem = pair("idp")[1]
    assert len(saml_metadata.pem_certificates(pem * saml_metadata.MAX_CERTIFICATES)) == saml_metadata.MAX_CERTIFICATES
    with pytest.raises(DocumentError):
        saml_metadata.pem_certificates(pem * (saml_metadata.MAX_CERTIFICATES + 1))


@probe("token of an issuer that is used as it is")
def token_used_as_it_is(_ctx: ProbeContext) -> None:
    for length, message in ((direct.MAX_TOKEN, "This is not a signed JWT."), (direct.MAX_TOKEN + 1, "too long")):
        token = "eyJ" + "x" * (length - 3)
        with pytest.raises(issued.InvalidToken, match=message):
            issued.decode_unverified(token, direct.MAX_TOKEN)
        with pytest.raises(direct.TokenRejected):
            asyncio.run(direct.accept(token, origin="https://hub.example", slug=None, address=""))


@probe("such tokens of a tenant that are verified at a time")
def tokens_verified_at_a_time(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(direct, "MAX_WAITING_OF_TENANT", 1)

    async def scenario() -> list[object]:
        checks = direct.TenantQueue()
        work = [checks.run(ctx.tenant.pk, bool) for _ in range(2)]
        return await asyncio.gather(*work, return_exceptions=True)

    first, second = asyncio.run(scenario())
    assert first is False
    assert isinstance(second, direct.TooManyTokens)


@probe("workloads of an issuer")
def workloads_of_an_issuer(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(workloads, "MAX_WORKLOADS", 2)
    row = issuer(ctx, use="workloads")
    row.save()
    for subject in ("a", "b", "a"):
        workloads.connect(row, subject, Rule(1, "", [], []))
    with pytest.raises(workloads.TooManyWorkloads):
        workloads.connect(row, "c", Rule(1, "", [], []))


def scim(ctx: ProbeContext) -> ScimClient:
    """The directory of an issuer."""
    row = issuer(ctx)
    row.save()
    ctx.monkeypatch.setattr(scim_bounds, "MAX_REQUESTS", 10_000)
    return ScimClient(row)


@probe("requests of a directory")
def requests_of_a_directory(ctx: ProbeContext) -> Answers:
    scim_client = scim(ctx)
    ctx.monkeypatch.setattr(scim_bounds, "MAX_REQUESTS", 1)
    first, second = (scim_client.send("GET", "Users").status_code for _ in range(2))
    return httpx.Response(first), httpx.Response(second)


@probe("strangers' requests to `/scim/`, of an address")
def strangers_of_a_directory(ctx: ProbeContext) -> Answers:
    ctx.monkeypatch.setattr(scim_directory, "MAX_FAILURES", 1)
    limits.forget_all()
    scim_client, stranger = scim(ctx), scim(ctx)
    stranger.token = "x"
    assert scim_client.send("GET", "Users").status_code == 200
    answers = [stranger.send("GET", "Users").status_code for _ in range(2)]
    assert answers[0] == 401
    return httpx.Response(scim_client.send("GET", "Users").status_code), httpx.Response(answers[1])


@probe("body of a directory's request to `/scim/`")
def body_of_a_directory(ctx: ProbeContext) -> Answers:
    scim_client = scim(ctx)
    content = json.dumps({"schemas": [USER], "userName": "x"}).encode()
    headers = {"Authorization": f"Bearer {scim_client.token}"}
    path = f"/scim/v2/{scim_client.issuer.pk}/Users"
    stranger = ctx.client.http.post(path, content=content.ljust(page_guard.MAX_FORM_BYTES + 1))
    assert stranger.status_code == 413
    first, second = (
        ctx.client.http.post(path, content=content.ljust(scim_directory.MAX_REQUEST_BYTES + more), headers=headers)
        for more in (0, 1)
    )
    return first, second


def two_responses(scim_client: ScimClient, method: str, path: str, *bodies: Any, **query: str) -> Answers:
    """The responses to two requests of a directory."""
    first, second = (scim_client.send(method, path, body, **query) for body in bodies)
    return httpx.Response(first.status_code), httpx.Response(second.status_code)


def users(scim_client: ScimClient, *fields: dict[str, Any]) -> Answers:
    return two_responses(
        scim_client, "POST", "Users", *({"schemas": [USER], "userName": str(uuid4()), **more} for more in fields)
    )


@probe("nesting of a directory's JSON")
def nesting_of_a_directory(ctx: ProbeContext) -> Answers:
    deep: Any = []
    for _ in range(scim_bounds.MAX_DEPTH - 2):
        deep = [deep]
    return users(scim(ctx), {"x": deep}, {"x": [deep]})


@probe("filter of a directory")
def filter_of_a_directory(ctx: ProbeContext) -> Answers:
    scim_client, empty = scim(ctx), 'userName eq ""'
    texts = (empty.replace('""', f'"{"x" * (scim_bounds.MAX_FILTER - len(empty) + more)}"') for more in (0, 1))
    first, second = (scim_client.send("GET", "Users", filter=text).status_code for text in texts)
    return httpx.Response(first), httpx.Response(second)


@probe("page of a directory's list")
def page_of_a_directory(_ctx: ProbeContext) -> None:
    for count in (scim_bounds.MAX_PAGE, scim_bounds.MAX_PAGE + 1):
        assert queries.page_of({"count": str(count)}).count == scim_bounds.MAX_PAGE


@probe("operations of a directory's request")
def operations_of_a_directory(ctx: ProbeContext) -> Answers:
    scim_client = scim(ctx)
    operation = {"op": "replace", "path": "displayName", "value": "x"}
    bodies = ({"schemas": [PATCH], "Operations": [operation] * (scim_bounds.MAX_OPERATIONS + more)} for more in (0, 1))
    return two_responses(scim_client, "PATCH", f"Groups/{scim_client.group('g')['id']}", *bodies)


@probe("operations of a directory's request on a user")
def operations_on_a_user(ctx: ProbeContext) -> Answers:
    scim_client = scim(ctx)
    operation = {"op": "replace", "path": "displayName", "value": "x"}
    bodies = (
        {"schemas": [PATCH], "Operations": [operation] * (scim_bounds.MAX_USER_OPERATIONS + more)} for more in (0, 1)
    )
    return two_responses(scim_client, "PATCH", f"Users/{scim_client.user('x')['id']}", *bodies)


@probe("members in a directory's page")
def members_of_a_page(ctx: ProbeContext) -> None:
    scim_client = scim(ctx)
    first, second = scim_client.user("a"), scim_client.user("b")
    for name in "cd":
        scim_client.group(name, first, second)
    for limit, shown in ((4, 2), (3, 1)):
        ctx.monkeypatch.setattr(scim_bounds, "MAX_PAGE_MEMBERS", limit)
        assert scim_client.request("GET", "Groups")["itemsPerPage"] == shown


@probe("path of a directory's operation")
def path_of_a_directory(ctx: ProbeContext) -> Answers:
    scim_client = scim(ctx)
    paths = (f"x{'y' * (scim_bounds.MAX_PATH - 1 + more)}" for more in (0, 1))
    bodies = (
        {"schemas": [PATCH], "Operations": [{"op": "replace", "path": operation_path, "value": "x"}]}
        for operation_path in paths
    )
    return two_responses(scim_client, "PATCH", f"Users/{scim_client.user('x')['id']}", *bodies)


@probe("name, external ID or e-mail in a directory")
def texts_of_a_directory(ctx: ProbeContext) -> Answers:
    scim_client = scim(ctx)
    for name in ("externalId", "userName"):
        first, second = users(scim_client, *({name: "x" * (directory.MAX_VALUE + more)} for more in (0, 1)))
        assert (first.status_code, second.status_code) == (201, 400)
    return users(scim_client, *({"emails": [{"value": "x" * (directory.MAX_VALUE + more)}]} for more in (0, 1)))


@probe("e-mails of a directory's user")
def emails_of_a_directory(ctx: ProbeContext) -> Answers:
    many = [{"value": "x"}] * directory.MAX_EMAILS
    return users(scim(ctx), {"emails": many}, {"emails": [*many, {"value": "y"}]})


@probe("attributes of a directory's user")
def attributes_of_a_directory(ctx: ProbeContext) -> Answers:
    empty = len('{"displayName":""}')
    return users(
        scim(ctx), *({"displayName": "x" * (scim_bounds.MAX_RESOURCE_BYTES - empty + more)} for more in (0, 1))
    )


@probe("people of an issuer")
def people_of_an_issuer(ctx: ProbeContext) -> None:
    ctx.monkeypatch.setattr(people, "MAX_PEOPLE", 1)
    first, second = users(scim(ctx), {}, {})
    assert (first.status_code, second.status_code) == (201, 400)


@probe("groups of a directory")
def groups_of_a_directory(ctx: ProbeContext) -> Answers:
    ctx.monkeypatch.setattr(provisioning, "MAX_GROUPS", 1)
    return two_responses(scim(ctx), "POST", "Groups", *({"schemas": [GROUP], "displayName": name} for name in "ab"))


@probe("members of a directory's group")
def members_of_a_directory(ctx: ProbeContext) -> Answers:
    ctx.monkeypatch.setattr(provisioning, "MAX_MEMBERS", 1)
    scim_client = scim(ctx)
    first, second = ({"value": scim_client.user(name)["id"]} for name in "ab")
    bodies = ({"schemas": [GROUP], "displayName": "g", "members": members} for members in ([first], [first, second]))
    return two_responses(scim_client, "POST", "Groups", *bodies)


@probe("client policies of a tenant")
def client_policies(ctx: ProbeContext) -> None:
    rows = [ClientPolicy(tenant=ctx.tenant, host=f"h{n}", decision="deny") for n in range(hosts.MAX_POLICIES - 1)]
    ClientPolicy.objects.bulk_create(rows)
    hosts.check_room(ctx.tenant)
    ClientPolicy.objects.create(tenant=ctx.tenant, host="last", decision="deny")
    with pytest.raises(ValidationError):
        hosts.check_room(ctx.tenant)
