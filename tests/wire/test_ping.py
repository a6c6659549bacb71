"""`ping` (2025-11-25, ping): the handshake era has it, the modern one does not."""

from tests.wire.client import Peer, RawClient, error_of


def test_a_session_is_answered_with_an_empty_result(session: Peer) -> None:
    response = session.request("ping", id="abc")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    assert response.json() == {"jsonrpc": "2.0", "id": "abc", "result": {}}


def test_the_modern_era_has_no_ping(client: RawClient) -> None:
    response = client.modern("ping")
    assert response.status_code == 404
    assert error_of(response) == {"code": -32601, "message": "Method not found: 'ping'", "data": {"method": "ping"}}


def test_without_a_session_it_is_refused(client: RawClient) -> None:
    response = client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert response.status_code == 400
    assert "Mcp-Session-Id is missing" in error_of(response)["message"]
