"""Origin and Host are parsed and compared exactly, against DNS rebinding (transports, §Security Warning)."""

from typing import Any

import pytest

from tests.wire.client import SESSION, RawClient, error_of

pytestmark = pytest.mark.servers

ALLOWED = "https://app.example.com"


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.MCPHUB_ALLOWED_ORIGINS = [ALLOWED, "http://localhost:3000"]


@pytest.mark.parametrize("origin", [ALLOWED, "https://app.example.com:443", "http://localhost:3000", "own"])
def test_an_allowed_origin_may_read_the_answer(client: RawClient, origin: str) -> None:
    origin = client.url if origin == "own" else origin
    response = client.modern("server/discover", headers={"Origin": origin})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == origin
    assert response.headers["vary"] == "Origin"
    assert SESSION in response.headers["access-control-expose-headers"]


@pytest.mark.shows("streamable-http.origin", "streamable-http.origin-403")
def test_any_other_origin_is_refused(client: RawClient) -> None:
    for origin in [
        "null",
        "",
        "https://app.example.com.evil.net",
        "https://evil-app.example.com",
        "https://sub.app.example.com",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://app.example.com@evil.net",
        "https://app.example.com/",
        "https://app.example.com:port",
        "app.example.com",
        "http://localhost",
        "http://localhost:30001",
        "http://127.0.0.1",
        "file://",
        "*",
    ]:
        response = client.modern("server/discover", headers={"Origin": origin})
        assert response.status_code == 403, origin
        assert error_of(response) == {"code": -32600, "message": "Origin not allowed."}, origin
        assert "access-control-allow-origin" not in response.headers, origin


def test_a_foreign_origin_learns_nothing_of_a_key(client: RawClient) -> None:
    good, bad = (
        client.modern("server/discover", headers={"Origin": "https://evil.net", "Authorization": value})
        for value in (f"Bearer {client.key}", "Bearer nonsense")
    )
    assert good.status_code == bad.status_code == 403
    assert good.content == bad.content


def test_a_preflight_needs_no_key(client: RawClient) -> None:
    headers = {
        "Origin": ALLOWED,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, mcp-method",
    }
    response = client.http.options("/mcp", headers=headers)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["access-control-allow-origin"] == ALLOWED
    assert response.headers["access-control-allow-methods"] == "POST, GET, DELETE, OPTIONS"
    assert response.headers["access-control-allow-headers"] == "authorization, mcp-method"
    assert "access-control-allow-credentials" not in response.headers


def test_a_preflight_of_a_foreign_origin_is_refused(client: RawClient) -> None:
    response = client.http.options("/mcp", headers={"Origin": "https://evil.net"})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_a_refusal_can_be_read_by_an_allowed_page(client: RawClient) -> None:
    response = client.modern("server/discover", headers={"Origin": ALLOWED, "Authorization": None})
    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == ALLOWED


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "LOCALHOST:80", "[::1]:80"])
def test_the_hub_answers_for_its_own_hosts(client: RawClient, host: str) -> None:
    assert client.modern("server/discover", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.net", "127.0.0.1.evil.net", "evil-localhost", "localhost.evil.net:80", "127.1"])
def test_it_answers_for_no_other_host(client: RawClient, host: str) -> None:
    response = client.modern("server/discover", headers={"Host": host})
    assert response.status_code == 421
    assert error_of(response)["message"] == "This hub does not answer for that host."


def test_an_origin_is_not_allowed_by_claiming_its_host(client: RawClient) -> None:
    response = client.modern("server/discover", headers={"Host": "evil.net", "Origin": "http://evil.net"})
    assert response.status_code == 421
