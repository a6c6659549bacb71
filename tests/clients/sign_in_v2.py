"""The same with the official Python SDK 2.x, as `node/sign_in.mjs` does it: `python sign_in_v2.py URL [DOCUMENT]`."""

import asyncio
import json
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

REDIRECT = "http://localhost:33418/callback"


class Storage:
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def report(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


async def open_browser(url: str) -> None:
    report(open=url)


async def wait_for_browser() -> AuthorizationCodeResult:
    came = parse_qs(urlsplit((await asyncio.to_thread(sys.stdin.readline)).strip()).query)
    found = {name: values[0] for name, values in came.items()}
    return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))


async def list_tools(url: str, auth: OAuthClientProvider) -> None:
    async with (
        httpx2.AsyncClient(auth=auth) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("echo", {"message": "world"})
        report(tools=tools, text=result.content[0].text)


async def main(url: str, document: str | None = None) -> None:
    metadata = OAuthClientMetadata(client_name="Python 2", redirect_uris=[REDIRECT])
    storage = Storage()
    auth = OAuthClientProvider(url, metadata, storage, open_browser, wait_for_browser, client_metadata_url=document)
    await list_tools(url, auth)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip() == "expired":
            auth.context.token_expiry_time = 1.0
        if line.strip() == "token":
            report(token=storage.tokens and storage.tokens.access_token)
        else:
            await list_tools(url, auth)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
