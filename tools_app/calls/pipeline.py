"""A call from its parsed request to its reply, in the order in which it happens.

`call_tool` runs `tools/call`, and `read` `resources/read` and `prompts/get`. Their caller was authenticated, its turn
came, and its message was classified before: that is the same for every method, and stands in `transport.handler`.

Three promises hold at each step: no reply before its record is durable; a tool that may change something starts only
when its intent is; and work that takes longer than its request is large (above LARGE_BYTES) is done in a thread.
"""

import asyncio
from contextlib import nullcontext, suppress
from functools import partial
from time import perf_counter_ns
from typing import Any

from django.db import Error

from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls import inputs, limits, request, run, stop_reasons, uncertain
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
from tools_app.calls.inline import InlineCall, recorded_elsewhere
from tools_app.calls.invocation import (
    CallRecordBuilder,
    End,
    Invocation,
    call_topic,
    new_record_builder,
    set_log_context,
)
from tools_app.calls.outcomes import UNRECORDED, CallOutcome, outcome_of, stopped, unanswered
from tools_app.calls.request import RequestContext
from tools_app.calls.run import Deadline, DeadlineExceeded, Runnable, timed_out
from tools_app.calls.tracing import traced_recording
from tools_app.catalog import compiled
from tools_app.catalog.compiled import CompiledTool
from tools_app.catalog.kinds.base import NO_SUCH_RESOURCE
from tools_app.catalog.tool_api.results import failed, size_of
from tools_app.core import large_work
from tools_app.core.config import config
from tools_app.core.database import run_in_db_thread
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.telemetry import tracing
from tools_app.core.telemetry.scrubbing import release_arguments
from tools_app.models import TOOLS_CALL, Outcome, TaskSupport
from tools_app.protocol import mirrored
from tools_app.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from tools_app.protocol.schema import FieldProblem
from tools_app.protocol.versions import reports_bad_arguments_in_result


async def call_tool(  # noqa: C901, PLR0912 - the steps of a call in their order
    context: RequestContext,
    name: str,
    arguments: dict[str, Any],
    *,
    task_request: TaskRequest,
    task_seconds: float,
    hub_tool: CompiledTool | None = None,
) -> bytes | TaskCreated:
    """Run the tenant's tool of this name, or a tool of the hub itself, and return the result of its request.

    `task_request` tells whether the call may become a task, which is then kept for `task_seconds`. Raises RpcError,
    which is recorded too: for an unknown tool, invalid arguments up to 2025-06-18, and an exceeded limit. Raises
    RecorderUnavailable, and Cancelled if the client cancelled the request.
    """
    invocation, principal = request.invocation_of(context, name, arguments), context.principal
    send_event = request.event_sender(context, invocation)

    # Find the tool, if this caller may call it. Others look as if they did not exist.
    tool = hub_tool
    if tool is None:
        catalog = await compiled.cache.get(principal.tenant_id)
        tool = catalog.tools.get(name) if catalog is not None else None
        if tool is None or not principal.may("tool", TOOLS_CALL, name, catalog):
            raise await refuse(invocation, RpcError(INVALID_PARAMS, f"Unknown tool: '{name}'", {"tool": name}))
    if tool.mirrored and context.headers is not None:
        mismatch = mirrored.check(tool.mirrored, context.headers, arguments)
        if mismatch is not None:
            raise await refuse(invocation, mismatch, tool)
    as_task = False
    if tool.task is not TaskSupport.NEVER or task_request is TaskRequest.REQUESTED:
        unsupported = refusal_of(tool, task_request)
        if unsupported is not None:
            raise await refuse(invocation, unsupported, tool)
        as_task = may_be_task(tool, task_request)

    # Limit the rate, then the size and the form of the arguments.
    if rates := tool.allowed.calls + principal.allowed.calls:
        await limits.take_call(invocation, rates)
    size, seconds = size_of(arguments), task_seconds if as_task else None
    build = partial(new_record_builder, invocation, tool, task_seconds=seconds)
    builder = build() if size <= LARGE_BYTES else await large_work.run(size, build)
    if builder.arguments_size > config.MCPHUB_MAX_ARGUMENT_BYTES:
        raise await refuse(invocation, _too_large(builder), builder=builder)
    accepts = partial(tool.arguments.accepts, arguments)
    if not (accepts() if size <= LARGE_BYTES else await large_work.run(size, accepts)):
        problems = await large_work.run(size, partial(tool.arguments.problems, arguments))
        return request.result_of(await _bad_arguments(invocation, builder, problems), context)

    # A policy decides here, about the tool and its valid arguments: before anything is recorded as begun, or runs.

    concurrency = tool.allowed.concurrent_calls + principal.allowed.concurrent_calls
    async with limits.concurrency_slot(invocation, concurrency) if concurrency else nullcontext():
        if tool.named_resources is not None:
            # None of these resources is of a template.
            problems = [
                FieldProblem(argument, NO_SUCH_RESOURCE, uri)
                for argument, uri in tool.named_resources(arguments)
                if not principal.may("resource", "resources/read", uri, None)
            ]
            if problems:
                return request.result_of(await _bad_arguments(invocation, builder, problems), context)
        # Run it, as a task, in a worker or here. Each records the intent first and the outcome before it returns.
        outcome: CallOutcome | TaskCreated
        if as_task:
            too_many = await task_limit_error(principal)
            if too_many is not None:
                raise await refuse(invocation, too_many, builder=builder)
            outcome = await run_as_task(invocation, tool, builder, send_event, context.listener)
        elif tool.background:
            outcome = await run_in_worker(invocation, tool, builder, send_event, context.listener)
        else:
            outcome = await _run_here(context, invocation, tool, builder, send_event)

    # Reply.
    if isinstance(outcome, TaskCreated):
        return outcome
    if len(outcome.wire) <= LARGE_BYTES:
        return request.result_of(outcome, context)
    return await large_work.run(len(outcome.wire), partial(request.result_of, outcome, context))


