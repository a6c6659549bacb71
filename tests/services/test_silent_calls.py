"""Clients with their libraries' default time-outs receive the response of a call that sends no events."""

import asyncio
import json
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.services.conftest import Hub, started
from tests.services.stack import THREADS, Stack
from tests.wire.client import ACCEPT_BOTH, call_params, modern_request, rpc

# Ten steps a second, which are not sent without a progress token.
SILENT = {"n": 80}
# So that no call waits for another one.
CALLS = 8
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@pytest.fixture(scope="module")
def running(stack: Stack) -> Hub:
    """Two web processes, and a worker that runs all of these calls at the same time."""
    return started(stack, *THREADS, "--concurrency", str(CALLS))


async def call(url: str, key: str, body: dict[str, Any], fields: dict[str, Any]) -> Any:
    """The last message of a response, with httpx's default time-out of five seconds without data."""
    headers = {name: value for name, value in fields.items() if value is not None}
    headers |= {"Authorization": f"Bearer {key}", "Accept": ACCEPT_BOTH}
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.post(url, json=body, headers=headers)
    data = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
    return json.loads(data[-1])["result"]["content"][0]["text"]


async def modern(url: str, key: str) -> Any:
    body, fields = modern_request("tools/call", call_params("count", SILENT))
    return await call(url, key, body, fields)


async def handshake(url: str, key: str) -> Any:
    headers = {"Authorization": f"Bearer {key}", "Accept": ACCEPT_BOTH}
    async with httpx.AsyncClient(trust_env=False) as client:
        opened = await client.post(url, json=rpc("initialize", INITIALIZE), headers=headers)
    fields = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    return await call(url, key, rpc("tools/call", call_params("count", SILENT)), fields)


async def listening(url: str, key: str) -> Any:
    """A subscription without messages for longer than the client's time-out."""
    body, fields = modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    headers = {name: value for name, value in fields.items() if value is not None}
    headers |= {"Authorization": f"Bearer {key}", "Accept": ACCEPT_BOTH}
    comments = 0
    request = {"json": body, "headers": headers}
    async with httpx.AsyncClient(trust_env=False) as client, client.stream("POST", url, **request) as response:
        async for line in response.aiter_lines():
            comments += line.startswith(":")
            if comments == 4:
                break
    return comments * 20


async def official(url: str, key: str) -> Any:
    """The official SDK with an HTTP client with httpx's default time-outs."""
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        result = await client.call_tool("count", SILENT)
    return result.content[0].text


async def official_sse(url: str, key: str) -> Any:
    address = url.removesuffix("/mcp") + "/sse"
    transport = sse_client(address, headers={"Authorization": f"Bearer {key}"}, timeout=5, sse_read_timeout=5)
    async with Client(transport) as client:
        result = await client.call_tool("count", SILENT)
    return result.content[0].text


def test_a_call_that_is_silent_for_eight_seconds_is_answered_to_clients_that_wait_for_five(hub: Hub) -> None:
    async def call_all() -> list[Any]:
        ways = (modern, handshake, listening, official, official_sse)
        return await asyncio.gather(
            *(way(url, hub.stack.key) for url in hub.urls for way in ways), return_exceptions=True
        )

    assert [str(result) for result in asyncio.run(call_all())] == ["80"] * 10
