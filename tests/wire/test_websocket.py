"""WebSocket, the hub's own transport, beyond what `test_channels.py` tests."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.server import frames
from tests.wire.channels import WebSocketClient, socket
from tests.wire.client import MODERN, RawClient, modern_request, raw_connection
from tools_app.core import request_memory
from tools_app.models import ApiKey, Call, Tenant
from tools_app.tenants import keys
from tools_app.toolkit import tool
from tools_app.transport import state
from tools_app.transport.request import AsgiRequest

pytestmark = pytest.mark.servers

MakeClient = Callable[..., RawClient]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "transports.md"
PING = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
NOT_ALLOWED, TOO_LARGE, NOT_TEXT, STOPPING = 4401, 4413, 4415, 4503
# What the server itself says of a message that is too large (RFC 6455, §7.4.1).
MESSAGE_TOO_BIG = 1009


@pytest.fixture
def channel(client: RawClient) -> Iterator[WebSocketClient]:
    """A WebSocket with a session."""
    with socket(client) as channel:
        channel.negotiate("2025-11-25")
        yield channel


@pytest.fixture
def web(hub: object, client: RawClient) -> state.WebState:
    """The state of the hub's event loop."""
    client.modern("server/discover")
    (web,) = [web for loop, web in state._states.items() if loop.is_running()]
    return web


# --- Connecting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "chosen"), [(["mcp"], "mcp"), (["chat", "mcp"], "mcp"), (["chat"], None), (None, None)]
)
def test_the_subprotocol_is_mcp(client: RawClient, offered: Any, chosen: str | None) -> None:
    url = client.url.replace("http", "ws") + "/ws"
    with connect(url, subprotocols=offered, additional_headers=client.headers(), proxy=None) as opened:
        assert opened.subprotocol == chosen


def test_the_tenants_own_address_is_as_good(client: RawClient, tenant: Tenant) -> None:
    with socket(client, f"/t/{tenant.slug}/ws") as channel:
        assert channel.negotiate("2025-06-18").response_to("ping")["result"] == {}


def rejected_status(client: RawClient, path: str = "/ws", **headers: str) -> int:
    """The status with which the handshake is rejected."""
    with pytest.raises(InvalidStatus) as caught, socket(client, path, headers):
        pass
    return int(caught.value.response.status_code)


async def never() -> dict[str, Any]:
    raise AssertionError


@pytest.mark.shows("custom-transport.security")
@pytest.mark.parametrize("bad", [None, "nonsense"])
def test_without_a_good_key_there_is_no_connection(make_client: MakeClient, bad: str | None) -> None:
    assert rejected_status(make_client(bad)) == 403


@pytest.mark.shows("custom-transport.security")
@pytest.mark.parametrize("origin", ["https://evil.net", "http://127.0.0.1:1", "https://app.example.com.evil.net"])
def test_a_page_of_a_foreign_origin_gets_no_connection(client: RawClient, settings: Any, origin: str) -> None:
    settings.MCPHUB_ALLOWED_ORIGINS = ["https://app.example.com"]
    assert rejected_status(client, Origin=origin) == 403


@pytest.mark.parametrize("origin", ["https://app.example.com", "own"])
def test_a_page_of_an_allowed_origin_gets_one(client: RawClient, settings: Any, origin: str) -> None:
    settings.MCPHUB_ALLOWED_ORIGINS = ["https://app.example.com"]
    with socket(client, headers={"Origin": client.url if origin == "own" else origin}) as channel:
        assert channel.negotiate("2025-06-18").response_to("ping")["result"] == {}


@pytest.mark.shows("custom-transport.security")
def test_the_hub_answers_for_no_other_host(client: RawClient) -> None:
    with raw_connection(client.url) as sock, pytest.raises(InvalidStatus) as caught:
        connect("ws://evil.net/ws", sock=sock, additional_headers=client.headers())
    assert caught.value.response.status_code == 403


def test_a_refusal_is_recorded(client: RawClient, other_tenant: Tenant, eventually: Callable[..., Any]) -> None:
    rejected_status(client, "/t/rival/ws")
    call = eventually(Call.objects.first)
    assert (call.outcome, call.http_status, call.method, call.cause) == ("denied", 404, "WebSocket", "Not found.")
    assert (call.tenant.slug, call.remote_address) == ("acme", "127.0.0.1")


@pytest.mark.parametrize(("scheme", "expected_scheme"), [("ws", "http"), ("wss", "https"), ("http", "http")])
def test_a_page_of_the_hubs_own_origin_is_known_by_it(scheme: str, expected_scheme: str) -> None:
    incoming = AsgiRequest({"scheme": scheme, "headers": []}, never)
    assert incoming.scheme == expected_scheme


@pytest.mark.parametrize("path", ["/t/rival/ws", "/t/nobody/ws", "/mcp", "/sse", "/message", "/nothing"])
def test_there_is_nothing_at_other_addresses(client: RawClient, other_tenant: Tenant, path: str) -> None:
    assert rejected_status(client, path) == 403


def test_the_address_is_no_page(client: RawClient) -> None:
    assert client.http.get("/ws", headers=client.headers()).status_code == 404


