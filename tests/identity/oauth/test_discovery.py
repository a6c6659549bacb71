"""Discovery and registration: metadata found from the endpoint's URL, and what clients may register."""

import json
import logging

import httpx
import pytest

from tests.identity.oauth.person import Application, Person, redirect_parameters
from tests.wire.client import RawClient
from tools_app.core.http.documents import DocumentError
from tools_app.identity.authorization import endpoints
from tools_app.identity.oauth import clients
from tools_app.models import Change, OAuthClient, SignInEvent
from tools_app.server.embedded import EmbeddedHub


@pytest.fixture
def http(hub: EmbeddedHub) -> httpx.Client:
    client = RawClient(hub.url, None).http
    yield client
    client.close()


PATHS = ["/mcp", "/t/acme/mcp", "/t/acme/mcp/", "/t/acme/sse", "/t/no-such-tenant/mcp"]


@pytest.mark.parametrize("path", PATHS)
def test_each_endpoint_tells_where_to_sign_in(hub: EmbeddedHub, http: httpx.Client, path: str) -> None:
    response = http.get(f"/.well-known/oauth-protected-resource{path}", headers={"Origin": "https://client.example"})
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.json() == {
        "resource": f"{hub.url}{path}",
        "authorization_servers": [hub.url],
        "scopes_supported": ["mcp:read", "mcp:call"],
        "bearer_methods_supported": ["header"],
        "resource_name": "mcphub",
    }


def test_the_bare_metadata_is_that_of_the_hub(hub: EmbeddedHub, http: httpx.Client) -> None:
    assert http.get("/.well-known/oauth-protected-resource").json()["resource"] == f"{hub.url}/mcp"


@pytest.mark.parametrize("path", ["/admin", "/t/acme", "/t/a%22b/mcp", "/t/acme/mcp/more"])
def test_what_is_no_endpoint_has_no_metadata(http: httpx.Client, path: str) -> None:
    assert http.get(f"/.well-known/oauth-protected-resource{path}").status_code == 404


@pytest.mark.parametrize("name", ["oauth-authorization-server", "openid-configuration"])
def test_the_authorization_server_says_what_clients_look_for(hub: EmbeddedHub, http: httpx.Client, name: str) -> None:
    found = http.get(f"/.well-known/{name}").json()
    assert found["issuer"] == hub.url
    assert found["code_challenge_methods_supported"] == ["S256"]
    assert "none" in found["token_endpoint_auth_methods_supported"]
    assert found["client_id_metadata_document_supported"] is True
    assert found["authorization_response_iss_parameter_supported"] is True
    assert "offline_access" in found["scopes_supported"]
    assert "urn:ietf:params:oauth:grant-type:jwt-bearer" in found["grant_types_supported"]
    assert found["authorization_grant_profiles_supported"] == ["urn:ietf:params:oauth:grant-profile:id-jag"]
    for endpoint in ("authorization", "token", "registration", "revocation", "device_authorization", "introspection"):
        assert found[f"{endpoint}_endpoint"].startswith(f"{hub.url}/oauth/")
    assert http.get(f"/.well-known/{name}/t/acme/mcp").status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "a$(calc)", "127.0.0.1:1$(calc)", "127.0.0.1/x"])
def test_no_metadata_leads_elsewhere_than_to_the_hub(hub: EmbeddedHub, http: httpx.Client, host: str) -> None:
    """CVE-2025-6514: clients open, or even execute, URLs in the metadata."""
    for path in ("/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource/mcp", "/mcp"):
        response = http.get(path, headers={"Host": host})
        assert response.status_code in {400, 421}, response.text
        assert host not in response.headers.get("www-authenticate", "")
    metadata = http.get("/.well-known/oauth-authorization-server").json()
    addresses = [value for name, value in metadata.items() if name.endswith(("_endpoint", "_uri"))]
    assert addresses
    assert all(address.startswith(f"{hub.url}/") for address in addresses)


