"""Tools for load: each call has a word of its own, which its record and its result repeat."""

import asyncio
import threading
import time

from tools_app.calls import run
from tools_app.calls.background import enqueue
from tools_app.toolkit import ToolContext, tool
from tools_app.transport import state


@tool(read_only=True)
async def quick(word: str) -> str:
    """Change nothing, at once."""
    return word


@tool
async def change(word: str) -> str:
    """Pretend to change something: the intent is durable before it starts."""
    return word


@tool(timeout=60)
async def steps(word: str, n: int, pause: float, context: ToolContext) -> str:
    """Go on in the web process, step by step."""
    for step in range(n):
        context.progress(step, total=n, message=word)
        await asyncio.sleep(pause)
    return word


@tool(background=True, timeout=60)
def toil(word: str, n: int, pause: float, context: ToolContext) -> str:
    """Go on in a worker, step by step."""
    for step in range(n):
        context.progress(step, total=n, message=word)
        context.sleep(pause)
    return word


@tool(background=True, timeout=2)
def hang(word: str) -> str:
    """Never return, in a worker, and hear nothing."""
    while True:
        time.sleep(1)


@tool(background=True, timeout=2)
async def seize(word: str) -> str:
    """Never return, in a worker, and keep its event loop."""
    while True:
        time.sleep(1)  # noqa: ASYNC251 - that is the point


@tool(timeout=2)
async def wait_for_ever(word: str) -> str:
    """Never return, in the web process."""
    await asyncio.Event().wait()
    return word


@tool(timeout=120)
async def pour(word: str, n: int, size: int, context: ToolContext) -> str:
    """Say much more than a slow client reads."""
    for step in range(n):
        context.progress(step, total=n, message="x" * size)
        await asyncio.sleep(0.01)
    return word


@tool(read_only=True)
async def insides() -> dict[str, int]:
    """What the process that answers holds now."""
    web = state.current()
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "streams": len(web.streams),
        "busy": web.busy,
        "calls": len(run.running_here()) + enqueue.running_count(),
    }
