"""Limits: requests beyond a limit are rejected with its name and a retry delay."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.conftest import reset_process_state
from tests.wire import channels
from tests.wire.channels import ChannelClient, WebSocketClient
from tests.wire.client import EACH_VERSION, MODERN, Peer, RawClient, error_of, message_of, rpc, text_of
from tools_app.calls import limits as call_limits
from tools_app.calls import sessions
from tools_app.catalog import authoring
from tools_app.models import ApiKey, Call, RunningCall, Session, Tenant, Tool
from tools_app.tenants import keys
from tools_app.toolkit import ToolContext, ToolError, prompt, resource, tool

LIMITED = {"tool": Tool, "key": ApiKey, "tenant": Tenant}
WINDOWS = {"second": 1, "minute": 60, "day": 86_400}
WAIT_SECONDS = 30.0


def limit(scope: str, **limits: int | None) -> None:
    LIMITED[scope].objects.update(**limits)
    Tenant.objects.update(catalog_version=1000)
    reset_process_state()


def denials(eventually: Callable[..., Any], count: int = 1) -> list[Call]:
    return eventually(lambda: list(Call.objects.filter(outcome="denied").order_by("started_at")[:count]))


# --- Rates ----------------------------------------------------------------------------------------------------


@pytest.mark.shows("tools.rate-limit")
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("scope", LIMITED)
def test_a_call_over_the_limit_is_rejected_with_its_name_and_a_retry_delay(
    client: RawClient, offer: Callable[..., object], scope: str, window: str
) -> None:
    offer("echo")
    peer = client.handshake()
    limit(scope, **{f"calls_per_{window}": 2})
    # One after the other: should a second be over in between, there are as many more.
    responses = [peer.call("echo", {"message": "x"}, id=number) for number in range(1, 30)]
    refused = next(response for response in responses if response.status_code != 200)
    assert [response.status_code for response in responses[:2]] == [200, 200]
    assert refused.status_code == 429
    error = error_of(refused)
    retry_after = int(refused.headers["retry-after"])
    assert 0 < retry_after <= WINDOWS[window]
    assert error["code"] == -32004
    seconds = "1 second" if retry_after == 1 else f"{retry_after} seconds"
    assert error["message"] == f"Rate limit exceeded: 2 calls per {window} for this {scope}. Try again in {seconds}."
    assert error["data"] == {
        "scope": scope,
        "what": "calls",
        "limit": 2,
        "windowSeconds": WINDOWS[window],
        "retryAfterSeconds": retry_after,
    }
    assert refused.json()["id"] == responses.index(refused) + 1


@pytest.mark.parametrize("window", ["second", "day"])
@pytest.mark.parametrize("scope", ["key", "tenant"])
def test_requests_of_every_kind_count_and_are_refused_in_the_same_way(
    client: RawClient, scope: str, window: str
) -> None:
    peer = client.handshake()
    limit(scope, **{f"requests_per_{window}": 0})
    for response in (peer.request("ping"), peer.notify("notifications/cancelled"), peer.delete()):
        assert response.status_code == 429
        error = response.json()["error"]
        assert error["message"] == message_without_retry(f"requests per {window}", scope)
        assert error["data"] == {"scope": scope, "what": "requests", "limit": 0, "windowSeconds": WINDOWS[window]}
        assert_no_retry(response)
    with peer.listening() as stream:
        assert stream.response.status_code == 429


@pytest.mark.parametrize("version", EACH_VERSION)
def test_each_request_counts_once(client: RawClient, version: str) -> None:
    peer = client.peer(version)
    limit("key", requests_per_day=3)
    answered = [peer.request("tools/list").status_code for _ in range(4)]
    assert answered == [200, 200, 200, 429]


def test_each_message_of_a_batch_counts(client: RawClient) -> None:
    peer = client.handshake("2025-03-26")
    limit("key", requests_per_day=3)
    pings = [rpc("ping", id=number) for number in range(3)]
    refused = client.post([*pings, rpc("ping", id=4)], peer.headers())
    assert refused.status_code == 429
    assert error_of(refused)["data"]["limit"] == 3
    # The HTTP request counts, its messages do not: none of them was handled.
    assert client.post(pings[:2], peer.headers()).status_code == 200
    assert peer.request("ping").status_code == 429


@pytest.mark.parametrize("scope", LIMITED)
def test_a_limit_of_zero_rejects_calls_without_a_retry_delay_and_nothing_else(
    peer: Peer, offer: Callable[..., object], scope: str
) -> None:
    offer("echo")
    limit(scope, calls_per_minute=0)
    refused = peer.call("echo", {"message": "x"})
    assert_no_retry(refused)
    assert error_of(refused)["message"] == message_without_retry("calls per minute", scope)
    assert peer.request("tools/list").status_code == 200


@pytest.mark.parametrize("scope", ["tool", "tenant"])
def test_a_concurrency_limit_of_zero_rejects_calls_at_once(
    client: RawClient, offer: Callable[..., object], monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    monkeypatch.setattr(call_limits, "CONCURRENCY_WAIT_SECONDS", 1000.0)
    offer("echo")
    limit(scope, calls_in_flight=0)
    refused = client.peer(MODERN).call("echo", {"message": "x"})
    assert_no_retry(refused)
    assert error_of(refused)["message"] == message_without_retry("calls at once", scope)


def test_a_limit_of_zero_streams_or_sessions_says_so(client: RawClient) -> None:
    peer = client.handshake()
    limit("tenant", open_streams=0, most_sessions=0)
    with peer.listening() as stream:
        stream.response.read()
        assert_no_retry(stream.response)
        assert stream.response.json()["error"]["message"] == message_without_retry("streams at once", "tenant")
    refused = client.initialize()
    assert_no_retry(refused)
    assert error_of(refused)["message"] == message_without_retry("open sessions", "tenant")


def message_without_retry(limited: str, scope: str) -> str:
    admin = "An admin of the tenant can change the limit."
    return f"The limit of {limited} for this {scope} is 0: none are allowed. {admin}"


def assert_no_retry(response: Any) -> None:
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["data"]["limit"]) == (429, -32004, 0)
    assert "retry-after" not in response.headers
    assert "retryAfterSeconds" not in error["data"]


def test_a_call_that_one_limit_rejects_does_not_count_for_others(
    client: RawClient, offer: Callable[..., object]
) -> None:
    offer("echo", "echo_ip")
    limit("tenant", calls_per_day=2)
    Tool.objects.filter(name="echo").update(calls_per_day=0)
    reset_process_state()
    peer = client.handshake()
    assert [peer.call("echo", {"message": "x"}).status_code for _ in range(3)] == [429] * 3
    assert [peer.call("echo_ip").status_code for _ in range(3)] == [200, 200, 429]


def test_a_call_over_the_limit_is_recorded_as_denied(
    client: RawClient, offer: Callable[..., object], tenant: Tenant, eventually: Callable[..., Any]
) -> None:
    offer("echo")
    limit("tenant", calls_per_minute=0)
    client.handshake().call("echo", {"message": "x"})
    (call,) = denials(eventually)
    assert (call.outcome, call.http_status, call.rpc_error) == ("denied", 429, -32004)
    assert (call.tenant, call.tool_name, call.is_error) == (tenant, "echo", None)


def test_a_request_over_the_limit_is_recorded_as_denied(
    client: RawClient, tenant: Tenant, eventually: Callable[..., Any]
) -> None:
    limit("key", requests_per_day=0)
    client.modern("tools/list")
    (call,) = denials(eventually)
    assert (call.http_status, call.tenant, call.api_key) == (429, tenant, ApiKey.objects.get())
    assert call.cause == message_without_retry("requests per day", "key")


def test_callers_without_a_key_count_for_the_tenants_limits(
    make_client: Callable[..., RawClient], tenant: Tenant
) -> None:
    limit("tenant", is_public=True, requests_per_day=1)
    anonymous_client = make_client(None, f"/t/{tenant.slug}/mcp")
    assert [anonymous_client.modern("tools/list").status_code for _ in range(2)] == [200, 429]


# --- Channels -------------------------------------------------------------------------------------------------


@pytest.fixture
def sockets(client: RawClient) -> Iterator[Callable[[], WebSocketClient]]:
    """Opens WebSockets with the key of `client`."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(channels.socket(client))


