"""Audit records exist when a response arrives: one for each call, and a bounded number for denied requests."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.wire.client import META, MODERN, Peer, RawClient, error_of
from tools_app.audit.recorder import denials, recorder
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.models import ApiKey, Call, CallPayload, RunningCall, Session, Tenant
from tools_app.tenants import keys


@pytest.fixture(autouse=True)
def demo(offer: Callable[..., object]) -> None:
    offer("calculator", "count", "echo", "test_throw")


@pytest.mark.parametrize(
    ("tool", "arguments", "outcome", "is_error"),
    [
        ("echo", {"message": "x"}, "ok", False),
        ("count", {"n": 0}, "ok", False),
        ("calculator", {"operation": "divide", "a": 1, "b": 0}, "tool_error", True),
        ("test_throw", {}, "tool_error", True),
    ],
)
def test_an_answered_call_has_its_one_record(
    client: RawClient, tool: str, arguments: dict[str, Any], outcome: str, is_error: bool
) -> None:
    client.handshake().call(tool, arguments, id="r")
    call = Call.objects.get()
    assert (call.tool_name, call.method, call.request_id, call.tool_revision) == (tool, "tools/call", '"r"', 1)
    assert (call.outcome, call.http_status, call.rpc_error, call.is_error) == (outcome, 200, None, is_error)
    assert call.session == Session.objects.get()
    assert call.finished_at >= call.started_at
    assert orjson.loads(call.payload.texts().arguments) == arguments
    assert orjson.loads(call.payload.texts().result)["isError"] is is_error
    assert not RunningCall.objects.exists()


def test_internal_errors_are_in_the_record_and_not_in_the_response(client: RawClient) -> None:
    client.handshake().call("test_throw")
    assert "RuntimeError: test_throw was called" in Call.objects.get().cause


def test_a_call_of_an_unknown_tool_is_recorded_as_rejected(peer: Peer) -> None:
    response = peer.call("no_such")
    call = Call.objects.get()
    assert (call.tool_name, call.tool, call.outcome) == ("no_such", None, "rejected")
    assert (call.http_status, call.rpc_error, call.is_error) == (response.status_code, -32602, None)


def test_bad_arguments_are_recorded_as_the_revision_answers_them(peer: Peer) -> None:
    peer.call("echo", {"message": 5})
    call = Call.objects.get()
    in_result = peer.version >= "2025-11-25"
    assert call.outcome == "rejected"
    assert (call.rpc_error, call.is_error) == ((None, True) if in_result else (-32602, None))


def test_a_modern_call_is_recorded_with_its_metadata(client: RawClient, tenant: Tenant) -> None:
    info = {META + "clientInfo": {"name": "agent", "version": "9.1"}}
    client.modern("tools/call", {"name": "echo", "arguments": {"message": "x"}, "_meta": info})
    call = Call.objects.get()
    assert (call.client_name, call.client_version, call.protocol_version) == ("agent", "9.1", MODERN)
    assert (call.remote_address, call.session, call.tenant) == ("127.0.0.1", None, tenant)
    assert call.api_key == ApiKey.objects.get()


def test_secrets_are_hidden_and_long_payloads_are_cut(client: RawClient, settings: Any) -> None:
    settings.MCPHUB_MAX_PAYLOAD_BYTES = 200
    session = client.handshake()
    session.call("echo", {"message": "x", "password": "hunter2", "nested": {"api_key": "hunter2"}})
    payload = CallPayload.objects.get()
    assert "hunter2" not in payload.texts().arguments + payload.texts().result
    assert orjson.loads(payload.texts().arguments)["password"] == "[redacted]"
    session.call("echo", {"message": "y" * 5000})
    call = Call.objects.order_by("-started_at").first()
    cut = orjson.loads(call.payload.texts().arguments)
    assert cut["truncated"] is True
    assert len(cut["head"]) == 200
    assert call.arguments_size == cut["size"] > 5000


def turned_away_without_key(client: RawClient) -> int:
    return client.modern("server/discover", headers={"Authorization": None}).status_code


def turned_away_by_origin(client: RawClient) -> int:
    return client.modern("server/discover", headers={"Origin": "https://evil.net"}).status_code


def turned_away_without_session(client: RawClient) -> int:
    return client.http.delete("/mcp", headers=client.headers({"Mcp-Session-Id": "x"})).status_code


@pytest.mark.parametrize(
    ("turned_away", "status"),
    [(turned_away_without_key, 401), (turned_away_by_origin, 403), (turned_away_without_session, 404)],
)
def test_denied_requests_are_recorded(
    client: RawClient, turned_away: Callable[[RawClient], int], status: int, eventually: Callable[..., Any]
) -> None:
    assert turned_away(client) == status
    call = eventually(Call.objects.first)
    assert (call.outcome, call.http_status, call.repeated) == ("denied", status, 1)
    assert call.remote_address == "127.0.0.1"
    assert client.key not in str(vars(call))


def test_a_flood_of_bad_keys_is_counted_and_does_not_fill_the_disk(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    monkeypatch.setattr(denials, "MAX_ROWS", 5)
    for _ in range(12):
        assert client.modern("ping", headers={"Authorization": f"Bearer {keys.new_key()}"}).status_code == 401
    denials.flush(at_once=True)
    eventually(lambda: Call.objects.filter(repeated=7).exists())
    assert sorted(Call.objects.values_list("repeated", flat=True)) == [1, 1, 1, 1, 1, 7]


class FullRecorder:
    """A recorder that cannot record anything."""

    def submit(self, entry: object, loop: object = None) -> None:
        raise RecorderUnavailable("the recorder's queue is full")

    recording = submit


@pytest.mark.parametrize("tool", ["echo", "count"])
def test_calls_that_cannot_be_recorded_are_rejected(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    peer = client.handshake()
    arguments = {"echo": {"message": "x"}, "count": {"n": 1}}[tool]
    with monkeypatch.context() as patched:
        patched.setattr(recorder, "current", FullRecorder)
        response = peer.call(tool, arguments, id=2)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["id"] == 2
    assert error_of(response)["code"] == -32603
    assert error_of(response)["message"].startswith("The database ")
    assert "hello" not in response.text
    assert not Call.objects.exists()
    assert not RunningCall.objects.exists()
    assert peer.call(tool, arguments).status_code == 200
