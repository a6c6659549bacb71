"""Sessions (2025-11-25, transports, §Session Management)."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from tests.wire.client import SESSION, Peer, RawClient, error_of, rpc
from tools_app.models import ApiKey, Session
from tools_app.tenants import keys, last_used
from tools_app.tenants.keys import digest_of
from tools_app.transport import state

pytestmark = pytest.mark.servers

MakeClient = Callable[..., RawClient]


def of_another_tenant(client: RawClient, make_client: MakeClient, other_key: str) -> str | None:
    return make_client(other_key).handshake().session_id


def of_another_key(client: RawClient, make_client: MakeClient, other_key: str) -> str | None:
    tenant = ApiKey.objects.get(digest=digest_of(client.key)).tenant
    return make_client(keys.issue(tenant, "second")[1]).handshake().session_id


def unknown(client: RawClient, make_client: MakeClient, other_key: str) -> str | None:
    return "A" * 43


def ended(client: RawClient, make_client: MakeClient, other_key: str) -> str | None:
    peer = client.handshake()
    peer.delete()
    return peer.session_id


def idle(client: RawClient, make_client: MakeClient, other_key: str) -> str | None:
    wire_id = client.handshake().session_id
    # What housekeeping writes later would make it used again.
    last_used.write()
    Session.objects.filter(digest=digest_of(wire_id)).update(last_seen_at=timezone.now() - timedelta(days=2))
    state.forget_everything()
    return wire_id


@pytest.mark.shows("streamable-http.session-404")
@pytest.mark.parametrize("gone", [of_another_tenant, of_another_key, unknown, ended, idle])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
def test_a_session_that_is_not_ones_own_looks_like_one_that_never_was(
    client: RawClient, make_client: MakeClient, other_key: str, gone: Callable[..., str | None], verb: str
) -> None:
    wire_id = gone(client, make_client, other_key)
    content = b'{"jsonrpc":"2.0","method":"notifications/initialized"}' if verb == "POST" else None
    response = client.http.request(verb, "/mcp", headers=client.headers({SESSION: wire_id}), content=content)
    assert response.status_code == 404
    assert response.json() == {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Session not found."}}
    assert {name: value for name, value in response.headers.items() if name not in ("date", "server")} == {
        "content-type": "application/json",
        "cache-control": "no-store",
        "content-length": str(len(response.content)),
    }


@pytest.mark.shows("streamable-http.session-404")
def test_delete_ends_a_session(session: Peer) -> None:
    response = session.delete()
    assert (response.status_code, response.content) == (204, b"")
    assert session.request("ping").status_code == 404
    row = Session.objects.get()
    assert row.ended_at is not None
    assert row.end_reason == "deleted"


def test_ending_one_session_leaves_the_others(client: RawClient) -> None:
    first, second = client.handshake(), client.handshake()
    first.delete()
    assert second.request("ping").status_code == 200


@pytest.mark.shows("streamable-http.session-missing")
@pytest.mark.parametrize("verb", ["GET", "DELETE"])
def test_a_verb_that_needs_a_session_says_so(client: RawClient, verb: str) -> None:
    response = client.http.request(verb, "/mcp", headers=client.headers())
    assert response.status_code == 400
    assert error_of(response)["message"] == "Mcp-Session-Id is missing: call initialize first."


@pytest.mark.shows("lifecycle.initialize-first", "streamable-http.session-missing")
def test_a_message_without_a_session_is_refused_with_its_id(client: RawClient) -> None:
    response = client.post(rpc("tools/list", id=9))
    assert response.status_code == 400
    assert response.json()["id"] == 9
    assert error_of(response)["code"] == -32600


def test_a_session_outlives_what_the_process_remembers(session: Peer, offer: Callable[..., object]) -> None:
    offer("echo")
    state.forget_everything()
    assert session.result("echo", {"message": "again"})["content"][0]["text"] == "hello again"