def ping_response(client: ChannelClient, id: int) -> dict[str, Any]:
    client.version = MODERN
    return client.response_to("tools/list", id=id)


def test_each_message_of_a_websocket_counts_and_is_refused_under_its_id(
    sockets: Callable[[], WebSocketClient], eventually: Callable[..., Any]
) -> None:
    limit("key", requests_per_day=2)
    socket = sockets()
    assert ["result" in ping_response(socket, id) for id in (1, 2)] == [True, True]
    refused = ping_response(socket, 3)
    assert refused["id"] == 3
    assert refused["error"]["code"] == -32004
    assert 0 < refused["error"]["data"]["retryAfterSeconds"] <= WINDOWS["day"]
    (call,) = denials(eventually)
    assert (call.http_status, call.rpc_error) == (429, -32004)


def test_a_notification_over_the_limit_gets_no_response_on_a_channel(sockets: Callable[[], WebSocketClient]) -> None:
    limit("key", requests_per_day=1)
    socket = sockets()
    assert "result" in ping_response(socket, 1)
    socket.cancel(1)
    assert "error" in ping_response(socket, 2)
    assert socket.received == []


def test_each_message_of_a_batch_on_a_channel_counts_and_is_refused_under_its_id(
    sockets: Callable[[], WebSocketClient],
) -> None:
    socket = sockets()
    # All earlier messages are answered by now.
    assert "result" in socket.negotiate("2025-03-26").response_to("ping")
    limit("key", requests_per_day=2)
    socket.send([rpc("ping", id=number) for number in (1, 2, 3)])
    refused = json.loads(socket.socket.recv(WAIT_SECONDS))
    assert [(one["id"], one["error"]["code"]) for one in refused] == [(1, -32004), (2, -32004), (3, -32004)]
    socket.send([rpc("ping", id=number) for number in (4, 5)])
    assert [one["result"] for one in json.loads(socket.socket.recv(WAIT_SECONDS))] == [{}, {}]


