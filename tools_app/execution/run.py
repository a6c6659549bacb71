"""Running one tool, resource or prompt, under its timeout: every way of failing becomes an answer and a cause."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec
import orjson

from tools_app.execution import eager
from tools_app.execution.context import CapabilityMissing, ToolContext
from tools_app.execution.conversation import Unanswered
from tools_app.execution.deadline import TimeIsUp
from tools_app.execution.inputs import Refused
from tools_app.execution.invocation import End
from tools_app.execution.kinds.base import Runner
from tools_app.execution.local import LocalCall
from tools_app.execution.questions import BadAnswer
from tools_app.execution.results import (
    CallCancelled,
    InputRequired,
    PromptResult,
    ProtocolError,
    ResourceNotFound,
    ResourceResult,
    Result,
    ToolError,
    ToolResult,
    failed,
)
from tools_app.models import Outcome
from tools_app.models.config import config
from tools_app.protocol.errors import CAPABILITY_MISSING, INTERNAL_ERROR, RpcError, resource_not_found
from tools_app.protocol.schema import CompiledSchema
from tools_app.protocol.versions import is_modern

log = logging.getLogger(__name__)

TOOLS_CALL = "tools/call"
WAS_CANCELLED = "The call was cancelled."
WAS_INTERRUPTED = "The hub was stopped while the call ran."


class Runnable(Protocol):
    """What can be run: a tool, or one reading of a resource or a prompt."""

    @property
    def method(self) -> str:
        """How clients ask for it."""

    @property
    def name(self) -> str:
        """What they call it."""

    @property
    def run(self) -> Runner:
        """The function."""

    @property
    def output(self) -> CompiledSchema | None:
        """What its result must fit."""

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing, so that it may start before its intent is durable."""

    @property
    def timeout_seconds(self) -> float:
        """How long it may take."""


class Ran(msgspec.Struct, frozen=True):
    """How a run ended, and what to tell the client. `wire` is `result` as JSON: recorded and sent as it is.

    `refusal` is set where the client hears a JSON-RPC error instead of a result.
    """

    outcome: Outcome
    result: Result
    wire: bytes
    refusal: RpcError | None = None

    def end(self) -> End:
        """The same as it will be recorded."""
        refused = self.refusal.code if self.refusal else None
        return End(
            outcome=self.outcome,
            rpc_error=refused,
            is_error=self.result.is_error,
            cause=self.result.cause or (self.refusal.message if self.refusal else ""),
            result=self.wire,
        )

    def because(self, cause: str) -> "Ran":
        """The same with a cause for the auditor, if there is one to tell."""
        if not cause:
            return self
        return msgspec.structs.replace(self, result=msgspec.structs.replace(self.result, cause=cause))

    def kept(self) -> bytes:
        """The same as JSON, for whoever answers the client from another process."""
        if self.refusal is None:
            return self.wire
        refusal = self.refusal
        return orjson.dumps({"refusal": [refusal.code, refusal.message, refusal.data, refusal.status]})


def restored(outcome: Outcome, kept: bytes) -> Ran:
    """How a run ended, from what `kept` made of it."""
    body = orjson.loads(kept)
    if "refusal" in body:
        code, message, data, status = body["refusal"]
        return ran(outcome, failed(message), RpcError(code, message, data, status=status))
    if "contents" in body:
        return Ran(outcome, ResourceResult(body["contents"]), kept)
    if "messages" in body:
        return Ran(outcome, PromptResult(body["messages"], body.get("description", "")), kept)
    if "inputRequests" in body:
        return Ran(outcome, InputRequired(body["inputRequests"], body["answers"], body["state"]), kept)
    return Ran(outcome, ToolResult(body["content"], body.get("structuredContent"), body["isError"]), kept)


UNANSWERED = {
    Outcome.LOST: "The process that ran '{name}' was lost. The call may have run in part.",
    Outcome.TIMEOUT: "The call of '{name}' took too long and was given up.",
    Outcome.CANCELLED: WAS_CANCELLED,
    Outcome.INTERRUPTED: WAS_INTERRUPTED,
}


def unanswered(outcome: Outcome, name: str) -> Ran:
    """What the client hears of a call that ended without an answer of its own."""
    return ran(outcome, failed(UNANSWERED.get(outcome, UNANSWERED[Outcome.LOST]).format(name=name)))


def ran(outcome: Outcome, result: Result, refusal: RpcError | None = None) -> Ran:
    """A run that ended with `result`. Raises TypeError for a result that is not JSON."""
    return Ran(outcome, result, orjson.dumps(result.as_json()), refusal)


async def run_tool(
    tool: Runnable,
    arguments: dict[str, Any],
    context: ToolContext,
    call: LocalCall,
    when_it_waits: Callable[[], object] = lambda: None,
) -> Ran:
    """Run `tool` to its end. Raises nothing but CancelledError, and that only if nobody stopped the call by name.

    `when_it_waits` is called once if the tool does not finish in one go.
    """
    try:
        result = await _in_time(tool.run(arguments, context), call, when_it_waits)
        return _checked(tool, result)
    except (asyncio.CancelledError, CallCancelled) as problem:
        task = asyncio.current_task()
        if isinstance(problem, asyncio.CancelledError):
            if call.stopped_as is None or task is None:
                raise
            task.uncancel()
        await context.give_up()
        return _stopped(call)
    except Unanswered as unanswered:
        return ran(Outcome.INPUT_REQUIRED, context.unfinished(unanswered))
    except TimeIsUp:
        call.cancelled.set()
        return _failure(tool, Outcome.TIMEOUT, too_long(tool.name, tool.timeout_seconds), "timed out")
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever a tool raises is its failure, not the hub's
        return _raised(tool, problem, context)
    finally:
        context.close()


