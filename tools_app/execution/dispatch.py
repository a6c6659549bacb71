"""The way of a call: resolve, limit, check, run here or in a worker, and answer only what is recorded."""

from collections.abc import Callable
from typing import NamedTuple

from tools_app.audit import recorder
from tools_app.events.switchboard import Switchboard
from tools_app.execution import catalog, limiting
from tools_app.execution.background import run_in_worker
from tools_app.execution.catalog import CompiledTool
from tools_app.execution.inline import InlineCall, Say
from tools_app.execution.invocation import End, Invocation, Ledger, open_ledger
from tools_app.execution.results import failed
from tools_app.execution.run import Ran, Runnable, ran
from tools_app.execution.tasking import TaskBegun, TaskWish, may_be_task, one_too_many, refusal_of, run_as_task
from tools_app.models import Outcome, TaskSupport
from tools_app.models.config import config
from tools_app.protocol import mirrored
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.schema import FieldProblem
from tools_app.protocol.versions import Era, reports_bad_arguments_in_result


class Ways(NamedTuple):
    """How a call reaches its client: `say` hears each event once it is durable; `may_return` tells whether the client
    may come back for the answer, `wish` what it says of tasks, and `task_seconds` how long one would be kept.
    """

    say: Say
    switchboard: Switchboard
    may_return: Callable[[], bool]
    wish: TaskWish
    task_seconds: float


async def call_tool(invocation: Invocation, era: Era, ways: Ways) -> Ran | TaskBegun:
    """Do what a `tools/call` asks and record it.

    Nobody waits for the result of a call that ended as cancelled. Raises RpcError, recorded too: for an unknown tool,
    bad arguments up to 2025-06-18, and a limit that is used up. Raises RecorderGone when nothing can be recorded.
    """
    found = await catalog.ring.get(invocation.principal.tenant_id)
    tool = found.tools.get(invocation.name) if found else None
    if tool is None or not invocation.principal.may_use(tool.name):
        raise await refuse(invocation, era, _unknown_tool(invocation.name))
    if tool.mirrored and invocation.headers is not None:
        problem = mirrored.check(tool.mirrored, invocation.headers, invocation.arguments)
        if problem is not None:
            raise await refuse(invocation, era, problem, tool)
    if tool.task != TaskSupport.NEVER or ways.wish is TaskWish.ASKED:
        refusal = refusal_of(tool, ways.wish)
        if refusal is not None:
            raise await refuse(invocation, era, refusal, tool)
    if rates := tool.allowed.calls + invocation.principal.allowed.calls:
        await limiting.take_call(invocation, rates)
    if not tool.arguments.accepts(invocation.arguments):
        return await _bad_arguments(invocation, tool, era)
    if places := tool.allowed.calls_at_once + invocation.principal.allowed.calls_at_once:
        async with limiting.place_for(invocation, places):
            return await _run(invocation, tool, era, ways)
    return await _run(invocation, tool, era, ways)


async def _run(invocation: Invocation, tool: CompiledTool, era: Era, ways: Ways) -> Ran | TaskBegun:
    """Run what passed every check, in the way that fits."""
    as_task = may_be_task(tool, ways.wish)
    ledger = _ledger(invocation, tool, ways.task_seconds if as_task else None)
    if ledger.arguments_size > config.MCPHUB_ARGUMENT_BYTES:
        raise await refuse(invocation, era, _too_large(ledger), tool)
    if as_task:
        too_many = await one_too_many(invocation.principal)
        if too_many is not None:
            raise await refuse(invocation, era, too_many, tool)
        return await run_as_task(invocation, tool, ledger, ways.say, ways.switchboard)
    if tool.background:
        return await run_in_worker(invocation, tool, ledger, ways.say, ways.switchboard)
    return await InlineCall(invocation, tool, ledger, ways.say, ways.may_return).run()


async def read(invocation: Invocation, reading: Runnable, say: Say, may_return: Callable[[], bool]) -> Ran:
    """Run what answers a `resources/read` or a `prompts/get`, and record it. Raises RpcError and RecorderGone."""
    if invocation.principal.allowed.calls:
        await limiting.take_call(invocation, invocation.principal.allowed.calls)
    ledger = open_ledger(invocation)
    if ledger.arguments_size > config.MCPHUB_ARGUMENT_BYTES:
        era = Era.MODERN if invocation.session is None else Era.HANDSHAKE
        raise await refuse(invocation, era, _too_large(ledger))
    return await InlineCall(invocation, reading, ledger, say, may_return).run()


async def refuse(invocation: Invocation, era: Era, refusal: RpcError, tool: CompiledTool | None = None) -> RpcError:
    """Record what was refused before it ran, and give the refusal back. Raises RecorderGone."""
    status = refusal.http_status(modern=era is Era.MODERN)
    end = End(Outcome.REJECTED, http_status=status, rpc_error=refusal.code, cause=refusal.message)
    await recorder.current().recording(_ledger(invocation, tool).ending(end))
    return refusal


def _ledger(invocation: Invocation, tool: CompiledTool | None, task_seconds: float | None = None) -> Ledger:
    if tool is None:
        return open_ledger(invocation)
    return open_ledger(invocation, tool.id, tool.revision, background=tool.background, task_seconds=task_seconds)


def _too_large(ledger: Ledger) -> RpcError:
    most, size = config.MCPHUB_ARGUMENT_BYTES, ledger.arguments_size
    message = f"The arguments are larger than the {most} bytes that this hub takes."
    return RpcError(INVALID_PARAMS, message, {"what": "argument bytes", "limit": most, "received": size})


def _unknown_tool(name: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Unknown tool: '{name}'", {"tool": name})


async def _bad_arguments(invocation: Invocation, tool: CompiledTool, era: Era) -> Ran:
    """Answer in the way of the client's revision (tools, §Error Handling)."""
    problems = tool.arguments.problems(invocation.arguments)
    message = _explained(tool.name, problems)
    if not reports_bad_arguments_in_result(invocation.version):
        data = {"tool": tool.name, "errors": [problem.as_json() for problem in problems]}
        raise await refuse(invocation, era, RpcError(INVALID_PARAMS, message, data), tool)
    refused = ran(Outcome.REJECTED, failed(message, "the arguments do not fit the schema"))
    await recorder.current().recording(_ledger(invocation, tool).ending(refused.end()))
    return refused


def _explained(tool_name: str, problems: list[FieldProblem]) -> str:
    lines = [f"Invalid arguments for '{tool_name}':", *(_line(problem) for problem in problems)]
    return "\n".join(lines)


def _line(problem: FieldProblem) -> str:
    return f"- {problem.field}: {problem.message}" if problem.field else f"- {problem.message}"