def test_each_message_to_an_http_sse_stream_counts_once(client: RawClient) -> None:
    limit("key", requests_per_day=3)
    with channels.sse(client) as stream:
        assert ["result" in ping_response(stream, id) for id in (1, 2)] == [True, True]
        refused = stream.post(json.dumps(rpc("ping")).encode())
        assert refused.status_code == 429
        assert error_of(refused)["data"]["limit"] == 3


# --- Calls at once --------------------------------------------------------------------------------------------


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The event that calls of "waits" wait for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def waiting_calls(registries: None, offer: Callable[..., object], gate: threading.Event) -> list[str]:
    """Offer "waits", "waits_in_worker" and "quick", and return the names of the calls that started."""
    started: list[str] = []

    async def until_open() -> None:
        while not gate.is_set():  # noqa: ASYNC110 - a test opens it from another thread
            await asyncio.sleep(0.005)

    @tool
    async def waits(name: str) -> str:
        started.append(name)
        await until_open()
        return name

    @tool(background=True)
    async def waits_in_worker(name: str) -> str:
        started.append(name)
        await until_open()
        return name

    @tool
    async def quick() -> str:
        return "done"

    offer("waits", "waits_in_worker", "quick")
    return started


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


def calling(pool: ThreadPoolExecutor, client: RawClient, name: str, tool_name: str = "waits") -> "Future[Any]":
    return pool.submit(client.modern, "tools/call", {"name": tool_name, "arguments": {"name": name}})


@pytest.mark.parametrize("tool_name", ["waits", "waits_in_worker"])
@pytest.mark.parametrize("scope", ["tool", "tenant"])
def test_a_call_that_finds_no_place_for_a_while_is_refused(
    client: RawClient,
    waiting_calls: list[str],
    pool: ThreadPoolExecutor,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Any],
    scope: str,
    tool_name: str,
) -> None:
    monkeypatch.setattr(call_limits, "CONCURRENCY_WAIT_SECONDS", 0.2)
    limit(scope, calls_in_flight=2)
    running = [calling(pool, client, name, tool_name) for name in "ab"]
    eventually(lambda: len(waiting_calls) == 2)
    refused = calling(pool, client, "c", tool_name).result(WAIT_SECONDS)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "1"
    error = error_of(refused)
    assert error["code"] == -32004
    assert error["message"] == f"Limit exceeded: 2 calls at once for this {scope}."
    assert error["data"] == {"scope": scope, "what": "calls", "limit": 2, "retryAfterSeconds": 1}
    (call,) = denials(eventually)
    assert (call.http_status, call.tool_name) == (429, tool_name)
    gate.set()
    assert [response.result(WAIT_SECONDS).status_code for response in running] == [200, 200]
    assert sorted(waiting_calls) == ["a", "b"]
    # Their places are free again.
    assert eventually(lambda: calling(pool, client, "d", tool_name).result(WAIT_SECONDS).status_code == 200)


