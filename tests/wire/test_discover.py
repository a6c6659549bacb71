"""`server/discover` (2026-07-28, discovery)."""

import pytest

from tests.wire.client import MODERN, Peer, RawClient, error_of


@pytest.mark.shows("caching.discovery")
def test_it_says_what_the_hub_speaks_and_offers(client: RawClient) -> None:
    response = client.modern("server/discover", id="d")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in response.headers
    assert response.json()["id"] == "d"
    result = response.json()["result"]
    assert result["supportedVersions"] == [MODERN]
    assert result["capabilities"] == {
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "prompts": {"listChanged": True},
        "completions": {},
        "logging": {},
        "extensions": {
            "io.modelcontextprotocol/tasks": {},
            "io.modelcontextprotocol/skills": {"directoryRead": True},
        },
    }
    assert result["resultType"] == "complete"
    assert (result["ttlMs"], result["cacheScope"]) == (60_000, "private")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "mcphub"


def test_a_session_has_no_such_method(session: Peer) -> None:
    response = session.request("server/discover")
    assert response.status_code == 200
    assert error_of(response)["code"] == -32601


def test_it_needs_a_key(client: RawClient) -> None:
    assert client.modern("server/discover", headers={"Authorization": None}).status_code == 401
