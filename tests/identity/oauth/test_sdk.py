"""The official SDK connects given only the endpoint's URL."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from joserfc.jwk import ECKey
from mcp.client import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.identity.oauth.person import REDIRECT, Person, redirect_parameters
from tools_app.identity.oauth import service_clients
from tools_app.models import Call, Connection, Tenant
from tools_app.server.embedded import EmbeddedHub


class Storage:
    """An in-memory token storage."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def provider(url: str, person: Person | None, storage: Storage, tools: list[str] | None = None) -> OAuthClientProvider:
    came_back: list[str] = []

    async def open_browser(address: str) -> None:
        assert person is not None, "nobody is at the browser"
        came_back.append(await asyncio.to_thread(person.connect, address, tools))

    async def wait_for_browser() -> AuthorizationCodeResult:
        found = redirect_parameters(came_back[-1])
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    metadata = OAuthClientMetadata(client_name="SDK", redirect_uris=[REDIRECT])  # type: ignore[list-item]
    return OAuthClientProvider(url, metadata, storage, open_browser, wait_for_browser)


async def seen_by(url: str, auth: OAuthClientProvider, mode: Any) -> tuple[list[str], str]:
    async with (
        httpx2.AsyncClient(auth=auth) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("echo", {"message": "world"})
        return tools, result.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("path", ["/t/acme/mcp", "/t/acme/mcp/", "/mcp"])
def test_the_sdk_connects_with_nothing_but_the_url(hub: EmbeddedHub, ann: Person, mode: str, path: str) -> None:
    storage = Storage()
    auth = provider(hub.url + path, ann, storage, ["echo"])
    assert asyncio.run(seen_by(hub.url + path, auth, mode)) == (["echo"], "hello world")
    connection = Connection.objects.get()
    assert Call.objects.get(tool_name="echo").api_key_id == connection.key_id
    # The second run needs no user interaction.
    again = provider(hub.url + path, None, storage)
    assert asyncio.run(seen_by(hub.url + path, again, mode)) == (["echo"], "hello world")


@pytest.mark.parametrize("proof", ["secret", "key"])
def test_a_service_client_connects_with_client_credentials(
    hub: EmbeddedHub, tenant: Tenant, offer: Callable[..., object], proof: str
) -> None:
    """With its secret, or a signed assertion."""
    offer("echo", "count")
    key = ECKey.generate_key("P-256")
    public = {"keys": [key.as_dict(private=False)]} if proof == "key" else None
    only = {"tool_patterns": ["echo"]}
    row, secret = service_clients.create(tenant, "nightly", public_keys=public, **only)
    url, name = f"{hub.url}/t/acme/mcp", Connection.objects.get(key=row).client.client_id
    auth: OAuthClientProvider
    if proof == "secret":
        auth = ClientCredentialsOAuthProvider(url, Storage(), name, secret, issuer=hub.url)
    else:
        pem = key.as_pem(private=True).decode()
        signing = SignedJWTParameters(issuer=name, subject=name, signing_key=pem, signing_algorithm="ES256")
        auth = PrivateKeyJWTOAuthProvider(url, Storage(), name, signing.create_assertion_provider(), issuer=hub.url)
    assert asyncio.run(seen_by(url, auth, "auto")) == (["echo"], "hello world")
