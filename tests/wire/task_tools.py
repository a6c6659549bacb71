"""Tools whose calls become tasks, and a gate that blocks them until a test opens it."""

import asyncio
from collections.abc import Mapping
from threading import Event
from typing import Any

from tests.wire.client import WAIT_SECONDS, Peer, error_of, message_of
from tools_app.toolkit import Elicit, ProtocolError, ToolContext, ToolError, tool

EXTENSION = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
ASKABLE = {"elicitation": {}}
NAME_FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOLS = ("quick", "held", "never_task", "must", "must_hold", "fails", "breaks", "asks", "asks_two", "stubborn")


class Gate:
    """Blocks tools until a test opens it. `entered` is set when a tool arrives, `left` when it was stopped."""

    def __init__(self) -> None:
        self.entered = Event()
        self.left = Event()
        self._opened = Event()

    def open(self) -> None:
        self._opened.set()

    def hold(self, context: ToolContext) -> None:
        self.entered.set()
        try:
            while not self._opened.is_set():
                context.sleep(0.01)
        finally:
            self.left.set()

    async def wait(self) -> None:
        self.entered.set()
        await asyncio.to_thread(self._opened.wait, WAIT_SECONDS)

    def hold_whatever_comes(self) -> None:
        self.entered.set()
        self._opened.wait(WAIT_SECONDS)
        self.left.set()

    def wait_for_tool(self) -> None:
        assert self.entered.wait(WAIT_SECONDS), "no tool came to the gate"

    def wait_for_stop(self) -> None:
        assert self.left.wait(WAIT_SECONDS), "no tool left the gate"


def register(gate: Gate, *, background: bool) -> None:
    """Register all of TOOLS, which run in a worker if they are `background` ones."""
    register_asking(background=background)

    @tool(task="optional", background=background)
    def quick(word: str) -> str:
        return f"quick {word}"

    @tool(task="optional", background=background)
    def held(context: ToolContext) -> str:
        context.progress(1, total=2, message="Half way")
        context.log("warning", "holding")
        gate.hold(context)
        return "held no more"

    @tool(task="never", background=background)
    def never_task(context: ToolContext) -> str:
        context.sleep(0.15)
        return "never a task"

    @tool(task="required", background=background)
    def must(word: str) -> str:
        return f"must {word}"

    @tool(task="required", background=background)
    def must_hold(context: ToolContext) -> str:
        gate.hold(context)
        return "held no more"

    @tool(task="required", background=background)
    def fails() -> str:
        raise ToolError("No luck today.")

    @tool(task="required", background=background)
    def breaks() -> str:
        raise ProtocolError("Not like this.", 4711, {"why": "a test"})

    @tool(task="required", background=background)
    def stubborn() -> str:
        gate.hold_whatever_comes()
        return "ended all the same"


def register_asking(*, background: bool) -> None:
    """Register the tools that elicit."""

    @tool(task="required", background=background)
    async def asks(context: ToolContext) -> str:
        elicited = await context.elicit("Your name?", NAME_FORM, key="name")
        return f"hello {elicited.content['name']}"

    @tool(task="required", background=background)
    async def asks_two(context: ToolContext) -> str:
        answers = await context.ask({name: Elicit(f"Your {name}?", NAME_FORM) for name in ("first", "last")})
        return f"hello {answers['first'].content['name']} {answers['last'].content['name']}"


def accepted(name: str) -> dict[str, Any]:
    """An accepted NAME_FORM."""
    return {"action": "accept", "content": {"name": name}}


def result_of(peer: Peer, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a request, which must succeed."""
    message = message_of(peer.request(method, params))
    assert "result" in message, message
    return dict(message["result"])


def get_task(peer: Peer, task: str) -> dict[str, Any]:
    """The task, by `tasks/get`."""
    return result_of(peer, "tasks/get", {"taskId": task})


def error_for(peer: Peer, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The error of a request, which must fail."""
    return error_of(peer.request(method, params))