def test_a_hub_that_stops_takes_no_new_connections(
    client: RawClient, web: state.WebState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "draining", True)
    assert rejected_status(client) == 403


@pytest.mark.parametrize("allowed", [True, False])
def test_a_key_in_the_url_is_good_only_where_the_tenant_allows_it(
    make_client: MakeClient, tenant: Tenant, key: str, allowed: bool
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(allow_query_key=allowed)
    client, path = make_client(None), f"/ws?api_key={key}"
    if not allowed:
        assert rejected_status(client, path) == 403
        return
    with socket(client, path) as channel:
        assert channel.negotiate("2025-06-18").response_to("ping")["result"] == {}


# --- Frames -----------------------------------------------------------------------------------------------------------


def test_invalid_json_is_answered_with_a_parse_error_and_the_connection_goes_on(channel: WebSocketClient) -> None:
    for raw in (b"{bad", b"", b"[" * 100 + b"]" * 100):
        channel.write(raw)
        response = channel.next()
        assert (response.get("id"), response["error"]["code"]) == (None, -32700)
    assert channel.response_to("ping")["result"] == {}


def test_a_message_may_come_in_several_frames(channel: WebSocketClient) -> None:
    channel.socket.send([PING[:10].decode(), PING[10:30].decode(), PING[30:].decode()])
    assert channel.response("p")["result"] == {}


def test_a_binary_frame_is_no_message(channel: WebSocketClient) -> None:
    channel.socket.send(PING)
    assert (channel.read_to_end(), channel.close_code) == ([], NOT_TEXT)


def test_a_message_has_a_largest_size_in_bytes(channel: WebSocketClient, settings: Any) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 100
    channel.write(PING.ljust(100))
    assert channel.response("p")["result"] == {}
    channel.write('"{}"'.format("é" * 50).encode())
    assert (channel.read_to_end(), channel.close_code) == ([], TOO_LARGE)


def test_the_server_gathers_no_more_than_that(channel: WebSocketClient, settings: Any) -> None:
    half = "x" * (settings.MCPHUB_MAX_BODY_BYTES // 2)
    channel.socket.send([half, half, "x"])
    assert channel.read_to_end() == []
    assert channel.close_code in (MESSAGE_TOO_BIG, TOO_LARGE)


def test_a_result_may_be_larger_than_a_request(
    client: RawClient, registries: None, offer: Callable[..., object], settings: Any
) -> None:
    many = settings.MCPHUB_MAX_BODY_BYTES + 1000

    @tool
    def plenty() -> str:
        return "x" * many

    offer("plenty")
    with socket(client) as channel:
        assert len(channel.negotiate(MODERN).tool_response("plenty")["result"]["content"][0]["text"]) == many


def test_answers_that_a_client_does_not_read_hold_the_memory_of_its_tenant(
    client: RawClient,
    registries: None,
    offer: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Any],
) -> None:
    @tool
    def plenty() -> str:
        return "x" * 1_000_000

    offer("plenty")
    budget = request_memory.MemoryBudget(lambda: (3_000_000, 10_000_000))
    monkeypatch.setattr(request_memory, "_results", budget)
    monkeypatch.setattr(request_memory, "WAIT_SECONDS", 0.2)
    call = {"name": "plenty", "arguments": {}}

    def is_refused() -> bool:
        return bool(client.modern("tools/call", call).json()["result"]["isError"])

    with raw_connection(client.url) as raw:
        frames.handshake(raw, "/ws", f"Authorization: Bearer {client.key}")
        for number in range(20):
            message, _ = modern_request("tools/call", call, id=number)
            raw.sendall(frames.frame(frames.TEXT, json.dumps(message).encode()))
        assert eventually(is_refused)
        received = [json.loads(frames.read_frame(raw).payload)["id"] for _ in range(20)]
    assert sorted(received) == list(range(20))
    assert eventually(lambda: not is_refused())


# --- The end ----------------------------------------------------------------------------------------------------------


def test_the_close_code_of_a_revoked_key(channel: WebSocketClient, client: RawClient) -> None:
    keys.revoke(ApiKey.objects.get(digest=keys.digest_of(client.key or "")))
    assert (channel.read_to_end(), channel.close_code) == ([], NOT_ALLOWED)


def test_the_close_code_says_that_the_hub_stops(
    channel: WebSocketClient, web: state.WebState, monkeypatch: pytest.MonkeyPatch
) -> None:
    (loop,) = [loop for loop in state._states if loop.is_running()]
    monkeypatch.setattr(web, "draining", True)
    loop.call_soon_threadsafe(web.streams.end_all)
    assert (channel.read_to_end(), channel.close_code) == ([], STOPPING)


@pytest.mark.shows("custom-transport.documented")
@pytest.mark.parametrize("part", ["Connect", "Framing", "Cancellation", "Revisions", "Closing"])
def test_it_is_documented(part: str) -> None:
    section = DOCUMENT.read_text(encoding="utf-8").partition("\n## WebSocket\n")[2].partition("\n## ")[0]
    assert f"\n### {part}\n" in section
    assert str(NOT_ALLOWED) in section