def test_a_call_that_finds_no_place_waits_for_its_turn(
    client: RawClient,
    waiting_calls: list[str],
    pool: ThreadPoolExecutor,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Any],
) -> None:
    monkeypatch.setattr(call_limits, "CONCURRENCY_WAIT_SECONDS", WAIT_SECONDS)
    limit("tenant", calls_in_flight=1)
    first = calling(pool, client, "first")
    eventually(lambda: waiting_calls == ["first"])
    others = [calling(pool, client, name) for name in "abc"]
    gate.set()
    assert [text_of(call.result(WAIT_SECONDS)) for call in (first, *others)] == ["first", "a", "b", "c"]


def test_a_call_that_was_cancelled_gives_its_place_back(
    client: RawClient,
    waiting_calls: list[str],
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Any],
) -> None:
    monkeypatch.setattr(call_limits, "CONCURRENCY_WAIT_SECONDS", 0.05)
    peer = client.handshake()
    limit("tool", calls_in_flight=1)
    running = pool.submit(peer.call, "waits", {"name": "a"}, id=7)
    eventually(lambda: waiting_calls == ["a"])
    assert peer.call("waits", {"name": "b"}, id=8).status_code == 429
    peer.notify("notifications/cancelled", {"requestId": 7})
    running.result(WAIT_SECONDS)
    other = pool.submit(peer.call, "waits", {"name": "c"}, id=9)
    eventually(lambda: waiting_calls == ["a", "c"])
    peer.notify("notifications/cancelled", {"requestId": 9})
    other.result(WAIT_SECONDS)


def test_calls_without_a_limit_pass_those_that_wait(
    client: RawClient,
    waiting_calls: list[str],
    gate: threading.Event,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Any],
) -> None:
    monkeypatch.setattr(call_limits, "CONCURRENCY_WAIT_SECONDS", WAIT_SECONDS)
    Tool.objects.filter(name="waits").update(calls_in_flight=1)
    limit("tenant", is_active=True)
    calling(pool, client, "a")
    eventually(lambda: waiting_calls == ["a"])
    calling(pool, client, "b")
    assert client.modern("tools/call", {"name": "quick"}).status_code == 200
    gate.set()


# --- Streams and sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["key", "tenant"])
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_a_stream_over_the_limit_is_refused_until_another_one_is_closed(
    client: RawClient, eventually: Callable[..., Any], scope: str, version: str
) -> None:
    limit(scope, open_streams=1)
    peer = client.peer(version)
    wanted = {"notifications": {"toolsListChanged": True}}

    def opened() -> Any:
        return peer.listening() if version != MODERN else peer.stream("subscriptions/listen", wanted)

    with opened() as first:
        assert first.response.status_code == 200
        with opened() as second:
            assert second.response.status_code == 429
            assert second.response.headers["retry-after"] == "1"
            error = json.loads(second.response.read())["error"]
            assert error["message"] == f"Limit exceeded: 1 stream at once for this {scope}."
            assert error["data"] == {"scope": scope, "what": "streams", "limit": 1, "retryAfterSeconds": 1}
    (call,) = denials(eventually)
    assert call.http_status == 429

    def is_open() -> bool:
        with opened() as third:
            return third.response.status_code == 200

    assert eventually(is_open)


def test_streams_of_http_sse_count(client: RawClient, tenant: Tenant) -> None:
    limit("key", open_streams=1)
    headers = client.headers({"Content-Type": None})
    with client.http.stream("GET", "/sse", headers=headers) as first:
        assert first.status_code == 200
        with client.http.stream("GET", "/sse", headers=headers) as second:
            assert second.status_code == 429
    assert Session.objects.count() == 1


def test_a_websocket_over_the_limit_is_closed_with_a_code_that_says_so(
    sockets: Callable[[], WebSocketClient], eventually: Callable[..., Any]
) -> None:
    limit("key", open_streams=1)
    first = sockets()
    assert "result" in ping_response(first, 1)
    second = sockets()
    assert (second.read_to_end(), second.close_code) == ([], 4429)
    assert "result" in ping_response(first, 2)
    (call,) = denials(eventually)
    assert (call.http_status, call.method) == (429, "WebSocket")
    first.socket.close()

    def is_open() -> bool:
        try:
            return "result" in ping_response(sockets(), 1)
        except ConnectionClosed:
            return False

    assert eventually(is_open)


