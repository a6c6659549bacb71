"""The clients that people use: what each says of itself is accepted, and it gets tokens as it asks for them."""

import json
import time
from typing import Any
from uuid import uuid4

import pytest
from joserfc import jwt

from tests.oauth import known_clients
from tests.oauth.known_clients import DOCUMENTS, KEYS_URL, REGISTERED, SIGNING_KEY, VS_CODE, KnownClient
from tests.oauth.person import Application, Person, form_of
from tests.oauth.test_tokens import status
from tools_app.access.oauth import clients, devices, policy
from tools_app.models import OAuthClient
from tools_app.oauth import client_documents
from tools_app.oauth.client_assertions import TYPE
from tools_app.server.embedded import EmbeddedHub

REDIRECTS = [
    pytest.param(client, uri, id=f"{client.name}, {'document' if client.document else 'registered'}: {uri}")
    for client in (*DOCUMENTS, *REGISTERED)
    for uri in client.uses
]


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, hub: EmbeddedHub) -> list[str]:
    """The websites of the clients, and which URLs were asked for."""
    asked: list[str] = []
    pages: dict[str, Any] = {client.document: client.metadata for client in DOCUMENTS}
    pages[KEYS_URL] = {"keys": [SIGNING_KEY.as_dict(private=False)]}

    async def fetch(url: str) -> client_documents.Reply:
        asked.append(url)
        return client_documents.Reply(200, {}, json.dumps(pages[url]).encode())

    monkeypatch.setattr(client_documents, "fetch", fetch)
    monkeypatch.setattr(client_documents, "SECONDS_BETWEEN_FETCHES", 0.001)
    return asked


def signed(application: Application, client: KnownClient) -> dict[str, str]:
    """How the client proves itself at the token endpoint."""
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
    return {"client_assertion_type": TYPE, "client_assertion": text}


def become(application: Application, client: KnownClient) -> None:
    """Let the application be this client."""
    if client.document:
        application.client_id = client.document
        return
    answer = application.register(**client.metadata)
    assert answer.status_code == 201, answer.text
    # One refused address would spoil all.
    assert answer.json()["redirect_uris"] == list(client.redirect_uris)


@pytest.mark.parametrize(("client", "uri"), REDIRECTS)
def test_a_client_connects_calls_and_renews(
    hub: EmbeddedHub, web: list[str], ann: Person, application: Application, client: KnownClient, uri: str
) -> None:
    become(application, client)
    application.redirect_uri = uri
    # As the SDKs do, which every one of these clients is made with or like.
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
        (known_clients.VS_CODE, {"vscode.dev"}),
        (known_clients.CURSOR, {"cursor:", "localhost"}),
        (known_clients.VS_CODE_REGISTERED, {"127.0.0.1", "vscode.dev"}),
    ],
)
def test_a_policy_names_a_client_as_an_admin_would(
    web: list[str], application: Application, client: KnownClient, hosts: set[str]
) -> None:
    become(application, client)
    row = client_documents.find(application.client_id)
    assert row is not None
    assert {policy.host_of(row, uri) for uri in client.uses} == hosts


def test_vs_code_signs_in_on_a_machine_without_a_browser(
    hub: EmbeddedHub, web: list[str], ann: Person, application: Application
) -> None:
    become(application, VS_CODE)
    asked = {"client_id": VS_CODE.document, "resource": application.resource}
    codes = application.http.post("/oauth/device_authorization", data=asked).json()
    sent = form_of(ann.open(codes["verification_uri_complete"]).text).fields
    page = ann.browser.post("/device", data=sent, headers={"Origin": hub.url})
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
    asked = {"client_id": client.document, "resource": application.resource, **signed(application, client)}
    answer = application.http.post("/oauth/device_authorization", data=asked)
    assert answer.json()["error"] == "unauthorized_client"
    assert OAuthClient.objects.get().name == client.name