async def read(context: RequestContext, reading: Runnable, arguments: dict[str, Any]) -> bytes:
    """Run a `resources/read` or a `prompts/get` that the caller may make. Raises as `call_tool` does."""
    invocation = request.invocation_of(context, reading.name, arguments)
    send_event = request.event_sender(context, invocation)
    if context.principal.allowed.calls:
        await limits.take_call(invocation, context.principal.allowed.calls)
    builder = await large_work.run(size_of(arguments), partial(new_record_builder, invocation))
    if builder.arguments_size > config.MCPHUB_MAX_ARGUMENT_BYTES:
        raise await refuse(invocation, _too_large(builder), builder=builder)
    outcome = await _run_here(context, invocation, reading, builder, send_event)
    return await large_work.run(len(outcome.wire), partial(request.result_of, outcome, context))


async def _run_here(
    context: RequestContext, invocation: Invocation, tool: Runnable, builder: CallRecordBuilder, send_event: SendEvent
) -> CallOutcome:
    """Run a call on this event loop: record the intent, run, record the outcome, which is durable on return.

    The client's cancellation of the request, or its disconnect, cancels the function that runs. Raises
    RecorderUnavailable if nothing ran, and RpcError if what ran could not be recorded.
    """
    call = InlineCall(
        id=invocation.call_id,
        session_id=invocation.session.id if invocation.session else None,
        request_id=invocation.request_id,
        deadline=Deadline(tool.timeout_seconds),
        context=context,
        invocation=invocation,
        tool=tool,
        builder=builder,
        recorder=recorder.current(),
        send_event=send_event,
    )
    run.running_calls[call.id] = call
    set_log_context(invocation)
    recording: asyncio.Task[CallOutcome] | None = None
    try:
        # Record the intent. That of a read-only tool is recorded later, if it emits an event or takes longer.
        if not tool.read_only:
            await call.write_intent()
        if call.stopped_as is not None:
            # There was no function to cancel when it was stopped, and stopping again has no effect.
            outcome = stopped(tool.method, call.stopped_as, call.reason or stop_reasons.UNKNOWN)
        else:
            # Run. The timeout, the cancellation and every failure of the tool become an outcome.
            builder.waited_us = (perf_counter_ns() - builder.began_ns) // 1000
            outcome = await call.run()
        # Record the outcome.
        if len(outcome.whole or outcome.wire) <= LARGE_BYTES:
            return await _record(call, outcome)
        # The record of a large result takes a while. A client that leaves meanwhile does not change it.
        recording = asyncio.create_task(_record(call, outcome))
        return await asyncio.shield(recording)
    except asyncio.CancelledError as cancellation:
        call.note_end()
        reason = stop_reasons.reason_of(cancellation)
        call.stop(Outcome.CANCELLED, reason)
        if not call.is_recorded and recording is None:
            end = End(Outcome.CANCELLED, http_status=None, cause=reason.cause)
            call.recorder.submit(builder.finished(end))
        raise
    finally:
        if recording is None or recording.done():
            del run.running_calls[call.id]
        else:
            recording.add_done_callback(lambda _: run.running_calls.pop(call.id))
        if builder.arguments_size >= LARGE_BYTES:
            release_arguments()


