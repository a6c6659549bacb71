"""All features of a client of the official SDK 2.x; prints the results.

python everything_v2.py http|sse|stdio auto|legacy URL, with the key in MCPHUB_API_KEY. For stdio the command stands for
the URL.
"""

import asyncio
import json
import os
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
from mcp import StdioServerParameters, types
from mcp.client import Client, session
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

LIMIT_SECONDS = 120.0
STEPS = 3
# Its 10 seconds include the start of the server over stdio; after them it speaks the older revision.
session.DISCOVER_TIMEOUT_SECONDS = LIMIT_SECONDS
HEADERS = {"Authorization": f"Bearer {os.environ['MCPHUB_API_KEY']}"}


@asynccontextmanager
async def streamable_http(url: str) -> AsyncIterator[Any]:
    async with (
        httpx2.AsyncClient(headers=HEADERS) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


def stdio(*command: str) -> AbstractAsyncContextManager[Any]:
    return stdio_client(StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ)))


OPENERS = {"http": streamable_http, "sse": lambda url: sse_client(url, headers=HEADERS), "stdio": stdio}


async def elicited(_context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"username": params.message, "email": "a@example.com"})


async def sampled(_context: Any, params: Any) -> types.CreateMessageResult:
    answer = types.TextContent(type="text", text=f"answer to {params.messages[0].content.text}")
    return types.CreateMessageResult(role="assistant", content=answer, model="none")


async def play(how: str, mode: Any, *target: str) -> dict[str, Any]:
    seen: dict[str, Any] = {"progress": []}

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        seen["progress"].append([done, total, message])

    connecting = Client(OPENERS[how](*target), mode=mode, elicitation_callback=elicited, sampling_callback=sampled)
    async with connecting as client:
        seen["version"] = str(client.protocol_version)
        seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        seen["echo"] = text_of(await client.call_tool("echo", {"message": "world"}))
        seen["count"] = text_of(await client.call_tool("count", {"n": STEPS}, progress_callback=on_progress))
        seen["resource"] = (await client.read_resource("test://static-text")).contents[0].text
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        seen["prompt"] = prompt.messages[0].content.text
        about = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        seen["completion"] = (await client.complete(about, {"name": "arg1", "value": "par"})).completion.values
        seen["elicited"] = text_of(await client.call_tool("test_elicitation", {"message": "Ada"}))
        seen["sampled"] = text_of(await client.call_tool("test_sampling", {"prompt": "why"}))
    return seen


def text_of(result: Any) -> str:
    return str(result.content[0].text)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write(json.dumps(asyncio.run(asyncio.wait_for(play(*sys.argv[1:]), LIMIT_SECONDS))))
