"""The spans of a call: its run, the wait for its record, and its way through the queue.

`run` and `recorded` are for when traces are on. Names and attributes follow OpenTelemetry's conventions for MCP and
for generative AI.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tools_app.execution.context import ToolContext
from tools_app.execution.local import LocalCall
from tools_app.execution.run import TOOLS_CALL, Ran, Runnable, run_tool
from tools_app.models import Outcome
from tools_app.telemetry import trace_context, tracing
from tools_app.telemetry.tracing import Attributes, Spans

T = TypeVar("T")

UNEVENTFUL = (Outcome.OK, Outcome.INPUT_REQUIRED)


async def run(
    tool: Runnable,
    arguments: dict[str, Any],
    context: ToolContext,
    call: LocalCall,
    when_it_waits: Callable[[], object] = lambda: None,
) -> Ran:
    """`run_tool` in a span."""
    attributes: dict[str, str | int | bool] = {"mcphub.call.id": str(call.id)}
    name = tool.method
    if tool.method == TOOLS_CALL:
        name = f"execute_tool {tool.name}"
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool.name}
    with _spans().span("internal", name, attributes) as span:
        ran = await run_tool(tool, arguments, context, call, when_it_waits)
        if ran.outcome not in UNEVENTFUL:
            span.fail(ran.outcome.value)
        return ran


async def recorded(recording: Awaitable[T]) -> T:
    """Wait for a record to be durable, in a span."""
    with _spans().span("internal", "record", {}):
        return await recording


@contextmanager
def queueing(queue: str) -> Iterator[dict[str, str]]:
    """A span around handing a call to the workers, if there are traces: what the message says of it."""
    if tracing.active is None:
        yield {}
        return
    with tracing.active.span("producer", f"send {queue}", _messaging(queue, "send")):
        yield tracing.active.carrier()


@contextmanager
def taken(queue: str, headers: Mapping[str, Any]) -> Iterator[None]:
    """A span around what a worker does for a message, if there are traces; `headers` say with which it goes on."""
    if tracing.active is None:
        yield
        return
    carrier = trace_context.carrier({}, headers)
    with tracing.active.span("consumer", f"process {queue}", _messaging(queue, "process"), carrier):
        yield


def _messaging(queue: str, operation: str) -> Attributes:
    return {
        "messaging.system": "celery",
        "messaging.destination.name": queue,
        "messaging.operation.type": operation,
    }


def _spans() -> Spans:
    assert tracing.active is not None
    return tracing.active