async def _in_time(
    running: Coroutine[Any, Any, Result], call: LocalCall, when_it_waits: Callable[[], object]
) -> Result:
    begun = eager.begin(running)
    if isinstance(begun, eager.Finished):
        return begun.value
    when_it_waits()
    return await call.deadline.keep(begun)


def _checked(tool: Runnable, result: Result) -> Ran:
    try:
        finished = ran(Outcome.TOOL_ERROR if result.is_error else Outcome.OK, result)
    except TypeError as problem:
        return _broken(tool, f"not JSON: {problem}")
    if len(finished.wire) > config.MCPHUB_RESULT_BYTES:
        return _too_large(tool, len(finished.wire))
    if tool.output is None or result.is_error or not isinstance(result, ToolResult):
        return finished
    problems = _output_problems(tool.output, result)
    return _broken(tool, problems) if problems else finished


def _output_problems(schema: CompiledSchema, result: ToolResult) -> str:
    """What a result has against the tool's own output schema (tools, §Output Schema)."""
    if result.structured is None:
        return "no structured content"
    wire = orjson.loads(orjson.dumps(result.structured))
    return "; ".join(f"{problem.field or 'result'}: {problem.message}" for problem in schema.problems(wire))


def _too_large(tool: Runnable, size: int) -> Ran:
    message = f"The result of '{tool.name}' is larger than the {config.MCPHUB_RESULT_BYTES} bytes that this hub sends."
    return _failure(tool, Outcome.TOOL_ERROR, message, f"{size} bytes")


def _broken(tool: Runnable, problem: str) -> Ran:
    log.error("Tool %s broke its output schema: %s", tool.name, problem)
    message = f"The tool '{tool.name}' gave a result that it does not declare."
    return _failure(tool, Outcome.TOOL_ERROR, message, problem)


def _raised(tool: Runnable, problem: BaseException, context: ToolContext) -> Ran:
    """How a run ended that raised: some exceptions say something to the client, all others say it to the auditor."""
    if isinstance(problem, CapabilityMissing):
        return _incapable(tool, problem, context)
    if isinstance(problem, ProtocolError):
        refusal = RpcError(problem.code, str(problem), problem.data, status=200)
        return ran(Outcome.TOOL_ERROR, failed(str(problem)), refusal)
    if isinstance(problem, ToolError | Refused | BadAnswer):
        said = _failure(tool, Outcome.TOOL_ERROR, str(problem))
        return said if len(said.wire) <= config.MCPHUB_RESULT_BYTES else _too_large(tool, len(said.wire))
    if isinstance(problem, ResourceNotFound):
        refusal = resource_not_found(tool.name, modern=is_modern(context.protocol_version))
        return ran(Outcome.REJECTED, failed(refusal.message), refusal)
    log.error("Tool %s raised %s", tool.name, type(problem).__name__, exc_info=problem)
    cause = "".join(traceback.format_exception(problem))
    return _failure(tool, Outcome.TOOL_ERROR, f"An error occurred invoking '{tool.name}'.", cause)


def _failure(tool: Runnable, outcome: Outcome, message: str, cause: str = "") -> Ran:
    """A failure as its kind tells it: a tool by a result that a model may read, the others by a JSON-RPC error."""
    result = failed(message, cause)
    refusal = None if tool.method == TOOLS_CALL else RpcError(INTERNAL_ERROR, message, status=200)
    return ran(outcome, result, refusal)


def _incapable(tool: Runnable, missing: CapabilityMissing, context: ToolContext) -> Ran:
    """The client lacks what the function asked for (2026-07-28, base protocol, §Error Codes)."""
    if not is_modern(context.protocol_version):
        return _failure(tool, Outcome.TOOL_ERROR, str(missing))
    refusal = RpcError(CAPABILITY_MISSING, str(missing), {"requiredCapabilities": declared(missing.path)})
    return ran(Outcome.REJECTED, failed(str(missing)), refusal)


def declared(path: str) -> Mapping[str, Any]:
    """What a client declares for a capability: `{"elicitation": {"url": {}}}` for "elicitation.url"."""
    area, _, mode = path.partition(".")
    return {area: {mode: {}} if mode else {}}


def too_long(name: str, seconds: float) -> str:
    """What the client hears of a call that took too long."""
    return f"The tool '{name}' did not finish within {seconds:g} seconds."


def _stopped(call: LocalCall) -> Ran:
    outcome = call.stopped_as or Outcome.CANCELLED
    message = WAS_INTERRUPTED if outcome == Outcome.INTERRUPTED else WAS_CANCELLED
    return ran(outcome, failed(message, call.reason))
