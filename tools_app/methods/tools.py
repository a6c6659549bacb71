"""`tools/list` and `tools/call`."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tools_app.calls.background.start_task import TaskCreated, TaskRequest
from tools_app.calls.dispatch import CallOptions, call_tool
from tools_app.catalog.compiled import CompiledTool
from tools_app.core.config import config
from tools_app.methods import paging
from tools_app.methods.context import BOTH_ERAS, RequestContext, method
from tools_app.methods.invocation import answer_of, event_sender, invocation_of, settle, text_in
from tools_app.methods.tasks import created, declares_tasks
from tools_app.models import TaskSupport
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.versions import Era, has_annotations, has_icons, has_structured_content, has_tasks, is_modern

MAX_WISH_MS: Final = 10**15


@method("tools/list", *BOTH_ERAS)
async def list_tools(context: RequestContext) -> bytes:
    """List the tenant's tools by name, page by page (tools, §Listing Tools). Raises RpcError for a bad cursor."""
    return await paging.page(TOOLS, context)


@method("tools/call", *BOTH_ERAS)
async def call(context: RequestContext) -> bytes:
    """Run a tool (tools, §Calling Tools). Raises RpcError, and Cancelled if the client cancelled the request."""
    name, arguments = text_in(context.params, "name"), context.params.get("arguments")
    if not isinstance(arguments, dict | None):
        raise RpcError(INVALID_PARAMS, "params.arguments must be an object.", {"field": "arguments"})
    invocation = invocation_of(context, name, arguments or {})
    say = event_sender(context, invocation)
    task_request, task_seconds = task_request_of(context)
    options = CallOptions(
        send_event=say,
        listener=context.listener,
        may_return=context.sender.may_return,
        task_request=task_request,
        task_seconds=task_seconds,
        settle=partial(settle, context),
    )
    ended = await call_tool(invocation, context.era, options)
    return await created(context, ended.call_id) if isinstance(ended, TaskCreated) else answer_of(ended, context)


def task_request_of(context: RequestContext) -> tuple[TaskRequest, float]:
    """Return whether a `tools/call` may become a task, and for how many seconds the task would be kept.

    A call becomes no task if its key may not retrieve one. Raises RpcError for an invalid `task`.
    """
    principal = context.principal
    if context.era is Era.MODERN:
        knows = context.capabilities and declares_tasks(context.capabilities)
        offered = knows and principal.may_ask("tasks/get")
        return TaskRequest.ACCEPTED if offered else TaskRequest.NO_EXTENSION, float(config.MCPHUB_MAX_TASK_TTL)
    if not has_tasks(context.version):
        return TaskRequest.UNSUPPORTED, float(config.MCPHUB_MAX_TASK_TTL)
    seconds = _lifetime(context.params.get("task"))
    if not (principal.may_ask("tasks/get") and principal.may_ask("tasks/result")):
        return TaskRequest.UNSUPPORTED, seconds
    return TaskRequest.REQUESTED if context.params.get("task") is not None else TaskRequest.NOT_REQUESTED, seconds


def _lifetime(task: Any) -> float:
    """Return the requested lifetime of a task in seconds, at most MCPHUB_MAX_TASK_TTL. Raises RpcError."""
    if task is None:
        return float(config.MCPHUB_MAX_TASK_TTL)
    ttl = task.get("ttl") if isinstance(task, dict) else False
    if ttl is None:
        return float(config.MCPHUB_MAX_TASK_TTL)
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < MAX_WISH_MS:
        message = "params.task must be an object, and its ttl a number of milliseconds."
        raise RpcError(INVALID_PARAMS, message, {"field": "task"})
    return min(ttl / 1000, float(config.MCPHUB_MAX_TASK_TTL))


def described(tool: CompiledTool, version: str) -> dict[str, Any]:
    """Return a tool in the form of a revision (tools, §Tool)."""
    definition = tool.definition
    body: dict[str, Any] = {"name": definition.name}
    if definition.title and has_structured_content(version):
        body["title"] = definition.title
    body["description"] = definition.description
    body["inputSchema"] = definition.input_schema or {"type": "object"}
    if definition.output_schema and _knows_output(definition.output_schema, version):
        body["outputSchema"] = definition.output_schema
    if definition.annotations and has_annotations(version):
        body["annotations"] = definition.annotations
    if definition.icons and has_icons(version):
        body["icons"] = definition.icons
    if tool.task != TaskSupport.NEVER and has_tasks(version):
        body["execution"] = {"taskSupport": tool.task.value}
    if definition.meta and has_structured_content(version):
        body["_meta"] = definition.meta
    return body


def _knows_output(schema: Mapping[str, Any], version: str) -> bool:
    """Whether a revision supports an output schema: up to 2025-11-25 it must describe an object."""
    return has_structured_content(version) and (is_modern(version) or schema.get("type") == "object")


TOOLS = paging.Listing("tools/list", "tools", described, lambda found: found.tools)
