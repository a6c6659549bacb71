"""Widely used MCP clients: their metadata is accepted, and their token requests work."""

import json
import time
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from joserfc import jwt

from tests.identity.oauth import known_clients
from tests.identity.oauth.known_clients import DOCUMENTS, KEYS_URL, REGISTERED, SIGNING_KEY, VS_CODE, KnownClient
from tests.identity.oauth.person import Application, Person, parse_form
from tests.identity.oauth.test_tokens import status
from tools_app.identity.authorization.server import ASSERTION_TYPE
from tools_app.identity.oauth import clients, devices, policies
from tools_app.models import OAuthClient
from tools_app.server.embedded import EmbeddedHub

REDIRECTS = [
    pytest.param(client, uri, id=f"{client.name}, {'document' if client.document else 'registered'}: {uri}")
    for client in (*DOCUMENTS, *REGISTERED)
    for uri in client.uses
]


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, hub: EmbeddedHub) -> list[str]:
    """Serve the clients' metadata documents, and record the requested URLs."""
    requested: list[str] = []
    pages: dict[str, Any] = {client.document: client.metadata for client in DOCUMENTS}
    pages[KEYS_URL] = {"keys": [SIGNING_KEY.as_dict(private=False)]}

    async def fetch(url: str) -> clients.Reply:
        requested.append(url)
        return clients.Reply(200, {}, json.dumps(pages[url]).encode())

    monkeypatch.setattr(clients, "fetch", fetch)
    monkeypatch.setattr(clients, "SECONDS_BETWEEN_FETCHES", 0.001)
    return requested


def signed(application: Application, client: KnownClient) -> dict[str, str]:
    """The client authentication parameters for the token endpoint."""
    if client.auth_method != clients.SIGNED:
        return {}
    claims = {
        "iss": client.document,
        "sub": client.document,
        "aud": f"{application.base}/oauth/token",
        "exp": int(time.time()) + 300,
        "jti": str(uuid4()),
    }
    text = jwt.encode({"alg": "RS256", "kid": SIGNING_KEY.kid}, claims, SIGNING_KEY, algorithms=["RS256"])
    return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": text}


def become(application: Application, client: KnownClient) -> None:
    """Make the application behave as this client."""
    if client.document:
        application.client_id = client.document
        return
    response = application.register(**client.metadata)
    assert response.status_code == 201, response.text
    # One rejected redirect URI would reject the registration.
    assert response.json()["redirect_uris"] == list(client.redirect_uris)


@pytest.mark.slow
@pytest.mark.parametrize(("client", "uri"), REDIRECTS)
def test_a_client_connects_calls_and_renews(
    hub: EmbeddedHub, web: list[str], ann: Person, application: Application, client: KnownClient, uri: str
) -> None:
    become(application, client)
    application.redirect_uri = uri
    # As the MCP SDKs do, which these clients use or imitate.
    page = ann.open(application.url(scope="mcp:read mcp:call offline_access"))
    assert page.status_code == 200, page.text
    assert client.name in page.text
    assert (f"(verified: {client.host}" in page.text) is bool(client.host)
    location = ann.decide(page, tools=["echo"]).headers["location"]
    assert location.startswith(f"{uri}?")
    issued = application.exchange(location, **signed(application, client))
    assert issued.status_code == 200, issued.text
    assert status(hub, issued.json()["access_token"]) == 200
    renewed = application.refresh(issued.json()["refresh_token"], **signed(application, client))
    assert renewed.status_code == 200, renewed.text
    assert web == ([client.document] if client.document else []) + ([KEYS_URL] if signed(application, client) else [])


def test_scopes_of_openid_that_vs_code_asks_for_are_no_obstacle(
    hub: EmbeddedHub, web: list[str], ann: Person, application: Application
) -> None:
    become(application, VS_CODE)
    application.redirect_uri = VS_CODE.uses[0]
    page = ann.open(application.url(scope="openid profile offline_access roles email"))
    issued = application.exchange(ann.decide(page, tools=["echo"]).headers["location"])
    assert set(issued.json()["scope"].split()) == {"mcp:read", "mcp:call"}
    assert "id_token" not in issued.json()


@pytest.fixture
def chatgpt(web: list[str], application: Application) -> Application:
    become(application, known_clients.CHATGPT)
    application.redirect_uri = known_clients.CHATGPT.uses[0]
    return application


def test_chatgpt_connects_and_renews_without_a_signature_too(
    hub: EmbeddedHub, ann: Person, chatgpt: Application
) -> None:
    """Its document also names `none`: PKCE and the redirect URI protect the code."""
    issued = chatgpt.exchange(ann.connect(chatgpt.url(), ["echo"]))
    assert issued.status_code == 200, issued.text
    renewed = chatgpt.refresh(issued.json()["refresh_token"])
    assert status(hub, renewed.json()["access_token"]) == 200


