"""Dispatch of calls: resolve, limit, validate, then run in this process or in a worker."""

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from tools_app.audit.recorder import recorder
from tools_app.calls import limits
from tools_app.calls.background.delivery import run_in_worker
from tools_app.calls.background.start_task import (
    TaskCreated,
    TaskRequest,
    may_be_task,
    refusal_of,
    run_as_task,
    task_limit_error,
)
from tools_app.calls.events import SendEvent
from tools_app.calls.inline import InlineCall
from tools_app.calls.invocation import CallRecordBuilder, End, Invocation, new_record_builder
from tools_app.calls.run import CallOutcome, Runnable, outcome_of
from tools_app.catalog import compiled
from tools_app.catalog.compiled import CompiledTool
from tools_app.catalog.kinds.base import NO_SUCH_RESOURCE, NamedResources
from tools_app.catalog.tool_api.results import failed, size_of
from tools_app.core import large_work
from tools_app.core.config import config
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.notifications.listener import TopicListener
from tools_app.models import TOOLS_CALL, Outcome, TaskSupport
from tools_app.protocol import mirrored
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.schema import FieldProblem
from tools_app.protocol.versions import Era, reports_bad_arguments_in_result


class CallOptions(msgspec.Struct, frozen=True):
    """How a call reaches its client: `send_event` is called with each durable event; `can_resume` tells whether the
    client can reconnect for the answer, `task_request` its support of tasks, and `task_seconds` the TTL of a task.
    `respond_early` responds while the tool still runs.
    """

    send_event: SendEvent
    listener: TopicListener
    can_resume: Callable[[], bool]
    task_request: TaskRequest
    task_seconds: float
    respond_early: Callable[[CallOutcome], Awaitable[None]]


async def call_tool(  # noqa: C901 - the steps of a call in their order
    invocation: Invocation, era: Era, options: CallOptions, hub_tool: CompiledTool | None = None
) -> CallOutcome | TaskCreated:
    """Execute a `tools/call` and record it: of the tenant's tool of this name, or of a tool of the hub itself.

    The result of a cancelled call is not awaited. Raises RpcError, which is recorded too: for an unknown tool, invalid
    arguments up to 2025-06-18, and an exceeded limit. Raises RecorderUnavailable.
    """
    tool, principal = hub_tool, invocation.principal
    if tool is None:
        found = await compiled.cache.get(principal.tenant_id)
        tool = found.tools.get(invocation.name) if found else None
        if tool is None or not principal.may("tool", TOOLS_CALL, tool.name, found):
            raise await refuse(invocation, era, _unknown_tool(invocation.name))
    if tool.mirrored and invocation.headers is not None:
        problem = mirrored.check(tool.mirrored, invocation.headers, invocation.arguments)
        if problem is not None:
            raise await refuse(invocation, era, problem, tool)
    if tool.task != TaskSupport.NEVER or options.task_request is TaskRequest.REQUESTED:
        refusal = refusal_of(tool, options.task_request)
        if refusal is not None:
            raise await refuse(invocation, era, refusal, tool)
    if rates := tool.allowed.calls + principal.allowed.calls:
        await limits.take_call(invocation, rates)
    as_task = tool.task is not TaskSupport.NEVER and may_be_task(tool, options.task_request)
    # Large arguments are recorded and validated in a thread.
    size = size_of(invocation.arguments)
    build = partial(
        new_record_builder,
        invocation,
        tool.id,
        tool.revision,
        background=tool.background,
        task_seconds=options.task_seconds if as_task else None,
    )
    builder = build() if size <= LARGE_BYTES else await large_work.run(size, build)
    if builder.arguments_size > config.MCPHUB_MAX_ARGUMENT_BYTES:
        raise await refuse(invocation, era, _arguments_too_large(builder), builder=builder)
    accepts = partial(tool.arguments.accepts, invocation.arguments)
    if not (accepts() if size <= LARGE_BYTES else await large_work.run(size, accepts)):
        problems = await large_work.run(size, partial(tool.arguments.problems, invocation.arguments))
        return await _bad_arguments(invocation, era, builder, problems)
    if concurrency_limits := tool.allowed.concurrent_calls + principal.allowed.concurrent_calls:
        async with limits.concurrency_slot(invocation, concurrency_limits):
            return await _run(invocation, tool, era, options, builder, as_task=as_task)
    return await _run(invocation, tool, era, options, builder, as_task=as_task)


