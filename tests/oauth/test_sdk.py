"""The official SDK connects with nothing but the URL."""

import asyncio
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.oauth.person import REDIRECT, Person, answer_of
from tools_app.models import Call, Connection
from tools_app.server.embedded import EmbeddedHub


class Storage:
    """What an application remembers."""

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
        found = answer_of(came_back[-1])
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    metadata = OAuthClientMetadata(client_name="SDK", redirect_uris=[REDIRECT])  # type: ignore[list-item]
    return OAuthClientProvider(url, metadata, storage, open_browser, wait_for_browser)


async def seen_by(url: str, auth: OAuthClientProvider, mode: Any) -> tuple[list[str], str]:
    async with (
        httpx2.AsyncClient(auth=auth) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        said = await client.call_tool("echo", {"message": "world"})
        return tools, said.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("path", ["/t/acme/mcp", "/t/acme/mcp/", "/mcp"])
def test_the_sdk_connects_with_nothing_but_the_url(hub: EmbeddedHub, ann: Person, mode: str, path: str) -> None:
    storage = Storage()
    auth = provider(hub.url + path, ann, storage, ["echo"])
    assert asyncio.run(seen_by(hub.url + path, auth, mode)) == (["echo"], "hello world")
    connection = Connection.objects.get()
    assert Call.objects.get(tool_name="echo").api_key_id == connection.key_id
    # The second run needs no person.
    again = provider(hub.url + path, None, storage)
    assert asyncio.run(seen_by(hub.url + path, again, mode)) == (["echo"], "hello world")
