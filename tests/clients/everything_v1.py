"""All features of a client of the official SDK 1.x. Run by an interpreter with that version; prints the results.

python everything_v1.py http|sse|ws|stdio URL, with the key in MCPHUB_API_KEY. For stdio the command stands for the URL.
"""

import asyncio
import json
import os
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.client.websocket import websocket_client
from pydantic import AnyUrl

LIMIT_SECONDS = 120.0
STEPS = 3
KEY = os.environ["MCPHUB_API_KEY"]
HEADERS = {"Authorization": f"Bearer {KEY}"}


@asynccontextmanager
async def http(url: str) -> AsyncIterator[tuple[Any, Any]]:
    async with streamablehttp_client(url, headers=HEADERS) as (read, write, _):
        yield read, write


def stdio(*command: str) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    return stdio_client(StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ)))


OPENERS = {
    "http": http,
    "sse": lambda url: sse_client(url, headers=HEADERS),
    # This client sends no headers.
    "ws": lambda url: websocket_client(f"{url}?api_key={KEY}"),
    "stdio": stdio,
}


async def elicited(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"username": params.message, "email": "a@example.com"})


async def sampled(_context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    answer = types.TextContent(type="text", text=f"answer to {params.messages[0].content.text}")
    return types.CreateMessageResult(role="assistant", content=answer, model="none")


async def play(how: str, *target: str) -> dict[str, Any]:
    seen: dict[str, Any] = {"progress": []}

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        seen["progress"].append([done, total, message])

    async with (
        OPENERS[how](*target) as (read, write),
        ClientSession(read, write, elicitation_callback=elicited, sampling_callback=sampled) as session,
    ):
        seen["version"] = str((await session.initialize()).protocolVersion)
        seen["tools"] = [tool.name for tool in (await session.list_tools()).tools]
        seen["echo"] = text_of(await session.call_tool("echo", {"message": "world"}))
        seen["count"] = text_of(await session.call_tool("count", {"n": STEPS}, progress_callback=on_progress))
        seen["resource"] = (await session.read_resource(AnyUrl("test://static-text"))).contents[0].text
        prompt = await session.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        seen["prompt"] = prompt.messages[0].content.text
        about = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        seen["completion"] = (await session.complete(about, {"name": "arg1", "value": "par"})).completion.values
        seen["elicited"] = text_of(await session.call_tool("test_elicitation", {"message": "Ada"}))
        seen["sampled"] = text_of(await session.call_tool("test_sampling", {"prompt": "why"}))
    return seen


def text_of(result: Any) -> str:
    return str(result.content[0].text)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write(json.dumps(asyncio.run(asyncio.wait_for(play(*sys.argv[1:]), LIMIT_SECONDS))))
