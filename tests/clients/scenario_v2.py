"""The scenario of a client of the official SDK 2.x with the demo tools, and its expected results."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

LIMIT_SECONDS = 120.0
STEPS = 4
TOOLS = ["calculator", "count", "echo", "echo_ip", "search_docs", "test_throw"]


@dataclass
class Seen:
    """The results; times are seconds since the call of `count`."""

    version: str = ""
    tools: list[str] = field(default_factory=list)
    echo: str = ""
    progress: list[list[Any]] = field(default_factory=list)
    count: str = ""
    counted_after: float = 0.0
    thrown: list[Any] = field(default_factory=list)
    unknown: str = ""
    bad_arguments: list[Any] = field(default_factory=list)
    calculated: Any = None


def play(url: str, key: str, mode: str) -> Seen:
    """Connect in an era ("2026-07-28", "auto" or "legacy") and use the tools."""
    return asyncio.run(asyncio.wait_for(_play(url, key, mode), LIMIT_SECONDS))


async def _play(url: str, key: str, mode: Any) -> Seen:
    seen = Seen()
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        seen.version = str(client.protocol_version)
        seen.tools = [tool.name for tool in (await client.list_tools()).tools]
        seen.echo = _text(await client.call_tool("echo", {"message": "world"}))
        await _count(client, seen)
        thrown = await client.call_tool("test_throw", {})
        seen.thrown = [thrown.is_error, _text(thrown)]
        try:
            await client.call_tool("nope", {})
        except MCPError as problem:
            seen.unknown = str(problem)
        bad = await client.call_tool("echo", {"massage": "world"})
        seen.bad_arguments = [bad.is_error, _text(bad)]
        calculated = await client.call_tool("calculator", {"operation": "divide", "a": 1, "b": 4})
        seen.calculated = calculated.structured_content
    return seen


async def _count(client: Client, seen: Seen) -> None:
    began = time.monotonic()

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        seen.progress.append([time.monotonic() - began, done, total, message])

    seen.count = _text(await client.call_tool("count", {"n": STEPS}, progress_callback=on_progress))
    seen.counted_after = time.monotonic() - began


def _text(result: Any) -> str:
    return str(result.content[0].text)


def check(seen: Seen) -> None:
    """Compare the results with what the demo tools promise."""
    assert [name for name in seen.tools if name in TOOLS] == TOOLS
    assert seen.echo == "hello world"
    assert [entry[1:] for entry in seen.progress] == [[i, STEPS, f"Step {i} of {STEPS}"] for i in range(STEPS)]
    assert seen.count == str(STEPS)
    times = [entry[0] for entry in seen.progress]
    assert times[-1] - times[0] > 0.15, "progress came all at once"
    assert seen.counted_after >= times[-1]
    assert seen.thrown == [True, "An error occurred invoking 'test_throw'."]
    assert "Unknown tool: 'nope'" in seen.unknown
    assert seen.bad_arguments[0] is True
    assert "message" in seen.bad_arguments[1]
    assert "massage" in seen.bad_arguments[1]
    assert seen.calculated == {"result": 0.25}