async def _run(
    invocation: Invocation,
    tool: CompiledTool,
    era: Era,
    options: CallOptions,
    builder: CallRecordBuilder,
    *,
    as_task: bool,
) -> CallOutcome | TaskCreated:
    """Run a checked call as a task, in a worker or inline."""
    if tool.named_resources is not None and (problems := _unreadable(tool.named_resources, invocation)):
        return await _bad_arguments(invocation, era, builder, problems)
    if as_task:
        too_many = await task_limit_error(invocation.principal)
        if too_many is not None:
            raise await refuse(invocation, era, too_many, builder=builder)
        return await run_as_task(invocation, tool, builder, options.send_event, options.listener)
    if tool.background:
        return await run_in_worker(invocation, tool, builder, options.send_event, options.listener)
    return await InlineCall(
        invocation, tool, builder, options.send_event, options.can_resume, respond_early=options.respond_early
    ).run()


async def read(
    invocation: Invocation,
    reading: Runnable,
    send_event: SendEvent,
    can_resume: Callable[[], bool],
    respond_early: Callable[[CallOutcome], Awaitable[None]],
) -> CallOutcome:
    """Run a `resources/read` or a `prompts/get`, and record it. Raises RpcError and RecorderUnavailable."""
    if invocation.principal.allowed.calls:
        await limits.take_call(invocation, invocation.principal.allowed.calls)
    builder = await large_work.run(size_of(invocation.arguments), partial(new_record_builder, invocation))
    if builder.arguments_size > config.MCPHUB_MAX_ARGUMENT_BYTES:
        era = Era.MODERN if invocation.session is None else Era.HANDSHAKE
        raise await refuse(invocation, era, _arguments_too_large(builder), builder=builder)
    return await InlineCall(invocation, reading, builder, send_event, can_resume, respond_early=respond_early).run()


async def refuse(
    invocation: Invocation,
    era: Era,
    refusal: RpcError,
    tool: CompiledTool | None = None,
    *,
    builder: CallRecordBuilder | None = None,
) -> RpcError:
    """Record a call that was rejected before it ran, and return the error. Raises RecorderUnavailable."""
    if builder is None:
        build = partial(new_record_builder, invocation)
        if tool is not None:
            build = partial(build, tool.id, tool.revision, background=tool.background)
        builder = await large_work.run(size_of(invocation.arguments), build)
    status = refusal.http_status(modern=era is Era.MODERN)
    end = End(Outcome.REJECTED, http_status=status, rpc_error=refusal.code, cause=refusal.message)
    await recorder.current().recording(builder.finished(end))
    return refusal


def _arguments_too_large(builder: CallRecordBuilder) -> RpcError:
    most, size = config.MCPHUB_MAX_ARGUMENT_BYTES, builder.arguments_size
    message = f"The arguments are larger than the limit of {most} bytes (MCPHUB_MAX_ARGUMENT_BYTES)."
    return RpcError(INVALID_PARAMS, message, {"what": "argument bytes", "limit": most, "received": size})


def _unknown_tool(name: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Unknown tool: '{name}'", {"tool": name})


def _unreadable(named_resources: NamedResources, invocation: Invocation) -> list[FieldProblem]:
    """Return the arguments that name resources which the caller may not read. None of these is of a template."""
    return [
        FieldProblem(argument, NO_SUCH_RESOURCE, uri)
        for argument, uri in named_resources(invocation.arguments)
        if not invocation.principal.may("resource", "resources/read", uri, None)
    ]


async def _bad_arguments(
    invocation: Invocation, era: Era, builder: CallRecordBuilder, problems: list[FieldProblem]
) -> CallOutcome:
    """Return or raise invalid arguments, as the client's revision requires (tools, §Error Handling)."""
    message = _argument_error(invocation.name, problems)
    if not reports_bad_arguments_in_result(invocation.version):
        data = {"tool": invocation.name, "errors": [problem.as_json() for problem in problems]}
        raise await refuse(invocation, era, RpcError(INVALID_PARAMS, message, data), builder=builder)
    refused = outcome_of(Outcome.REJECTED, failed(message, "the arguments do not fit the schema"))
    await recorder.current().recording(builder.finished(refused))
    return refused


def _argument_error(tool_name: str, problems: list[FieldProblem]) -> str:
    lines = [f"Invalid arguments for '{tool_name}':", *(_line(problem) for problem in problems)]
    return "\n".join(lines)


def _line(problem: FieldProblem) -> str:
    return f"- {problem.field}: {problem.message}" if problem.field else f"- {problem.message}"