@pytest.mark.parametrize("path", ["/mcp", "/t/acme/mcp", "/t/acme/mcp/", "/t/acme/sse", "/sse", "/t/acme/message"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_each_401_leads_to_the_metadata_of_its_own_url(
    hub: EmbeddedHub, http: httpx.Client, path: str, method: str
) -> None:
    response = http.request(method, path, headers={"Accept": "text/event-stream, application/json"})
    if response.status_code == 405:
        return
    assert response.status_code == 401
    challenge = response.headers["www-authenticate"]
    assert f'resource_metadata="{hub.url}/.well-known/oauth-protected-resource{path}"' in challenge
    assert "offline_access" not in challenge


@pytest.mark.parametrize("path", ["/t/a%0d%0aX-Evil:%201/mcp", '/t/a"b/mcp', "/t/%C3%A4/mcp"])
def test_a_path_that_is_no_endpoint_is_not_repeated_in_a_header(http: httpx.Client, path: str) -> None:
    response = http.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert response.status_code == 401
    assert "resource_metadata" not in response.headers["www-authenticate"]
    assert "x-evil" not in response.headers


def test_a_key_that_works_is_not_asked_to_sign_in(hub: EmbeddedHub, key: str) -> None:
    client = RawClient(hub.url, key)
    with client.http:
        assert "www-authenticate" not in client.modern("tools/list").headers


@pytest.mark.parametrize("endpoint", ["token", "register", "revoke", "device_authorization", "introspect"])
def test_pages_of_every_origin_may_ask_and_none_is_answered_otherwise(http: httpx.Client, endpoint: str) -> None:
    preflight = http.options(f"/oauth/{endpoint}", headers={"Origin": "https://client.example"})
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, "*")
    assert "access-control-allow-credentials" not in preflight.headers
    assert http.get(f"/oauth/{endpoint}").status_code == 405
    assert "access-control-allow-origin" not in http.get("/oauth/authorize").headers


# --- Registration ---------------------------------------------------------------------------------------------------


def test_a_public_client_registers_and_gets_no_secret(application: Application) -> None:
    registered = application.register(client_name="  Robot\n\x00 two  ", unknown_member={"a": 1}).json()
    assert registered["client_name"] == "Robot two"
    assert registered["redirect_uris"] == [application.redirect_uri]
    assert "client_secret" not in registered
    assert OAuthClient.objects.get().client_id == registered["client_id"]


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": None}, "invalid_redirect_uri"),
        ({"redirect_uris": "http://localhost/"}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://localhost/"] * 21}, "invalid_redirect_uri"),
        ({"redirect_uris": [1]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://client.example/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["data:text/html,x"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://client.example/#part"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://user@client.example/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://client.example;script-src */"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://client.example/\r\nX: 1"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["/relative"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://client.example/" + "x" * 2000]}, "invalid_redirect_uri"),
        ({"token_endpoint_auth_method": "private_key"}, "invalid_client_metadata"),
        ({"grant_types": ["implicit"]}, "invalid_client_metadata"),
        ({"response_types": ["token"]}, "invalid_client_metadata"),
        ({"client_uri": "x" * 20_000}, "invalid_client_metadata"),
    ],
)
def test_what_cannot_be_registered_is_said_with_its_reason(
    application: Application, metadata: dict[str, object], error: str
) -> None:
    response = application.register(**metadata)
    assert response.status_code == 400
    assert response.json()["error"] == error
    assert response.json()["error_description"]
    assert not OAuthClient.objects.exists()


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 10_000])
def test_a_body_that_is_no_object_is_refused(application: Application, body: bytes) -> None:
    response = application.http.post("/oauth/register", content=body)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_client_metadata")


def test_an_address_registers_ten_clients_a_minute(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "MAX_REGISTRATIONS", 2)
    assert [application.register().status_code for _ in range(3)] == [201, 201, 429]
    assert OAuthClient.objects.count() == 2


# --- Documents ------------------------------------------------------------------------------------------------------