async def _record(call: InlineCall, outcome: CallOutcome) -> CallOutcome:
    """Record the outcome of a call. Return what its client receives, which another process may have recorded before."""
    call.task = None  # a cancellation would only interrupt the settlement
    invocation, builder = call.invocation, call.builder
    if outcome.outcome is Outcome.CANCELLED and call.stopped_as is not None and call.reason is None:
        reason = stop_reasons.UNKNOWN
        with suppress(Error):
            reason = await run_in_db_thread(inputs.reason_of, call.id)
        outcome = stopped(call.tool.method, Outcome.CANCELLED, reason)
    # In a session, a client that was sent an event can resume, and may have to: it may have been lost on the way.
    is_resumable = invocation.session is not None and (builder.event_count > 0 or call.context.sender.can_resume())
    topic, answer = (call_topic(call.id), outcome.serialize()) if is_resumable else ("", None)
    build = partial(builder.finished, outcome, topic, answer=answer)
    size = len(outcome.whole or outcome.wire)
    if size <= LARGE_BYTES:
        entry = build()
    else:
        try:
            entry = await call.deadline.keep(large_work.run(size, build))
        except DeadlineExceeded:
            # There is no time left to redact it.
            outcome = timed_out(call.tool)
            entry = builder.finished(outcome, topic, answer=outcome.serialize() if topic else None)
    call.is_recorded = True  # a later disconnect no longer changes the record
    try:
        recording = call.recorder.recording(entry, call.loop)
        is_first = await (recording if tracing.active is None else traced_recording(recording))
    except RecorderUnavailable as problem:
        uncertain.may_have_run.note(call.id)
        raise RpcError(INTERNAL_ERROR, UNRECORDED, retry_after=1) from problem
    if call.has_asked or call.stopped_as is Outcome.CANCELLED:
        # Remaining rows are deleted later; the client does not wait for an unavailable database.
        with suppress(Error):
            await run_in_db_thread(inputs.forget, call.id)
    if is_first:
        return outcome
    return await recorded_elsewhere(invocation) or unanswered(Outcome.LOST, invocation.name)


async def refuse(
    invocation: Invocation,
    refusal: RpcError,
    tool: CompiledTool | None = None,
    *,
    builder: CallRecordBuilder | None = None,
) -> RpcError:
    """Record a call that was rejected before it ran, and return the error. Raises RecorderUnavailable."""
    if builder is None:
        build = partial(new_record_builder, invocation, tool)
        builder = await large_work.run(size_of(invocation.arguments), build)
    status = refusal.http_status(modern=invocation.session is None)
    end = End(Outcome.REJECTED, http_status=status, rpc_error=refusal.code, cause=refusal.message)
    await recorder.current().recording(builder.finished(end))
    return refusal


async def refuse_reading(context: RequestContext, name: str, arguments: dict[str, Any], refusal: RpcError) -> RpcError:
    """Record a read that was rejected before it ran, and return the error. Raises RecorderUnavailable."""
    return await refuse(request.invocation_of(context, name, arguments), refusal)


async def _bad_arguments(
    invocation: Invocation, builder: CallRecordBuilder, problems: list[FieldProblem]
) -> CallOutcome:
    """Record a call with invalid arguments. Return or raise what its revision requires (tools, §Error Handling)."""
    lines = [
        f"- {problem.field}: {problem.message}" if problem.field else f"- {problem.message}" for problem in problems
    ]
    message = "\n".join([f"Invalid arguments for '{invocation.name}':", *lines])
    if not reports_bad_arguments_in_result(invocation.version):
        data = {"tool": invocation.name, "errors": [problem.as_json() for problem in problems]}
        raise await refuse(invocation, RpcError(INVALID_PARAMS, message, data), builder=builder)
    outcome = outcome_of(Outcome.REJECTED, failed(message, "the arguments do not fit the schema"))
    await recorder.current().recording(builder.finished(outcome))
    return outcome


def _too_large(builder: CallRecordBuilder) -> RpcError:
    most, size = config.MCPHUB_MAX_ARGUMENT_BYTES, builder.arguments_size
    message = f"The arguments are larger than the limit of {most} bytes (MCPHUB_MAX_ARGUMENT_BYTES)."
    return RpcError(INVALID_PARAMS, message, {"what": "argument bytes", "limit": most, "received": size})
