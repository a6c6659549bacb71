"""The way of a `tools/call`: resolve, limit, check, run here or in a worker, and answer only what is recorded."""

from tools_app.audit import denials, recorder
from tools_app.audit.denials import Denial
from tools_app.audit.recorder import RecorderGone
from tools_app.auth import limits
from tools_app.auth.limits import Bucket, OverLimit
from tools_app.events.switchboard import Switchboard
from tools_app.execution import catalog
from tools_app.execution.background import run_in_worker
from tools_app.execution.catalog import CompiledTool
from tools_app.execution.inline import InlineCall, Say
from tools_app.execution.invocation import End, Invocation, open_ledger
from tools_app.execution.results import failed
from tools_app.execution.run import Ran, ran
from tools_app.models import Outcome
from tools_app.protocol.errors import INVALID_PARAMS, OVER_LIMIT, RpcError, store_gone
from tools_app.protocol.schema import FieldProblem
from tools_app.protocol.versions import Era, reports_bad_arguments_in_result


async def call_tool(invocation: Invocation, era: Era, say: Say, switchboard: Switchboard) -> Ran:
    """Do what a `tools/call` asks and record it; `say` hears each event once it is durable.

    Nobody waits for the result of a call that ended as cancelled. Raises RpcError, recorded too: for an unknown tool,
    bad arguments up to 2025-06-18, a limit that is used up, and when nothing can be recorded.
    """
    try:
        return await _call_tool(invocation, era, say, switchboard)
    except RecorderGone as problem:
        raise store_gone() from problem


async def _call_tool(invocation: Invocation, era: Era, say: Say, switchboard: Switchboard) -> Ran:
    found = await catalog.ring.get(invocation.principal.tenant_id)
    tool = found.tools.get(invocation.tool_name) if found else None
    if tool is None:
        raise await _refused(invocation, None, era, _unknown_tool(invocation.tool_name))
    buckets = _buckets(invocation, tool)
    over = await limits.take(buckets) if buckets else None
    if over is not None:
        raise _denied(invocation, over)
    if not tool.arguments.accepts(invocation.arguments):
        return await _bad_arguments(invocation, tool, era)
    ledger = open_ledger(invocation, tool)
    if tool.background:
        return await run_in_worker(invocation, tool, ledger, say, switchboard)
    return await InlineCall(invocation, tool, ledger, say).run()


def _buckets(invocation: Invocation, tool: CompiledTool) -> list[Bucket]:
    who = invocation.principal
    limited = (
        ("tool", tool.id, tool.calls_per_minute),
        ("key", who.key_id, who.key_calls_per_minute),
        ("tenant", who.tenant_id, who.tenant_calls_per_minute),
    )
    return [Bucket(scope, str(id), most) for scope, id, most in limited if most is not None]


def _denied(invocation: Invocation, over: OverLimit) -> RpcError:
    data = {
        "limit": over.scope,
        "callsPerMinute": over.calls_per_minute,
        "windowSeconds": limits.WINDOW_SECONDS,
        "retryAfterSeconds": over.retry_after,
    }
    message = f"Over the limit of {over.calls_per_minute} calls per minute for this {over.scope}."
    refusal = RpcError(OVER_LIMIT, message, data, retry_after=over.retry_after)
    denials.note(
        Denial(
            http_status=429,
            cause=message,
            remote_address=invocation.client.remote_address,
            tenant_id=invocation.principal.tenant_id,
            key_id=invocation.principal.key_id,
            rpc_error=refusal.code,
            method="tools/call",
            tool_name=invocation.tool_name,
        )
    )
    return refusal


async def _refused(invocation: Invocation, tool: CompiledTool | None, era: Era, refusal: RpcError) -> RpcError:
    """Record a call that was refused before it ran."""
    status = refusal.http_status(modern=era is Era.MODERN)
    end = End(Outcome.REJECTED, http_status=status, rpc_error=refusal.code, cause=refusal.message)
    await recorder.current().recording(open_ledger(invocation, tool).ending(end))
    return refusal


def _unknown_tool(name: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Unknown tool: '{name}'", {"tool": name})


async def _bad_arguments(invocation: Invocation, tool: CompiledTool, era: Era) -> Ran:
    """Answer in the way of the client's revision (tools, §Error Handling)."""
    problems = tool.arguments.problems(invocation.arguments)
    message = _explained(tool.name, problems)
    if not reports_bad_arguments_in_result(invocation.version):
        data = {"tool": tool.name, "errors": [problem.as_json() for problem in problems]}
        raise await _refused(invocation, tool, era, RpcError(INVALID_PARAMS, message, data))
    refused = ran(Outcome.REJECTED, failed(message, "the arguments do not fit the schema"))
    await recorder.current().recording(open_ledger(invocation, tool).ending(refused.end()))
    return refused


def _explained(tool_name: str, problems: list[FieldProblem]) -> str:
    lines = [f"Invalid arguments for '{tool_name}':", *(_line(problem) for problem in problems)]
    return "\n".join(lines)


def _line(problem: FieldProblem) -> str:
    return f"- {problem.field}: {problem.message}" if problem.field else f"- {problem.message}"
