"""Calls of modern upstreams over HTTP, which are sent on the event loop of their request."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.upstreams import scripted
from tests.upstreams.scripted import LOOK, result
from tests.upstreams.servers import SdkServer
from tests.web_services import Received, Service, http_response
from tests.wire.client import MODERN, Peer, RawClient
from tools_app.models import Call, Upstream
from tools_app.upstreams import connections
from tools_app.upstreams.exchanges import direct
from tools_app.upstreams.http import HttpTransport

PROGRESS = "notifications/progress"
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@pytest.fixture
def peer(client: RawClient) -> Peer:
    return client.peer(MODERN)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that sent `tools/call`, in order."""
    names: list[str] = []
    send = HttpTransport.roundtrip

    async def record_and_send(self: HttpTransport, message: dict[str, Any], *rest: Any) -> dict[str, Any]:
        if message["method"] == "tools/call":
            names.append(threading.current_thread().name)
        return await send(self, message, *rest)

    monkeypatch.setattr(HttpTransport, "roundtrip", record_and_send)
    return names


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_only_calls_without_a_session_leave_the_thread_of_the_connections(
    sdk_server: Callable[..., SdkServer],
    add_upstream: Callable[..., Upstream],
    peer: Peer,
    threads: list[str],
    era: str,
) -> None:
    add_upstream(sdk_server(), era=era)
    for _ in range(3):
        assert not peer.result("books_echo", {"text": "a"})["isError"]
    assert [name == "upstreams" for name in threads] == [era == "handshake"] * 3


def test_a_call_of_a_definition_that_changed_meanwhile_is_not_sent(
    serve: Callable[..., Service], add_upstream: Callable[..., Upstream], peer: Peer, threads: list[str]
) -> None:
    """The upstream announces the change on the stream of the call before."""
    tools = [LOOK]

    def answer(_request: Received, message: dict[str, Any]) -> Iterator[bytes]:
        tools[:] = [{**LOOK, "description": "Look elsewhere."}]
        response = {"jsonrpc": "2.0", "id": message["id"], "result": result("seen")}
        yield EVENTS + b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in (CHANGED, response))

    add_upstream(f"{serve(scripted.modern(answer, lambda: tools)).url}/mcp", prefix="")
    holder = connections.current()
    (connection,) = holder._by_endpoint.values()
    holder.submit(connection.digests("tool")).result(10)
    assert peer.result("look")["content"][0]["text"] == "seen"
    call_result = peer.result("look")
    assert "has changed" in call_result["content"][0]["text"]
    assert len(threads) == 1
    assert "upstreams" not in threads


def test_a_failure_of_a_call_keeps_the_next_ones_with_the_circuit_breaker(
    serve: Callable[..., Service], add_upstream: Callable[..., Upstream], peer: Peer, threads: list[str]
) -> None:
    answers = iter(["fine", "fine", http_response(503), "fine", "fine"])
    add_upstream(f"{serve(scripted.modern(lambda *_: next(answers))).url}/mcp", prefix="")
    outcomes = [peer.result("look")["isError"] for _ in range(5)]
    assert outcomes == [False, False, True, False, False]
    # The third one failed, so that the connection itself made the fourth.
    assert [name == "upstreams" for name in threads[1:]] == [False, False, True, False]


def test_notifications_before_the_result_are_sent_before_it(
    serve: Callable[..., Service], add_upstream: Callable[..., Upstream], peer: Peer, threads: list[str]
) -> None:
    def answer(_request: Received, message: dict[str, Any]) -> bytes:
        token = message["params"]["_meta"]["progressToken"]
        steps = [{"progressToken": token, "progress": step, "message": f"Step {step}"} for step in (1, 2, 3)]
        notifications = [{"jsonrpc": "2.0", "method": "notifications/progress", "params": step} for step in steps]
        response = {"jsonrpc": "2.0", "id": message["id"], "result": result("seen")}
        return EVENTS + b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in (*notifications, response))

    add_upstream(f"{serve(scripted.modern(answer)).url}/mcp", prefix="")
    with peer.stream("tools/call", {"name": "look", "arguments": {}, "_meta": {"progressToken": "p"}}) as stream:
        *notifications, result_message = [
            one for one in stream.read_to_end() if "method" not in one or one["method"] == PROGRESS
        ]
    assert [one["params"]["message"] for one in notifications] == ["Step 1", "Step 2", "Step 3"]
    assert result_message["result"]["content"][0]["text"] == "seen"
    assert Call.objects.get(tool_name="look").event_count == 3
    assert "upstreams" not in threads


def test_the_client_of_a_connection_that_was_closed_is_closed(
    sdk_server: Callable[..., SdkServer],
    add_upstream: Callable[..., Upstream],
    peer: Peer,
    monkeypatch: Any,
    eventually: Any,
) -> None:
    monkeypatch.setattr(direct, "SWEEP_SECONDS", 0.05)
    add_upstream(sdk_server(), era="modern")
    assert not peer.result("books_echo", {"text": "a"})["isError"]
    (clients,) = [one for one in direct._clients.values() if one._clients]
    ((_, client),) = clients._clients.values()
    pool = client.transport._pool._pool  # type: ignore[attr-defined]
    assert pool.connections
    connections.current.stop()
    eventually(lambda: not clients._clients and all(one.is_closed() for one in pool.connections))