CLIENT_ID = "https://claude.example/oauth/metadata"
DOCUMENT = {
    "client_id": CLIENT_ID,
    "client_name": "Claude",
    "redirect_uris": ["https://claude.example/api/mcp/auth_callback"],
    "token_endpoint_auth_method": "none",
}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, hub: EmbeddedHub) -> list[object]:
    """The responses of the client's host, in order: a status with a body, or an error."""
    responses: list[object] = []

    async def fetch(_url: str) -> clients.Reply:
        response = responses.pop(0)
        if isinstance(response, Exception):
            raise response
        status, body = response
        return clients.Reply(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())

    monkeypatch.setattr(clients, "fetch", fetch)
    monkeypatch.setattr(clients, "SECONDS_BETWEEN_FETCHES", 0.001)
    return responses


def test_a_client_is_known_by_its_document(served: list[object]) -> None:
    served.append((200, DOCUMENT))
    client = clients.find(CLIENT_ID)
    assert client is not None
    assert (client.name, clients.host_of(client)) == ("Claude", "claude.example")
    # It is not fetched again while it is fresh.
    assert clients.find(CLIENT_ID) == client


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ((404, DOCUMENT), "status 404"),
        ((302, DOCUMENT), "status 302"),
        ((200, b"<html>"), "not JSON"),
        ((200, b"[]"), "not a JSON object"),
        ((200, {**DOCUMENT, "client_id": "https://other.example/x"}), "not the URL of the document"),
        ((200, {**DOCUMENT, "redirect_uris": []}), "redirect_uris"),
        ((200, {**DOCUMENT, "redirect_uris": ["javascript:x"]}), "scheme"),
        ((200, {**DOCUMENT, "token_endpoint_auth_method": "client_secret_post"}), "no secret"),
        ((200, {**DOCUMENT, "token_endpoint_auth_method": "private_key_jwt"}), "jwks_uri"),
        ((200, {**DOCUMENT, "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "http://x/"}), "jwks_uri"),
        (DocumentError("No answer within 5 seconds."), "No answer"),
    ],
)
def test_a_bad_document_is_said_to_the_person(
    ann: Person, application: Application, served: list[object], response: object, message: str
) -> None:
    served.append(response)
    application.client_id, application.redirect_uri = CLIENT_ID, DOCUMENT["redirect_uris"][0]
    page = ann.browser.get(application.url())
    assert page.status_code == 400
    assert f"This client&#x27;s document at {CLIENT_ID} could not be read" in page.text
    assert message in page.text
    assert "Connect it again later, or tell the people who make it." in page.text


def test_while_its_host_is_away_a_client_stays_what_it_was_for_a_day(
    served: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    served.append((200, DOCUMENT))
    known = clients.find(CLIENT_ID)
    monkeypatch.setattr(clients, "REFRESH_INTERVAL", clients.REFRESH_INTERVAL * 0)
    served.append((500, b""))
    assert clients.find(CLIENT_ID) == known
    monkeypatch.setattr(clients, "MAX_STALE", clients.MAX_STALE * 0)
    served.append((500, b""))
    with pytest.raises(DocumentError):
        clients.find(CLIENT_ID)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/metadata",
        "https://[::1]/metadata",
        "https://10.0.0.1/metadata",
        "https://169.254.169.254/latest/meta-data",
        "https://localhost/metadata",
        "https://claude.example/../metadata",
        "https://user:password@claude.example/metadata",
        "https://claude.example/metadata#part",
        "https://claude.example",
    ],
)
def test_a_document_is_read_from_public_addresses_only(transactional_db: None, url: str) -> None:
    with pytest.raises(DocumentError):
        clients.find(url)
    assert not OAuthClient.objects.exists()


# --- Secrets --------------------------------------------------------------------------------------------------------


def test_no_code_token_or_secret_is_kept_or_logged(
    ann: Person, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    application.register(token_endpoint_auth_method="client_secret_post")
    location = ann.connect(application.url(), ["echo"])
    issued = application.exchange(location, client_secret=application.secret).json()
    again = application.refresh(issued["refresh_token"], client_secret=application.secret).json()
    secrets = [application.secret, redirect_parameters(location)["code"], application.verifier]
    secrets += [pair[name] for pair in (issued, again) for name in ("access_token", "refresh_token")]
    stored = str([list(model.objects.values()) for model in (SignInEvent, Change, OAuthClient)])
    for secret in secrets:
        assert secret not in stored
        assert secret not in caplog.text
