"""Running one tool: under its timeout, with every way of failing turned into a result and a cause."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import orjson

from tools_app.execution import eager
from tools_app.execution.catalog import CompiledTool
from tools_app.execution.context import ToolContext
from tools_app.execution.invocation import End
from tools_app.execution.local import LocalCall
from tools_app.execution.results import CallCancelled, ToolError, ToolResult, failed
from tools_app.models import Outcome
from tools_app.protocol.schema import CompiledSchema

log = logging.getLogger(__name__)

WAS_CANCELLED = "The call was cancelled."
WAS_INTERRUPTED = "The hub was stopped while the call ran."


class Ran(msgspec.Struct, frozen=True):
    """How a run ended, and what to tell the client. `wire` is `result` as JSON: recorded and sent as it is."""

    outcome: Outcome
    result: ToolResult
    wire: bytes

    def end(self) -> End:
        """The same as it will be recorded."""
        return End(outcome=self.outcome, is_error=self.result.is_error, cause=self.result.cause, result=self.wire)


def ran(outcome: Outcome, result: ToolResult) -> Ran:
    """A run that ended with `result`. Raises TypeError for a result that is not JSON."""
    return Ran(outcome, result, orjson.dumps(as_json(result)))


def as_json(result: ToolResult) -> dict[str, Any]:
    """A result as it goes over the wire (tools, §Tool Result)."""
    body: dict[str, Any] = {"content": result.content}
    if result.structured is not None:
        body["structuredContent"] = result.structured
    body["isError"] = result.is_error
    return body


async def run_tool(
    tool: CompiledTool,
    arguments: dict[str, Any],
    context: ToolContext,
    call: LocalCall,
    when_it_waits: Callable[[], object] = lambda: None,
) -> Ran:
    """Run `tool` to its end. Raises nothing but CancelledError, and that only if nobody stopped the call by name.

    `when_it_waits` is called once if the tool does not finish in one go.
    """
    try:
        return _checked(tool, await _in_time(tool, tool.run(arguments, context), when_it_waits))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if call.stopped_as is None or task is None:
            raise
        task.uncancel()
        return _stopped(call)
    except CallCancelled:
        return _stopped(call)
    except ToolError as refusal:
        return ran(Outcome.TOOL_ERROR, failed(str(refusal)))
    except _TimeIsUp:
        return _timed_out(tool, call)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever a tool raises is its failure, not the hub's
        return _raised(tool, problem)


class _TimeIsUp(Exception):
    """The hub's own timeout, which a tool's TimeoutError is not."""


async def _in_time(
    tool: CompiledTool, running: Coroutine[Any, Any, ToolResult], when_it_waits: Callable[[], object]
) -> ToolResult:
    begun = eager.begin(running)
    if isinstance(begun, eager.Finished):
        return begun.value
    when_it_waits()
    limit = asyncio.timeout(tool.timeout_seconds)
    try:
        async with limit:
            return await begun
    except TimeoutError as problem:
        if limit.expired():
            raise _TimeIsUp from problem
        raise


def _checked(tool: CompiledTool, result: ToolResult) -> Ran:
    try:
        finished = ran(Outcome.TOOL_ERROR if result.is_error else Outcome.OK, result)
    except TypeError as problem:
        return _broken(tool, f"not JSON: {problem}")
    problems = "" if result.is_error or tool.output is None else _output_problems(tool.output, result)
    return _broken(tool, problems) if problems else finished


def _output_problems(schema: CompiledSchema, result: ToolResult) -> str:
    """What a result has against the tool's own output schema (tools, §Output Schema)."""
    if result.structured is None:
        return "no structured content"
    wire = orjson.loads(orjson.dumps(result.structured))
    return "; ".join(f"{problem.field or 'result'}: {problem.message}" for problem in schema.problems(wire))


def _broken(tool: CompiledTool, problem: str) -> Ran:
    log.error("Tool %s broke its output schema: %s", tool.name, problem)
    return ran(Outcome.TOOL_ERROR, failed(f"The tool '{tool.name}' gave a result that it does not declare.", problem))


def _raised(tool: CompiledTool, problem: BaseException) -> Ran:
    log.error("Tool %s raised %s", tool.name, type(problem).__name__, exc_info=problem)
    cause = "".join(traceback.format_exception(problem))
    return ran(Outcome.TOOL_ERROR, failed(f"An error occurred invoking '{tool.name}'.", cause))


def _timed_out(tool: CompiledTool, call: LocalCall) -> Ran:
    call.cancelled.set()
    return ran(Outcome.TIMEOUT, timed_out(tool.name, tool.timeout_seconds))


def timed_out(tool_name: str, seconds: float) -> ToolResult:
    """What the client hears of a tool that took too long."""
    return failed(f"The tool '{tool_name}' did not finish within {seconds:g} seconds.", "timed out")


def _stopped(call: LocalCall) -> Ran:
    outcome = call.stopped_as or Outcome.CANCELLED
    return ran(outcome, failed(WAS_INTERRUPTED if outcome == Outcome.INTERRUPTED else WAS_CANCELLED))