def test_a_neighbour_has_streams_of_its_own(
    client: RawClient, make_client: Callable[..., RawClient], other_key: str
) -> None:
    limit("tenant", open_streams=1)
    with client.handshake().listening() as first, make_client(other_key).handshake().listening() as second:
        assert [first.response.status_code, second.response.status_code] == [200, 200]


def test_a_session_over_the_limit_is_rejected_with_how_sessions_end(
    client: RawClient, tenant: Tenant, make_client: Callable[..., RawClient], other_key: str
) -> None:
    limit("tenant", most_sessions=2)
    peers = [client.handshake() for _ in range(2)]
    refused = client.initialize()
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == str(sessions.RETRY_SECONDS)
    error = error_of(refused)
    assert error["code"] == -32004
    assert error["message"].startswith("This tenant has 2 open sessions, which is its limit. A session ends when")
    assert error["data"] == {"scope": "tenant", "what": "sessions", "limit": 2, "retryAfterSeconds": 60}
    assert make_client(other_key).initialize().status_code == 200
    assert client.modern("tools/list").status_code == 200
    peers[0].delete()
    assert client.initialize().status_code == 200


def test_tenants_without_a_limit_of_sessions_have_that_of_the_hub(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DEFAULT_MAX_SESSIONS", 1)
    assert [client.initialize().status_code for _ in range(2)] == [200, 429]


def test_sessions_that_nobody_uses_any_more_do_not_count(
    client: RawClient, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DEFAULT_MAX_SESSIONS", 1)
    client.handshake()
    settings.MCPHUB_SESSION_IDLE_TIMEOUT = 1e-6
    assert client.initialize().status_code == 200


# --- Sizes ----------------------------------------------------------------------------------------------------


def nested(depth: int) -> bytes:
    return b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b"[" * depth + b"]" * depth + b"}"


def test_json_that_is_too_deep_is_refused_over_every_transport(client: RawClient) -> None:
    refused = client.post(nested(70))
    assert refused.status_code == 400
    assert "nested deeper than 64 levels" in error_of(refused)["message"]
    with channels.socket(client) as socket:
        socket.write(nested(70))
        assert "nested deeper than 64 levels" in socket.next()["error"]["message"]
    with channels.sse(client) as talk:
        refused = talk.post(nested(70))
        assert refused.status_code == 400
        assert "nested deeper than 64 levels" in error_of(refused)["message"]


def test_arguments_that_are_too_large_are_refused_before_anything_runs(
    peer: Peer, offer: Callable[..., object], settings: Any
) -> None:
    settings.MCPHUB_MAX_ARGUMENT_BYTES = 100
    offer("echo")
    assert peer.call("echo", {"message": "x" * 80}).status_code == 200
    error = error_of(peer.call("echo", {"message": "x" * 100}))
    assert error["code"] == -32602
    assert error["message"] == "The arguments are larger than the limit of 100 bytes (MCPHUB_MAX_ARGUMENT_BYTES)."
    assert error["data"] == {"what": "argument bytes", "limit": 100, "received": 114}
    rejected = Call.objects.get(outcome="rejected")
    assert (rejected.rpc_error, rejected.arguments_size, rejected.is_error) == (-32602, 114, None)


def test_arguments_of_a_prompt_are_measured_too(
    peer: Peer, registries: None, offer_prompts: Callable[..., object], settings: Any
) -> None:
    settings.MCPHUB_MAX_ARGUMENT_BYTES = 50

    @prompt
    def greet(who: str) -> str:
        return f"Greet {who}"

    offer_prompts("greet")
    assert "result" in message_of(peer.request("prompts/get", {"name": "greet", "arguments": {"who": "x"}}))
    refused = peer.request("prompts/get", {"name": "greet", "arguments": {"who": "x" * 50}})
    assert error_of(refused)["data"]["limit"] == 50


@pytest.fixture
def large(registries: None, offer: Callable[..., object]) -> None:
    """Offer tools of each kind that return a given number of bytes."""

    @tool
    async def here(size: int) -> str:
        return "x" * size

    @tool
    def in_thread(size: int) -> str:
        return "x" * size

    @tool(background=True)
    def in_worker(size: int) -> str:
        return "x" * size

    @tool
    async def fails(size: int) -> str:
        raise ToolError("x" * size)

    offer("here", "in_thread", "in_worker", "fails")


@pytest.mark.parametrize("name", ["here", "in_thread", "in_worker", "fails"])
@pytest.mark.usefixtures("large")
def test_a_result_that_is_too_large_is_an_error_that_says_so(peer: Peer, settings: Any, name: str) -> None:
    settings.MCPHUB_MAX_RESULT_BYTES = 300
    small = message_of(peer.call(name, {"size": 10}))["result"]
    assert small["content"][0]["text"] == "x" * 10
    result = message_of(peer.call(name, {"size": 500}))["result"]
    assert result["isError"] is True
    assert result["content"][0]["text"] == f"The result of '{name}' is larger than 300 bytes (MCPHUB_MAX_RESULT_BYTES)."
    call = Call.objects.latest("finished_at")
    assert (call.outcome, call.is_error) == ("tool_error", True)
    assert call.cause.endswith(" bytes")


def test_a_resource_that_is_too_large_is_refused(
    peer: Peer, registries: None, offer_resources: Callable[..., object], settings: Any
) -> None:
    @resource("docs://large")
    def text() -> str:
        return "x" * 500

    offer_resources("docs://large")
    settings.MCPHUB_MAX_RESULT_BYTES = 300
    error = error_of(peer.request("resources/read", {"uri": "docs://large"}))
    assert error["message"] == "The result of 'docs://large' is larger than 300 bytes (MCPHUB_MAX_RESULT_BYTES)."


# --- One tenant and another -----------------------------------------------------------------------------------


def test_slow_tools_of_one_tenant_leave_threads_for_another(
    registries: None,
    client: RawClient,
    make_client: Callable[..., RawClient],
    other_tenant: Tenant,
    other_key: str,
    offer: Callable[..., object],
    gate: threading.Event,
    eventually: Callable[..., Any],
) -> None:
    begun: list[str] = []

    @tool
    def hogs(context: ToolContext) -> str:
        begun.append(context.caller.tenant_slug)
        gate.wait(WAIT_SECONDS)
        return "done"

    @tool
    def quick() -> str:
        return "quick"

    offer("hogs")
    authoring.add_code_tools(other_tenant, ["quick"])
    with ThreadPoolExecutor(80) as pool:
        hogging = [pool.submit(client.modern, "tools/call", {"name": "hogs"}, id=number) for number in range(80)]
        eventually(lambda: len(begun) >= 24)
        assert text_of(make_client(other_key).modern("tools/call", {"name": "quick"})) == "quick"
        assert len(begun) < 80
        gate.set()
        assert {call.result(WAIT_SECONDS).status_code for call in hogging} == {200}


def test_background_calls_of_one_tenant_leave_the_workers_to_another_in_turn(
    registries: None,
    client: RawClient,
    make_client: Callable[..., RawClient],
    other_tenant: Tenant,
    other_key: str,
    offer: Callable[..., object],
    gate: threading.Event,
    eventually: Callable[..., Any],
) -> None:
    order: list[str] = []

    @tool(background=True)
    def nap(context: ToolContext) -> str:
        gate.wait(WAIT_SECONDS)
        context.sleep(0.01)
        order.append(context.caller.tenant_slug)
        return "done"

    offer("nap")
    authoring.add_code_tools(other_tenant, ["nap"])
    with ThreadPoolExecutor(80) as pool:
        flood = [pool.submit(client.modern, "tools/call", {"name": "nap"}, id=number) for number in range(70)]
        eventually(lambda: RunningCall.objects.count() == 70)
        last = pool.submit(make_client(other_key).modern, "tools/call", {"name": "nap"})
        eventually(lambda: RunningCall.objects.count() == 71)
        gate.set()
        assert last.result(WAIT_SECONDS).status_code == 200
        assert {call.result(WAIT_SECONDS).status_code for call in flood} == {200}
    # Behind those that the workers had in their hands already, not behind them all.
    assert order.index("rival") < 40


def test_limits_of_one_tenant_are_not_those_of_another(
    client: RawClient, make_client: Callable[..., RawClient], other_tenant: Tenant
) -> None:
    Tenant.objects.filter(slug="acme").update(requests_per_day=0)
    other = make_client(keys.issue(other_tenant, "other")[1])
    reset_process_state()
    assert client.modern("tools/list").status_code == 429
    assert other.modern("tools/list").status_code == 200
