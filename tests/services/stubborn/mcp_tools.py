"""Tools for processes that die, and for clients that talk to several of them."""

import time

from tools_app.toolkit import ToolContext, tool

FORM = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


@tool(background=True, timeout=120)
def stubborn(seconds: float) -> str:
    """Sleep through everything."""
    time.sleep(seconds)
    return "slept"


@tool
async def ask(context: ToolContext) -> str:
    """Ask for a word, in the web process."""
    return (await context.elicit("A word?", FORM)).content["word"]


@tool(background=True)
def ask_in_worker(context: ToolContext) -> str:
    """Ask for a word, in a worker."""
    return context.wait_for(context.elicit("A word?", FORM)).content["word"]


@tool(task="required", background=True)
def ask_as_task(context: ToolContext) -> str:
    """Ask for a word, in a worker, as a task."""
    return context.wait_for(context.elicit("A word?", FORM)).content["word"]