def test_a_refresh_token_that_was_given_for_a_signature_is_good_for_nobody_who_does_not_sign(
    ann: Person, chatgpt: Application
) -> None:
    """Also after a refresh. A grant that began unsigned has to be signed once it was signed."""
    proof = partial(signed, chatgpt, known_clients.CHATGPT)
    token = chatgpt.exchange(ann.connect(chatgpt.url(), ["echo"]), **proof()).json()["refresh_token"]
    for _ in range(2):
        stolen = chatgpt.refresh(token)
        assert (stolen.status_code, stolen.json()["error"]) == (401, "invalid_client")
        assert "has to do so" in stolen.json()["error_description"]
        token = chatgpt.refresh(token, **proof()).json()["refresh_token"]
    open_token = chatgpt.exchange(ann.connect(chatgpt.url(), ["echo"])).json()["refresh_token"]
    bound = chatgpt.refresh(open_token, **proof()).json()["refresh_token"]
    assert chatgpt.refresh(bound).status_code == 401


def test_a_signature_that_is_wrong_is_not_taken_for_none(ann: Person, chatgpt: Application) -> None:
    location = ann.connect(chatgpt.url(), ["echo"])
    forged = {**signed(chatgpt, known_clients.CHATGPT), "client_assertion": "e30.e30.e30"}
    assert chatgpt.exchange(location, **forged).json()["error"] == "invalid_client"
    unknown = {"client_assertion_type": "urn:other", "client_assertion": "x"}
    assert chatgpt.exchange(location, **unknown).json()["error"] == "invalid_client"
    assert chatgpt.exchange(location).status_code == 200


@pytest.mark.parametrize(
    ("metadata", "methods"),
    [
        ({}, ["none"]),
        ({"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": KEYS_URL}, ["private_key_jwt"]),
        ({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, ["none"]),
        (
            {"token_endpoint_auth_methods_supported": ["none", "private_key_jwt", 7], "jwks_uri": KEYS_URL},
            ["none", "private_key_jwt"],
        ),
        ({"token_endpoint_auth_methods_supported": "private_key_jwt", "jwks_uri": KEYS_URL}, ["none"]),
    ],
)
def test_a_client_authenticates_in_the_ways_that_its_document_names(
    db: None, metadata: dict[str, Any], methods: list[str]
) -> None:
    url = "https://app.example/client.json"
    row = clients.from_document(url, {"client_id": url, "redirect_uris": ["https://app.example/back"], **metadata})
    assert clients.methods_of(row) == methods


@pytest.mark.parametrize("client", [*DOCUMENTS, *REGISTERED], ids=lambda client: client.name)
def test_a_client_returns_nowhere_else(
    web: list[str], ann: Person, application: Application, client: KnownClient
) -> None:
    become(application, client)
    for uri in ("https://evil.example/callback", f"{client.redirect_uris[0]}/more", "cursor://evil/oauth/callback"):
        application.redirect_uri = uri
        assert "which it did not register" in ann.open(application.url()).text


@pytest.mark.parametrize(
    ("client", "hosts"),
    [
        (known_clients.CLAUDE, {"claude.ai"}),
        (known_clients.CLAUDE_CODE, {"claude.ai"}),
        (known_clients.CHATGPT, {"chatgpt.com"}),
        (known_clients.CODEX, {"chatgpt.com"}),
        (known_clients.VS_CODE, {"vscode.dev"}),
        (known_clients.CURSOR, {"cursor:", "localhost"}),
        (known_clients.VS_CODE_REGISTERED, {"localhost", "vscode.dev"}),
    ],
)
def test_a_policy_names_a_client_as_an_admin_would(
    web: list[str], application: Application, client: KnownClient, hosts: set[str]
) -> None:
    become(application, client)
    row = clients.find(application.client_id)
    assert row is not None
    assert {policies.host_of(row, uri) for uri in client.uses} == hosts


def test_vs_code_signs_in_on_a_machine_without_a_browser(
    hub: EmbeddedHub, web: list[str], ann: Person, application: Application
) -> None:
    become(application, VS_CODE)
    data = {"client_id": VS_CODE.document, "resource": application.resource}
    codes = application.http.post("/oauth/device_authorization", data=data).json()
    fields = parse_form(ann.open(codes["verification_uri_complete"]).text).fields
    page = ann.browser.post("/device", data=fields, headers={"Origin": hub.url})
    assert "Visual Studio Code" in page.text
    ann.decide(page, tools=["echo"])
    issued = application.token(grant_type=devices.GRANT, device_code=codes["device_code"])
    assert status(hub, issued.json()["access_token"]) == 200


@pytest.mark.parametrize(
    "client", [client for client in DOCUMENTS if devices.GRANT not in client.grants], ids=lambda client: client.name
)
def test_nobody_asks_on_a_device_in_the_name_of_the_others(
    web: list[str], application: Application, client: KnownClient
) -> None:
    data = {"client_id": client.document, "resource": application.resource, **signed(application, client)}
    response = application.http.post("/oauth/device_authorization", data=data)
    assert response.json()["error"] == "unauthorized_client"
    assert OAuthClient.objects.get().name == client.name
