"""The scenario with the official SDK 1.x. Run by an interpreter with that version; prints the results as JSON.

python scenario_v1.py URL KEY
"""

import asyncio
import json
import sys
import time
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError

LIMIT_SECONDS = 120.0
STEPS = 4


async def play(url: str, key: str) -> dict[str, Any]:
    seen: dict[str, Any] = {"progress": []}
    headers = {"Authorization": f"Bearer {key}"}
    async with streamablehttp_client(url, headers=headers) as (read, write, _), ClientSession(read, write) as session:
        seen["version"] = str((await session.initialize()).protocolVersion)
        seen["tools"] = [tool.name for tool in (await session.list_tools()).tools]
        seen["echo"] = text_of(await session.call_tool("echo", {"message": "world"}))
        began = time.monotonic()

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            seen["progress"].append([time.monotonic() - began, done, total, message])

        seen["count"] = text_of(await session.call_tool("count", {"n": STEPS}, progress_callback=on_progress))
        seen["counted_after"] = time.monotonic() - began
        thrown = await session.call_tool("test_throw", {})
        seen["thrown"] = [thrown.isError, text_of(thrown)]
        try:
            await session.call_tool("nope", {})
        except McpError as problem:
            seen["unknown"] = str(problem)
        bad = await session.call_tool("echo", {"massage": "world"})
        seen["bad_arguments"] = [bad.isError, text_of(bad)]
        calculated = await session.call_tool("calculator", {"operation": "divide", "a": 1, "b": 4})
        seen["calculated"] = calculated.structuredContent
    return seen


def text_of(result: Any) -> str:
    return str(result.content[0].text)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(asyncio.wait_for(play(sys.argv[1], sys.argv[2]), LIMIT_SECONDS))))
