"""OpenTelemetry spans of a call: its run, the wait for its record, and its time in the queue.

`run` and `traced_recording` require active tracing. Names and attributes follow OpenTelemetry's conventions for MCP and
for generative AI.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tools_app.calls.outcomes import CallOutcome
from tools_app.calls.run import LocalCall, Runnable, run_tool
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.core.telemetry import tracing
from tools_app.core.telemetry.tracing import Attributes, Spans
from tools_app.models import TOOLS_CALL, Outcome

T = TypeVar("T")

SUCCESSFUL = (Outcome.OK, Outcome.INPUT_REQUIRED)


async def run(
    tool: Runnable,
    arguments: dict[str, Any],
    context: ToolContext,
    call: LocalCall,
    on_suspend: Callable[[], object] = lambda: None,
) -> CallOutcome:
    """Run `run_tool` in a span."""
    attributes: dict[str, str | int | bool] = {"mcphub.call.id": str(call.id)}
    name = tool.method
    if tool.method == TOOLS_CALL:
        name = f"execute_tool {tool.name}"
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool.name}
    with _spans().span("internal", name, attributes) as span:
        outcome = await run_tool(tool, arguments, context, call, on_suspend)
        if outcome.outcome not in SUCCESSFUL:
            span.fail(outcome.outcome.value)
        return outcome


async def traced_recording(recording: Awaitable[T]) -> T:
    """Wait for a record to be durable, in a span."""
    with _spans().span("internal", "record", {}):
        return await recording


@contextmanager
def traced_enqueue(queue: str) -> Iterator[dict[str, str]]:
    """Open a span for queueing a call, if tracing is active. Yields the headers of its message."""
    if tracing.active is None:
        yield {}
        return
    with tracing.active.span("producer", f"send {queue}", _messaging(queue, "send")):
        yield tracing.active.carrier()


@contextmanager
def traced_claim(queue: str, headers: Mapping[str, Any]) -> Iterator[None]:
    """Open a span for processing a message in a worker, if tracing is active. `headers` contain the parent span."""
    if tracing.active is None:
        yield
        return
    carrier = tracing.carrier_of({}, headers)
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
